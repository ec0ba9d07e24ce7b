package scenario

import (
	"context"

	"github.com/go-leasehold/leasehold/bench/contender"
	"github.com/go-leasehold/leasehold/bench/harness"
	"github.com/go-leasehold/leasehold/bench/result"
)

func init() {
	register(harness.Scenario{
		Name:     "trylock",
		Title:    "TryLock on a key that another process has",
		Question: "How quickly is it said that somebody else has the lock?",
		Method: "One process has the key all the time. Goroutines of another one try to get it, and are told that it is held. " +
			"leasehold/cached may say so from what client-side caching told it, without asking.",
		Axis:     "goroutines",
		Headline: result.Throughput,
		Main:     "64",
		Points: func(full bool) []harness.Point {
			if full {
				return numbers(1, 8, 64, 256)
			}
			return numbers(1, 64)
		},
		Delayed:   func(p harness.Point) bool { return p.X == 64 },
		Processes: func(harness.Point) int { return 2 },
		Enters: func(info contender.Info, _ harness.Point) bool {
			return locks(info) && info.Variant == "" || named(info, "leasehold/cached", "ping")
		},
		Round: tryHeld,
	})
}

func tryHeld(ctx context.Context, c *harness.Cast) (result.Round, error) {
	action := harness.Try
	if c.Contender.ExcludesNobody {
		action = harness.Lock
	}
	holder, others := c.Children[0], c.Children[1:]
	key := c.Key(0)
	if err := holder.Call(ctx, "Worker.Hold", key, &harness.Nothing{}); err != nil {
		return nil, err
	}
	round, err := c.LoadOn(ctx, others, harness.LoadArgs{Action: action, Goroutines: int(c.Point.X), Taken: true})
	if err := holder.Call(ctx, "Worker.Release", key, &harness.Nothing{}); err != nil {
		return nil, err
	}
	return round, err
}
