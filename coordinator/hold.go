package coordinator

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"time"
)

// Hold is one caller's time inside a lock, from the grant to Unlock. It may be
// passed between goroutines; its methods may be called at the same time.
type Hold struct {
	// Written before Lock returns the hold.
	actor  *actor
	parent context.Context // Lock's
	token  uint64

	// Guarded by actor.mu.
	claim    *claim // nil once it is unlocked
	number   int    // of the handle in its claim
	released bool
	more     *holdExtras
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
// it.
func (h *Hold) Token() uint64 { return h.token }

// Count returns how many times the owner is inside: 1, or more after re-entry;
// 0 once the hold is over.
func (h *Hold) Count() int {
	if h == nil {
		return 0
	}
	a := h.actor
	a.mu.Lock()
	defer a.mu.Unlock()
	if h.released || h.claim.state != granted {
		return 0
	}
	return int(h.claim.handles)
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
	a.mu.Lock()
	if h.released {
		a.mu.Unlock()
		return ErrNotHeld
	}
	now := a.c.clock.now()
	c := h.claim
	if c.state == granted && (now >= a.cur.until || now >= a.holdsDue) {
		a.elapse(now) // so that it does not matter that a timer is late
	}
	if c.state != granted {
		err, x := c.err, h.more
		a.leave(now)
		if x != nil {
			x.end()
		}
		return err
	}
	h.released, h.claim = true, nil
	c.drop(h.number)
	x := h.more
	if x != nil && x.watched {
		x.cleanup.Stop()
	}
	if c.handles--; c.handles > 0 {
		a.mu.Unlock()
	} else {
		a.release(c, now)
	}
	if x != nil {
		x.end()
	}
	return nil
}

// end ends what a hold gave out that is over. Nothing of it changes any more.
// A context that has ended already keeps its cause.
func (x *holdExtras) end() {
	if x.cancel != nil {
		x.cancel(ErrReleased)
	}
	for _, stop := range x.stops {
		stop()
	}
}

// Context returns a context for the work under the lock. It has the values and
// the cancellation of Lock's context, and ends, with the reason as its
// [context.Cause], the moment the hold is no longer safe: [ErrLeaseLost],
// [ErrHoldExpired], [ErrClosed], or [ErrReleased] after Unlock. Locking the key
// again with it enters at once. It is made on the first call.
func (h *Hold) Context() context.Context {
	a := h.actor
	a.mu.Lock()
	if x := h.more; x != nil && x.ctx != nil {
		defer a.mu.Unlock()
		return x.ctx
	}
	var owner *owner
	if h.claim != nil {
		owner = h.claim.owner
		h.claim.kept = true
	}
	a.mu.Unlock()

	// The parent may be of the user's making, so it is not met under the mutex.
	inner, cancel := context.WithCancelCause(h.parent)
	ctx := &holdContext{Context: inner, owner: owner}

	a.mu.Lock()
	x := h.extras()
	if x.ctx != nil {
		a.mu.Unlock()
		cancel(ErrReleased) // another call was first
		return x.ctx
	}
	x.ctx, x.cancel = ctx, cancel
	over := h.endedLocked()
	if over == nil {
		m := h.claim.extras()
		m.contexts = append(m.contexts, heldContext{h.number, cancel})
	}
	a.mu.Unlock()
	if over != nil {
		if errors.Is(over, ErrNotHeld) {
			over = ErrReleased
		}
		cancel(over)
	}
	return ctx
}

// holdContext makes its owner known to further locks.
type holdContext struct {
	context.Context
	owner *owner
}

// Value returns the owner, or what Lock's context has.
func (c *holdContext) Value(key any) any {
	if key == (ownerKey{}) && c.owner != nil {
		return c.owner
	}
	return c.Context.Value(key)
}

// String names the context for debugging.
func (c *holdContext) String() string { return fmt.Sprintf("%v.WithHold", c.Context) }

// Err returns nil as long as the hold is safe, and then what Unlock would say:
// it is the cause of Context's end, without a context, but ErrNotHeld after
// Unlock.
func (h *Hold) Err() error {
	if h == nil {
		return ErrNotHeld
	}
	a := h.actor
	a.mu.Lock()
	defer a.mu.Unlock()
	return h.endedLocked()
}

// Valid says whether the hold is safe at this moment.
func (h *Hold) Valid() bool { return h.Err() == nil }

// endedLocked returns why the hold is over, or nil. A timer that is late makes
// no difference.
func (h *Hold) endedLocked() error {
	if h.released {
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
	if err := h.endedLocked(); err != nil {
		return err
	}
	if x := h.claim.more; x != nil {
		for i := range x.limits {
			if l := &x.limits[i]; l.handle == h.number {
				l.at = now.add(d)
				a.holdsDue = min(a.holdsDue, h.claim.due())
				return nil
			}
		}
	}
	return ErrNoMaxHold
}

// endWith ends the hold when ctx ends.
func (h *Hold) endWith(ctx context.Context) {
	if ctx.Done() == nil {
		return
	}
	a := h.actor
	a.mu.Lock()
	c := h.claim // not h: it shall be seen when it is dropped unlocked
	c.kept = true
	a.mu.Unlock()
	stop := context.AfterFunc(ctx, func() {
		err := fmt.Errorf("%w: %w", ErrHoldExpired, context.Cause(ctx))
		now := a.enter()
		if c.state == granted {
			a.end(c, err, now)
		}
		a.leave(now)
	})
	a.mu.Lock()
	x := h.extras()
	x.stops = append(x.stops, stop)
	done := h.released
	a.mu.Unlock()
	if done {
		stop()
	}
}

// joinLoss adds to the error of the work that it was not protected to its end.
func joinLoss(err, lost error) error {
	if err == nil {
		return lost
	}
	return errors.Join(err, lost)
}
