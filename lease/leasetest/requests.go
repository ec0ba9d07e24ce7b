package leasetest

import (
	"time"

	"github.com/go-leasehold/leasehold/lease"
)

// subject is a key and what it is used as; its methods make requests for it.
type subject struct {
	key  string
	kind lease.Kind
}

// acquire asks for an exclusive lease, waiting behind all others for it.
func (k subject) acquire(t lease.Ticket, changes ...func(*lease.Request)) lease.Request {
	return change(lease.Request{
		Op: lease.Acquire, Key: k.key, Kind: k.kind, Ticket: t, Mode: lease.Exclusive,
		TTL: long, Queue: true, Age: -1, Tokens: 4,
	}, changes)
}

func (k subject) release(t lease.Ticket, changes ...func(*lease.Request)) lease.Request {
	return change(lease.Request{Op: lease.Release, Key: k.key, Kind: k.kind, Ticket: t}, changes)
}

func (k subject) renew(t lease.Ticket, changes ...func(*lease.Request)) lease.Request {
	return change(lease.Request{Op: lease.Renew, Key: k.key, Kind: k.kind, Ticket: t, TTL: long}, changes)
}

func (k subject) downgrade(t lease.Ticket, changes ...func(*lease.Request)) lease.Request {
	return change(lease.Request{Op: lease.Downgrade, Key: k.key, Kind: k.kind, Ticket: t, TTL: long}, changes)
}

func (k subject) busy(asker string, changes ...func(*lease.Request)) lease.Request {
	return change(lease.Request{Op: lease.Busy, Key: k.key, Kind: k.kind, Asker: asker}, changes)
}

func (k subject) ask(t lease.Ticket, holder string) lease.Request {
	return lease.Request{Op: lease.Ask, Key: k.key, Kind: k.kind, Ticket: t, Holder: holder}
}

func change(r lease.Request, changes []func(*lease.Request)) lease.Request {
	for _, f := range changes {
		f(&r)
	}
	return r
}

func shared(r *lease.Request)     { r.Mode = lease.Shared }
func atOnce(r *lease.Request)     { r.Queue = false }
func asking(r *lease.Request)     { r.Ask = true }
func idle(r *lease.Request)       { r.Idle = true }
func unnumbered(r *lease.Request) { r.Tokens = 0 }
func nextShared(r *lease.Request) { r.Next.Mode = lease.Shared }
func nextAsking(r *lease.Request) { r.Next.Ask = true }

func lasting(ttl time.Duration) func(*lease.Request) {
	return func(r *lease.Request) { r.TTL = ttl }
}

func aged(age time.Duration) func(*lease.Request) {
	return func(r *lease.Request) { r.Age = age }
}

func nextAged(age time.Duration) func(*lease.Request) {
	return func(r *lease.Request) { r.Next.Age = age }
}

func numbered(n int) func(*lease.Request) {
	return func(r *lease.Request) { r.Tokens = n }
}

func watching(owner string) func(*lease.Request) {
	return func(r *lease.Request) { r.Watch = owner }
}

// next has a release acquire for another ticket, exclusively, behind all others.
func next(t lease.Ticket) func(*lease.Request) {
	return func(r *lease.Request) {
		r.Next = &lease.Next{Ticket: t, Mode: lease.Exclusive, TTL: long, Tokens: 4, Age: -1}
	}
}
