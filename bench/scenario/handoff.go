package scenario

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync/atomic"
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
			"measured is from that call to the other's return from Lock, by a clock that both share. The ping is sent after the same idle time; the list is what a hand-off costs that Redis makes by itself.",
		Axis:        "idle ms",
		Headline:    result.Latency,
		Main:        "1",
		QuickRounds: 2,
		Points: func(full bool) []harness.Point {
			if full {
				return numbers(1, 5, 20)
			}
			return numbers(1)
		},
		Delayed:   func(p harness.Point) bool { return p.X == 1 },
		Processes: func(harness.Point) int { return 2 },
		Enters: func(info contender.Info, _ harness.Point) bool {
			return locks(info) || named(info, "list", "ping")
		},
		Round: handoffs,
	})
}

const (
	leastTurns = 21 // of a round, however slow they are
	// handoffLimit is how much longer a round may take. It is longer than the time to live of locks. Whoever still waits then
	// has failed, and it is said so: leaving out what never came would make a lock look better.
	handoffLimit = 15 * time.Second
)

// HandoffArgs is what a process needs to know to take turns with another one.
type HandoffArgs struct {
	Key  string
	Stay time.Duration // how long a holder has the lock
	For  time.Duration // how long they do at least
	Ping bool          // no turns: a round trip after each stay
}

// Turn is one hold, by the clock that all processes share.
type Turn struct {
	Number            int64 // of all turns
	Granted, Unlocked time.Duration
	Awaited           bool // the other process waited when it was unlocked
}

// HandoffLog is what a process tells of its turns.
type HandoffLog struct {
	Turns      []Turn
	Violations int64
	Sent       int64 // commands
}

// Handoff is the part of a process.
type Handoff struct{ worker *harness.Worker }

// turns are the turns of one process in one round.
type turns struct {
	HandoffArgs
	mutex            contender.Mutex
	guard            *harness.Guard
	granted, waiting *atomic.Int64 // grants and calls of Lock, of both processes
	end              time.Duration // by the shared clock
}

// Turns takes turns with the other process until there were enough of them. Both end by what both see, so that neither waits
// for one that has gone.
func (h *Handoff) Turns(args HandoffArgs, log *HandoffLog) error {
	ctx, cancel := context.WithTimeout(context.Background(), args.For+handoffLimit)
	defer cancel()
	guard, sent := h.worker.Guard(), h.worker.Wire().Commands.Load()
	t := &turns{
		HandoffArgs: args, mutex: h.worker.Process().Mutex(args.Key), guard: guard,
		granted: guard.Counter(0), waiting: guard.Counter(1), end: harness.Now() + args.For,
	}
	one := t.take
	if args.Ping {
		one = t.ping
	}
	guard.Take() // of this round only
	for !t.over(ctx) {
		turn, err := one(ctx)
		if err != nil {
			return fmt.Errorf("turn %d: %w", t.granted.Load()+1, err)
		}
		log.Turns = append(log.Turns, turn)
	}
	log.Violations, log.Sent = guard.Take(), h.worker.Wire().Commands.Load()-sent
	return nil
}

// over tells whether there were enough turns.
func (t *turns) over(ctx context.Context) bool {
	return ctx.Err() != nil || harness.Now() >= t.end && t.granted.Load() >= leastTurns
}

// take is one turn. It ends when the other process has the lock, for this one would only take it again.
func (t *turns) take(ctx context.Context) (Turn, error) {
	t.waiting.Add(1)
	hold, err := t.mutex.Lock(ctx)
	granted := harness.Now()
	if err != nil {
		return Turn{}, err
	}
	t.guard.Enter(0)
	turn := Turn{Number: t.granted.Add(1), Granted: granted}
	// The other one waits: it has asked once more than there were grants.
	turn.Awaited = t.await(ctx, func() bool { return t.waiting.Load() > turn.Number })
	time.Sleep(t.Stay)
	t.guard.Leave(0)
	turn.Unlocked = harness.Now()
	if err := hold.Unlock(); err != nil {
		return Turn{}, err
	}
	t.await(ctx, func() bool { return t.granted.Load() > turn.Number })
	return turn, nil
}

// ping is a round trip after an idle time, told as a turn that was unlocked when the clock was zero.
func (t *turns) ping(ctx context.Context) (Turn, error) {
	time.Sleep(t.Stay)
	asked := harness.Now()
	hold, err := t.mutex.Lock(ctx)
	if err != nil {
		return Turn{}, err
	}
	return Turn{Number: t.granted.Add(1), Granted: harness.Now() - asked}, hold.Unlock()
}

// await waits for what another process does, and tells whether it did, or there were enough turns. It looks seldom, so as not to
// be in the way of what is measured meanwhile.
func (t *turns) await(ctx context.Context, is func() bool) bool {
	const pause = 200 * time.Microsecond
	for !is() {
		if t.over(ctx) {
			return false
		}
		delay.SleepUntil(time.Now().Add(pause))
	}
	return true
}

func handoffs(ctx context.Context, c *harness.Cast) (result.Round, error) {
	idle := time.Duration(c.Point.X) * time.Millisecond
	args := HandoffArgs{
		Key: c.Key(0), Ping: c.Contender.ExcludesNobody,
		Stay: idle + 2*c.Delay, // what the other one sent has arrived by then
		For:  2*c.Plan.For + leastTurns*(idle+5*c.Delay),
	}
	children := c.Children
	if args.Ping {
		children = children[:1]
	}
	before, err := c.Server.Read(ctx)
	if err != nil {
		return nil, err
	}
	logs, errs := make([]HandoffLog, len(children)), make(chan error, len(children))
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
		latencies = pings(logs[0].Turns)
	}
	if len(latencies) == 0 {
		return nil, fmt.Errorf("the lock passed to the other process not once in %v", args.For+handoffLimit)
	}
	round, n := recovered(latencies), float64(len(latencies))
	round[result.Executed] = after.Since(before).Commands / n
	round[result.Bytes] = after.Since(before).Bytes / n
	for _, log := range logs {
		round[result.Violations] += float64(log.Violations)
		round[result.Sent] += float64(log.Sent) / n
	}
	return round, nil
}

// passed returns how long the lock took from one process to the other, in each turn that followed one of the other's, and was
// waited for.
func passed(logs []HandoffLog) []time.Duration {
	type turn struct {
		Turn
		process int
	}
	var turns []turn
	for process, log := range logs {
		for _, t := range log.Turns {
			turns = append(turns, turn{t, process})
		}
	}
	slices.SortFunc(turns, func(a, b turn) int { return int(a.Number - b.Number) })
	var took []time.Duration
	for i := 1; i < len(turns); i++ {
		if before, t := turns[i-1], turns[i]; before.process != t.process && before.Awaited && t.Number == before.Number+1 {
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
