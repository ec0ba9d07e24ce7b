package scenario

import (
	"context"

	"github.com/go-leasehold/leasehold/bench/contender"
	"github.com/go-leasehold/leasehold/bench/harness"
	"github.com/go-leasehold/leasehold/bench/result"
)

func init() {
	const goroutines = 256
	register(harness.Scenario{
		Name:     "soldout",
		Title:    "Stock that is sold out",
		Question: "What do the orders cost that come when there is nothing left?",
		Method:   "256 goroutines of one process order what is sold out. memory is a look into a sync.Map, with nothing else.",
		Axis:     "orders",
		Headline: result.Throughput,
		Points:   func(bool) []harness.Point { return []harness.Point{{Label: "refused", X: 1}} },
		Enters: func(info contender.Info, _ harness.Point) bool {
			return named(info, "leasehold", "textbook", "memory")
		},
		Round: func(ctx context.Context, c *harness.Cast) (result.Round, error) {
			return c.Load(ctx, harness.LoadArgs{Action: harness.Deny, Goroutines: goroutines, IDs: true})
		},
	})
}
