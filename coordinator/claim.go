package coordinator

import (
	"context"
	"runtime"

	"github.com/go-leasehold/leasehold/lease"
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
// actor.holds. Re-entry adds handles to one claim.
type claim struct {
	// Set before the actor sees the claim, and not changed after.
	mode  lease.Mode
	try   bool // TryLock: is answered, never kept waiting behind a holder
	conf  *mutexConfig
	owner *owner
	since instant
	place []uintptr // of the call, in debug mode
	ready chan struct{}

	// Guarded by actor.mu.
	state      claimState
	next, prev *claim
	token      uint64 // written once, at the grant: readable after it
	granted    instant
	checked    bool   // has been looked at after checkHoldAfter
	handles    int    // not yet unlocked: the re-entrancy depth
	numbered   int    // handles ever made
	err        error  // why it is over
	refused    error  // why it never held; written once, before ready: readable after it
	holder     string // who had the key then; like refused
	hold       *Hold  // the first handle; dropped once its clean-up is set
	limits     []limit
	contexts   []heldContext

	self owner // owner, unless one was fixed beforehand
}

// limit is the MaxHold of one handle. Handles are told apart by their number
// in the claim, which keeps none of them alive.
type limit struct {
	handle int
	at     instant
}

// heldContext is what ends a context that a handle gave out.
type heldContext struct {
	handle int
	cancel context.CancelCauseFunc
}

// newClaim makes the claim of one call.
func newClaim(mode lease.Mode, conf *mutexConfig, chain *owner, since instant, debug bool) *claim {
	c := &claim{mode: mode, conf: conf, since: since}
	if fixed := chain.fixedOwner(); fixed != nil {
		c.owner = fixed
	} else {
		c.self.outer = chain
		c.owner = &c.self
	}
	if debug {
		c.place = make([]uintptr, 8)
		c.place = c.place[:runtime.Callers(4, c.place)]
	}
	return c
}

// expires returns when the first MaxHold among the handles ends.
func (c *claim) expires() instant {
	t := never
	for _, l := range c.limits {
		t = min(t, l.at)
	}
	return t
}

// dropLimit takes the limit of one handle away.
func (c *claim) dropLimit(handle int) {
	for i, l := range c.limits {
		if l.handle == handle {
			c.limits = append(c.limits[:i], c.limits[i+1:]...)
			return
		}
	}
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
