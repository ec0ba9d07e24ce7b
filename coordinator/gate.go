package coordinator

import (
	"sync/atomic"
	"time"

	"github.com/go-leasehold/leasehold/lease"
)

// gate is the short way into a key for readers: as long as it is open, a read
// hold costs neither the actor's mutex nor any other memory that cores pass to
// and fro. The actor opens it when reads follow each other under a lease that
// nobody else wants, and shuts it before anything that readers must not see:
// then each of them goes to the actor, and the last one inside tells it so. The
// idea is BRAVO's (Dice and Kogan, "BRAVO: Biased Locking for Reader-Writer
// Locks", 2019).
//
//	reader               actor
//	is counted in        shuts it
//	open? else back      is anybody inside?
//
// Of the two, at least one sees what the other has done. Leaving is the same
// the other way round: who leaves and finds the gate shut tells the actor.
type gate struct {
	actor   *actor
	clock   *clock
	stripes []stripe // who came in, and went out

	open  atomic.Bool
	until atomic.Int64          // the instant until which the lease is believed in
	shuts atomic.Int64          // the instant at which nobody is let in any more; no later than until
	token atomic.Uint64         // of all who pass
	cause atomic.Pointer[error] // why the lease was lost under those inside; then the gate is never used again

	// Guarded by actor.mu.
	empty   bool    // it is shut, and nobody is inside
	opened  instant // when it was opened, and no other reader inside
	checked bool    // has been looked at since, after checkHoldAfter
	shutAt  instant // when it was shut with readers inside; 0: it was not since
	alarmed bool    // an alarm was raised for those
	seen    int64   // passed at the last look
	renewed int64   // passed at the last renewal of the lease
	counted int64   // of passed, in actor.stats
}

// pass lets a reader in, if the gate is open and the lease good. One that is sent
// back has to go to the actor, which may have taken it for a reader inside, and
// wait for the last of them.
func (g *gate) pass() (b *badge, sentBack bool) {
	if !g.open.Load() {
		return nil, false
	}
	b = g.enter()
	if g.open.Load() && g.clock.now() < instant(g.shuts.Load()) {
		return b, false
	}
	g.goBack(b)
	return nil, true
}

// leave lets a reader out, and says whether the actor is to be told.
func (g *gate) leave(b *badge) bool {
	g.goOut(b)
	return !g.open.Load()
}

// safe says that the lease is good for those inside.
func (g *gate) safe() bool {
	return g.clock.now() < instant(g.until.Load()) && g.cause.Load() == nil
}

// lost returns why the readers inside are not safe any more, or nil.
func (g *gate) lost() error {
	if p := g.cause.Load(); p != nil {
		return *p
	}
	return nil
}

// minGateRetention is the shortest retention with which the gate is used. It is
// how often the actor looks whether anybody still comes; and where nothing is
// retained, each reader must tell the actor that it leaves anyway.
const minGateRetention = time.Millisecond

// reading says that readers are inside, or can be without the actor's knowing.
func (a *actor) reading() bool { return a.gate != nil && !a.gate.empty }

// inUse says that somebody here holds the key, or may.
func (a *actor) inUse() bool { return a.holds.n > 0 || a.ending > 0 || a.reading() }

// mayPass says that readers need not ask: the lease is good, and nobody waits, or
// only others that have to wait for the end of this process's turn.
func (a *actor) mayPass(now instant) bool {
	t := &a.cur
	return t.phase == held && !t.lapsed && !a.closing && a.waiting.n == 0 && a.ending == 0 && now < t.until &&
		(!t.wanted || a.keepsTurn(now))
}

// keepsTurn says that an exclusive lease that others want is kept to the end of
// its turn, for more writers are likely to come here.
func (a *actor) keepsTurn(now instant) bool {
	return a.cur.mode == lease.Exclusive && a.often && !a.turnOver(now)
}

// shuts is when the gate is to let nobody in any more, if nothing else happens.
func (a *actor) shuts() instant {
	t := &a.cur
	if t.wanted {
		return min(t.until, t.wantFrom.add(a.c.conf.slice))
	}
	return t.until
}

// attend shuts the gate where it must not be open, and looks whether the last
// reader has left.
func (a *actor) attend(now instant) {
	switch {
	case !a.reading():
	case a.gate.open.Load() && a.mayPass(now):
		a.gate.shuts.Store(int64(a.shuts()))
	default:
		a.shut(now)
	}
}

// shut lets no reader in any more.
func (a *actor) shut(now instant) {
	g := a.gate
	if g == nil || g.empty {
		return
	}
	g.open.Store(false)
	if !g.deserted() {
		if g.shutAt == 0 {
			g.shutAt = now
		}
		return // the last one out will tell
	}
	g.empty = true
	a.countPassed()
	if a.holds.n == 0 {
		a.cur.idleFrom = now
	}
}

// closeReads is how close reads follow each other where a gate is worth its
// memory, which is a cache line for each core.
const closeReads = time.Millisecond

// admit opens the gate where it can be: at the second of two reads that came
// close upon each other.
func (a *actor) admit(now instant) {
	t := &a.cur
	if t.reads < 2 || !a.mayPass(now) || a.c.conf.debug ||
		a.holds.n > 0 && a.holds.first.mode == lease.Exclusive || a.retention() < minGateRetention {
		return
	}
	g := a.gate
	if g == nil {
		g = &gate{actor: a, clock: a.c.clock, stripes: newStripes(), empty: true}
		a.gate = g
		a.spot.gate.Store(g)
	}
	if g.open.Load() {
		return
	}
	if g.empty {
		if !t.deals(lease.Shared) {
			return
		}
		g.token.Store(t.tokenFor(lease.Shared))
		g.opened, g.checked, g.empty = now, false, false
	}
	g.shutAt, g.alarmed = 0, false
	g.seen = g.passed()
	g.until.Store(int64(t.until))
	g.shuts.Store(int64(a.shuts()))
	t.idleFrom = now
	g.open.Store(true)
}

// gateAlarmAt is when an alarm is raised for the readers inside: they are in the way.
func (a *actor) gateAlarmAt() instant {
	if g := a.gate; a.c.holdAlarm > 0 && a.reading() && g.shutAt != 0 && !g.alarmed {
		return g.shutAt.add(a.c.holdAlarm)
	}
	return never
}

// idle says that nobody here has the key, nor may have it without the actor's
// knowing. Where readers pass without telling, it looks once in a retention
// whether any did.
func (a *actor) idle(now instant) bool {
	g, t := a.gate, &a.cur
	switch {
	case a.holds.n > 0 || a.ending > 0:
		return false
	case g == nil || g.empty:
		return true
	case !g.open.Load() || now < a.nextLookInside():
		return false
	}
	if n := g.passed(); n != g.seen {
		g.seen, t.idleFrom = n, now
		return false
	}
	from := t.idleFrom
	a.shut(now)
	if g.empty {
		t.idleFrom = from
		return true
	}
	g.open.Store(true) // a long read; nothing that forbids it has happened
	t.idleFrom = now
	return false
}

// nextLookInside is when to look whether readers still come: once in a retention,
// or several times in a turn for whose end others wait.
func (a *actor) nextLookInside() instant {
	every := a.retention()
	if a.cur.wanted {
		every = min(every, a.c.conf.slice/8)
	}
	return a.cur.idleFrom.add(max(every, minGateRetention/2))
}

// extend counts the lease from the sending of a command that granted or renewed
// it.
func (a *actor) extend(sent instant) {
	a.cur.extend(sent)
	if a.gate != nil {
		a.gate.until.Store(int64(a.cur.until))
		a.gate.shuts.Store(int64(a.shuts()))
	}
}

// dropGate gives the gate up, if nobody is inside, where too few have passed since
// the last renewal of the lease to be worth its memory.
func (a *actor) dropGate(now instant) {
	g, t := a.gate, &a.cur
	if g == nil {
		return
	}
	n := g.passed()
	few := n-g.renewed < int64(t.ttl/3/(10*closeReads))
	if g.renewed = n; !few {
		return
	}
	from := t.idleFrom
	a.shut(now)
	if g.empty {
		t.idleFrom = from // as it was before the look
		a.gate = nil
		a.spot.gate.Store(nil)
		t.reads = 0
	}
}

// abandonGate ends the read holds inside: they answer with cause from now on.
// What is left of the gate is theirs.
func (a *actor) abandonGate(cause error) {
	if !a.reading() {
		return
	}
	g := a.gate
	g.cause.Store(&cause)
	g.open.Store(false)
	a.countPassed()
	a.gate = nil
	a.spot.gate.Store(nil)
}

// countPassed brings the actor's counts up to date with the gate's, which has counted
// one too many while it sends a reader back.
func (a *actor) countPassed() {
	n := a.gate.passed()
	if n <= a.gate.counted {
		return
	}
	a.stats.Grants += uint64(n - a.gate.counted)
	a.stats.Passed += uint64(n - a.gate.counted)
	a.gate.counted = n
}

// forgotten notes that a hold inside was garbage-collected. See actor.abandoned.
func (a *actor) forgotten(g *gate) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if g.lost() == nil {
		a.noteAbandoned(g.token.Load(), "")
	}
}
