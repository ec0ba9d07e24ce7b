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
		alone, among = "alone", "readers"
		readers      = 3
		work         = time.Millisecond
		pause        = 60 * time.Millisecond // longer than an idle lease is kept, so that alone it asks Redis as well
	)
	register(harness.Scenario{
		Name:     "writer",
		Title:    "A writer among steady readers",
		Question: "How long does a writer wait where three processes read all the time?",
		Method: "One process writes once in 60 ms; three others have 8 goroutines each that hold the read lock for 1 ms, again and again. " +
			"Waits and throughput are the writer's.",
		Axis:     "others",
		Headline: result.WaitP50,
		Main:     among,
		Points: func(bool) []harness.Point {
			return []harness.Point{{Label: alone, X: 0}, {Label: among, X: readers}}
		},
		Processes: func(p harness.Point) int { return 1 + int(p.X) },
		Delayed:   func(harness.Point) bool { return true },
		Rounds:    3, QuickRounds: 1,
		Enters: func(info contender.Info, _ harness.Point) bool {
			return named(info, "leasehold", "textbook/1ms")
		},
		Round: func(ctx context.Context, c *harness.Cast) (result.Round, error) {
			writes := harness.LoadArgs{Action: harness.Read, Reads: 0, Goroutines: 1, Pause: pause, Longer: 10}
			reads := harness.LoadArgs{Action: harness.Read, Reads: 100, Goroutines: 8, Work: work, Longer: 10}
			return c.LoadBeside(ctx, writes, reads)
		},
	})
}
