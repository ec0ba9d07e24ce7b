package coordinator

import (
	"context"
	"sync"
	"sync/atomic"
	"time"

	"github.com/go-leasehold/leasehold/lease"
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

	// ending is how many handlers are ending contexts of holds that are over, with
	// the mutex free: until they are done it counts as held.
	ending int

	out effects
}

// spot is what a handle remembers of where its key's actor is, and its gate. It
// outlives the actor, empty, and is all that a handle keeps alive.
type spot struct {
	actor atomic.Pointer[actor]
	gate  atomic.Pointer[gate]
}

// debt is a retired ticket whose release is to be sent until it is answered, or
// until everything of it has expired by itself.
type debt struct {
	ticket lease.Ticket
	kind   lease.Kind
	until  instant
	resent bool // a late acquire of it may follow the release
	final  bool // its second release (rule 4)
	turned bool // it was tried as the other kind
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

// knowledge is what client-side caching told about another holder, for Cached.
type knowledge struct {
	holder string
	until  instant // the holder's TTL, if it isn't renewed
	epoch  uint64  // Coordinator.heard when it was read: void when notices were lost since
}

// effects is what a handler wants done once the mutex is free.
type effects struct {
	send  *flight
	busy  []lease.Request
	ended []ending
}

// ending ends one context with its cause.
type ending struct {
	cancel context.CancelCauseFunc
	cause  error
}

// checkHoldAfter is how long a hold or a wait lasts before its key is read with
// tracking (rule 11).
const checkHoldAfter = 100 * time.Millisecond

// askFor is how long TryLock waits for a holder to say whether it is busy.
const askFor = 50 * time.Millisecond

func newActor(c *Coordinator, key string) *actor {
	a := &actor{c: c, key: key, closing: c.closing.Load(), spot: &spot{}, armed: never, holdsDue: never}
	a.spot.actor.Store(a)
	return a
}

// enter begins a handler.
func (a *actor) enter() instant {
	a.mu.Lock()
	now := a.c.clock.now()
	a.elapse(now)
	return now
}

// leave ends a handler. Contexts of holds that are over end first: before
// anybody else, here or elsewhere, has the key.
func (a *actor) leave(now instant) {
	for len(a.out.ended) > 0 {
		now = a.endContexts()
	}
	a.settle(now)
	a.arm(now)
	a.retire()
	a.unlock()
}

// unlock frees the mutex and carries the effects out.
func (a *actor) unlock() {
	out := a.out
	a.out = effects{}
	a.mu.Unlock()
	if out.send != nil {
		a.send(out.send)
	}
	for _, r := range out.busy {
		a.c.store.Send(r, func(lease.Reply, error) {}) // a hint: nothing depends on it
	}
}

// maxCancel bounds how long the key waits for user code that the end of a
// context may run: a parent of the user's making.
const maxCancel = 10 * time.Millisecond

// endContexts ends the contexts of holds that are over, with the mutex free, and
// takes it again. Meanwhile nothing is granted and no command chosen.
func (a *actor) endContexts() instant {
	ended := a.out.ended
	a.out.ended = nil
	a.ending++
	a.mu.Unlock()

	done := make(chan struct{}, len(ended))
	for _, e := range ended {
		go func() { // ends with the context, unless the user's code does not
			e.cancel(e.cause)
			done <- struct{}{}
		}()
	}
	timer := time.NewTimer(maxCancel)
	defer timer.Stop()
	for range ended {
		select {
		case <-done:
			continue
		case <-timer.C:
		}
		break
	}

	a.mu.Lock()
	a.ending--
	now := a.c.clock.now()
	a.elapse(now)
	return now
}

func (a *actor) send(f *flight) {
	a.c.store.Send(f.req, func(r lease.Reply, err error) { a.onReply(f, r, err) })
}

// retire takes an actor that has nothing left out of the table.
func (a *actor) retire() {
	if a.gone || a.cur.phase != free || a.waiting.n > 0 || a.holds.n > 0 ||
		a.flight != nil || len(a.owed) > 0 || a.elsewhere.holder != "" {
		return
	}
	a.gone = true
	a.spot.actor.Store(nil)
	a.spot.gate.Store(nil)
	if a.timer != nil {
		a.timer.Stop()
	}
	a.c.forget(a)
}

// hold makes a claim one of the holds.
func (a *actor) hold(c *claim) {
	c.state = granted
	a.holds.push(c)
	if c.owner.fixed {
		a.expose(c)
	}
}

// unhold takes a claim out of the holds.
func (a *actor) unhold(c *claim, now instant) {
	a.holds.remove(c)
	if c.listed {
		a.hide(c)
	}
	if a.holds.n == 0 {
		a.cur.idleFrom = now
	}
}

// holders is about how many holds there are.
func (a *actor) holders() int {
	n := a.holds.n
	if a.reading() {
		n += a.gate.readers()
	}
	return n
}

// grant makes a claim a holder.
func (a *actor) grant(c *claim, now instant) {
	c.token = a.cur.tokenFor(c.mode)
	c.hold.token = c.token
	c.granted = now
	a.hold(c)
	if c.conf.maxHold > 0 {
		c.limit(0, now.add(c.conf.maxHold))
	}
	a.holdsDue = min(a.holdsDue, c.due())
	t := &a.cur
	t.served++
	a.stats.Grants++
	if c.mode == lease.Shared {
		if a.gate == nil && now >= t.readAt.add(closeReads) {
			t.reads = 0
		}
		t.reads, t.readAt, t.readersTurn = t.reads+1, now, false
		return
	}
	t.reads, t.readersTurn = 0, true
	a.often = a.wrote != 0 && !c.conf.fair && now < a.wrote.add(oftenSlices*a.c.conf.slice)
	a.wrote = now
	if t.wanted {
		t.spent++
	}
}

// oftenSlices is how many slices may lie between two writes of a process that
// writes often. Such a process keeps its turn, its readers inside, for the writes
// to come; at most that part of the time others wait for no more than that.
const oftenSlices = 20

// admissible says whether the lease here can serve one more local grant at all:
// it is believed in, and its turn is not over.
func (a *actor) admissible(now instant) bool {
	t := &a.cur
	return t.phase == held && now < t.until && !t.lapsed &&
		(!t.wanted || !a.turnOver(now))
}

// turnOver says that the lease has to go to another process before it serves
// anybody else here. Every lease serves one (rule 7).
func (a *actor) turnOver(now instant) bool {
	t := &a.cur
	if !t.wanted || t.served == 0 {
		return false
	}
	if t.mode == lease.Shared {
		// The readers that came before whoever wants it go first.
		return a.waiting.first != nil && a.waiting.first.nth > t.wantNth
	}
	budget := a.c.conf.budget
	if a.fair > 0 {
		budget = 1
	}
	return t.spent >= budget || now >= t.wantFrom.add(a.c.conf.slice)
}

// fits says whether a claim may hold beside the present holders, under the
// lease that is here.
func (a *actor) fits(c *claim) bool {
	if a.ending > 0 {
		return false
	}
	if c.mode == lease.Shared {
		return a.holds.n == 0 || a.holds.first.mode == lease.Shared
	}
	return a.cur.mode == lease.Exclusive && !a.inUse()
}

// serve grants to waiting claims, in their order, as many as the lease allows.
func (a *actor) serve(now instant) {
	if a.readers > 0 && a.cur.readersTurn {
		a.serveReaders(now)
	}
	for c := a.waiting.first; c != nil && a.admissible(now) && a.fits(c) && a.cur.deals(c.mode); c = a.waiting.first {
		a.dequeue(c)
		a.grant(c, now)
		c.ready <- struct{}{}
	}
	if a.tries > 0 && a.inUse() {
		a.refuseTries(nil) // somebody here has it
	}
}

// serveReaders lets in all readers that wait, whoever stands before them: a writer
// has left, and those behind others are to wait for one only.
func (a *actor) serveReaders(now instant) {
	for c := a.waiting.first; c != nil && a.admissible(now) && a.cur.deals(lease.Shared); {
		next := c.next
		if c.mode == lease.Shared {
			if !a.fits(c) {
				return
			}
			a.dequeue(c)
			a.grant(c, now)
			c.ready <- struct{}{}
		}
		c = next
	}
}

func (a *actor) dequeue(c *claim) {
	a.waiting.remove(c)
	if c.mode == lease.Shared {
		a.readers--
	}
	if c.conf.fair {
		a.fair--
	}
	if c.try {
		a.tries--
	}
}

// refuse ends a waiting claim with an error.
func (a *actor) refuse(c *claim, err error) {
	a.dequeue(c)
	a.turnAway(c, err)
}

// turnAway tells a claim that it will not hold.
func (a *actor) turnAway(c *claim, err error) {
	c.state, c.err, c.hold = over, err, nil
	x := c.extras()
	x.refused, x.holder = err, a.holder()
	c.ready <- struct{}{}
}

// refuseTries ends the TryLocks among the waiting claims: with ErrNotAcquired,
// or with the failure of the store.
func (a *actor) refuseTries(failure error) {
	if a.tries == 0 {
		return
	}
	for c := a.waiting.first; c != nil; {
		next := c.next
		if c.try {
			if failure != nil {
				a.refuse(c, failure)
			} else {
				a.refuse(c, ErrNotAcquired)
			}
		}
		c = next
	}
}

func (a *actor) refuseAll(err error) {
	for a.waiting.first != nil {
		a.refuse(a.waiting.first, err)
	}
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

// end ends a hold: its handles answer with err from now on, their contexts end
// with it.
func (a *actor) end(c *claim, err error, now instant) {
	a.cur.dealt = 0 // its work may go on: who comes next gets a token of its own
	c.state, c.err, c.hold = over, err, nil
	a.unhold(c, now)
	if x := c.more; x != nil {
		for _, held := range x.contexts {
			a.out.ended = append(a.out.ended, ending{held.cancel, err})
		}
		x.contexts = nil
	}
}

// endAll ends every hold of the key.
func (a *actor) endAll(err error, now instant) {
	a.abandonGate(err)
	for a.holds.first != nil {
		a.end(a.holds.first, err, now)
	}
}
