package coordinator

import (
	"context"
	"runtime"
	"slices"

	"github.com/go-leasehold/leasehold/lease"
	"github.com/go-leasehold/leasehold/telemetry"
)

// claimState is where a claim is in its life:
//
//	waiting → granted → over
//	        ↘ over (refused, or the caller went away)
type claimState uint8

const (
	waiting claimState = iota
	granted
	over
)

// claim is one caller's part in a key, from its call to the end of its hold.
// While it waits it is an element of actor.waiting, while it holds of
// actor.holds. Re-entry adds handles to one claim. Every call has one, so that
// it is small (what few calls have is in more), and used again after a plain
// Unlock.
type claim struct {
	// Set when the call is met, and not changed after.
	conf  *mutexConfig
	owner *owner
	try   bool // TryLock: is answered, never kept waiting behind a holder

	// Guarded by actor.mu.
	state      claimState
	mode       lease.Mode // Exclusive becomes Shared with a downgrade
	checked    bool       // has been looked at after checkHoldAfter
	alarmed    bool       // an alarm was raised for its hold
	timed      bool       // its durations are recorded
	turned     bool       // away: it does not hold. Written before ready only, so that the caller may read it after
	path       path       // by which it was granted
	kept       bool       // others than its handle may point at it: it is not used again
	listed     bool       // is in actor.owners
	exposed    bool       // calls may come with its owner
	handles    int32      // not yet unlocked: the re-entrancy depth
	writes     int32      // of these, exclusive: a hold whose last one goes becomes a shared one
	twin       *claim     // another shared hold of the same owner: actor.owners has the first
	next, prev *claim
	since      instant // of the call
	nth        uint64  // of all that ever waited for the key here
	granted    instant
	token      uint64
	ready      chan struct{} // is sent one value when the claim no longer waits; stays for the next use
	hold       *Hold         // the first handle; dropped once its clean-up is set
	err        error         // why it is over
	more       *claimExtras

	self owner // owner, unless one was fixed beforehand
}

// claimExtras is guarded as the claim is.
type claimExtras struct {
	place    []uintptr         // of the call, in debug mode
	refused  error             // why it never held; written once, before ready: readable after it
	holder   string            // who had the key then; like refused
	outcome  telemetry.Outcome // of a call that never held; like refused
	numbered int32             // handles made beside the first
	limits   []limit
	contexts []heldContext
	trace    *claimTrace // nil: it is not traced
}

// extras returns more, made if need be.
func (c *claim) extras() *claimExtras {
	if c.more == nil {
		c.more = &claimExtras{}
	}
	c.kept = true
	return c.more
}

// refusal returns why the claim never held, or nil.
func (c *claim) refusal() error {
	if c.more == nil {
		return nil
	}
	return c.more.refused
}

// limit is the MaxHold of one handle. Handles are told apart by their number
// in the claim, which keeps none of them alive.
type limit struct {
	handle int32
	at     instant
}

// heldContext is what ends a context that a handle gave out.
type heldContext struct {
	handle int32
	cancel context.CancelCauseFunc
}

// newClaim makes the claim of a call, or takes one that was used before. It is
// called under the actor's mutex.
func (a *actor) newClaim(mode lease.Mode, conf *mutexConfig, how *call, chain *owner) *claim {
	c := a.spare
	if c == nil {
		c = &claim{}
	} else {
		a.spare, c.next = c.next, nil
		a.spares--
	}
	c.mode, c.conf, c.try, c.timed, c.turned = mode, conf, how.try, how.timed, false
	if how.trace != nil {
		c.traceBy(how.trace)
	}
	if fixed := chain.fixedOwner(); fixed != nil {
		c.owner = fixed
	} else {
		c.self.outer = chain
		c.owner = &c.self
	}
	return c
}

// traceBy gives the claim a trace.
func (c *claim) traceBy(call *telemetry.Call) {
	x := &struct { // at one go
		claimExtras
		claimTrace
	}{claimTrace: claimTrace{call: call}}
	x.trace = &x.claimTrace
	c.more, c.kept = &x.claimExtras, true
}

// notePlace notes where the lock was called. The frames between are this one,
// actor.lock, handle.acquire and Lock, or what stands for it.
func (c *claim) notePlace() {
	x := c.extras()
	x.place = make([]uintptr, 8)
	x.place = x.place[:runtime.Callers(5, x.place)]
}

// maxSpares bounds the claims that an actor keeps to use again.
const maxSpares = 64

// reuse keeps a claim that is over for another call, if nothing points at it.
func (a *actor) reuse(c *claim) {
	if c.kept || a.spares >= maxSpares {
		return
	}
	// Not all of it is cleared: what newClaim, enqueue and grant set anew stays,
	// and what only a kept claim has was never set.
	c.state, c.checked, c.alarmed, c.exposed, c.err = waiting, false, false, false, nil
	c.next = a.spare
	a.spare = c
	a.spares++
}

// begin gives a claim its first handle.
func (c *claim) begin(h *Hold) {
	c.hold = h
	c.handles, c.writes = 1, 0
	if h.mode = c.mode; h.mode == lease.Exclusive {
		c.writes = 1
	}
}

// join gives a claim one more handle.
func (c *claim) join(h *Hold, mode lease.Mode) {
	x := c.extras()
	x.numbered++
	h.claim, h.token, h.mode, h.number = c, c.token, mode, x.numbered
	c.handles++
	if mode == lease.Exclusive {
		c.writes++
	}
}

// waits readies the claim for waiting.
func (c *claim) waits() {
	if c.ready == nil {
		c.ready = make(chan struct{}, 1)
	}
}

// limit sets when a handle's hold ends of itself.
func (c *claim) limit(handle int32, at instant) {
	x := c.extras()
	x.limits = append(x.limits, limit{handle, at})
}

// expires returns when the first MaxHold among the handles ends.
func (c *claim) expires() instant {
	t := never
	if c.more != nil {
		for _, l := range c.more.limits {
			t = min(t, l.at)
		}
	}
	return t
}

// inherit gives one handle's limit to another.
func (c *claim) inherit(from, to int32) {
	x := c.extras()
	for i := range x.limits {
		if x.limits[i].handle == from {
			x.limits[i].handle = to
		}
	}
	x.contexts = slices.DeleteFunc(x.contexts, func(h heldContext) bool { return h.handle == from })
}

// drop forgets what one handle has: its limit and its context.
func (c *claim) drop(handle int32) {
	x := c.more
	if x == nil {
		return
	}
	x.limits = slices.DeleteFunc(x.limits, func(l limit) bool { return l.handle == handle })
	x.contexts = slices.DeleteFunc(x.contexts, func(h heldContext) bool { return h.handle == handle })
}

// claimList is a queue of claims, linked through the claims themselves: a claim
// leaves from anywhere in it without a search.
type claimList struct {
	first, last *claim
	n           int
}

func (l *claimList) push(c *claim) {
	c.prev, c.next = l.last, nil
	if l.last != nil {
		l.last.next = c
	} else {
		l.first = c
	}
	l.last = c
	l.n++
}

func (l *claimList) remove(c *claim) {
	if c.prev != nil {
		c.prev.next = c.next
	} else {
		l.first = c.next
	}
	if c.next != nil {
		c.next.prev = c.prev
	} else {
		l.last = c.prev
	}
	c.prev, c.next = nil, nil
	l.n--
}
