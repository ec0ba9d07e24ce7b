package coordinator

import (
	"context"
	"fmt"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/go-leasehold/leasehold/lease/memlease"
)

// Keys leave the table all the time; no counter goes back, and none is short in the end.
func TestSnapshotCountsKeysThatLeaveMeanwhile(t *testing.T) {
	server := memlease.NewServer()
	defer server.Close()
	c, err := NewWithStore(server.Store(), WithRetention(0))
	require.NoError(t, err)
	const workers, locks = 4, 500
	var wg sync.WaitGroup
	for w := range workers {
		wg.Go(func() {
			for i := range locks {
				h, err := c.Mutex(fmt.Sprintf("k-%d-%d", w, i)).Lock(context.Background())
				if err != nil {
					t.Error(err)
					return
				}
				_ = h.Unlock()
			}
		})
	}
	done := make(chan struct{})
	go func() { wg.Wait(); close(done) }()
	var newest uint64
	for running := true; running; {
		select {
		case <-done:
			running = false
		default:
		}
		grants := c.Snapshot().Stats.Grants
		require.GreaterOrEqual(t, grants, newest)
		newest = grants
	}
	require.EqualValues(t, workers*locks, newest)
	require.NoError(t, c.Close(context.Background()))
}
