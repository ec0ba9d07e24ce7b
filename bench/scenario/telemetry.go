package scenario

import (
	"context"

	"github.com/go-leasehold/leasehold/bench/contender"
	"github.com/go-leasehold/leasehold/bench/harness"
	"github.com/go-leasehold/leasehold/bench/result"
)

func init() {
	const again, contended = "retained", "contended"
	register(harness.Scenario{
		Name:     "telemetry",
		Title:    "The cost of telemetry",
		Question: "What does a lock cost more where OpenTelemetry is told of it?",
		Method: "A lock that needs no Redis, so that nothing hides the cost: one goroutine on a retained key, and 64 on one key. " +
			"silent has neither meter nor tracer; metrics an SDK's meter; traced an SDK's tracer that takes 1 % of the traces.",
		Axis:     "goroutines",
		Headline: result.Throughput,
		Main:     contended,
		Points: func(bool) []harness.Point {
			return []harness.Point{{Label: again, X: 1}, {Label: contended, X: 64}}
		},
		Enters: func(info contender.Info, _ harness.Point) bool {
			return named(info, "leasehold/silent", "leasehold", "leasehold/metrics", "leasehold/traced")
		},
		Round: func(ctx context.Context, c *harness.Cast) (result.Round, error) {
			return c.Load(ctx, harness.LoadArgs{Action: harness.Lock, Goroutines: int(c.Point.X)})
		},
	})
}
