package scenario

import (
	"context"
	"runtime"

	"github.com/go-leasehold/leasehold/bench/contender"
	"github.com/go-leasehold/leasehold/bench/harness"
	"github.com/go-leasehold/leasehold/bench/result"
)

func init() {
	register(harness.Scenario{
		Name:     "reads-local",
		Title:    "Read locks in one process",
		Question: "What does a read cost where nobody writes?",
		Method: "As many goroutines as there are cores read, with nothing in between, under a read lease that is here. " +
			"The mutex is a sync.RWMutex; the textbook asks Redis each time.",
		Axis:     "goroutines",
		Headline: result.Throughput,
		Points:   func(bool) []harness.Point { return numbers(runtime.NumCPU()) },
		Enters: func(info contender.Info, _ harness.Point) bool {
			return named(info, "leasehold", "leasehold/cache", "textbook", "mutex")
		},
		Round: func(ctx context.Context, c *harness.Cast) (result.Round, error) {
			return c.Load(ctx, harness.LoadArgs{Action: harness.Read, Reads: 100, Goroutines: int(c.Point.X)})
		},
	})
}
