package coordinator

import (
	"cmp"
	"context"
	"sync/atomic"
	"time"

	"github.com/go-leasehold/leasehold/lease"
	"github.com/go-leasehold/leasehold/telemetry"
)

// handle is what Mutex and ReadWrite have in common: a key, options, and the
// ways to ask for it.
type handle struct {
	c    *Coordinator
	key  string
	kind lease.Kind
	at   atomic.Pointer[spot]
	conf mutexConfig
	err  error // of the key and the options, told by the first use
}

func (l *handle) init(c *Coordinator, key string, kind lease.Kind, opts []MutexOption) {
	l.c, l.key, l.kind = c, key, kind
	l.conf = mutexConfig{ttl: c.conf.ttl}
	l.err = validKey(key)
	for _, o := range opts {
		if o == nil {
			o = func(*mutexConfig) error { return invalid("a MutexOption is nil") }
		}
		if err := o(&l.conf); err != nil && l.err == nil {
			l.err = err
		}
	}
	if l.err == nil {
		l.err = l.conf.validate()
	}
}

// Key returns the key, without the prefix.
func (l *handle) Key() string { return l.key }

// call is how one call wants to wait.
type call struct {
	try     bool
	wait    time.Duration // negative: as long as the context
	endWith context.Context
	trace   *telemetry.Call // nil: it is not traced
	timed   bool            // somebody wants durations
}

// do calls fn with the key held. name is what the user called.
func (l *handle) do(ctx context.Context, mode lease.Mode, name string, fn func(context.Context) error) (err error) {
	if l.err == nil && fn == nil {
		return invalid("%s without a function", name)
	}
	hold, err := l.acquire(ctx, mode, &call{wait: -1, endWith: ctx})
	if err != nil {
		return err
	}
	defer func() {
		if lost := hold.Unlock(); lost != nil {
			err = joinLoss(err, lost)
		}
	}()
	return fn(hold.Context())
}

// acquire is what all ways to lock come down to. Its frame, like those below it, is
// a part of what every waiter keeps: it is small, so that a goroutine that waits
// can do with the stack that it began with.
func (l *handle) acquire(ctx context.Context, mode lease.Mode, how *call) (*Hold, error) {
	if err := l.refusal(ctx); err != nil {
		return nil, err
	}
	c, chain := l.c, ownerOf(ctx)
	if c.tel.Active() {
		how.trace, how.timed = c.tel.Call(ctx), c.tel.Timing()
	}
	h := &Hold{parent: ctx}
	for {
		a := c.actorAt(&l.at, l.key)
		h.actor = a
		if a.class.Load() == nil {
			a.class.CompareAndSwap(nil, c.tel.Class(cmp.Or(l.conf.classAs, l.key)))
		}
		outcome := a.lock(h, l.kind, mode, &l.conf, how, chain)
		if outcome == moved {
			continue
		}
		if outcome == mustWait {
			if err := a.wait(ctx, h.claim, how.wait); err != nil {
				return nil, a.inVain(h.claim, err)
			}
		}
		if how.trace != nil {
			h.tellAcquired(how, outcome == mustWait)
		}
		break
	}
	if how.endWith != nil {
		h.endWith(how.endWith)
	}
	if l.conf.endWith != nil {
		h.endWith(l.conf.endWith)
	}
	return h, nil
}

// refusal says why a call need not even begin, or nil.
func (l *handle) refusal(ctx context.Context) error {
	switch {
	case l.err != nil:
		return l.err
	case ctx == nil:
		return invalid("the context is nil")
	case ctx.Err() != nil:
		return &WaitError{Key: l.key, Err: ended(ErrNotAcquired, ctx)}
	case l.conf.endWith != nil && l.conf.endWith.Err() != nil:
		return &WaitError{Key: l.key, Err: ended(ErrNotAcquired, l.conf.endWith)}
	}
	return nil
}

// inVain tells of a call that does not hold, and returns its error.
func (a *actor) inVain(c *claim, err error) error {
	waited := a.c.clock.now().sub(c.since)
	a.tellFailed(c, waited)
	return &WaitError{Key: a.key, Holder: c.more.holder, Waited: waited, Err: err}
}
