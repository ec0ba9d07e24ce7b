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
	hold, err := l.acquire(ctx, mode, call{wait: -1, endWith: ctx})
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

// acquire is what all ways to lock come down to.
func (l *handle) acquire(ctx context.Context, mode lease.Mode, how call) (*Hold, error) {
	if l.err != nil {
		return nil, l.err
	}
	if ctx == nil {
		return nil, invalid("the context is nil")
	}
	return l.c.acquire(ctx, l.key, &l.at, l.kind, mode, &l.conf, how)
}

// acquire takes a hold of any mode.
func (c *Coordinator) acquire(ctx context.Context, key string, at *atomic.Pointer[spot],
	kind lease.Kind, mode lease.Mode, conf *mutexConfig, how call,
) (*Hold, error) {
	if ctx.Err() != nil {
		return nil, &WaitError{Key: key, Err: ended(ErrNotAcquired, ctx)}
	}
	if conf.endWith != nil && conf.endWith.Err() != nil {
		return nil, &WaitError{Key: key, Err: ended(ErrNotAcquired, conf.endWith)}
	}
	chain := ownerOf(ctx)
	if c.tel.Active() {
		how.trace, how.timed = c.tel.Call(ctx), c.tel.Timing()
	}
	h := &Hold{parent: ctx}
	for {
		a := c.actorAt(at, key)
		h.actor = a
		if a.class.Load() == nil {
			a.class.CompareAndSwap(nil, c.tel.Class(cmp.Or(conf.classAs, key)))
		}
		outcome := a.lock(h, kind, mode, conf, &how, chain)
		if outcome == moved {
			continue
		}
		if outcome == mustWait {
			m := h.claim
			if err := a.wait(ctx, m, how.wait); err != nil {
				waited := c.clock.now().sub(m.since)
				a.tellFailed(m, waited)
				return nil, &WaitError{Key: key, Holder: m.more.holder, Waited: waited, Err: err}
			}
		}
		if how.trace != nil {
			h.tellAcquired(&how, outcome == mustWait)
		}
		break
	}
	if how.endWith != nil {
		h.endWith(how.endWith)
	}
	if conf.endWith != nil {
		h.endWith(conf.endWith)
	}
	return h, nil
}
