package faulttest

import (
	"context"
	"fmt"
	"runtime"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/go-leasehold/leasehold/coordinator"
	"github.com/go-leasehold/leasehold/internal/redistest"
)

// C1: a million keys are locked and unlocked once, half of them long enough to be renewed, a tenth of them with a
// waiter that is cancelled: heap, goroutines and timers are back where they began, and Redis is empty.
func TestMillionKeysOnceUsedLeaveNothingBehind(t *testing.T) {
	const ttl = 2400 * time.Millisecond // held for a bit more than a third of it, every other key is renewed
	const atOnce = 1000
	keys := rounds(2000, 1_000_000)
	s := redistest.Start(t)
	c := process(t, s.Addr(), coordinator.WithUnavailableAfter(0))
	use := func(from, to int) {
		var all sync.WaitGroup
		for i := from; i < to; i++ {
			all.Go(func() { useOnce(t, c, i, ttl) })
		}
		all.Wait()
	}
	use(0, atOnce) // what grows once, such as tables and buffers, has grown by now
	awaitForgotten(t, c, s)
	goroutines, heap := runtime.NumGoroutine(), heapInUse()
	for from := atOnce; from < keys+atOnce; from += atOnce {
		use(from, from+atOnce)
	}
	awaitForgotten(t, c, s)
	require.Greater(t, stats(c).Renewals, uint64(keys/2))
	require.EqualValues(t, keys+atOnce, stats(c).Grants)
	require.Zero(t, stats(c).Lost)
	eventually(t, hangs, "goroutines end", func() bool { return runtime.NumGoroutine() <= goroutines+5 })
	const slack = 4 << 20 // of a million keys it is four bytes each
	require.Less(t, heapInUse(), heap+slack)
}

// useOnce locks and unlocks one key, as its number wants it.
func useOnce(t *testing.T, c *coordinator.Coordinator, i int, ttl time.Duration) {
	var short []coordinator.MutexOption
	if i%2 == 0 {
		short = append(short, coordinator.TTL(ttl))
	}
	m := c.Mutex(fmt.Sprintf("key-%d", i), short...)
	hold, err := m.Lock(context.Background())
	if err != nil {
		t.Error(err)
		return
	}
	if i%10 == 0 {
		ctx, cancel := context.WithCancel(context.Background())
		time.AfterFunc(time.Millisecond, cancel)
		if _, err := m.Lock(ctx); !oneOf(err, context.Canceled) {
			t.Error(err)
		}
		cancel()
	}
	if i%2 == 0 {
		time.Sleep(ttl/3 + ttl/12)
	}
	if err := hold.Unlock(); err != nil {
		t.Error(err)
	}
}

// awaitForgotten waits until the process knows of no key, and wants Redis to know of none either, but for the token
// counters.
func awaitForgotten(t *testing.T, c *coordinator.Coordinator, s *redistest.Server) {
	t.Helper()
	eventually(t, hangs, "every key is forgotten", func() bool { return len(c.Snapshot().Keys) == 0 })
	require.Empty(t, leftovers(t, s))
}

// heapInUse is what is reachable.
func heapInUse() uint64 {
	for range 3 { // pools and clean-ups take more than one round
		runtime.GC()
	}
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return m.HeapAlloc
}
