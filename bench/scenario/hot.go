package scenario

import (
	"context"

	"github.com/go-leasehold/leasehold/bench/contender"
	"github.com/go-leasehold/leasehold/bench/harness"
	"github.com/go-leasehold/leasehold/bench/result"
)

func init() {
	register(harness.Scenario{
		Name:     "hot",
		Title:    "One hot key in one process",
		Question: "What do many goroutines of one process get from one lock?",
		Method: "Each goroutine locks and unlocks, with nothing in between, as fast as it can. " +
			"The semaphore and the mutex need no Redis: they are what memory allows.",
		Axis:     "goroutines",
		Headline: result.Throughput,
		Main:     "64",
		Points: func(full bool) []harness.Point {
			if full {
				return numbers(1, 4, 16, 64, 256, 1024)
			}
			return numbers(1, 64)
		},
		Delayed: func(p harness.Point) bool { return p.X == 64 },
		Enters: func(info contender.Info, _ harness.Point) bool {
			return locks(info) || named(info, "leasehold/fair", "semaphore", "mutex", "ping")
		},
		Round: func(ctx context.Context, c *harness.Cast) (result.Round, error) {
			return c.Load(ctx, harness.LoadArgs{Action: harness.Lock, Goroutines: int(c.Point.X)})
		},
	})
}
