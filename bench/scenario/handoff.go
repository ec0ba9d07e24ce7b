package scenario

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/go-leasehold/leasehold/bench/contender"
	"github.com/go-leasehold/leasehold/bench/delay"
	"github.com/go-leasehold/leasehold/bench/harness"
	"github.com/go-leasehold/leasehold/bench/result"
)

func init() {
	serve("Handoff", func(w *harness.Worker) any { return &Handoff{w} })
	register(harness.Scenario{
		Name:     "handoff",
		Title:    "Hand-off to another process",
		Question: "How long does it take from an unlock in one process until another one, which waits, has the lock?",
		Method: "Two processes with one goroutine each take turns. A holder stays for some time, so that the other one waits, then unlocks; " +
			"measured is from that call to the other's return from Lock, by a clock that both share. The ping is sent after the same idle time.",
		Axis:     "idle ms",
		Headline: result.Latency,
		Main:     "1",
		Points: func(full bool) []harness.Point {
			if full {
				return numbers(1, 5, 20)
			}
			return numbers(1)
		},
		Delayed:   func(p harness.Point) bool { return p.X == 1 },
		Processes: func(harness.Point) int { return 2 },
		Enters: func(info contender.Info, _ harness.Point) bool {
			return locks(info) || named(info, "ping")
		},
		Round: handoffs,
	})
}

// HandoffArgs is what a process needs to know to take turns with another one.
type HandoffArgs struct {
	Key  string
	Stay time.Duration // how long a holder has the lock
	For  time.Duration
	Ping bool // no turns: a round trip after each stay
}

// Turn is one hold, by the clock that all processes share.
type Turn struct {
	Number            int64 // of all turns
	Granted, Unlocked time.Duration
}

// Handoff is the part of a process.
type Handoff struct{ worker *harness.Worker }

// Turns takes turns with the other process until the time is over.
func (h *Handoff) Turns(args HandoffArgs, turns *[]Turn) error {
	ctx, cancel := context.WithTimeout(context.Background(), args.For)
	defer cancel()
	mutex, guard := h.worker.Process().Mutex(args.Key), h.worker.Guard()
	granted, waiting := guard.Counter(0), guard.Counter(1)
	for ctx.Err() == nil {
		if args.Ping {
			time.Sleep(args.Stay)
		}
		waiting.Add(1)
		asked := harness.Now()
		hold, err := mutex.Lock(ctx)
		got := harness.Now()
		if errors.Is(err, context.DeadlineExceeded) || ctx.Err() != nil {
			return nil // what it got behind the end expires
		}
		if err != nil {
			return err
		}
		if args.Ping {
			*turns = append(*turns, Turn{Granted: got - asked})
			continue
		}
		number := granted.Add(1)
		// The other one waits: it has asked once more than there were grants.
		await(ctx, func() bool { return waiting.Load() > number })
		time.Sleep(args.Stay)
		unlocked := harness.Now()
		if err := hold.Unlock(); err != nil {
			return err
		}
		*turns = append(*turns, Turn{number, got, unlocked})
		// Until the other one has it: this one would only take it again.
		await(ctx, func() bool { return granted.Load() > number })
	}
	return nil
}

// await waits for what another process does. It looks seldom, so as not to be in the way of what is measured meanwhile.
func await(ctx context.Context, is func() bool) {
	const pause = 200 * time.Microsecond
	for !is() && ctx.Err() == nil {
		delay.SleepUntil(time.Now().Add(pause))
	}
}

func handoffs(ctx context.Context, c *harness.Cast) (result.Round, error) {
	idle := time.Duration(c.Point.X) * time.Millisecond
	args := HandoffArgs{
		Key: c.Key(0), Ping: c.Contender.ExcludesNobody,
		Stay: idle + 2*c.Delay, // what the other one sent has arrived by then
		For:  2*c.Plan.For + 50*(idle+5*c.Delay),
	}
	children := c.Children
	if args.Ping {
		children = children[:1]
	}
	before, err := c.Server.Read(ctx)
	if err != nil {
		return nil, err
	}
	logs, errs := make([][]Turn, len(children)), make(chan error, len(children))
	for i, child := range children {
		go func() { errs <- child.Call(ctx, "Handoff.Turns", args, &logs[i]) }()
	}
	var all []error
	for range children {
		all = append(all, <-errs)
	}
	after, err := c.Server.Read(ctx)
	if err := errors.Join(append(all, err)...); err != nil {
		return nil, err
	}
	latencies := passed(logs)
	if args.Ping {
		latencies = pings(logs[0])
	}
	if len(latencies) == 0 {
		return nil, fmt.Errorf("the lock passed to the other process not once in %v", args.For)
	}
	round := recovered(latencies)
	round[result.Executed] = after.Since(before).Commands / float64(len(latencies))
	round[result.Bytes] = after.Since(before).Bytes / float64(len(latencies))
	return round, nil
}

// passed returns how long the lock took from one process to the other, in each turn that followed one of the other's.
func passed(logs [][]Turn) []time.Duration {
	type turn struct {
		Turn
		process int
	}
	var turns []turn
	for process, log := range logs {
		for _, t := range log {
			turns = append(turns, turn{t, process})
		}
	}
	slices.SortFunc(turns, func(a, b turn) int { return int(a.Number - b.Number) })
	var took []time.Duration
	for i := 1; i < len(turns); i++ {
		if before, t := turns[i-1], turns[i]; before.process != t.process && t.Number == before.Number+1 {
			took = append(took, t.Granted-before.Unlocked)
		}
	}
	return took
}

func pings(log []Turn) []time.Duration {
	var took []time.Duration
	for _, t := range log {
		took = append(took, t.Granted)
	}
	return took
}

// recovered makes a round of latencies.
func recovered(latencies []time.Duration) result.Round {
	slices.Sort(latencies)
	at := func(percent int) float64 {
		i := min(len(latencies)-1, len(latencies)*percent/100)
		return float64(latencies[i]) / float64(time.Microsecond)
	}
	return result.Round{
		result.Latency: at(50), result.LatencyP99: at(99), result.LatencyMax: at(100), result.Operations: float64(len(latencies)),
	}
}

// inRedis is what an operator would delete to free a key.
func inRedis(info contender.Info, key string) string { return info.Prefix + key }
