package coordinator

import (
	"context"
	"errors"
	"runtime"
	"sync/atomic"
	"time"

	"github.com/go-leasehold/leasehold/lease"
)

// Hold is one caller's time inside a lock, from the grant to Unlock. It may be
// passed between goroutines; its methods may be called at the same time.
type Hold struct {
	// Written before Lock returns the hold.
	actor  *actor
	parent context.Context // Lock's
	token  uint64
	passed *passage // the gate that it came in by; nil if it has a claim from the beginning

	// Guarded by actor.mu.
	mode     lease.Mode
	released bool
	traced   bool   // its context has the span of the claim's hold; written before Lock returns
	number   int32  // of the handle in its claim
	claim    *claim // nil once it is unlocked, and while it is passing
	more     *holdExtras
}

// passage is what a hold has that passed a gate.
type passage struct {
	gate  *gate
	badge *badge // to leave it with; of who changes way
	way   atomic.Uint32
}

// passedHold is both, made at one go. Others are spared the room.
type passedHold struct {
	Hold
	passage
}

// How a hold is held. One that passed a gate becomes an ordinary one when
// something is asked of it that needs a claim, or when it is not safe any more.
const (
	passing  uint32 = iota // inside its gate; the actor does not know it
	ordinary               // it has, or had, a claim
	gone                   // unlocked while it was passing
)

// way says how it is held.
func (h *Hold) way() uint32 {
	if h.passed == nil {
		return ordinary
	}
	return h.passed.way.Load()
}

// settle makes an ordinary hold of one that is passing. It is called under the
// actor's mutex.
func (h *Hold) settle(now instant) {
	p := h.passed
	if p == nil || !p.way.CompareAndSwap(passing, ordinary) {
		return
	}
	a := h.actor
	c := a.newClaim(lease.Shared, &plain, &call{}, nil)
	c.begin(h)
	h.claim = c
	c.token, c.since, c.granted, c.path = h.token, now, now, byPassing
	if err := p.gate.lost(); err != nil {
		c.state, c.err, c.hold = over, err, nil
	} else {
		a.hold(c)
		a.holdsDue = min(a.holdsDue, a.due(c))
	}
	p.leave()
}

// leave gives the badge back, and says whether the actor is to be told.
func (p *passage) leave() bool {
	b := p.badge
	p.badge = nil // it is another's next
	return p.gate.leave(b)
}

// lock locks the actor's mutex, for a method that needs a claim.
func (h *Hold) lock() {
	a := h.actor
	a.mu.Lock()
	if h.way() == passing {
		now := a.c.clock.now()
		a.elapse(now)
		h.settle(now)
		a.leave(now)
		a.mu.Lock() // it stays an ordinary one
	}
}

// short says that it is passing, and safe: all that it can say of itself without
// the actor.
func (h *Hold) short() bool {
	p := h.passed
	return p != nil && p.way.Load() == passing && p.gate.safe()
}

// holdExtras is what few holds have, guarded as the hold is.
type holdExtras struct {
	ctx     context.Context
	cancel  context.CancelCauseFunc
	stops   []func() bool // take EndWith back
	cleanup runtime.Cleanup
	watched bool // cleanup is set
}

// extras returns more, made if need be.
func (h *Hold) extras() *holdExtras {
	if h.more == nil {
		h.more = &holdExtras{}
	}
	return h.more
}

// Key returns the key, without the prefix.
func (h *Hold) Key() string { return h.actor.key }

// Token returns the fencing token: greater than that of every hold of the key
// before it, in all processes, and never zero. Send it along with what you
// write, and have the receiver refuse a lower one than it has seen: that
// excludes a holder that was paused beyond its lease and does not know it yet
// (Kleppmann, "How to do distributed locking", 2016). Re-entry does not raise
// it. Read holds of a [ReadWrite] share tokens: two of one process with the same
// token had no write between them, by anybody.
func (h *Hold) Token() uint64 { return h.token }

// Count returns how many times the owner is inside: 1, or more after re-entry;
// 0 once the hold is over.
func (h *Hold) Count() int {
	if h == nil {
		return 0
	}
	writes, reads := h.Counts()
	return writes + reads
}

// Counts returns how many times the owner is inside to write and to read. Of a
// mutex all of [Hold.Count] are the first.
func (h *Hold) Counts() (writes, reads int) {
	if h == nil {
		return 0, 0
	}
	if h.short() {
		return 0, 1
	}
	h.lock()
	defer h.actor.mu.Unlock()
	if h.endedLocked() != nil {
		return 0, 0
	}
	c := h.claim
	return int(c.writes), int(c.handles - c.writes)
}

// Unlock ends the hold. It never waits for Redis. The errors tell what the
// process knows:
//
//   - nil: the hold was safe until now.
//   - [ErrNotHeld]: it was unlocked before, or is nil.
//   - [ErrLeaseLost], [ErrHoldExpired], [ErrClosed]: it had ended, and somebody
//     else may have been inside since; its context said so. Unlocking it again
//     says the same again.
func (h *Hold) Unlock() error {
	if h == nil {
		return ErrNotHeld
	}
	a := h.actor
	if p := h.passed; p != nil && h.short() && p.way.CompareAndSwap(passing, gone) {
		if p.leave() {
			a.tick() // somebody waits for the last one to leave
		}
		return nil
	}
	a.mu.Lock()
	now, elapsed := a.c.clock.now(), false
	if h.way() == passing {
		a.elapse(now) // it is not safe any more, and the actor may not know yet
		h.settle(now)
		elapsed = true
	}
	if h.unlocked() { // by another call, just now
		a.leave(now)
		return ErrNotHeld
	}
	c := h.claim
	if c.state == granted && (now >= a.cur.until || now >= a.holdsDue) {
		a.elapse(now) // so that it does not matter that a timer is late
		elapsed = true
	}
	if c.state != granted {
		err, x := c.err, h.more
		a.leave(now)
		if x != nil {
			x.end(err) // whoever found it over may be about to say so
		}
		return err
	}
	h.over(c)
	c.drop(h.number)
	x := h.more
	if x != nil && x.watched {
		x.cleanup.Stop()
	}
	c.handles--
	if h.mode == lease.Exclusive {
		c.writes--
	}
	switch {
	case c.handles == 0:
		a.release(c, now, elapsed)
	case c.writes == 0 && c.mode == lease.Exclusive:
		a.soften(c)
		a.leave(now)
	case a.out.any():
		a.leave(now)
	default:
		a.mu.Unlock()
	}
	if x != nil {
		x.end(ErrReleased)
	}
	return nil
}

// over takes a handle from its claim, which may go on with others.
func (h *Hold) over(c *claim) {
	h.released, h.claim = true, nil
	if c.hold == h {
		c.hold = nil
	}
}

// end ends what a hold gave out that is over. Nothing of it changes any more.
// A context that has ended already keeps its cause.
func (x *holdExtras) end(cause error) {
	if x.cancel != nil {
		x.cancel(cause)
	}
	for _, stop := range x.stops {
		stop()
	}
}

// Err returns nil as long as the hold is safe, and then what Unlock would say:
// it is the cause of Context's end, without a context, but ErrNotHeld after
// Unlock.
func (h *Hold) Err() error {
	if h == nil {
		return ErrNotHeld
	}
	if h.short() {
		return nil
	}
	h.lock()
	defer h.actor.mu.Unlock()
	return h.endedLocked()
}

// unlocked says that Unlock was called, and content.
func (h *Hold) unlocked() bool { return h.released || h.way() == gone }

// Valid says whether the hold is safe at this moment.
func (h *Hold) Valid() bool { return h.Err() == nil }

// endedLocked returns why the hold is over, or nil. A timer that is late makes
// no difference.
func (h *Hold) endedLocked() error {
	if h.unlocked() {
		return ErrNotHeld
	}
	a, c := h.actor, h.claim
	if c.state != granted {
		return c.err
	}
	now := a.c.clock.now()
	if now >= a.cur.until {
		return errNotRenewed
	}
	if now >= c.expires() {
		return ErrHoldExpired
	}
	return nil
}

// Extend puts the end that [MaxHold] sets off to d from now: progress reported
// by the work. The error is [ErrNoMaxHold] where there is none, or what Unlock
// would say where the hold is over.
func (h *Hold) Extend(d time.Duration) error {
	if h == nil {
		return ErrNotHeld
	}
	if d <= 0 {
		return invalid("Extend(%v) is not positive", d)
	}
	a := h.actor
	now := a.enter()
	defer a.leave(now)
	h.settle(now)
	if err := h.endedLocked(); err != nil {
		return err
	}
	if x := h.claim.more; x != nil {
		for i := range x.limits {
			if l := &x.limits[i]; l.handle == h.number {
				l.at = now.add(d)
				a.holdsDue = min(a.holdsDue, a.due(h.claim))
				return nil
			}
		}
	}
	return ErrNoMaxHold
}

// joinLoss adds to the error of the work that it was not protected to its end.
func joinLoss(err, lost error) error {
	if err == nil {
		return lost
	}
	return errors.Join(err, lost)
}
