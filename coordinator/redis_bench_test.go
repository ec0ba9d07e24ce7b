package coordinator

import (
	"context"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/go-leasehold/leasehold/internal/redistest"
)

// BenchmarkHandoff measures how long it takes from Unlock in one process to the
// end of Lock in another, beside a PING sent after the same idle time.
func BenchmarkHandoff(b *testing.B) {
	ctx := context.Background()
	s := redistest.Start(b)
	holder, waiter := redisProcess(b, s), redisProcess(b, s)
	client := s.Client(b)
	const idle = 2 * time.Millisecond
	var handoffs, pings []time.Duration
	held, err := holder.Mutex("k").Lock(ctx)
	require.NoError(b, err)
	for b.Loop() {
		granted := make(chan time.Time, 1)
		got := make(chan *Hold, 1)
		go func() {
			h, err := waiter.Mutex("k").Lock(ctx)
			granted <- time.Now()
			if err != nil {
				b.Error(err)
			}
			got <- h
		}()
		time.Sleep(idle)
		start := time.Now()
		_ = held.Unlock()
		handoffs = append(handoffs, (<-granted).Sub(start))
		held = <-got
		holder, waiter = waiter, holder

		time.Sleep(idle)
		start = time.Now()
		if err := client.Do(ctx, client.B().Ping().Build()).Error(); err != nil {
			b.Fatal(err)
		}
		pings = append(pings, time.Since(start))
	}
	_ = held.Unlock()
	b.Log(s.Do(b, "INFO", "commandstats"))
	h, p := median(handoffs), median(pings)
	b.ReportMetric(float64(h.Microseconds()), "handoff-p50-us")
	b.ReportMetric(float64(p.Microseconds()), "ping-p50-us")
	b.ReportMetric(float64(h)/float64(p), "handoff/ping")
}

func median(d []time.Duration) time.Duration {
	slices.Sort(d)
	return d[len(d)/2]
}
