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
		goroutines = 4
		work       = 10 * time.Millisecond
	)
	register(harness.Scenario{
		Name:     "work",
		Title:    "Long work under contention",
		Question: "Where work takes 10 ms, who gets the lock, and how long does it lie idle between two holders?",
		Method: "Processes of 4 goroutines, each of which holds the lock for 10 ms. A hundred holds a second are the most there can be. " +
			"A round is six times as long as others, so that each goroutine could have several turns.",
		Axis:     "processes",
		Headline: result.Throughput,
		Main:     "4",
		Points: func(full bool) []harness.Point {
			if full {
				return numbers(1, 2, 4)
			}
			return numbers(4)
		},
		Delayed:   func(p harness.Point) bool { return p.X == 4 },
		Processes: func(p harness.Point) int { return int(p.X) },
		Rounds:    3, QuickRounds: 1,
		Enters: func(info contender.Info, p harness.Point) bool {
			return locks(info) || named(info, "leasehold/fair") || named(info, "mutex", "semaphore") && p.X == 1
		},
		Round: func(ctx context.Context, c *harness.Cast) (result.Round, error) {
			return c.Load(ctx, harness.LoadArgs{Action: harness.Lock, Goroutines: goroutines, Work: work, Longer: 6})
		},
	})
}
