package faulttest

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/go-leasehold/leasehold/coordinator"
	"github.com/go-leasehold/leasehold/internal/faults"
	"github.com/go-leasehold/leasehold/internal/redistest"
)

// I1: the caller's context has ended, or ends in the middle of Unlock. With Redis up the key is free at once; a
// second Unlock is told what it is.
func TestUnlockWorksWithoutALivingContext(t *testing.T) {
	t.Parallel()
	server := redistest.Shared(t)
	prefix := redistest.Prefix(t)
	c := steady(t, server.Addr(), coordinator.WithRetention(0)) // a TTL of 30 s: only a release frees the key in time
	other := steady(t, server.Addr(), coordinator.WithRetention(0))
	for name, cancelled := range map[string]func(cancel func(), unlock func()){
		"before":   func(cancel, unlock func()) { cancel(); unlock() },
		"meantime": func(cancel, unlock func()) { go cancel(); unlock() },
		"after":    func(cancel, unlock func()) { unlock(); cancel() },
	} {
		for i := range rounds(20, 2000) {
			key := fmt.Sprintf("%s%s-%d", prefix, name, i)
			ctx, cancel := context.WithCancel(context.Background())
			hold, err := c.Mutex(key).Lock(ctx)
			require.NoError(t, err)
			inner := hold.Context()
			within(t, slack, "Unlock", func() {
				cancelled(cancel, func() {
					if err := hold.Unlock(); err != nil {
						t.Error(err)
					}
				})
			})
			require.Error(t, inner.Err())
			eventually(t, slack, "the key gone", func() bool { return !exists(t, server, key) })
			require.ErrorIs(t, hold.Unlock(), coordinator.ErrNotHeld)
			free(t, other, key)
		}
	}
}

// I1: Redis is out of reach during Unlock, the caller has gone. Unlock returns at once all the same; the release is
// sent when Redis is back, or the lease runs out. After a known loss Unlock returns at once too.
func TestUnlockWithoutRedisNeitherHangsNorForgets(t *testing.T) {
	t.Parallel()
	const ttl = 3 * time.Second
	server := redistest.Start(t)
	proxy := faults.NewProxy(t, server.Addr())
	c := steady(t, proxy.Addr(), ours(ttl)...)
	other := steady(t, server.Addr(), ours(ttl)...)
	ctx, cancel := context.WithCancel(context.Background())
	hold, err := c.Mutex("k").Lock(ctx)
	require.NoError(t, err)
	proxy.BlackHole(true)
	cancel()
	within(t, ttl/3, "Unlock without Redis", func() { require.NoError(t, hold.Unlock()) })
	within(t, ttl/3, "Unlock again", func() { require.ErrorIs(t, hold.Unlock(), coordinator.ErrNotHeld) })
	require.True(t, exists(t, server, "k"), "nothing got through")
	proxy.BlackHole(false)
	back := time.Now()
	free(t, other, "k")
	require.Less(t, time.Since(back), ttl+slack)

	lost := grab(t, c.Mutex("lost"))
	require.NoError(t, other.ForceUnlock(t.Context(), "lost"))
	by := take(t, other.Mutex("lost"))
	require.ErrorIs(t, ended(t, lost, hangs), coordinator.ErrLeaseLost)
	proxy.BlackHole(true)
	within(t, ttl/3, "Unlock after a loss", func() { require.ErrorIs(t, lost.Unlock(), coordinator.ErrLeaseLost) })
	proxy.BlackHole(false)
	require.NoError(t, by.Err())
	require.NoError(t, by.Unlock())
}

// sweep is a run of I2: callers that go away at a moment around the one at which the grant's reply comes in.
type sweep struct {
	t       *testing.T
	c       *coordinator.Coordinator
	delay   time.Duration // of the reply
	granted atomic.Int64
	refused atomic.Int64
}

// round locks one key, cancels, and unlocks if there is a hold. Call is how to lock.
func (s *sweep) round(key string, call func(ctx context.Context, m *coordinator.Mutex) (*coordinator.Hold, error)) {
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	defer time.AfterFunc(rand.N(s.delay*5/2), cancel).Stop()
	hold, err := call(ctx, s.c.Mutex(key))
	switch {
	case (hold == nil) == (err == nil):
		s.t.Errorf("%s: hold %v and error %v: not exactly one of them", key, hold, err)
	case err != nil:
		s.refused.Add(1)
		if !errors.Is(err, context.Canceled) || !errors.Is(err, coordinator.ErrNotAcquired) && !errors.Is(err, coordinator.ErrUnavailable) {
			s.t.Errorf("%s: %v", key, err)
		}
	default:
		s.granted.Add(1)
		if hold.Count() != 1 || !hold.Valid() {
			s.t.Errorf("%s: count %d, %v", key, hold.Count(), hold.Err())
		}
		if err := hold.Unlock(); err != nil {
			s.t.Errorf("%s: %v", key, err)
		}
	}
}

// I2: the caller goes away while the grant of a free key is on its way back. There is a hold or an error, never both
// and never neither; after an error the key is released, not renewed, and free for others.
func TestCancelWhileTheGrantIsOnItsWayIsHoldOrError(t *testing.T) {
	t.Parallel()
	const ttl, workers = 6 * time.Second, 16
	server := redistest.Start(t)
	proxy := faults.NewProxy(t, server.Addr())
	net := listen(proxy)
	s := &sweep{t: t, c: join(t, untracked(proxy.Addr()), ours(ttl)...), delay: 60 * time.Millisecond}
	proxy.SetDelay(0, s.delay)
	calls := []func(context.Context, *coordinator.Mutex) (*coordinator.Hold, error){
		func(ctx context.Context, m *coordinator.Mutex) (*coordinator.Hold, error) { return m.Lock(ctx) },
		func(ctx context.Context, m *coordinator.Mutex) (*coordinator.Hold, error) { return m.TryLock(ctx) },
		func(ctx context.Context, m *coordinator.Mutex) (*coordinator.Hold, error) {
			return m.TryLockFor(ctx, time.Hour)
		},
	}
	var all sync.WaitGroup
	for w := range workers {
		all.Go(func() {
			for i := range rounds(320, 16_000) / workers {
				s.round(fmt.Sprintf("%d-%d", w, i), calls[i%len(calls)])
			}
		})
	}
	all.Wait()
	t.Logf("%d granted, %d refused", s.granted.Load(), s.refused.Load())
	require.Positive(t, s.granted.Load())
	require.Positive(t, s.refused.Load())
	eventually(t, ttl+slack, "no key left", func() bool { return len(leftovers(t, server)) == 0 })
	eventually(t, hangs, "nothing left to do", func() bool { return len(s.c.Snapshot().Keys) == 0 })
	require.Zero(t, net.count(is("renew")), "renewed for a caller who has gone")
}

// I2: the caller goes away while it waits behind a holder and the grant is on its way. Whoever waits behind it, in
// its own process and in another, has its turn.
func TestCancelledWaiterPassesItsGrantOn(t *testing.T) {
	t.Parallel()
	const ttl, workers = 6 * time.Second, 8
	server := redistest.Start(t)
	proxy := faults.NewProxy(t, server.Addr())
	s := &sweep{t: t, c: steady(t, proxy.Addr(), ours(ttl)...), delay: 30 * time.Millisecond}
	holder, behind := steady(t, server.Addr(), ours(ttl)...), steady(t, server.Addr(), ours(ttl)...)
	proxy.SetDelay(0, s.delay)
	var all sync.WaitGroup
	for w := range workers {
		all.Go(func() {
			for i := range rounds(160, 8_000) / workers {
				key := fmt.Sprintf("%d-%d", w, i)
				if err := s.cancelled(key, holder, behind); err != nil {
					t.Errorf("%s: %v", key, err)
					return
				}
			}
		})
	}
	all.Wait()
	t.Logf("%d granted, %d refused", s.granted.Load(), s.refused.Load())
	eventually(t, ttl+slack, "no key left", func() bool { return len(leftovers(t, server)) == 0 })
	eventually(t, hangs, "nothing left to do", func() bool { return len(s.c.Snapshot().Keys) == 0 })
}

// cancelled has a caller go away around the moment at which a holder hands the key over, with a caller of its own
// process and another process behind it.
func (s *sweep) cancelled(key string, holder, behind *coordinator.Coordinator) error {
	held, err := holder.Mutex(key).Lock(context.Background())
	if err != nil {
		return err
	}
	var waiting sync.WaitGroup
	next := make(chan error, 2)
	waiting.Go(func() {
		s.round(key, func(ctx context.Context, m *coordinator.Mutex) (*coordinator.Hold, error) { return m.Lock(ctx) })
	})
	for _, c := range []*coordinator.Coordinator{s.c, behind} {
		waiting.Go(func() {
			ctx, cancel := context.WithTimeout(context.Background(), hangs)
			defer cancel()
			next <- c.Mutex(key).Do(ctx, func(context.Context) error { return nil })
		})
	}
	time.Sleep(rand.N(s.delay))
	if err := held.Unlock(); err != nil {
		return err
	}
	waiting.Wait()
	return errors.Join(<-next, <-next)
}
