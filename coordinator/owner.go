package coordinator

import (
	"context"

	"github.com/go-leasehold/leasehold/lease"
)

// owner is an identity that holds belong to. It travels in contexts as a
// chain: the context of a hold of a, taken with the context of a hold of b,
// may enter both again. Identities are compared by address.
type owner struct {
	outer *owner
	fixed bool // made by WithOwner: locks take this very identity
}

type ownerKey struct{}

// ownerOf returns the innermost identity of ctx, or nil.
func ownerOf(ctx context.Context) *owner {
	o, _ := ctx.Value(ownerKey{}).(*owner)
	return o
}

// has says whether o is p or was made inside it.
func (o *owner) has(p *owner) bool {
	for ; o != nil; o = o.outer {
		if o == p {
			return true
		}
	}
	return false
}

// fixedOwner returns the nearest identity that WithOwner fixed, or nil.
func (o *owner) fixedOwner() *owner {
	for ; o != nil; o = o.outer {
		if o.fixed {
			return o
		}
	}
	return nil
}

// WithOwner fixes the identity of all locks taken with the returned context, or
// with one made from it: each of them may be taken again. Without it every hold
// is an identity of its own, and only its own [Hold.Context] may enter again.
//
// Everything that runs with the context is one owner. Goroutines that are to
// exclude each other must not share it.
func WithOwner(ctx context.Context) context.Context {
	return context.WithValue(ctx, ownerKey{}, &owner{outer: ownerOf(ctx), fixed: true})
}

// expose has a claim found by its owner from now on: a context with it is out.
func (a *actor) expose(c *claim) {
	c.exposed = true
	if c.listed || c.state != granted || c.mode != lease.Shared {
		return // an exclusive hold is alone, and found without a list
	}
	if a.owners == nil {
		a.owners = map[*owner]*claim{}
	}
	c.listed, c.twin = true, a.owners[c.owner]
	a.owners[c.owner] = c
}

// hide takes a claim that is over from the list.
func (a *actor) hide(c *claim) {
	first := a.owners[c.owner]
	switch {
	case first != c:
		for first.twin != c {
			first = first.twin
		}
		first.twin = c.twin
	case c.twin != nil:
		a.owners[c.owner] = c.twin
	default:
		delete(a.owners, c.owner)
	}
	c.listed, c.twin = false, nil
}

// holdOf returns the hold of an owner in the chain, the innermost first.
func (a *actor) holdOf(chain *owner) *claim {
	first := a.holds.first
	if first == nil {
		return nil
	}
	if first.mode == lease.Exclusive {
		if chain.has(first.owner) {
			return first
		}
		return nil
	}
	for ; chain != nil; chain = chain.outer {
		if c := a.owners[chain]; c != nil {
			return c
		}
	}
	return nil
}
