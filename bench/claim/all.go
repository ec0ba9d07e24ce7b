package claim

import (
	"strconv"
	"time"

	"github.com/go-leasehold/leasehold/bench/result"
)

const ours = "leasehold"

// All are the claims, in the order of reports.
var All = func() []Claim {
	all := append(locks(0), others()...)
	for _, c := range locks(time.Millisecond) {
		c.Floor = 0
		all = append(all, c)
	}
	return all
}()

// locks are what is promised of locks, with a network delay.
func locks(delay time.Duration) []Claim {
	at := func(scenario, point string) place { return place{scenario, point, delay} }
	suffix, passed := "", 0.75
	if delay > 0 {
		suffix, passed = ", "+delay.String()+" of delay", 0.6
	}
	all := []Claim{
		{Name: "hot", Text: "64 goroutines of a process on one key: throughput over the semaphore's", Asked: 0.9, AtLeast: true, Floor: 0.4,
			Measure: at("hot", "64").ratio(ours, "semaphore", result.Throughput)},
		{Name: "hot-peer", Text: "64 goroutines of a process on one key: throughput over the best peer's", Asked: 150, AtLeast: true,
			Measure: at("hot", "64").best(ours, result.Throughput)},
		{Name: "processes-peer", Text: "4 processes of 16 goroutines on one key: throughput over the best peer's", Asked: 40, AtLeast: true,
			Measure: at("processes", "4").best(ours, result.Throughput)},
		{Name: "processes-commands", Text: "4 processes of 16 goroutines on one key: commands that Redis runs for a lock", Asked: 0.25, Floor: 1,
			Measure: at("processes", "4").value(ours, result.Executed)},
		{Name: "processes-fairness", Text: "4 processes of 16 goroutines on one key: locks of the slowest process over those of the fastest", Asked: 0.9, AtLeast: true, Floor: 0.5,
			Measure: at("processes", "4").value(ours, result.MinMaxProc)},
		{Name: "handoff-peer", Text: "hand-off to another process after 1 ms, p50: over rueidislock's", Asked: passed,
			Measure: at("handoff", "1").ratio(ours, "rueidislock", result.Latency)},
		{Name: "handoff-ping", Text: "hand-off to another process after 1 ms, p50: over a PING after 1 ms", Asked: 1.8, Floor: 15,
			Measure: at("handoff", "1").ratio(ours, "ping", result.Latency)},
		{Name: "trylock", Text: "64 goroutines' TryLock of a key that another process has: throughput over the best peer's", Asked: 3, AtLeast: true,
			Measure: at("trylock", "64").best(ours, result.Throughput)},
		{Name: "trylock-cached", Text: "64 goroutines' TryLock with Cached() of a key that another process has: throughput over the best peer's", Asked: 100, AtLeast: true,
			Measure: at("trylock", "64").best(ours+"/cached", result.Throughput)},
		{Name: "reads-peer", Text: "99 % reads, 3 processes of 8 goroutines on one key: throughput over the best peer's", Asked: 50, AtLeast: true,
			Measure: at("reads", "99").best(ours, result.Throughput)},
		{Name: "stock-script", Text: "deductions with ID, 256 goroutines: throughput over a script for each", Asked: 2.5, AtLeast: true,
			Measure: at("stock", "with IDs").ratio(ours, "textbook", result.Throughput)},
		{Name: "stock-raw", Text: "deductions with ID, 256 goroutines: throughput over a bare DECRBY for each", Asked: 1.2, AtLeast: true, Floor: 0.5,
			Measure: at("stock", "with IDs").ratio(ours, "pipeline", result.Throughput)},
		{Name: "stock-bare", Text: "deductions without ID, 256 goroutines: throughput over a bare DECRBY for each", Asked: 5, AtLeast: true,
			Measure: at("stock", "without").ratio(ours, "pipeline", result.Throughput)},
	}
	for i := range all {
		all[i].Name += suffixName(delay)
		all[i].Text += suffix
	}
	return all
}

func suffixName(delay time.Duration) string {
	if delay == 0 {
		return ""
	}
	return "-" + delay.String()
}

// others are what is promised where the network has no part in it, or is not varied.
func others() []Claim {
	at := func(scenario, point string) place { return place{scenario: scenario, point: point} }
	// Of the machine that it was measured on, which need not be the one that the report is read on.
	onAllCores := func(other string) measure {
		return func(r result.Report) (Measured, bool) {
			return at("reads-local", strconv.Itoa(r.Machine.Cores)).ratio(ours, other, result.Throughput)(r)
		}
	}
	return []Claim{
		{Name: "violations", Text: "holders of leasehold's locks that met another one inside, in all scenarios", Asked: 0, Worst: true,
			Measure: none(result.Violations)},
		{Name: "relock", Text: "locking a retained key again: the semaphore's throughput over ours", Asked: 4,
			Measure: at("uncontended", "retained").ratio("semaphore", ours, result.Throughput)},
		{Name: "trylock-cached-one", Text: "TryLock with Cached() of one goroutine: throughput over the best peer's", Asked: 100, AtLeast: true,
			Measure: at("trylock", "1").best(ours+"/cached", result.Throughput)},
		{Name: "crash", Text: "the last of 20 waiters has the lock of a killed holder: over its time to live", Asked: 50_000, Unit: "us", Worst: true,
			Measure: at("crash", "holder killed").value(ours, result.OverTTL)},
		{Name: "waiter", Text: "heap of a waiting goroutine", Asked: 1024, Unit: "B",
			Measure: at("memory-waiter", "10000").value(ours, result.HeapPerItem)},
		{Name: "waiter-stack", Text: "a waiting goroutine, over one that waits for a channel: heap and stack", Asked: 1024, Unit: "B",
			Measure: at("memory-waiter", "10000").value(ours, result.OverPark)},
		{Name: "idle", Text: "heap that is left of a key that was locked once", Asked: 64, Unit: "B",
			Measure: at("memory-idle", "10000").value(ours, result.HeapPerItem)},
		{Name: "read-mutex", Text: "reads under a lease that is here, on all cores: throughput over sync.RWMutex's", Asked: 0.1, AtLeast: true,
			Measure: onAllCores("mutex")},
		{Name: "read-textbook", Text: "reads under a lease that is here, on all cores: throughput over a read lock's that asks Redis each time", Asked: 300, AtLeast: true,
			Measure: onAllCores("textbook")},
		{Name: "writer", Text: "a writer among steady readers, p99 of its wait: over 10 times that of a writer alone, and 5 ms for the longest read", Asked: 1,
			Measure: at("writer", "readers").beside(ours, "alone", result.WaitP99, 10, 5000)},
		{Name: "soldout", Text: "orders of what is sold out: throughput over a look into a sync.Map", Asked: 0.2, AtLeast: true,
			Measure: at("soldout", "refused").ratio(ours, "memory", result.Throughput)},
		{Name: "segments", Text: "16 segment locks with 1 ms of work: throughput over one lock's", Asked: 12, AtLeast: true,
			Measure: at("segments", "16").beside(ours, "1", result.Throughput, 1, 0)},
		{Name: "telemetry-none", Text: "no SDK: throughput over that with telemetry turned off, 64 goroutines on one key", Asked: 1 / 1.03, AtLeast: true,
			Measure: at("telemetry", "contended").ratio(ours, ours+"/silent", result.Throughput)},
		{Name: "telemetry-metrics", Text: "an SDK's metrics: throughput over that with telemetry turned off, 64 goroutines on one key", Asked: 1 / 1.10, AtLeast: true,
			Measure: at("telemetry", "contended").ratio(ours+"/metrics", ours+"/silent", result.Throughput)},
		{Name: "telemetry-traces", Text: "an SDK that takes 1 % of the traces: throughput over that with telemetry turned off, 64 goroutines on one key", Asked: 1 / 1.15, AtLeast: true,
			Measure: at("telemetry", "contended").ratio(ours+"/traced", ours+"/silent", result.Throughput)},
	}
}
