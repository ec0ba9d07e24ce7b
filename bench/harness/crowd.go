package harness

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/HdrHistogram/hdrhistogram-go"

	"github.com/go-leasehold/leasehold/bench/result"
)

const (
	// lead is how long before a load begins all processes are told of it.
	lead = 20 * time.Millisecond
	// tail is for how long a load goes on behind what is measured, so that the server is read while it does.
	tail = 10 * time.Millisecond
)

// Load runs a load in all processes at the same time, and tells what came of it.
func (c *Cast) Load(ctx context.Context, args LoadArgs) (result.Round, error) {
	return c.LoadOn(ctx, c.Children, args)
}

// LoadOn is Load in some of the processes.
func (c *Cast) LoadOn(ctx context.Context, children []*ChildProcess, args LoadArgs) (result.Round, error) {
	tallies, server, err := c.loads(ctx, children, slices.Repeat([]LoadArgs{args}, len(children)))
	if err != nil {
		return nil, err
	}
	return c.summary(tallies, server)
}

// LoadBeside runs a load in the first process, beside another one in all others, and tells what came of the first, but for
// violations and errors, which are of all. What the server did is not told, for it did most of it for the others.
func (c *Cast) LoadBeside(ctx context.Context, first, others LoadArgs) (result.Round, error) {
	all := slices.Repeat([]LoadArgs{others}, len(c.Children))
	all[0] = first
	tallies, server, err := c.loads(ctx, c.Children, all)
	if err != nil {
		return nil, err
	}
	for _, t := range tallies[1:] {
		tallies[0].Violations += t.Violations
		tallies[0].Errors += t.Errors
		tallies[0].FirstError = cmp.Or(tallies[0].FirstError, t.FirstError)
	}
	round, err := c.summary(tallies[:1], server)
	for _, name := range []string{result.Executed, result.Bytes, result.ServerCPU} {
		delete(round, name)
	}
	return round, err
}

// loads runs a load in each of some processes, all at the same time, and tells what each of them and the server did meanwhile.
func (c *Cast) loads(ctx context.Context, children []*ChildProcess, each []LoadArgs) ([]Tally, Reading, error) {
	// All of them get ready first, however long that takes; what it leaves to collect is collected by then.
	if err := everyone(children, func(i int, child *ChildProcess) error {
		args := each[i]
		args.Prefix = c.Prefix()
		return child.Call(ctx, "Worker.Prepare", args, &Nothing{})
	}); err != nil {
		return nil, Reading{}, err
	}
	longer := time.Duration(max(1, each[0].Longer))
	window := Window{
		Start: time.Now().Add(lead),
		Warm:  c.Plan.Warm + 20*c.Delay, // with a longer way to Redis it takes longer until all have begun
		For:   c.Plan.For * longer,
		Tail:  tail,
		Drain: drainFor,
	}
	tallies, loaded := make([]Tally, len(children)), make(chan error, 1)
	go func() {
		loaded <- everyone(children, func(i int, child *ChildProcess) error {
			return child.Call(ctx, "Worker.Load", window, &tallies[i])
		})
	}()
	pauseUntil(ctx, window.Start.Add(window.Warm))
	before, errBefore := c.Server.Read(ctx)
	pauseUntil(ctx, window.Start.Add(window.Warm+window.For))
	after, errAfter := c.Server.Read(ctx)
	return tallies, after.Since(before), errors.Join(<-loaded, errBefore, errAfter)
}

// everyone calls all children at the same time, and waits for all of them.
func everyone(children []*ChildProcess, call func(int, *ChildProcess) error) error {
	errs := make([]error, len(children))
	var wg sync.WaitGroup
	for i, child := range children {
		wg.Go(func() { errs[i] = call(i, child) })
	}
	wg.Wait()
	return errors.Join(errs...)
}

// pauseUntil sleeps until a time, or until ctx ends.
func pauseUntil(ctx context.Context, at time.Time) {
	select {
	case <-ctx.Done():
	case <-time.After(time.Until(at)):
	}
}

// summary makes a round of what the processes and the server tell.
func (c *Cast) summary(tallies []Tally, server Reading) (result.Round, error) {
	waits := hdrhistogram.New(1, waitMax, waitDigits)
	var each, processes []float64
	var operations, rate, sent, cpu, violations, failed float64
	for _, t := range tallies {
		waits.Merge(hdrhistogram.Import(t.Waits))
		sum := 0.0
		for _, n := range t.Counts {
			each = append(each, float64(n))
			sum += float64(n)
		}
		processes = append(processes, sum)
		if t.Took <= 0 {
			return nil, fmt.Errorf("a process began when it was over: it measured for %v", t.Took)
		}
		operations, rate = operations+sum, rate+sum/t.Took.Seconds()
		sent, cpu = sent+t.Sent, cpu+t.CPU
		violations, failed = violations+float64(t.Violations), failed+float64(t.Errors)
		c.failed = cmp.Or(c.failed, t.FirstError)
	}
	if operations == 0 && c.failed != "" {
		return nil, errors.New(c.failed)
	}
	const microsecond = float64(time.Microsecond)
	round := result.Round{
		result.Operations: operations,
		result.Throughput: rate,
		result.Violations: violations,
		result.Errors:     failed,
		result.WaitP50:    float64(waits.ValueAtQuantile(50)) / microsecond,
		result.WaitP99:    float64(waits.ValueAtQuantile(99)) / microsecond,
		result.WaitP999:   float64(waits.ValueAtQuantile(99.9)) / microsecond,
		result.WaitMax:    float64(waits.Max()) / microsecond,
	}
	if operations >= fairAbove*float64(len(each)) {
		round[result.Jain], round[result.MinMax] = jain(each), evenness(each)
	}
	if len(processes) > 1 && operations >= fairAbove*float64(len(processes)) {
		round[result.JainProc], round[result.MinMaxProc] = jain(processes), evenness(processes)
	}
	if operations > 0 {
		round[result.Sent] = sent / operations
		round[result.ClientCPU] = cpu / operations
	}
	if seconds := server.Took.Seconds(); operations > 0 && seconds > 0 {
		// The server was read a bit later than the processes were, so it is rates that are compared.
		round[result.Executed] = max(0, server.Commands) / seconds / rate
		round[result.Bytes] = max(0, server.Bytes) / seconds / rate
		round[result.ServerCPU] = max(0, server.CPU) / seconds / rate
	}
	return round, nil
}

// fairAbove is how many operations there have to be for each goroutine, or process, to tell how evenly they share: with
// fewer, even the fairest lock could not give all of them as many, and the slow would look unfair.
const fairAbove = 4

// jain is the fairness index of R. Jain, D. Chiu and W. Hawe (DEC-TR-301, 1984): 1 where all have the same, 1/n where one has all.
func jain(shares []float64) float64 {
	var sum, squares float64
	for _, s := range shares {
		sum += s
		squares += s * s
	}
	if squares == 0 {
		return 1
	}
	return sum * sum / (float64(len(shares)) * squares)
}

// evenness is the least share over the greatest.
func evenness(shares []float64) float64 {
	if len(shares) == 0 || slices.Max(shares) == 0 {
		return 1
	}
	return slices.Min(shares) / slices.Max(shares)
}
