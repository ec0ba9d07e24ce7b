package scenario

import (
	"context"
	"time"

	"github.com/go-leasehold/leasehold/bench/contender"
	"github.com/go-leasehold/leasehold/bench/harness"
	"github.com/go-leasehold/leasehold/bench/result"
)

func init() {
	const (
		goroutines = 256
		work       = time.Millisecond
	)
	register(harness.Scenario{
		Name:     "segments",
		Title:    "One lock made of many",
		Question: "How much more is done where a hot lock is split into segments?",
		Method: "256 goroutines of one process, each a user of its own, hold a lock for 1 ms. " +
			"memory has as many sync.Mutexes, which is as good as it can get.",
		Axis:     "segments",
		Headline: result.Throughput,
		Main:     "16",
		Points:   func(bool) []harness.Point { return numbers(1, 4, 16) },
		Enters:   func(info contender.Info, _ harness.Point) bool { return named(info, "leasehold", "memory") },
		Round: func(ctx context.Context, c *harness.Cast) (result.Round, error) {
			return c.Load(ctx, harness.LoadArgs{
				Action: harness.Lock, Goroutines: goroutines, Work: work, Segments: int(c.Point.X), Longer: 2,
			})
		},
	})
}
