package harness

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/HdrHistogram/hdrhistogram-go"

	"github.com/go-leasehold/leasehold/bench/result"
)

// lead is how long before a load begins all processes are told of it.
const lead = 20 * time.Millisecond

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
	return summary(tallies, server)
}

// LoadBeside runs a load in the first process, beside another one in all others, and tells what came of the first, but for
// violations and errors, which are of all.
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
	}
	return summary(tallies[:1], server)
}

// loads runs a load in each of some processes, all at the same time, and tells what each of them and the server did meanwhile.
func (c *Cast) loads(ctx context.Context, children []*ChildProcess, each []LoadArgs) ([]Tally, Reading, error) {
	longer := time.Duration(max(1, each[0].Longer))
	// With a longer way to Redis it takes longer until all have begun.
	warm, measured := c.Plan.Warm+20*c.Delay, c.Plan.For*longer
	start := time.Now().Add(lead)
	tallies, errs := make([]Tally, len(children)), make(chan error, len(children))
	for i, child := range children {
		args := each[i]
		args.Prefix, args.Start, args.Warm, args.For = c.Prefix(), start, warm, measured
		go func() { errs <- child.Call(ctx, "Worker.Load", args, &tallies[i]) }()
	}
	time.Sleep(time.Until(start.Add(warm)))
	before, err := c.Server.Read(ctx)
	all := []error{err}
	time.Sleep(time.Until(start.Add(warm + measured)))
	after, err := c.Server.Read(ctx)
	all = append(all, err)
	for range children {
		all = append(all, <-errs)
	}
	return tallies, after.Since(before), errors.Join(all...)
}

// summary makes a round of what the processes and the server tell.
func summary(tallies []Tally, server Reading) (result.Round, error) {
	waits := hdrhistogram.New(1, waitMax, waitDigits)
	var each, processes []float64
	var operations, rate, sent, cpu, violations, failed float64
	var first string
	for _, t := range tallies {
		waits.Merge(hdrhistogram.Import(t.Waits))
		sum := 0.0
		for _, n := range t.Counts {
			each = append(each, float64(n))
			sum += float64(n)
		}
		processes = append(processes, sum)
		operations, rate = operations+sum, rate+sum/t.Took.Seconds()
		sent, cpu = sent+t.Sent, cpu+t.CPU
		violations, failed = violations+float64(t.Violations), failed+float64(t.Errors)
		if first == "" {
			first = t.FirstError
		}
	}
	if operations == 0 && first != "" {
		return nil, errors.New(first)
	}
	const microsecond = float64(time.Microsecond)
	round := result.Round{
		result.Operations: operations,
		result.Throughput: rate,
		result.Violations: violations,
		result.Errors:     failed,
		result.Jain:       jain(each),
		result.MinMax:     evenness(each),
		result.WaitP50:    float64(waits.ValueAtQuantile(50)) / microsecond,
		result.WaitP99:    float64(waits.ValueAtQuantile(99)) / microsecond,
		result.WaitP999:   float64(waits.ValueAtQuantile(99.9)) / microsecond,
		result.WaitMax:    float64(waits.Max()) / microsecond,
	}
	if len(processes) > 1 {
		round[result.JainProc], round[result.MinMaxProc] = jain(processes), evenness(processes)
	}
	if operations > 0 {
		round[result.Sent] = sent / operations
		round[result.Executed] = max(0, server.Commands) / operations
		round[result.Bytes] = max(0, server.Bytes) / operations
		round[result.ClientCPU] = cpu / operations
		round[result.ServerCPU] = server.CPU / operations
	}
	return round, nil
}

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
	least, most := shares[0], shares[0]
	for _, s := range shares {
		least, most = min(least, s), max(most, s)
	}
	if most == 0 {
		return 1
	}
	return least / most
}
