package coordinator

import "context"

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
