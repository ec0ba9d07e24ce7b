package scenario

import (
	"context"

	"github.com/go-leasehold/leasehold/bench/contender"
	"github.com/go-leasehold/leasehold/bench/harness"
	"github.com/go-leasehold/leasehold/bench/result"
)

func init() {
	const goroutines = 16
	register(harness.Scenario{
		Name:     "processes",
		Title:    "One hot key in several processes",
		Question: "What do several processes get from one lock, at which cost to Redis, and does each get its share?",
		Method:   "Child processes of 16 goroutines each, which lock and unlock with nothing in between.",
		Axis:     "processes",
		Headline: result.Throughput,
		Main:     "4",
		Points: func(full bool) []harness.Point {
			if full {
				return numbers(2, 4, 8, 16)
			}
			return numbers(2, 4)
		},
		Delayed:   func(p harness.Point) bool { return p.X == 4 },
		Processes: func(p harness.Point) int { return int(p.X) },
		Enters: func(info contender.Info, _ harness.Point) bool {
			return locks(info) || named(info, "leasehold/fair", "ping")
		},
		Round: func(ctx context.Context, c *harness.Cast) (result.Round, error) {
			return c.Load(ctx, harness.LoadArgs{Action: harness.Lock, Goroutines: goroutines})
		},
	})
}
