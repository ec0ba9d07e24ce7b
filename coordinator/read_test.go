package coordinator

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/go-leasehold/leasehold/lease"
	"github.com/go-leasehold/leasehold/lease/memlease"
)

// openGate returns a read/write lock whose gate is open, with nobody inside.
func openGate(t *testing.T, server *memlease.Server, opts ...Option) (*Coordinator, *ReadWrite) {
	t.Helper()
	c, err := NewWithStore(server.Store(), append([]Option{WithSharedRetention(time.Hour)}, opts...)...)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, c.Close(context.Background())) })
	l := c.ReadWrite("k")
	for range 2 {
		h, err := l.Lock(t.Context(), lease.Shared)
		require.NoError(t, err)
		require.NoError(t, h.Unlock())
	}
	return c, l
}

// Reads that ask nothing of their context pass the gate, and leave no trace in the
// actor; what they ask makes ordinary holds of them.
func TestReadPassesTheGateUntilItsContextIsAsked(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, l := openGate(t, memlease.NewServer())
		type userKey struct{}
		parent := context.WithValue(t.Context(), userKey{}, "mine")
		inside := func() int { return len(c.Snapshot().Keys[0].Holds) }

		require.NoError(t, l.Do(parent, lease.Shared, func(ctx context.Context) error {
			require.NoError(t, ctx.Err())
			require.Equal(t, "mine", ctx.Value(userKey{}))
			require.NoError(t, context.Cause(ctx))
			require.NotZero(t, HoldFrom(ctx).Token())
			require.Zero(t, inside())
			require.Equal(t, 1, c.Snapshot().Keys[0].Readers)
			return nil
		}))
		var kept context.Context
		require.NoError(t, l.Do(parent, lease.Shared, func(ctx context.Context) error {
			kept = ctx
			done := ctx.Done()
			require.Equal(t, 1, inside())
			require.Zero(t, c.Snapshot().Keys[0].Readers)
			require.Equal(t, "mine", ctx.Value(userKey{}))
			require.NoError(t, ctx.Err())
			require.Equal(t, done, ctx.Done())
			child, cancel := context.WithTimeout(ctx, time.Minute)
			defer cancel()
			again, err := l.Lock(child, lease.Shared)
			require.NoError(t, err)
			require.Equal(t, 2, again.Count())
			_, err = l.Lock(child, lease.Exclusive)
			require.ErrorIs(t, err, ErrUpgrade)
			return again.Unlock()
		}))
		require.ErrorIs(t, kept.Err(), context.Canceled)
		require.ErrorIs(t, context.Cause(kept), ErrReleased)
		require.EqualValues(t, 2, c.Snapshot().Stats.Passed)
	})
}

// A read that never asked its context is over when it returns, and its context says so.
func TestContextOfAShortReadEndsWithIt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		_, l := openGate(t, memlease.NewServer())
		var kept context.Context
		require.NoError(t, l.Do(t.Context(), lease.Shared, func(ctx context.Context) error { kept = ctx; return nil }))
		require.ErrorIs(t, kept.Err(), context.Canceled)
		require.ErrorIs(t, context.Cause(kept), ErrReleased)
		<-kept.Done()
	})
}

func TestReadEndsWithItsContextWhetherItReturnsOrNot(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		_, l := openGate(t, memlease.NewServer())
		ctx, cancel := context.WithCancelCause(t.Context())
		why := errors.New("enough")
		err := l.Do(ctx, lease.Shared, func(ctx context.Context) error {
			cancel(why)
			// The lock is free although this function goes on.
			w, err := l.Lock(t.Context(), lease.Exclusive)
			require.NoError(t, err)
			require.ErrorIs(t, ctx.Err(), context.Canceled)
			return w.Unlock()
		})
		require.ErrorIs(t, err, ErrHoldExpired)
		require.ErrorIs(t, err, why)
	})
}

func TestLostShortReadSaysSo(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		server := memlease.NewServer()
		_, l := openGate(t, server)
		own := errors.New("own")
		err := l.Do(t.Context(), lease.Shared, func(ctx context.Context) error {
			time.Sleep(time.Second) // it is looked at by now
			server.Delete("k")
			time.Sleep(time.Second)
			require.ErrorIs(t, ctx.Err(), context.Canceled)
			require.ErrorIs(t, context.Cause(ctx), ErrLeaseLost)
			<-ctx.Done()
			return own
		})
		require.ErrorIs(t, err, ErrLeaseLost)
		require.ErrorIs(t, err, own)
	})
}

func TestPanicInAShortReadFreesTheLock(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		_, l := openGate(t, memlease.NewServer())
		require.PanicsWithValue(t, "oops", func() {
			_ = l.Do(t.Context(), lease.Shared, func(context.Context) error { panic("oops") })
		})
		w, err := l.TryLock(t.Context(), lease.Exclusive)
		require.NoError(t, err)
		require.NoError(t, w.Unlock())
	})
}

func TestModeThatThereIsNotIsRefused(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		_, l := openGate(t, memlease.NewServer())
		for _, mode := range []lease.Mode{0, 3} {
			_, err := l.Lock(t.Context(), mode)
			require.ErrorIs(t, err, ErrInvalid)
			require.ErrorContains(t, err, mode.String())
			_, err = l.TryLock(t.Context(), mode)
			require.ErrorIs(t, err, ErrInvalid)
			_, err = l.TryLockFor(t.Context(), mode, time.Second)
			require.ErrorIs(t, err, ErrInvalid)
			err = l.Do(t.Context(), mode, func(context.Context) error { return nil })
			require.ErrorIs(t, err, ErrInvalid)
		}
	})
}
