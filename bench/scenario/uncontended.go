package scenario

import (
	"context"

	"github.com/go-leasehold/leasehold/bench/contender"
	"github.com/go-leasehold/leasehold/bench/harness"
	"github.com/go-leasehold/leasehold/bench/result"
)

func init() {
	const retained, fresh = "retained", "fresh"
	register(harness.Scenario{
		Name:     "uncontended",
		Title:    "A key that nobody else wants",
		Question: "What does a lock cost where there is no competition?",
		Method: "One goroutine locks and unlocks, with nothing in between: the same key again and again (retained), or " +
			"another one each time, which nobody had before (fresh). A lock that asks Redis is bounded by the ping.",
		Axis:     "keys",
		Headline: result.Throughput,
		Main:     retained,
		Points: func(bool) []harness.Point {
			return []harness.Point{{Label: retained, X: 1}, {Label: fresh, X: 2}}
		},
		Delayed: func(harness.Point) bool { return true },
		Enters: func(info contender.Info, p harness.Point) bool {
			return locks(info) || named(info, "ping") ||
				named(info, "semaphore", "mutex", "leasehold/no-retention") && p.Label == retained
		},
		Round: func(ctx context.Context, c *harness.Cast) (result.Round, error) {
			return c.Load(ctx, harness.LoadArgs{Action: harness.Lock, Goroutines: 1, Fresh: c.Point.Label == fresh})
		},
	})
}
