package rwlock_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/go-leasehold/leasehold/coordinator"
	"github.com/go-leasehold/leasehold/coordinator/coordinatortest"
	"github.com/go-leasehold/leasehold/internal/redistest"
	"github.com/go-leasehold/leasehold/rwlock"
)

// readers are the ways in which a read hold comes to be.
var readers = map[string]func(t testing.TB, c *coordinator.Coordinator, l *rwlock.Lock) rwlock.Hold{
	"passing": passing,
	"ordinary": func(t testing.TB, c *coordinator.Coordinator, _ *rwlock.Lock) rwlock.Hold {
		h := read(t, rwlock.New(c, "k", coordinator.MaxHold(24*time.Hour)))
		require.Len(t, keyOf(t, c).Holds, 1)
		return h
	},
	"nested in a read": func(t testing.TB, c *coordinator.Coordinator, l *rwlock.Lock) rwlock.Hold {
		inner, err := l.RLock(passing(t, c, l).Context())
		require.NoError(t, err)
		require.Equal(t, 2, inner.Count())
		return inner
	},
	"nested in a write": func(t testing.TB, _ *coordinator.Coordinator, l *rwlock.Lock) rwlock.Hold {
		inner, err := l.RLock(write(t, l).Context())
		require.NoError(t, err)
		writes, reads := inner.Counts()
		require.Equal(t, []int{1, 1}, []int{writes, reads})
		return inner
	},
	"downgraded": func(t testing.TB, _ *coordinator.Coordinator, l *rwlock.Lock) rwlock.Hold {
		h, err := write(t, l).Downgrade()
		require.NoError(t, err)
		return h
	},
}

// beside returns one more read hold, whose context is not asked for.
func beside(t testing.TB, l *rwlock.Lock, h rwlock.Hold) rwlock.Hold {
	t.Helper()
	ctx := t.Context()
	if writes, _ := h.Counts(); writes > 0 {
		ctx = h.Context() // nobody else comes in
	}
	silent, err := l.RLock(ctx)
	require.NoError(t, err)
	return silent
}

// over requires that a hold ended because its lease was lost.
func over(t testing.TB, h rwlock.Hold) {
	t.Helper()
	require.ErrorIs(t, h.Err(), coordinator.ErrLeaseLost)
	require.False(t, h.Valid())
	require.Zero(t, h.Count())
	_, err := h.Downgrade()
	require.ErrorIs(t, err, coordinator.ErrLeaseLost)
	require.ErrorIs(t, h.Extend(time.Second), coordinator.ErrLeaseLost)
	ctx := h.Context() // also when it is asked for only now
	require.ErrorIs(t, ctx.Err(), context.Canceled)
	require.ErrorIs(t, context.Cause(ctx), coordinator.ErrLeaseLost)
	require.ErrorIs(t, h.Unlock(), coordinator.ErrLeaseLost)
	require.ErrorIs(t, h.Unlock(), coordinator.ErrLeaseLost, "and it says so again")
}

// A read hold ends when its lease is taken away, however it came to be, whether its context was asked for or not.
func TestReadHoldEndsWhenItsLeaseIsTakenAway(t *testing.T) {
	t.Parallel()
	s := redistest.Alone(t)
	for cause, take := range map[string]func(t *testing.T, other *coordinator.Coordinator){
		"deleted": func(t *testing.T, _ *coordinator.Coordinator) { s.Do(t, "DEL", "lock:k") },
		"flushed": func(t *testing.T, _ *coordinator.Coordinator) { s.Do(t, "FLUSHALL") },
		"forced": func(t *testing.T, other *coordinator.Coordinator) {
			require.NoError(t, other.ForceUnlock(t.Context(), "k"))
		},
	} {
		for way, enter := range readers {
			t.Run(cause+"/"+way, func(t *testing.T) {
				// An hour's lease: nobody waits for its end, nor for a renewal.
				c, other := process(t, s, coordinator.WithTTL(time.Hour)), process(t, s)
				l := rwlock.New(c, "k")
				h := enter(t, c, l)
				silent := beside(t, l, h)
				ctx := h.Context()
				require.NoError(t, ctx.Err())
				take(t, other)
				select {
				case <-ctx.Done():
				case <-time.After(patience):
					require.Fail(t, "the hold goes on")
				}
				over(t, h)
				over(t, silent)
				require.EqualValues(t, 1, c.Snapshot().Stats.Lost)

				w := write(t, rwlock.New(other, "k"))
				require.Greater(t, w.Token(), h.Token())
				unlock(t, w)
				r := read(t, l)
				require.GreaterOrEqual(t, r.Token(), w.Token())
				unlock(t, r)
			})
		}
	}
}

// A read hold ends before its lease does, where it can't be renewed: to the millisecond, though nobody asks.
func TestReadHoldEndsBeforeItsLeaseExpires(t *testing.T) {
	for way, enter := range readers {
		t.Run(way, func(t *testing.T) {
			bubble(t, func(t *testing.T, h *coordinatortest.Harness) {
				c, l := h.Coordinator, rwlock.New(h.Coordinator, "k")
				hold := enter(t, c, l)
				silent := beside(t, l, hold)
				other := h.Another()
				restore := h.CutOff(errors.New("unplugged"))
				defer restore()
				began := time.Now()
				ctx := hold.Context()
				w := write(t, rwlock.New(other, "k"))
				// The other one may have it since it has ended here, a hundredth and two milliseconds before.
				require.Equal(t, 10*time.Second, time.Since(began).Truncate(10*time.Millisecond))
				require.Error(t, ctx.Err())
				over(t, hold)
				over(t, silent)
				require.Greater(t, w.Token(), hold.Token())
				unlock(t, w)
			}, coordinator.WithTTL(10*time.Second))
		})
	}
}

// What a hold says does not depend on a timer that is late, nor on the lease being asked for again.
func TestReadHoldIsSafeForAsLongAsItsLeaseOnly(t *testing.T) {
	bubble(t, func(t *testing.T, h *coordinatortest.Harness) {
		l := rwlock.New(h.Coordinator, "k")
		hold := passing(t, h.Coordinator, l)
		defer h.CutOff(errors.New("unplugged"))()
		time.Sleep(9897 * time.Millisecond)
		require.NoError(t, hold.Err())
		require.Equal(t, 1, hold.Count())
		time.Sleep(2 * time.Millisecond) // TTL − TTL/100 − 2 ms
		require.ErrorIs(t, hold.Err(), coordinator.ErrLeaseLost)
		_, err := l.TryRLock(t.Context())
		require.ErrorIs(t, err, coordinator.ErrUnavailable, "nobody comes in by the short way either")
		over(t, hold)
	}, coordinator.WithTTL(10*time.Second))
}

// A reader that crashed keeps writers out for as long as its own lease, whoever else goes on reading.
func TestCrashedReaderKeepsWritersOutForItsTTLOnly(t *testing.T) {
	bubble(t, func(t *testing.T, h *coordinatortest.Harness) {
		other := h.Another()
		crashed := read(t, rwlock.New(h.Coordinator, "k"))
		steady := read(t, rwlock.New(other, "k"))
		h.Crash()
		time.Sleep(time.Minute)
		require.True(t, steady.Valid())
		require.Len(t, inspect(t, other, "k").Holders, 1)
		require.False(t, crashed.Valid())
		writer := begin(t, rwlock.New(h.Another(), "k").Lock)
		waiting := time.Now()
		time.AfterFunc(time.Second, func() { _ = steady.Unlock() })
		unlock(t, writer.granted(t))
		require.Equal(t, time.Second, time.Since(waiting).Truncate(10*time.Millisecond))
	}, coordinator.WithTTL(10*time.Second))
}

// Read and Write say that the hold was lost, even where the work was content.
func TestReadAndWriteSayThatTheirHoldWasLost(t *testing.T) {
	bubble(t, func(t *testing.T, h *coordinatortest.Harness) {
		l := rwlock.New(h.Coordinator, "k")
		failure := errors.New("out of paper")
		for _, do := range []func(context.Context, func(context.Context) error) error{l.Read, l.Write} {
			err := do(t.Context(), func(ctx context.Context) error {
				h.Lose("k")
				<-ctx.Done()
				require.ErrorIs(t, context.Cause(ctx), coordinator.ErrLeaseLost)
				return nil
			})
			require.ErrorIs(t, err, coordinator.ErrLeaseLost)
			err = do(t.Context(), func(ctx context.Context) error {
				h.LoseAll()
				<-ctx.Done()
				return failure
			})
			require.ErrorIs(t, err, failure)
			require.ErrorIs(t, err, coordinator.ErrLeaseLost)
			require.Equal(t, failure, do(t.Context(), func(context.Context) error { return failure }))
		}
	})
}
