package scenario

import (
	"context"

	"github.com/go-leasehold/leasehold/bench/contender"
	"github.com/go-leasehold/leasehold/bench/harness"
	"github.com/go-leasehold/leasehold/bench/result"
)

func init() {
	const (
		processes, goroutines = 2, 32
		exponent              = 1.1
	)
	register(harness.Scenario{
		Name:     "keys",
		Title:    "Many keys, some of them hot",
		Question: "What do two processes get where most calls are for a few of many keys?",
		Method:   "Two processes of 32 goroutines. Each call is for a key chosen by Zipf's law with exponent 1.1, as users choose articles.",
		Axis:     "keys",
		Headline: result.Throughput,
		Main:     "10000",
		Points: func(full bool) []harness.Point {
			if full {
				return numbers(10, 100, 1_000, 10_000, 100_000)
			}
			return numbers(100, 10_000)
		},
		Delayed:   func(p harness.Point) bool { return p.X == 10_000 },
		Processes: func(harness.Point) int { return processes },
		Enters:    func(info contender.Info, _ harness.Point) bool { return locks(info) || named(info, "ping") },
		Round: func(ctx context.Context, c *harness.Cast) (result.Round, error) {
			return c.Load(ctx, harness.LoadArgs{
				Action: harness.Lock, Goroutines: goroutines, Keys: int(c.Point.X), Zipf: exponent,
			})
		},
	})
}
