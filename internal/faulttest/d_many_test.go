package faulttest

import (
	"fmt"
	"runtime"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/go-leasehold/leasehold/coordinator"
	"github.com/go-leasehold/leasehold/internal/redistest"
)

// D6 (one node): very many keys are held at the same time. None expires; renewals go in batches, take no memory, no
// stack and no goroutine each, and stand in nobody's way. It measures the whole process, so it runs alone.
func TestThousandsOfHeldKeysAreRenewedInTime(t *testing.T) {
	n := rounds(2_000, 20_000)
	ttl := lasting(6*time.Second, 10*time.Second)
	server := redistest.Start(t)
	c := steady(t, server.Addr(), coordinator.WithTTL(ttl))
	holds := holdMany(t, c, n)
	before, usage := stats(c), measure()
	reads := info(t, server, "stats", "total_reads_processed")

	began, slowest := time.Now(), time.Duration(0)
	for stats(c).Renewals < uint64(n*rounds(2, 9)) { // each has been looked at once, and renewed
		hold, took, err := try(t, c.Mutex("another"))
		require.NoError(t, err)
		require.NoError(t, hold.Unlock())
		slowest = max(slowest, took)
		require.Less(t, time.Since(began), 3*hangs, "renewals are late")
		time.Sleep(20 * time.Millisecond)
	}

	renewals := stats(c).Renewals - before.Renewals
	reads = info(t, server, "stats", "total_reads_processed") - reads
	grown := measure()
	t.Logf("%d renewals in %d reads of the server; %v; memory %+d KiB, stack %+d KiB, goroutines %+d; slowest TryLock beside them %v",
		renewals, reads, ttl, (grown.heap-usage.heap)>>10, (grown.stack-usage.stack)>>10, grown.goroutines-usage.goroutines, slowest)
	require.Zero(t, stats(c).Lost)
	for _, hold := range holds {
		require.NoError(t, hold.Err())
	}
	require.GreaterOrEqual(t, len(server.Keys(t, "lock:held-*")), n, "a key expired")
	require.Less(t, 4*reads, int64(renewals), "renewals are sent one by one")
	require.Less(t, grown.heap-usage.heap, usage.heap/2+(4<<20), "renewing takes memory")
	require.Less(t, grown.stack-usage.stack, int64(4<<20), "renewing takes stack")
	require.Less(t, grown.goroutines-usage.goroutines, 50, "renewing takes goroutines")
	require.Less(t, slowest, ttl/3+slack, "renewals stood in the way")
	for _, hold := range holds {
		require.NoError(t, hold.Unlock())
	}
}

func holdMany(t *testing.T, c *coordinator.Coordinator, n int) []*coordinator.Hold {
	holds := make([]*coordinator.Hold, n)
	var all sync.WaitGroup
	const workers = 16
	for w := range workers {
		all.Go(func() {
			for i := w; i < n; i += workers {
				hold, err := c.Mutex(fmt.Sprintf("held-%d", i)).Lock(t.Context())
				if err != nil {
					t.Error(err)
					return
				}
				holds[i] = hold
			}
		})
	}
	all.Wait()
	if t.Failed() {
		t.FailNow()
	}
	return holds
}

// usage is what the whole process takes at the moment.
type usage struct {
	heap, stack int64
	goroutines  int
}

func measure() usage {
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return usage{int64(m.HeapAlloc), int64(m.StackInuse), runtime.NumGoroutine()}
}
