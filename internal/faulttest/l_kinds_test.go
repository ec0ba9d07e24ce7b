package faulttest

import (
	"context"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/go-leasehold/leasehold/coordinator"
	"github.com/go-leasehold/leasehold/internal/redistest"
	"github.com/go-leasehold/leasehold/rwlock"
	"github.com/go-leasehold/leasehold/segment"
)

// F7: the lock of a stock's segment is a mutex of a name of its own. Whoever uses that very name gets real exclusion, or is told that it is
// of another kind; a lock with the stock's own name is another lock.
func TestStockLockIsOneOfTheKinds(t *testing.T) {
	t.Parallel()
	s := redistest.Start(t)
	c := process(t, s.Addr())
	stock := stockOf(t, c, segment.Config{Segments: 1})
	require.NoError(t, stock.Load(t.Context(), 3))
	const key = "stock:{s/0}"
	err := stock.WithSegment(t.Context(), "any", 1, func(ctx context.Context, _ segment.Held) error {
		for _, other := range []*coordinator.Coordinator{c, process(t, s.Addr())} {
			_, err := other.Mutex(key).TryLock(t.Context())
			require.ErrorIs(t, err, coordinator.ErrNotAcquired)
			_, err = rwlock.New(other, key).TryRLock(t.Context())
			require.ErrorIs(t, err, coordinator.ErrKind)
			_, err = rwlock.New(other, key).TryLock(t.Context())
			require.ErrorIs(t, err, coordinator.ErrKind)
		}
		hold, err := rwlock.New(c, "s").TryRLock(t.Context())
		require.NoError(t, err)
		require.NoError(t, hold.Unlock())
		return ctx.Err()
	})
	require.NoError(t, err)
	hold, err := rwlock.New(c, key).TryRLock(t.Context())
	require.NoError(t, err)
	err = stock.WithSegment(t.Context(), "any", 1, func(context.Context, segment.Held) error { return nil })
	require.ErrorIs(t, err, coordinator.ErrKind)
	require.NoError(t, hold.Unlock())
	require.Equal(t, segment.Books{Loaded: 3, Sold: 1, Left: 2}, balanced(t, stock))
}
