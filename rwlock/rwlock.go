package rwlock

import (
	"context"
	"time"

	"github.com/go-leasehold/leasehold/coordinator"
	"github.com/go-leasehold/leasehold/lease"
)

// Lock is a handle on a read/write lock: a key and options. It holds nothing by
// itself, costs a few words, and may be made anew for each use, kept, and shared
// between goroutines.
type Lock struct{ l *coordinator.ReadWrite }

// New returns a handle on the read/write lock of a key: 1 to 65,536 bytes of any
// kind. A key is a mutex or a read/write lock, not both at a time: the second to
// come gets [coordinator.ErrKind]. The options are those of a mutex, and count
// for reading and writing. What is wrong with key or options is told, as
// [coordinator.ErrInvalid], when the lock is used.
func New(c *coordinator.Coordinator, key string, opts ...coordinator.MutexOption) *Lock {
	return &Lock{c.ReadWrite(key, opts...)}
}

// Key returns the key, without the prefix.
func (l *Lock) Key() string { return l.l.Key() }

// RLock waits until it may read, or ctx ends: until no writer is inside, and, where
// readers are inside, none waits. Where the process has the lease and no writer waits
// anywhere, it costs no command and no lock that cores share, unless ctx carries an
// owner (a hold's context, or coordinator.WithOwner).
//
// The owner of a write hold (see [Hold.Context]) may read at once. The end of ctx
// after that does not free the lock: Unlock does, and coordinator.EndWith. The
// error is a [*coordinator.WaitError].
func (l *Lock) RLock(ctx context.Context) (Hold, error) {
	return wrap(l.l.Lock(ctx, lease.Shared))
}

// TryRLock is RLock that says [coordinator.ErrNotAcquired] at once where a writer is
// inside or waits. It costs what coordinator.Mutex.TryLock costs: a round trip,
// unless this process has the lease; a process that merely keeps the write lease is
// asked for it, for at most 50 ms more.
func (l *Lock) TryRLock(ctx context.Context) (Hold, error) {
	return wrap(l.l.TryLock(ctx, lease.Shared))
}

// TryRLockFor is RLock that waits at most d (0: no longer than for one answer of
// the store). The limit is no part of the hold's context.
func (l *Lock) TryRLockFor(ctx context.Context, d time.Duration) (Hold, error) {
	return wrap(l.l.TryLockFor(ctx, lease.Shared, d))
}

// Lock waits until it may write, or ctx ends: until nobody is inside, and it is this
// call's turn. While it waits for readers, no new one comes in, in any process; while
// it waits for a writer, readers gather, and come in when that one leaves. Writers
// have their turns in the order in which they came.
//
// The owner of a read hold gets [coordinator.ErrUpgrade] at once, for it would
// wait for itself. The error is a [*coordinator.WaitError].
func (l *Lock) Lock(ctx context.Context) (Hold, error) {
	return wrap(l.l.Lock(ctx, lease.Exclusive))
}

// TryLock is Lock that says [coordinator.ErrNotAcquired] at once where somebody is
// inside, or waits in this process. It costs a round trip, unless this process has
// the write lease; processes that merely keep a lease are asked for it, for at most
// 50 ms more. One that reads lets no new reader in until it has heard that nobody
// waits any more, a tenth of a second later.
func (l *Lock) TryLock(ctx context.Context) (Hold, error) {
	return wrap(l.l.TryLock(ctx, lease.Exclusive))
}

// TryLockFor is Lock that waits at most d (0: no longer than for one answer of
// the store). The limit is no part of the hold's context.
func (l *Lock) TryLockFor(ctx context.Context, d time.Duration) (Hold, error) {
	return wrap(l.l.TryLockFor(ctx, lease.Exclusive, d))
}

// Read calls fn while it may read. fn's context ends when the hold is no longer
// safe, and when ctx ends, which also frees the lock, whether fn returns or not;
// coordinator.HoldFrom finds the hold, and its token, in it. Read returns fn's error,
// and that the hold was lost, or ctx ended, before fn returned: what fn has read may
// have been changed meanwhile.
func (l *Lock) Read(ctx context.Context, fn func(context.Context) error) error {
	return l.l.Do(ctx, lease.Shared, fn)
}

// Write is Read for writing: nobody else is inside while fn runs. If the hold was
// lost, what fn did last may have been done beside another writer.
func (l *Lock) Write(ctx context.Context, fn func(context.Context) error) error {
	return l.l.Do(ctx, lease.Exclusive, fn)
}

// Hold is one caller's time inside a read/write lock, to read or to write. All
// that it can do is [coordinator.Hold]'s, but for Downgrade. The zero Hold is
// none: its methods that return an error say [coordinator.ErrNotHeld]. Count tells
// how often the owner is inside, Counts how often to write and to read.
//
// The fencing token of a write is greater than that of every hold before it. A
// read's is at least that of the write before it, and lower than that of every
// write after it. Reads share tokens, with each other and with the write before
// them: where two holds of one process have the same, nobody, in any process, has
// written in between, and what the first read, or wrote last, is still right. (A
// write has its token from its beginning: what it reads before it writes is not.) A
// cache in memory needs to remember no more than that token.
type Hold struct{ *coordinator.Hold }

// Downgrade turns a write hold into a read hold, with no moment in between in
// which anybody else could write. It does not wait: other readers of this process
// may be in when it returns, those of other processes as soon as Redis has heard
// of it; writers that wait have their turn when the readers are out.
//
// h is over then, as if it had been unlocked: its context ends with
// [coordinator.ErrReleased], and the work goes on with that of the new hold. What
// h had of coordinator.MaxHold and coordinator.EndWith goes on, as do its owner
// and its token. Where the owner has more write holds of the key, it stays locked
// for writing until they are over; and where the owner of a write hold has taken
// a read hold, the last write hold's Unlock is a downgrade. (A read hold that was
// taken with the write hold's context has a context that ends with it; that of a
// Downgrade goes on.)
//
// The error is [coordinator.ErrNotExclusive] for a read hold,
// [coordinator.ErrNotHeld] for one that is unlocked, and what Unlock would say
// for one that was lost.
func (h Hold) Downgrade() (Hold, error) { return wrap(h.Hold.Downgrade()) }

func wrap(h *coordinator.Hold, err error) (Hold, error) { return Hold{h}, err }
