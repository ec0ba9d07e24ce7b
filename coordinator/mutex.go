package coordinator

import (
	"context"
	"time"

	"github.com/go-leasehold/leasehold/lease"
)

// Mutex is a handle on an exclusive lock: a key and options. It holds nothing
// by itself, costs a few words, and may be made anew for each use, kept, and
// shared between goroutines. All mutexes of a key, in all processes that use
// the same server and prefix, exclude each other.
type Mutex struct{ handle }

// Mutex returns a handle on the lock of a key: 1 to 65,536 bytes of any kind.
// What is wrong with key or options is told, as [ErrInvalid], when it is used.
func (c *Coordinator) Mutex(key string, opts ...MutexOption) *Mutex {
	m := &Mutex{}
	m.init(c, key, lease.Mutex, opts)
	return m
}

// Lock waits until it has the key, or ctx ends. Callers of one process are
// served first come, first served; processes take turns ([WithHandoff]).
//
// Locking again with a hold's own [Hold.Context], or under [WithOwner], enters
// at once. The end of ctx after that does not free the lock: Unlock does, and
// [EndWith]. The error is a [*WaitError].
func (m *Mutex) Lock(ctx context.Context) (*Hold, error) {
	return m.acquire(ctx, lease.Exclusive, &call{wait: -1})
}

// TryLock takes the key if nobody holds it, and says [ErrNotAcquired] at once
// where somebody does. It costs a round trip, but where this process has the
// lease; a process that merely retains the lease is asked for it, for at most
// 100 ms more. Where the store fails, the error is [ErrUnavailable] at once.
func (m *Mutex) TryLock(ctx context.Context) (*Hold, error) {
	return m.try(ctx, lease.Exclusive)
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
	return m.acquire(ctx, lease.Exclusive, &call{wait: d})
}

// Do calls fn while it holds the key. fn's context ends when the hold is no
// longer safe, and when ctx ends, which also frees the lock, whether fn returns
// or not. Do returns fn's error, and that the hold was lost where it was, even
// if fn was content: what it did last may have been done beside another holder.
func (m *Mutex) Do(ctx context.Context, fn func(context.Context) error) error {
	return m.do(ctx, lease.Exclusive, "Do", fn)
}
