package coordinator

import (
	"sync"
	"sync/atomic"
	"time"

	"github.com/go-leasehold/leasehold/lease"
	"github.com/go-leasehold/leasehold/telemetry"
)

// actor is one key's part of the process: who holds it here, who waits here,
// and what the process has of it in the store.
//
// It handles one message at a time, under its own mutex. A handler changes
// state, wakes claims, and asks for effects; it never waits and does no I/O.
// The store's answers and the timer come back as further messages. Every
// handler begins with enter and ends with leave:
//
//	now := a.enter()   locks, and lets happen what the clock says has happened
//	...                changes state
//	a.leave(now)       grants what can be granted, chooses the next command,
//	                   arms the timer, unlocks, and carries the effects out
//
// The paths that most calls take, Lock of a lease that is here and Unlock
// without a turn of the lease, do the same by hand and skip what can't apply.
type actor struct {
	c   *Coordinator
	key string

	mu sync.Mutex // guards all below, and the claims and handles of the key

	gone    bool       // has left the table: look the key up again
	kind    lease.Kind // of the claims here; 0 before the first
	closing bool       // Close was called: no new claims
	traced  bool       // told.before is known
	waiting claimList  // first come, first served
	fair    int        // how many in waiting ask for Fair
	readers int        // how many in waiting want to read
	came    uint64     // how many claims have ever waited
	tries   int        // how many in waiting are TryLocks
	holds   claimList
	// wrote is when the last claim was granted to write; often, that it was not
	// long after the one before. readFirst says that a writer's turn has just
	// ended with readers left waiting here: they are asked for first.
	wrote     instant
	often     bool
	readFirst bool
	// holdsDue is when the first of holds is to be looked at, or before.
	holdsDue instant
	cur      tenure

	// owed are tickets that are retired and still to be released.
	owed []debt
	// paid is the last ticket whose release was answered, and of which no copy
	// of a command can still be on its way: nothing of it is left anywhere.
	paid lease.Ticket
	// flight is the one command that was sent and not yet answered.
	flight *flight

	// When a command failed: since when (0: the last one did not), how often in
	// a row, with what, and when to try again.
	failing instant
	fails   int
	failure error
	retryAt instant
	heard   instant // when the store last answered well

	elsewhere knowledge
	stats     Stats
	past      bool   // stats are counted among the coordinator's past ones, whose mutex guards this
	collected uint64 // the last collection of metrics that has counted stats

	gate   *gate             // the short way of readers; nil before it was ever used
	owners map[*owner]*claim // of the shared among holds: those whose owner a call may have
	spot   *spot             // where handles find it without a look into the table
	spare  *claim            // claims to use again, linked by next
	spares int

	timer *time.Timer
	armed instant // when timer fires; never if it isn't running
	// armedLost is clock.lost when it was armed: a timer does not count the time
	// for which the machine was suspended, and fires as much later.
	armedLost int64

	// ending is how many goroutines are ending contexts of holds that are over:
	// until they are done the key counts as held, and no command is chosen.
	ending int

	out effects

	class atomic.Pointer[telemetry.Class] // nil: nobody has asked for it by a call
	told  told
}

// spot is what a handle remembers of where its key's actor is, and of its short ways. It
// outlives the actor, empty, and is all that a handle keeps alive.
type spot struct {
	actor  atomic.Pointer[actor]
	gate   atomic.Pointer[gate]
	denial atomic.Pointer[denial]
}

// debt is a retired ticket whose release is to be sent until it is answered, or
// until everything of it has expired by itself.
type debt struct {
	ticket lease.Ticket
	kind   lease.Kind
	until  instant
	resent bool // a late acquire of it may follow the release
	final  bool // its second release (rule 4)
	// What the release tells and clears away: see lease.Request.
	annotated bool
	trace     string
	turned    bool // it was tried as the other kind
}

// flight is a command on its way.
type flight struct {
	req   lease.Request
	sent  instant
	lost  int64 // clock.lost at that moment
	wants int   // tenure.wants at that moment
	again bool  // a release: a grant of its ticket turned up meanwhile (rule 4)
}

// ticket returns the ticket that the answer is about, but for a plain release.
func (f *flight) ticket() lease.Ticket {
	if f.req.Next != nil {
		return f.req.Next.Ticket
	}
	return f.req.Ticket
}

// checkHoldAfter is how long a hold or a wait lasts before its key is read with
// tracking (rule 11).
const checkHoldAfter = 100 * time.Millisecond

// askFor is how long TryLock waits for a holder to say whether it is busy.
const askFor = 50 * time.Millisecond

// hearsayFor is for how long a holder that was busy is asked itself by the next TryLock.
const hearsayFor = time.Second

func newActor(c *Coordinator, key string) *actor {
	a := &actor{c: c, key: key, closing: c.closing.Load(), spot: &spot{}, armed: never, holdsDue: never}
	a.spot.actor.Store(a)
	if !c.tel.Classifies() {
		a.class.Store(c.tel.Other())
	}
	return a
}

// enter begins a handler.
func (a *actor) enter() instant {
	a.mu.Lock()
	now := a.c.clock.now()
	a.elapse(now)
	return now
}

// leave ends a handler. Where holds are over whose work may go on, nobody else,
// here or elsewhere, has the key before their contexts have ended.
func (a *actor) leave(now instant) {
	if ended := a.out.ended; len(ended) > 0 {
		a.out.ended = nil
		a.ending++
		go a.endContexts(ended) // ends within maxCancel, and settles then
	}
	a.settle(now)
	a.arm(now)
	a.retire()
	a.unlock()
}

// retire takes an actor that has nothing left out of the table.
func (a *actor) retire() {
	if a.gone || a.cur.phase != free || a.waiting.n > 0 || a.holds.n > 0 || a.ending > 0 ||
		a.flight != nil || len(a.owed) > 0 || a.elsewhere.holder != "" {
		return
	}
	a.gone = true
	a.recordAll()
	a.spot.actor.Store(nil)
	a.spot.gate.Store(nil)
	if a.timer != nil {
		a.timer.Stop()
	}
	a.c.forget(a)
}

// holder returns who has the key, as far as it is known here.
func (a *actor) holder() string {
	switch {
	case a.cur.phase == held:
		return lease.Owner(a.c.id, a.cur.ticket)
	case a.cur.holder != "":
		return a.cur.holder
	}
	return a.elsewhere.holder
}
