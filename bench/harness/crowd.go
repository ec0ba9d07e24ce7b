package harness

import (
	"context"
	"errors"
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
	longer := time.Duration(max(1, args.Longer))
	args.Prefix, args.Warm, args.For = c.Prefix(), c.Plan.Warm, c.Plan.For*longer
	// With a longer way to Redis it takes longer until all have begun.
	args.Warm += 20 * c.Delay
	args.Start = time.Now().Add(lead)
	tallies, errs := make([]Tally, len(children)), make(chan error, len(children))
	for i, child := range children {
		go func() { errs <- child.Call(ctx, "Worker.Load", args, &tallies[i]) }()
	}
	time.Sleep(time.Until(args.Start.Add(args.Warm)))
	before, err := c.Server.Read(ctx)
	all := []error{err}
	time.Sleep(time.Until(args.Start.Add(args.Warm + args.For)))
	after, err := c.Server.Read(ctx)
	all = append(all, err)
	for range children {
		all = append(all, <-errs)
	}
	if err := errors.Join(all...); err != nil {
		return nil, err
	}
	return summary(tallies, after.Since(before))
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
