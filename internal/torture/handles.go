package torture

import (
	"context"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/go-leasehold/leasehold/coordinator"
	"github.com/go-leasehold/leasehold/rwlock"
)

// lock is a handle, a mutex as one to which everybody writes.
type lock struct {
	kind kind
	rw   *rwlock.Lock
	m    *coordinator.Mutex
}

// handles are kept, for readers' short way begins in them.
type handles struct {
	mu   sync.Mutex
	kept map[string]keptLock // the present one of each place
}

type keptLock struct {
	key  string
	lock lock
}

// lock returns a handle on the present key of a place: one for all, or sometimes a new one, with an option now and then.
func (p *player) lock(rnd *rand.Rand, at place) lock {
	key := at.key()
	switch rnd.IntN(20) {
	case 0:
		return p.make(at.Kind, key)
	case 1:
		return p.make(at.Kind, key, coordinator.MaxHold(time.Duration(1+rnd.IntN(3000))*time.Microsecond))
	case 2:
		return p.make(at.Kind, key, coordinator.Fair())
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.kept == nil {
		p.kept = map[string]keptLock{}
	}
	k := p.kept[at.Name]
	if k.key != key {
		k = keptLock{key, p.make(at.Kind, key)}
		p.kept[at.Name] = k
	}
	return k.lock
}

func (p *player) make(k kind, key string, opts ...coordinator.MutexOption) lock {
	if k == mutex {
		return lock{kind: k, m: p.c.Mutex(key, opts...)}
	}
	return lock{kind: k, rw: rwlock.New(p.c, key, opts...)}
}

// Key is the key.
func (l lock) Key() string {
	if l.kind == mutex {
		return l.m.Key()
	}
	return l.rw.Key()
}

// hold is what both kinds give: a Hold without a Downgrade that matters, where it is of a mutex.
func ofMutex(h *coordinator.Hold, err error) (rwlock.Hold, error) { return rwlock.Hold{Hold: h}, err }

// Lock waits for the right to write.
func (l lock) Lock(ctx context.Context) (rwlock.Hold, error) {
	if l.kind == mutex {
		return ofMutex(l.m.Lock(ctx))
	}
	return l.rw.Lock(ctx)
}

// TryLock does not wait.
func (l lock) TryLock(ctx context.Context) (rwlock.Hold, error) {
	if l.kind == mutex {
		return ofMutex(l.m.TryLock(ctx))
	}
	return l.rw.TryLock(ctx)
}

// TryLockFor waits for so long.
func (l lock) TryLockFor(ctx context.Context, d time.Duration) (rwlock.Hold, error) {
	if l.kind == mutex {
		return ofMutex(l.m.TryLockFor(ctx, d))
	}
	return l.rw.TryLockFor(ctx, d)
}

// Do locks, calls and unlocks.
func (l lock) Do(ctx context.Context, fn func(context.Context) error) error {
	if l.kind == mutex {
		return l.m.Do(ctx, fn)
	}
	return l.rw.Write(ctx, fn)
}

// RLock and the rest are of read/write locks.
func (l lock) RLock(ctx context.Context) (rwlock.Hold, error)    { return l.rw.RLock(ctx) }
func (l lock) TryRLock(ctx context.Context) (rwlock.Hold, error) { return l.rw.TryRLock(ctx) }
func (l lock) TryRLockFor(ctx context.Context, d time.Duration) (rwlock.Hold, error) {
	return l.rw.TryRLockFor(ctx, d)
}
func (l lock) Read(ctx context.Context, fn func(context.Context) error) error {
	return l.rw.Read(ctx, fn)
}
