package result

// Metric is what a number means. What is not in [Metrics] is not shown.
type Metric struct {
	Name   string // as in JSON
	Title  string // as in tables and on axes
	Unit   string // "us", "B", "/s", "" for a plain number
	Higher bool   // more is better
}

// The names of the metrics that scenarios of load have in common.
const (
	Throughput = "throughput"                // operations a second
	WaitP50    = "wait_p50"                  // microseconds from asking for the lock to having it
	WaitP99    = "wait_p99"                  //
	WaitP999   = "wait_p999"                 //
	WaitMax    = "wait_max"                  //
	Sent       = "commands_sent"             // commands that clients sent, an operation
	Executed   = "commands_executed"         // commands that Redis ran, an operation: calls inside of scripts, too
	Bytes      = "bytes"                     // to and from Redis, an operation
	ClientCPU  = "cpu_client"                // microseconds of CPU time of all client processes, an operation
	ServerCPU  = "cpu_server"                // microseconds of CPU time of Redis, an operation
	Jain       = "fairness_jain"             // Jain's index over the goroutines: 1 is even, 1/n is one has all
	MinMax     = "fairness_minmax"           // the least over the most operations of a goroutine
	JainProc   = "fairness_jain_processes"   // the same over processes
	MinMaxProc = "fairness_minmax_processes" //
	Violations = "violations"                // holders that met another inside, in all
	Errors     = "errors"                    // calls that failed, in all
	Operations = "operations"                // in all
)

// The names of metrics of single scenarios.
const (
	Latency     = "latency_p50"    // microseconds: of a hand-off, a recovery
	LatencyP99  = "latency_p99"    //
	LatencyMax  = "latency_max"    //
	OverTTL     = "over_ttl"       // microseconds that the longest recovery took over a time to live
	HeapPerItem = "heap_per_item"  // bytes of heap of the process, a key or waiter
	StackPer    = "stack_per_item" // bytes of stacks, a key or waiter
	RedisPer    = "redis_per_item" // bytes of Redis's memory, a key or waiter
	OverPark    = "over_goroutine" // bytes, a waiter, over a goroutine that is parked on a channel
	Goroutines  = "goroutines_per_item"
)

// Metrics are all metrics, in the order of tables.
var Metrics = []Metric{
	{Throughput, "throughput", "/s", true},
	{Latency, "latency p50", "us", false},
	{LatencyP99, "latency p99", "us", false},
	{LatencyMax, "latency max", "us", false},
	{OverTTL, "max after the TTL", "us", false},
	{WaitP50, "wait p50", "us", false},
	{WaitP99, "wait p99", "us", false},
	{WaitP999, "wait p99.9", "us", false},
	{WaitMax, "wait max", "us", false},
	{HeapPerItem, "heap", "B", false},
	{StackPer, "stack", "B", false},
	{OverPark, "over a parked goroutine", "B", false},
	{RedisPer, "Redis", "B", false},
	{Goroutines, "goroutines", "", false},
	{Sent, "commands sent", "", false},
	{Executed, "commands executed", "", false},
	{Bytes, "bytes", "B", false},
	{ClientCPU, "client CPU", "us", false},
	{ServerCPU, "server CPU", "us", false},
	{Jain, "Jain", "", true},
	{MinMax, "min/max", "", true},
	{JainProc, "Jain, processes", "", true},
	{MinMaxProc, "min/max, processes", "", true},
	{Violations, "violations", "", false},
	{Errors, "errors", "", false},
	{Operations, "operations", "", true},
}

// MetricOf returns the metric of a name.
func MetricOf(name string) (Metric, bool) {
	for _, m := range Metrics {
		if m.Name == name {
			return m, true
		}
	}
	return Metric{}, false
}
