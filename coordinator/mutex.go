package coordinator

import (
	"context"
	"sync/atomic"
	"time"

	"github.com/go-leasehold/leasehold/lease"
)

// Mutex is a handle on an exclusive lock: a key and options. It holds nothing
// by itself, costs a few words, and may be made anew for each use, kept, and
// shared between goroutines. All mutexes of a key, in all processes that use
// the same server and prefix, exclude each other.
type Mutex struct {
	c    *Coordinator
	key  string
	at   atomic.Pointer[spot]
	conf mutexConfig
	err  error // of the key and the options, told by the first use
}

// Mutex returns a handle on the lock of a key: 1 to 65,536 bytes of any kind.
// What is wrong with key or options is told, as [ErrInvalid], when it is used.
func (c *Coordinator) Mutex(key string, opts ...MutexOption) *Mutex {
	m := &Mutex{c: c, key: key, conf: mutexConfig{ttl: c.conf.ttl}}
	m.err = validKey(key)
	for _, o := range opts {
		if o == nil {
			o = func(*mutexConfig) error { return invalid("a MutexOption is nil") }
		}
		if err := o(&m.conf); err != nil && m.err == nil {
			m.err = err
		}
	}
	if m.err == nil {
		m.err = m.conf.validate()
	}
	return m
}

// Key returns the key, without the prefix.
func (m *Mutex) Key() string { return m.key }

// Lock waits until it has the key, or ctx ends. Callers of one process are
// served first come, first served; processes take turns ([WithHandoff]).
//
// Locking again with a hold's own [Hold.Context], or under [WithOwner], enters
// at once. The end of ctx after that does not free the lock: Unlock does, and
// [EndWith]. The error is a [*WaitError].
func (m *Mutex) Lock(ctx context.Context) (*Hold, error) {
	return m.acquire(ctx, call{wait: -1})
}

// TryLock takes the key if nobody holds it, and says [ErrNotAcquired] at once
// where somebody does. It costs a round trip, but where this process has the
// lease; a process that merely retains the lease is asked for it, for at most
// 50 ms more. Where the store fails, the error is [ErrUnavailable] at once.
func (m *Mutex) TryLock(ctx context.Context) (*Hold, error) {
	return m.acquire(ctx, call{try: true, wait: -1})
}

// TryLockFor is Lock that waits at most d (0: no longer than for one answer of
// the store). The limit is no part of the hold's context.
func (m *Mutex) TryLockFor(ctx context.Context, d time.Duration) (*Hold, error) {
	if d < 0 {
		return nil, invalid("TryLockFor(%v) is negative", d)
	}
	if d == 0 {
		return m.TryLock(ctx)
	}
	return m.acquire(ctx, call{wait: d})
}

// Do calls fn while it holds the key. fn's context ends when the hold is no
// longer safe, and when ctx ends, which also frees the lock, whether fn returns
// or not. Do returns fn's error, and that the hold was lost where it was, even
// if fn was content: what it did last may have been done beside another holder.
func (m *Mutex) Do(ctx context.Context, fn func(context.Context) error) (err error) {
	if m.err == nil && fn == nil {
		return invalid("Do without a function")
	}
	hold, err := m.acquire(ctx, call{wait: -1, endWith: ctx})
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

// call is how one call wants to wait.
type call struct {
	try     bool
	wait    time.Duration // negative: as long as the context
	endWith context.Context
}

// acquire is what all ways to lock come down to.
func (m *Mutex) acquire(ctx context.Context, how call) (*Hold, error) {
	if m.err != nil {
		return nil, m.err
	}
	if ctx == nil {
		return nil, invalid("the context is nil")
	}
	return m.c.acquire(ctx, m.key, &m.at, lease.Mutex, lease.Exclusive, &m.conf, how)
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
	h := &Hold{parent: ctx}
	for {
		a := c.actorAt(at, key)
		h.actor = a
		switch a.lock(h, kind, mode, conf, how.try, chain) {
		case moved:
			continue
		case entered:
		case mustWait:
			m := h.claim
			if err := a.wait(ctx, m, how.wait); err != nil {
				waited := c.clock.now().sub(m.since)
				return nil, &WaitError{Key: key, Holder: m.more.holder, Waited: waited, Err: err}
			}
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
