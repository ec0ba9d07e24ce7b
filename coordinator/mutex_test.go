package coordinator

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/go-leasehold/leasehold/lease/memlease"
)

// in runs a test in virtual time, on an in-memory server with a latency of 1 ms
// each way.
func in(t *testing.T, test func(t *testing.T, s *memlease.Server)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		s := memlease.NewServer(memlease.WithLatency(time.Millisecond, time.Millisecond, time.Millisecond))
		defer s.Close()
		test(t, s)
	})
}

// process returns a coordinator that is closed at the test's end.
func process(t *testing.T, s *memlease.Server, opts ...Option) *Coordinator {
	t.Helper()
	c, err := NewWithStore(s.Store(), append([]Option{WithTTL(3 * time.Second)}, opts...)...)
	require.NoError(t, err)
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
		defer cancel()
		require.NoError(t, c.Close(ctx))
	})
	return c
}

func TestLockExcludesAndPassesOnWithinAProcess(t *testing.T) {
	in(t, func(t *testing.T, s *memlease.Server) {
		c := process(t, s)
		m := c.Mutex("k")
		var inside, most, sum int
		var last uint64
		var wg sync.WaitGroup
		for range 100 {
			wg.Go(func() {
				h, err := m.Lock(t.Context())
				require.NoError(t, err)
				inside++
				most = max(most, inside)
				require.Greater(t, h.Token(), last)
				last = h.Token()
				time.Sleep(time.Millisecond)
				sum++
				inside--
				require.NoError(t, h.Unlock())
			})
		}
		wg.Wait()
		require.Equal(t, 1, most)
		require.Equal(t, 100, sum)
		require.EqualValues(t, 1, c.Snapshot().Stats.Leases)
	})
}

func TestLockExcludesAcrossProcesses(t *testing.T) {
	in(t, func(t *testing.T, s *memlease.Server) {
		var inside, most atomic.Int64
		var sum, last uint64
		var wg sync.WaitGroup
		for range 4 {
			c := process(t, s)
			for range 16 {
				wg.Go(func() {
					for range 20 {
						h, err := c.Mutex("k").Lock(t.Context())
						require.NoError(t, err)
						most.Store(max(most.Load(), inside.Add(1)))
						require.Greater(t, h.Token(), last)
						last = h.Token()
						time.Sleep(100 * time.Microsecond)
						sum++
						inside.Add(-1)
						require.NoError(t, h.Unlock())
					}
				})
			}
		}
		wg.Wait()
		require.EqualValues(t, 1, most.Load())
		require.EqualValues(t, 4*16*20, sum)
	})
}

func TestTryLock(t *testing.T) {
	in(t, func(t *testing.T, s *memlease.Server) {
		a, b := process(t, s), process(t, s)
		h, err := a.Mutex("k").TryLock(t.Context())
		require.NoError(t, err)
		_, err = a.Mutex("k").TryLock(t.Context())
		require.ErrorIs(t, err, ErrNotAcquired)
		_, err = b.Mutex("k").TryLock(t.Context())
		require.ErrorIs(t, err, ErrNotAcquired)
		var w *WaitError
		require.ErrorAs(t, err, &w)
		require.Contains(t, w.Holder, a.ID())
		require.NoError(t, h.Unlock())
		// Retained by a, but not held: b must get it.
		h, err = b.Mutex("k").TryLock(t.Context())
		require.NoError(t, err)
		require.NoError(t, h.Unlock())
		require.ErrorIs(t, h.Unlock(), ErrNotHeld)
		require.ErrorIs(t, (*Hold)(nil).Unlock(), ErrNotHeld)
	})
}

func TestReentry(t *testing.T) {
	in(t, func(t *testing.T, s *memlease.Server) {
		c, d := process(t, s), process(t, s)
		h, err := c.Mutex("k").Lock(t.Context())
		require.NoError(t, err)
		h2, err := c.Mutex("k").Lock(h.Context())
		require.NoError(t, err)
		require.Equal(t, h.Token(), h2.Token())
		require.Equal(t, 2, h.Count())
		_, err = c.Mutex("k").TryLockFor(t.Context(), time.Second)
		require.ErrorIs(t, err, ErrNotAcquired)
		require.NoError(t, h.Unlock())
		require.ErrorIs(t, context.Cause(h.Context()), ErrReleased)
		_, err = d.Mutex("k").TryLock(t.Context())
		require.ErrorIs(t, err, ErrNotAcquired)
		require.NoError(t, h2.Unlock())
		h, err = d.Mutex("k").TryLock(t.Context())
		require.NoError(t, err)
		require.NoError(t, h.Unlock())
	})
}

func TestRenewalKeepsALeaseUnderLongWork(t *testing.T) {
	in(t, func(t *testing.T, s *memlease.Server) {
		c, d := process(t, s), process(t, s)
		h, err := c.Mutex("k").Lock(t.Context())
		require.NoError(t, err)
		time.Sleep(time.Minute)
		require.True(t, h.Valid())
		_, err = d.Mutex("k").TryLock(t.Context())
		require.ErrorIs(t, err, ErrNotAcquired)
		require.NoError(t, h.Unlock())
	})
}

func TestHoldEndsWhenTheKeyIsDeleted(t *testing.T) {
	in(t, func(t *testing.T, s *memlease.Server) {
		c := process(t, s)
		h, err := c.Mutex("k").Lock(t.Context())
		require.NoError(t, err)
		ctx := h.Context()
		time.Sleep(200 * time.Millisecond)
		s.Delete("k")
		begin := time.Now()
		<-ctx.Done()
		require.Less(t, time.Since(begin), 20*time.Millisecond)
		require.ErrorIs(t, context.Cause(ctx), ErrLeaseLost)
		require.ErrorIs(t, h.Unlock(), ErrLeaseLost)
	})
}

func TestHoldEndsBeforeAnotherProcessGetsTheKey(t *testing.T) {
	in(t, func(t *testing.T, s *memlease.Server) {
		a, b := s.Store(), s.Store()
		c, err := NewWithStore(a, WithTTL(3*time.Second))
		require.NoError(t, err)
		d, err := NewWithStore(b, WithTTL(3*time.Second))
		require.NoError(t, err)
		defer d.Close(t.Context())
		h, err := c.Mutex("k").Lock(t.Context())
		require.NoError(t, err)
		a.SetDown(errors.New("unplugged"))
		h2, err := d.Mutex("k").Lock(t.Context())
		require.NoError(t, err)
		require.ErrorIs(t, context.Cause(h.Context()), ErrLeaseLost)
		require.Greater(t, h2.Token(), h.Token())
		require.NoError(t, h2.Unlock())
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		_ = c.Close(ctx)
	})
}

func TestCancelledWaiterLeavesTheQueue(t *testing.T) {
	in(t, func(t *testing.T, s *memlease.Server) {
		c, d := process(t, s), process(t, s)
		h, err := c.Mutex("k").Lock(t.Context())
		require.NoError(t, err)
		ctx, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
		defer cancel()
		_, err = d.Mutex("k").Lock(ctx)
		require.ErrorIs(t, err, ErrNotAcquired)
		require.ErrorIs(t, err, context.DeadlineExceeded)
		time.Sleep(10 * time.Millisecond)
		info, err := c.Inspect(t.Context(), "k")
		require.NoError(t, err)
		require.Empty(t, info.Waiters)
		require.Len(t, info.Holders, 1)
		require.NoError(t, h.Unlock())
		time.Sleep(time.Second)
		require.Empty(t, c.Snapshot().Keys)
		require.Empty(t, d.Snapshot().Keys)
	})
}

func TestMaxHold(t *testing.T) {
	in(t, func(t *testing.T, s *memlease.Server) {
		c := process(t, s)
		h, err := c.Mutex("k", MaxHold(time.Second)).Lock(t.Context())
		require.NoError(t, err)
		begin := time.Now()
		time.Sleep(500 * time.Millisecond)
		require.NoError(t, h.Extend(time.Second))
		h2, err := c.Mutex("k").Lock(t.Context())
		require.NoError(t, err)
		require.Equal(t, 1500*time.Millisecond, time.Since(begin))
		require.ErrorIs(t, context.Cause(h.Context()), ErrHoldExpired)
		require.ErrorIs(t, h.Unlock(), ErrHoldExpired)
		require.Greater(t, h2.Token(), h.Token())
		require.ErrorIs(t, h2.Extend(time.Second), ErrNoMaxHold)
		require.NoError(t, h2.Unlock())
	})
}

func TestDoEndsWithItsContext(t *testing.T) {
	in(t, func(t *testing.T, s *memlease.Server) {
		c := process(t, s)
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		err := c.Mutex("k").Do(ctx, func(ctx context.Context) error {
			<-ctx.Done()
			time.Sleep(time.Second)
			h, err := c.Mutex("k").TryLock(t.Context())
			require.NoError(t, err)
			require.NoError(t, h.Unlock())
			return ctx.Err()
		})
		require.ErrorIs(t, err, context.DeadlineExceeded)
		require.ErrorIs(t, err, ErrHoldExpired)
	})
}

func TestCloseHandsOverAndRefuses(t *testing.T) {
	in(t, func(t *testing.T, s *memlease.Server) {
		c, d := process(t, s), process(t, s)
		h, err := c.Mutex("k").Lock(t.Context())
		require.NoError(t, err)
		go func() {
			_, err := c.Mutex("k").Lock(t.Context())
			if !errors.Is(err, ErrClosed) {
				t.Errorf("%v instead of ErrClosed", err)
			}
		}()
		synctest.Wait()
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		require.NoError(t, c.Close(ctx))
		require.NoError(t, c.Close(ctx))
		require.ErrorIs(t, h.Unlock(), ErrClosed)
		h, err = d.Mutex("k").TryLock(t.Context())
		require.NoError(t, err)
		require.NoError(t, h.Unlock())
		_, err = c.Mutex("k").Lock(t.Context())
		require.ErrorIs(t, err, ErrClosed)
	})
}

func TestLockAll(t *testing.T) {
	in(t, func(t *testing.T, s *memlease.Server) {
		c, d := process(t, s), process(t, s)
		h, err := d.Mutex("b").Lock(t.Context())
		require.NoError(t, err)
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		_, err = c.LockAll(ctx, "c", "a", "b", "a")
		require.ErrorIs(t, err, ErrNotAcquired)
		hold, err := d.Mutex("a").TryLock(t.Context())
		require.NoError(t, err)
		require.NoError(t, hold.Unlock())
		require.NoError(t, h.Unlock())
		all, err := c.LockAll(t.Context(), "c", "a", "b", "a")
		require.NoError(t, err)
		require.Len(t, all.All(), 3)
		require.NoError(t, all.Context().Err())
		require.NoError(t, all.Unlock())
		require.Error(t, all.Context().Err())
	})
}
