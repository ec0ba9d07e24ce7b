package segment

import (
	"context"
	"errors"
	"sync/atomic"
	"time"

	"github.com/go-leasehold/leasehold/coordinator"
)

// Locks are striped mutexes: n locks under one name, of which a routing key (a
// user, an order) chooses one, by [Index]. The same routing key always excludes
// itself; different ones mostly run side by side, but n locks are no more than n,
// so two routing keys may well share one. Whoever holds the lock of one routing
// key and asks for that of another may wait for itself, or for somebody who waits
// for it: that is for LockAll, or for the hold's context (see
// [coordinator.Hold.Context]), with which the same segment is entered again.
//
// A handle may be shared between goroutines. It is best made once and kept: it
// remembers a pointer a segment.
//
// # The number of segments
//
// All processes that use a name need the same number of segments, or the same
// routing key would have different locks. So Redis knows the number: the first
// process writes it down, the others compare, and one that has another number gets
// [ErrSegments] instead of a lock. A process asks before its first lock of the
// name, again after 20 minutes of use, and when Redis tells that the note was
// changed or deleted (where there is client-side caching; else it is noticed
// within those 20 minutes). All that is one or two round trips, which the calls of
// that moment share; all other calls ask nothing.
//
// The note is kept for at least 80 minutes after the last use, and for two hours
// at most. To change the number: stop all processes that use the name, then wait
// two hours or delete the note, "<prefix>~segments:<name>". While it is missing
// under processes that run, the next call of any of them writes it again. Two
// limits follow. A hold, or a wait, that lasts longer than the note, while nobody
// uses the name, is not protected from processes with another number. And a
// process that has the lock while the note is deleted by hand still has it when
// the next process comes with another number.
//
// On stores that are not Redis (a quorum, memory) there is nowhere to write it
// down, so only a disagreement within one coordinator is found.
type Locks struct {
	c    *coordinator.Coordinator
	name string
	n    int
	opts []coordinator.MutexOption
	err  error // of what NewLocks was given, told by the first use

	mutexes []atomic.Pointer[coordinator.Mutex]
	fleet   atomic.Pointer[fleet]
	asking  atomic.Int64 // calls that wait for what the fleet says
}

// NewLocks returns a handle on n locks, from 1 to 4096, under a name of 1 to 1024
// bytes of any kind. The options are those of a mutex, and count for each segment.
// What is wrong with any of them is told, as coordinator.ErrInvalid, when the
// handle is used.
//
// The locks are mutexes with the keys "{name/0}" to "{name/n-1}" (see [Locks.Key]),
// whose braces give each a slot of its own in a cluster. Braces in the name itself
// would spoil that: in keys, "{", "}" and "%" are written "%7B", "%7D" and "%25".
func NewLocks(c *coordinator.Coordinator, name string, n int, opts ...coordinator.MutexOption) *Locks {
	l := &Locks{c: c, name: name, n: n, opts: append([]coordinator.MutexOption{coordinator.ClassAs(name)}, opts...)}
	if l.err = validLocks(c, name, n, opts); l.err != nil {
		return l
	}
	l.mutexes = make([]atomic.Pointer[coordinator.Mutex], n)
	l.fleet.Store(fleetsOf(c).get(name))
	return l
}

// endedContext is one, with which a mutex says what is wrong with
// its options, or nothing of interest; it asks nobody.
var endedContext = func() context.Context {
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	return ctx
}()

func validLocks(c *coordinator.Coordinator, name string, n int, opts []coordinator.MutexOption) error {
	if _, err := c.Mutex("options", opts...).Lock(endedContext); errors.Is(err, coordinator.ErrInvalid) {
		return err
	}
	if err := validName(name); err != nil {
		return err
	}
	return validSegments(n)
}

// Name returns the name that the locks were made with.
func (l *Locks) Name() string { return l.name }

// Len returns the number of segments.
func (l *Locks) Len() int { return l.n }

// Segment returns which segment a routing key belongs to: [Index]. It is 0 where
// NewLocks was given a number of segments that can't be.
func (l *Locks) Segment(routingKey string) int {
	if l.n < 1 {
		return 0
	}
	return Index(routingKey, l.n)
}

// Key returns the key of a segment's mutex, as coordinator.Inspect and
// coordinator.ForceUnlock take it; "" where there is no such segment.
func (l *Locks) Key(segment int) string {
	if segment < 0 || segment >= len(l.mutexes) {
		return ""
	}
	return tagged(l.name, segment)
}

// Lock waits until it has the lock of the routing key's segment, or ctx ends. It
// is coordinator.Mutex.Lock; beside what that says, the error can be [ErrSegments].
func (l *Locks) Lock(ctx context.Context, routingKey string) (*coordinator.Hold, error) {
	m, err := l.mutex(ctx, routingKey)
	if err != nil {
		return nil, err
	}
	if !l.agreed() {
		if err := l.ask(ctx, m.Key(), noLimit); err != nil {
			return nil, err
		}
	}
	return m.Lock(ctx)
}

// TryLock takes the lock of the routing key's segment if nobody holds it, and
// says coordinator.ErrNotAcquired at once where somebody does. See
// coordinator.Mutex.TryLock.
func (l *Locks) TryLock(ctx context.Context, routingKey string) (*coordinator.Hold, error) {
	m, err := l.mutex(ctx, routingKey)
	if err != nil {
		return nil, err
	}
	if !l.agreed() {
		if err := l.ask(ctx, m.Key(), 0); err != nil {
			return nil, err
		}
	}
	return m.TryLock(ctx)
}

// TryLockFor is Lock that waits at most d (0: no longer than for the store to
// answer). The limit is no part of the hold's context.
func (l *Locks) TryLockFor(ctx context.Context, routingKey string, d time.Duration) (*coordinator.Hold, error) {
	m, err := l.mutex(ctx, routingKey)
	if err != nil {
		return nil, err
	}
	if d >= 0 && !l.agreed() {
		began := time.Now()
		if err := l.ask(ctx, m.Key(), d); err != nil {
			return nil, err
		}
		d = max(0, d-time.Since(began))
	}
	return m.TryLockFor(ctx, d)
}

// Do calls fn while it holds the lock of the routing key's segment. See
// coordinator.Mutex.Do.
func (l *Locks) Do(ctx context.Context, routingKey string, fn func(context.Context) error) error {
	m, err := l.mutex(ctx, routingKey)
	if err != nil {
		return err
	}
	if fn != nil && !l.agreed() {
		if err := l.ask(ctx, m.Key(), noLimit); err != nil {
			return err
		}
	}
	return m.Do(ctx, fn)
}

// LockAll takes all segments, all or none, and so excludes everybody else. It is
// [coordinator.Coordinator.LockAll]: it takes one after the other, in an order that
// is the same everywhere, so that two such calls can't wait for each other, and
// costs as many round trips as there are segments where the process has none of
// them. The options of NewLocks don't count for it.
func (l *Locks) LockAll(ctx context.Context) (*coordinator.Holds, error) {
	if l.err != nil {
		return nil, l.err
	}
	if ctx == nil {
		_, err := l.at(0).Lock(ctx) // which says so
		return nil, err
	}
	if !l.agreed() {
		if err := l.ask(ctx, l.Key(0), noLimit); err != nil {
			return nil, err
		}
	}
	mutexes := make([]*coordinator.Mutex, l.n)
	for i := range mutexes {
		mutexes[i] = l.c.Mutex(l.Key(i), coordinator.ClassAs(l.name))
	}
	return coordinator.LockEach(ctx, mutexes...)
}

// mutex returns the routing key's, if all that the call was given makes sense.
func (l *Locks) mutex(ctx context.Context, routingKey string) (*coordinator.Mutex, error) {
	switch {
	case l.err != nil:
		return nil, l.err
	case routingKey == "":
		return nil, invalid("the routing key is empty")
	}
	m := l.at(Index(routingKey, l.n))
	if ctx == nil {
		_, err := m.Lock(ctx) // which says so
		return nil, err
	}
	return m, nil
}

// at returns the mutex of a segment, which is made when it is first used.
func (l *Locks) at(segment int) *coordinator.Mutex {
	p := &l.mutexes[segment]
	m := p.Load()
	for m == nil {
		p.CompareAndSwap(nil, l.c.Mutex(l.Key(segment), l.opts...))
		m = p.Load()
	}
	return m
}

// agreed says that the fleet is known to have as many segments.
func (l *Locks) agreed() bool { return l.fleet.Load().n.Load() == int64(l.n) }
