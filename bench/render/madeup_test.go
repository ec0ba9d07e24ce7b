package render_test

import (
	"strconv"
	"time"

	"github.com/go-leasehold/leasehold/bench/result"
)

// madeUp is a report of a run that never was: a curve, bars, a network delay, a contender that failed, and one that let two in.
func madeUp() result.Report {
	r := result.Report{
		Started: time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC), Took: 95 * time.Second, Command: "go run . -rtt 0,1", Size: "quick",
		Rounds: 3, RoundFor: 120 * time.Millisecond,
		Machine: result.Machine{CPU: "Z80", Cores: 2, MemoryG: 15.6, Kernel: "Linux 6.1", Go: "go1.26.0", Redis: "7.0.15", Load: 0.42},
		Contenders: []result.Contender{
			{Name: "leasehold", Kind: "ours", About: "a lock coordinator in each process", Version: "commit 1234567", Settings: []string{"lease: 10 s", "retention: 100 ms | the default"}},
			{Name: "leasehold/fair", Kind: "ours", Variant: "leasehold", About: "the same, with turns", Version: "commit 1234567"},
			{Name: "redsync", Kind: "peer", About: "SET NX and sleep", Version: "github.com/go-redsync/redsync/v4 v4.18.1", Settings: []string{"retry delay: random"}},
			{Name: "semaphore", Kind: "limit", About: "golang.org/x/sync/semaphore", Version: "golang.org/x/sync v0.25.0"},
		},
	}
	hot := result.Scenario{
		Name: "hot", Title: "One hot key", Question: "What do many goroutines get?", Method: "They lock and unlock.",
		Axis: "goroutines", Headline: result.Throughput, Main: "64",
	}
	for _, delay := range []time.Duration{0, time.Millisecond} {
		for _, goroutines := range []int{1, 64} {
			if delay > 0 && goroutines != 64 {
				continue
			}
			for i, c := range r.Contenders {
				hot.Cells = append(hot.Cells, load(c.Name, goroutines, delay, 1e6/float64(1+1000*i*i)))
			}
		}
	}
	hot.Cells[2].Rounds[1][result.Violations] = 2
	hot.Cells[6].Rounds, hot.Cells[6].Failure = nil, "round 1: it did not come back\nand a long story of why"
	keys := result.Scenario{
		Name: "uncontended", Title: "A key that nobody else wants", Question: "What does it cost?", Method: "One goroutine.",
		Axis: "keys", Headline: result.WaitP50, Main: "retained",
	}
	for i, label := range []string{"retained", "fresh"} {
		for j, c := range r.Contenders[:3] {
			cell := load(c.Name, 1, 0, 1e5/float64(1+100*i+20*j))
			cell.Point, cell.X = label, float64(i+1)
			keys.Cells = append(keys.Cells, cell)
		}
	}
	r.Scenarios = []result.Scenario{hot, keys}
	return r
}

// load is a cell with all that a load measures.
func load(contender string, goroutines int, delay time.Duration, throughput float64) result.Cell {
	c := result.Cell{Contender: contender, Point: strconv.Itoa(goroutines), X: float64(goroutines), Delay: delay}
	for _, noise := range []float64{1, 1.1, 0.8} {
		c.Rounds = append(c.Rounds, result.Round{
			result.Throughput: throughput * noise, result.WaitP50: 1e6 / throughput, result.WaitP99: 2e6 / throughput,
			result.WaitP999: 3e6 / throughput, result.WaitMax: 9e6 / throughput, result.Sent: 0.012, result.Executed: 0.34, result.Bytes: 560,
			result.ClientCPU: 12.3, result.ServerCPU: 0.045, result.Jain: 0.987, result.MinMax: 0.876,
			result.JainProc: 0.98765, result.MinMaxProc: 0.8765, result.Violations: 0, result.Errors: 0, result.Operations: 123456,
		})
	}
	return c
}
