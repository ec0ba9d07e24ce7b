package scenario

import (
	"context"
	"strconv"

	"github.com/go-leasehold/leasehold/bench/contender"
	"github.com/go-leasehold/leasehold/bench/harness"
	"github.com/go-leasehold/leasehold/bench/result"
)

func init() {
	const processes, goroutines = 3, 8
	register(harness.Scenario{
		Name:     "reads",
		Title:    "Read locks",
		Question: "What does a cache get from a read/write lock, with how many writes among its reads?",
		Method: "Three processes of 8 goroutines on one key, which read or write by chance, with nothing in between. " +
			"None of the peers has a read/write lock; the textbook's asks Redis each time, with a script. The mutex is a sync.RWMutex in each process for itself.",
		Axis:     "percent reads",
		Headline: result.Throughput,
		Main:     "99",
		Points: func(bool) []harness.Point {
			return numbers(90, 99, 100)
		},
		Delayed:   func(p harness.Point) bool { return p.Label == strconv.Itoa(99) },
		Processes: func(harness.Point) int { return processes },
		Enters: func(info contender.Info, p harness.Point) bool {
			// In three processes a mutex excludes nobody from writing, so it has a part only where nobody writes.
			return named(info, "leasehold", "leasehold/cache", "textbook", "textbook/1ms", "ping") ||
				named(info, "mutex") && p.X == 100
		},
		Round: func(ctx context.Context, c *harness.Cast) (result.Round, error) {
			args := harness.LoadArgs{Action: harness.Read, Goroutines: goroutines, Reads: int(c.Point.X)}
			if c.Contender.ExcludesNobody {
				args.Action = harness.Lock
			}
			return c.Load(ctx, args)
		},
	})
}
