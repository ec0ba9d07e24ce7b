package scenario

import (
	"context"

	"github.com/go-leasehold/leasehold/bench/contender"
	"github.com/go-leasehold/leasehold/bench/harness"
	"github.com/go-leasehold/leasehold/bench/result"
)

func init() {
	const (
		goroutines = 256
		units      = 1 << 40 // more than any round can sell
	)
	const ids, bare = "with IDs", "without"
	register(harness.Scenario{
		Name:     "stock",
		Title:    "Stock",
		Question: "How many orders a second does one process sell?",
		Method: "256 goroutines sell one unit after the other. With IDs an order is taken once, however often it is sent. " +
			"The textbook runs a script for each order; pipeline is a bare DECRBY for each, pipelined, which looks at nothing and may oversell.",
		Axis:     "orders",
		Headline: result.Throughput,
		Main:     ids,
		Points: func(bool) []harness.Point {
			return []harness.Point{{Label: ids, X: 1}, {Label: bare, X: 2}}
		},
		Delayed: func(harness.Point) bool { return true },
		Enters: func(info contender.Info, _ harness.Point) bool {
			return named(info, "leasehold", "textbook", "pipeline")
		},
		Round: func(ctx context.Context, c *harness.Cast) (result.Round, error) {
			return c.Load(ctx, harness.LoadArgs{
				Action: harness.Sell, Goroutines: goroutines, Units: units, IDs: c.Point.Label == ids,
			})
		},
	})
}
