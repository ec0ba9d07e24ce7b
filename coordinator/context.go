package coordinator

import (
	"context"
	"errors"
	"fmt"

	"github.com/go-leasehold/leasehold/telemetry"
)

// Context returns a context for the work under the lock. It has the values and
// the cancellation of Lock's context, and ends, with the reason as its
// [context.Cause], the moment the hold is no longer safe: [ErrLeaseLost],
// [ErrHoldExpired], [ErrClosed], or [ErrReleased] after Unlock. Locking the key
// again with it enters at once. It is made on the first call.
func (h *Hold) Context() context.Context {
	a := h.actor
	h.lock()
	if x := h.more; x != nil && x.ctx != nil {
		defer a.mu.Unlock()
		return x.ctx
	}
	var owner *owner
	var trace *telemetry.Call
	if c := h.claim; c != nil {
		owner = c.owner
		if h.traced {
			trace = c.call()
		}
		c.kept = true
		a.expose(c)
	}
	a.mu.Unlock()

	// The parent may be of the user's making, so it is not met under the mutex.
	parent := h.parent
	if trace != nil {
		parent = trace.Context()
	}
	inner, cancel := context.WithCancelCause(parent)
	ctx := &holdContext{Context: inner, owner: owner, hold: h}

	a.mu.Lock()
	x := h.extras()
	if x.ctx != nil {
		a.mu.Unlock()
		cancel(ErrReleased) // another call was first
		return x.ctx
	}
	x.ctx = ctx
	if over := h.endedLocked(); over != nil {
		a.mu.Unlock() // an Unlock may be reading what there is to cancel: it is left to us
		if errors.Is(over, ErrNotHeld) {
			over = ErrReleased
		}
		cancel(over)
		return ctx
	}
	x.cancel = cancel
	m := h.claim.extras()
	m.contexts = append(m.contexts, heldContext{h.number, cancel})
	a.mu.Unlock()
	return ctx
}

// holdContext makes its owner known to further locks, and its hold to the work.
type holdContext struct {
	context.Context
	owner *owner
	hold  *Hold
}

type holdKey struct{}

// HoldFrom returns the hold whose [Hold.Context] ctx is or was made from, the
// innermost of several; nil if there is none. The work inside [Mutex.Do] finds
// its fencing token with it.
func HoldFrom(ctx context.Context) *Hold {
	h, _ := ctx.Value(holdKey{}).(*Hold)
	return h
}

// Value returns the owner, the hold, or what Lock's context has.
func (c *holdContext) Value(key any) any {
	switch key {
	case ownerKey{}:
		if c.owner != nil {
			return c.owner
		}
	case holdKey{}:
		return c.hold
	}
	return c.Context.Value(key)
}

// String names the context for debugging.
func (c *holdContext) String() string { return fmt.Sprintf("%v.WithHold", c.Context) }

// readContext is the context of a hold that is passing. It becomes the hold's own
// when something is asked of it that needs one; short reads never ask.
type readContext struct {
	context.Context
	hold *Hold
}

// Done returns the channel of the hold's own context.
func (c *readContext) Done() <-chan struct{} { return c.hold.Context().Done() }

// Err returns nil as long as the hold is safe and its parent goes on.
func (c *readContext) Err() error {
	if c.hold.short() {
		return c.Context.Err()
	}
	return c.hold.Context().Err()
}

// Value returns the hold, its owner, or what Read's context has.
func (c *readContext) Value(key any) any {
	if key == (holdKey{}) {
		return c.hold
	}
	if c.hold.short() && key != (ownerKey{}) {
		return c.Context.Value(key)
	}
	return c.hold.Context().Value(key)
}

// String names the context for debugging.
func (c *readContext) String() string { return fmt.Sprintf("%v.WithHold", c.Context) }

// endWith ends the hold when ctx ends.
func (h *Hold) endWith(ctx context.Context) {
	if ctx.Done() == nil {
		return
	}
	a := h.actor
	h.lock()
	c := h.claim // not h: it shall be seen when it is dropped unlocked
	c.kept = true
	a.mu.Unlock()
	stop := context.AfterFunc(ctx, func() { a.expire(c, ctx) })
	a.mu.Lock()
	x := h.extras()
	x.stops = append(x.stops, stop)
	done := h.released
	a.mu.Unlock()
	if done {
		stop()
	}
}

// expire ends a hold because a context has.
func (a *actor) expire(c *claim, ctx context.Context) {
	err := fmt.Errorf("%w: %w", ErrHoldExpired, context.Cause(ctx))
	now := a.enter()
	if c.state == granted {
		a.end(c, err, now)
	}
	a.leave(now)
}
