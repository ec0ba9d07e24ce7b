package coordinator_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/go-leasehold/leasehold/coordinator"
	"github.com/go-leasehold/leasehold/coordinator/coordinatortest"
)

// What follows is in docs/testing.md, word for word.

// Export is code under test: it must stop when it loses its lock.
func Export(ctx context.Context, locks *coordinator.Coordinator) error {
	return locks.Mutex("export").Do(ctx, func(ctx context.Context) error {
		for range 10 {
			select {
			case <-time.After(time.Second): // a part of the work
			case <-ctx.Done():
				return context.Cause(ctx)
			}
		}
		return nil
	})
}

func TestExportStopsWhenItLosesItsLock(t *testing.T) {
	synctest.Test(t, func(t *testing.T) { // virtual time: this takes no seconds
		h := coordinatortest.New(t)
		time.AfterFunc(2500*time.Millisecond, func() { h.Lose("export") })

		start := time.Now()
		err := Export(t.Context(), h.Coordinator)
		require.ErrorIs(t, err, coordinator.ErrLeaseLost)
		require.Equal(t, 2500*time.Millisecond, time.Since(start), "it stopped at once")
	})
}
