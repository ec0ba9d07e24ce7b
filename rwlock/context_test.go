package rwlock_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/go-leasehold/leasehold/coordinator"
	"github.com/go-leasehold/leasehold/coordinator/coordinatortest"
	"github.com/go-leasehold/leasehold/lease"
	"github.com/go-leasehold/leasehold/rwlock"
)

// inside runs a test inside Read, with the short way open and shut, and inside Write.
func inside(t *testing.T, test func(ctx context.Context, t *testing.T, h *coordinatortest.Harness, l *rwlock.Lock, mode lease.Mode)) {
	t.Helper()
	for name, way := range map[string]struct {
		mode   lease.Mode
		passes uint64
		opts   []coordinator.MutexOption
	}{
		"a read that passes":  {mode: lease.Shared, passes: 1},
		"a read with a limit": {mode: lease.Shared, opts: []coordinator.MutexOption{coordinator.MaxHold(24 * time.Hour)}},
		"a write":             {mode: lease.Exclusive},
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T, h *coordinatortest.Harness) {
				unlock(t, passing(t, h.Coordinator, rwlock.New(h.Coordinator, "k")))
				l := rwlock.New(h.Coordinator, "k", way.opts...)
				do := l.Read
				if way.mode == lease.Exclusive {
					do = l.Write
				}
				before := h.Coordinator.Snapshot().Stats.Passed
				var ctx context.Context
				_ = do(context.WithValue(t.Context(), insideKey{}, "v"), func(c context.Context) error { // what it says is for the test
					ctx = c
					require.Equal(t, way.passes, h.Coordinator.Snapshot().Stats.Passed-before)
					test(c, t, h, l, way.mode)
					return nil
				})
				require.ErrorIs(t, ctx.Err(), context.Canceled, "it is over")
				unlock(t, write(t, l))
			})
		})
	}
}

type insideKey struct{}

// The context of the work has what Lock's has, finds its hold, and is the owner's.
func TestContextInsideReadAndWrite(t *testing.T) {
	inside(t, func(ctx context.Context, t *testing.T, _ *coordinatortest.Harness, l *rwlock.Lock, mode lease.Mode) {
		require.NoError(t, ctx.Err())
		require.NoError(t, context.Cause(ctx))
		require.Equal(t, "v", ctx.Value(insideKey{}))
		_, limited := ctx.Deadline()
		require.False(t, limited)
		hold := coordinator.HoldFrom(ctx)
		require.Equal(t, "k", hold.Key())
		require.Equal(t, 1, hold.Count())
		require.NotZero(t, hold.Token())

		nested, err := l.RLock(ctx)
		require.NoError(t, err)
		require.Equal(t, hold.Token(), nested.Token())
		require.Equal(t, 2, hold.Count())
		unlock(t, nested)
		w, err := l.Lock(ctx)
		if mode == lease.Shared {
			require.ErrorIs(t, err, coordinator.ErrUpgrade)
		} else {
			require.NoError(t, err)
			unlock(t, w)
		}
		child, cancel := context.WithTimeout(ctx, time.Second)
		defer cancel()
		<-child.Done()
		require.ErrorIs(t, child.Err(), context.DeadlineExceeded)
		require.NoError(t, ctx.Err())
		require.True(t, hold.Valid())
	})
}

// What is made from it ends with it, for the same reason.
func TestContextInsideEndsWithTheLease(t *testing.T) {
	inside(t, func(ctx context.Context, t *testing.T, h *coordinatortest.Harness, _ *rwlock.Lock, _ lease.Mode) {
		child, cancel := context.WithCancel(context.WithValue(ctx, insideKey{}, "w"))
		defer cancel()
		told := make(chan error, 1)
		defer context.AfterFunc(child, func() { told <- context.Cause(child) })()
		h.Lose("k")
		require.ErrorIs(t, <-told, coordinator.ErrLeaseLost)
		require.ErrorIs(t, context.Cause(ctx), coordinator.ErrLeaseLost)
		require.ErrorIs(t, ctx.Err(), context.Canceled)
		require.ErrorIs(t, coordinator.HoldFrom(child).Err(), coordinator.ErrLeaseLost)
	})
}

// It says so also where nobody waited for its end.
func TestContextInsideSaysThatTheLeaseWasLost(t *testing.T) {
	inside(t, func(ctx context.Context, t *testing.T, h *coordinatortest.Harness, _ *rwlock.Lock, _ lease.Mode) {
		h.Lose("k")
		time.Sleep(time.Second)
		require.ErrorIs(t, ctx.Err(), context.Canceled)
		require.ErrorIs(t, context.Cause(ctx), coordinator.ErrLeaseLost)
		select {
		case <-ctx.Done():
		default:
			require.Fail(t, "it goes on")
		}
	})
}

// Work that looks at nothing keeps nobody out beyond the end of its context.
func TestWorkThatLooksAtNothingIsEndedWithItsContext(t *testing.T) {
	bubble(t, func(t *testing.T, h *coordinatortest.Harness) {
		l := rwlock.New(h.Coordinator, "k")
		for range 3 {
			unlock(t, passing(t, h.Coordinator, l))
			ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
			began := time.Now()
			var writer *pending
			passed := h.Coordinator.Snapshot().Stats.Passed
			err := l.Read(ctx, func(context.Context) error {
				require.Equal(t, passed+1, h.Coordinator.Snapshot().Stats.Passed)
				writer = begin(t, rwlock.New(h.Another(), "k").Lock)
				synctest.Wait()
				writer.waits(t)
				<-writer.done
				require.Equal(t, time.Minute, time.Since(began))
				return nil
			})
			require.ErrorIs(t, err, coordinator.ErrHoldExpired)
			require.ErrorIs(t, err, context.DeadlineExceeded)
			unlock(t, writer.granted(t))
			cancel()
		}
	}, coordinator.WithSharedRetention(time.Hour))
}
