package coordinator

import (
	"context"
	"time"

	"github.com/go-leasehold/leasehold/lease"
)

// effects is what a handler wants done once the mutex is free.
type effects struct {
	send  *flight
	hints []lease.Request // that nothing depends on
	ended []ending
	soon  []func() // what telemetry is to do, on its goroutine
	raise []raised
}

// any says that there are effects besides a command.
func (e *effects) any() bool {
	return e.ended != nil || e.hints != nil || e.soon != nil || e.raise != nil
}

// ending ends one context with its cause.
type ending struct {
	cancel context.CancelCauseFunc
	cause  error
}

// unlock frees the mutex and carries the effects out.
func (a *actor) unlock() {
	if a.out.send == nil && !a.out.any() {
		a.mu.Unlock()
		return
	}
	out := a.out
	a.out = effects{}
	a.mu.Unlock()
	if out.send != nil {
		a.send(out.send)
	}
	for _, r := range out.hints {
		a.c.store.Send(r, func(reply lease.Reply, err error) { a.onHint(r, reply, err) })
	}
	for _, soon := range out.soon {
		a.c.tel.Soon(soon)
	}
	for _, r := range out.raise {
		a.c.raise(r)
	}
}

// maxCancel bounds how long the key waits for user code that the end of a
// context may run: a parent of the user's making.
const maxCancel = 10 * time.Millisecond

// endContexts ends the contexts of holds that are over. It is no part of a
// handler, since it may run the user's code.
func (a *actor) endContexts(ended []ending) {
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
	now := a.enter()
	a.ending--
	a.leave(now)
}

func (a *actor) send(f *flight) {
	a.c.store.Send(f.req, func(r lease.Reply, err error) { a.onReply(f, r, err) })
}
