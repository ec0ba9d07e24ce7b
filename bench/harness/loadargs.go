package harness

import (
	"time"

	"github.com/HdrHistogram/hdrhistogram-go"
)

// Action is what the goroutines of a load do, again and again.
type Action string

// The actions.
const (
	Lock Action = "lock" // Lock and Unlock
	Try  Action = "try"  // TryLock, and Unlock where it was got
	Read Action = "read" // RLock or, by LoadArgs.Reads, Lock, of a read/write lock
	Sell Action = "sell" // one unit
	Deny Action = "deny" // one unit of what is sold out
)

// LoadArgs is a load that one process makes.
type LoadArgs struct {
	Action     Action
	Goroutines int
	Prefix     string        // of keys
	Keys       int           // how many there are; 0 and 1: one
	Zipf       float64       // above 1: the first ones are chosen more often, by this exponent. 0: all alike
	Fresh      bool          // each operation has another key, which nobody had before
	Reads      int           // percent of reads
	Work       time.Duration // how long a lock is held, asleep
	Pause      time.Duration // between an operation and the next one
	Segments   int           // a lock is one of so many, chosen by the goroutine's name. 0: it is not segmented
	Units      int64         // of stock, that there are
	IDs        bool          // orders have IDs
	Taken      bool          // another process has the lock all the time: whoever gets it violates that
	Longer     int           // times as long as the plan says. 0: once
}

// Window is when a load runs, and when it counts.
type Window struct {
	Start     time.Time     // when the goroutines begin
	Warm, For time.Duration // how long they run before it counts, and how long it does
	Tail      time.Duration // how long they go on when it counts no more
	Drain     time.Duration // how long calls may take to come back once their context has ended
}

// Tally is what one process measured of a load.
type Tally struct {
	Counts     []int64 // operations of each goroutine
	Waits      *hdrhistogram.Snapshot
	Sent       float64       // commands
	CPU        float64       // microseconds
	Took       time.Duration // that was counted
	Violations int64
	Errors     int64
	FirstError string
}
