package lockz

import (
	"math"
	"strconv"
	"time"
)

// Page is what the page shows, as JSON and as HTML. Beside a list that may be cut
// stands how many more there are; but of the callers of a wait, what they have and whom
// they wait for, and of what is wrong with the server, the first are told, and not how
// many there are.
type Page struct {
	At      time.Time `json:"at"`
	Title   string    `json:"title,omitempty"` // see [WithTitle]
	ID      string    `json:"id"`              // the coordinator's, as it stands in the store
	Server  string    `json:"server"`          // name and version
	Missing []string  `json:"missing"`         // what works less well there, in sentences
	Check   Check     `json:"check"`
	Now     Now       `json:"now"`

	// Totals are the counters of coordinator.Stats, since the coordinator began,
	// with names in lower case: "failed_releases".
	Totals     map[string]uint64 `json:"totals"`
	LogDropped uint64            `json:"log_dropped"` // log lines lost to a slow logger

	Query string `json:"query"` // what the keys below had to have in them

	Cycles     []Cycle `json:"cycles"` // those of processes, which are possible ones, last
	MoreCycles int     `json:"more_cycles"`

	Waits     []Wait `json:"waits"` // the longest first
	MoreWaits int    `json:"more_waits"`

	Keys     []Key `json:"keys"` // those in trouble first
	MoreKeys int   `json:"more_keys"`

	Fleet *Fleet `json:"fleet,omitempty"` // asked for with fleet=1
}

// Now counts what there is at this moment, in all keys.
type Now struct {
	Keys        int     `json:"keys"`   // held, waited for, or known of
	Leases      int     `json:"leases"` // that the process has, idle ones included
	Holds       int     `json:"holds"`  // readers included that came in without asking
	Waiters     int     `json:"waiters"`
	Wanted      int     `json:"wanted"`  // keys that other processes wait for
	Failing     int     `json:"failing"` // keys whose last command failed
	LongestWait Seconds `json:"longest_wait"`
	LongestHold Seconds `json:"longest_hold"`
}

// Check is what was found wrong with the server when it was last asked.
type Check struct {
	// State is "ok", "problems", "failed" (the server could not be asked),
	// "unknown" (it was not asked yet) or "off".
	State    string    `json:"state"`
	At       time.Time `json:"at,omitzero"`
	Age      Seconds   `json:"age"`
	Problems []Problem `json:"problems,omitempty"`
	Error    string    `json:"error,omitempty"`
}

// Problem is something about a server that is wrong for locks. See lease.Problem.
type Problem struct {
	Code  string `json:"code"`
	Fatal bool   `json:"fatal"`
	Text  string `json:"text"`
}

// Name is a key as it is shown: as it is, if it can be read as it is and is not
// long, and otherwise cut and quoted as errors show it, as a string of Go.
type Name struct {
	Text   string `json:"key"`
	Quoted bool   `json:"quoted,omitempty"`
	Bytes  int    `json:"bytes"` // of the key itself
}

// Key is one key that the process holds, waits for, or knows of.
type Key struct {
	Name
	Class  string  `json:"class,omitempty"`
	Kind   string  `json:"kind"`            // "mutex" or "read/write lock"
	Phase  string  `json:"phase"`           // of the lease: "free", "acquiring", "queued" or "held"
	Mode   string  `json:"mode,omitempty"`  // of the lease
	Owner  string  `json:"owner,omitempty"` // the lease's name in the store
	Valid  Seconds `json:"valid"`           // what is left of a held lease, if it is not renewed
	Holder string  `json:"holder,omitempty"`

	// HolderTrace is the hold there that was heard of last, and HolderTraceAge how long
	// ago that was, if anything was heard: it may have ended since.
	HolderTrace    *Trace  `json:"holder_trace,omitempty"`
	HolderTraceAge Seconds `json:"holder_trace_age,omitempty"`

	Rank    *int   `json:"rank,omitempty"` // of a queued process; 0 is the head of the store's queue
	Wanted  bool   `json:"wanted"`         // other processes wait for it
	Failure string `json:"failure,omitempty"`

	// Cycle says that a call that waits for the key is in a deadlock of callers of
	// this process, which is one of the Page's cycles, or of the same knot as one of
	// them, or counted in MoreCycles.
	Cycle bool `json:"cycle"`

	Holds       []Hold   `json:"holds"`
	MoreHolds   int      `json:"more_holds"`
	Readers     int      `json:"readers"` // who came in without asking, and are only counted
	Waiters     []Waiter `json:"waiters"` // in their order
	MoreWaiters int      `json:"more_waiters"`
	LongestWait Seconds  `json:"longest_wait"`
	LongestHold Seconds  `json:"longest_hold"`
}

// Hold is one hold of a key in this process.
type Hold struct {
	// Caller numbers who has it, where the same caller has another hold in this
	// process, or waits for one, be it on the Page or not; 0: it has not, or nobody
	// can tell. The number is good for this one Page.
	Caller int       `json:"caller,omitempty"`
	Mode   string    `json:"mode"`
	Token  uint64    `json:"token"`
	Count  int       `json:"count"` // re-entrancy depth
	Reads  int       `json:"reads"` // of these, to read
	Age    Seconds   `json:"age"`
	Since  time.Time `json:"since"`
	Path   string    `json:"path,omitempty"`  // how it was granted: see telemetry.Path
	Trace  *Trace    `json:"trace,omitempty"` // of a hold that is older than 100 ms, as a rule, or was looked at before

	// Place is where Lock was called, with coordinator.WithDebug or
	// telemetry.Config.AlarmStack.
	Place string `json:"place,omitempty"`
}

// Trace is where a span is.
type Trace struct {
	TraceID string `json:"trace_id"`
	SpanID  string `json:"span_id"`
	URL     string `json:"url,omitempty"` // see telemetry.Config.TraceURL
}

// Waiter is one call that waits for a key in this process.
type Waiter struct {
	Callers []int     `json:"callers,omitempty"` // who it is made by, the innermost first
	Mode    string    `json:"mode"`
	Try     bool      `json:"try,omitempty"` // a TryLock, which waits for the store's answer only
	Age     Seconds   `json:"age"`
	Since   time.Time `json:"since"`
	Trace   *Trace    `json:"trace,omitempty"` // the span that the call was made in, if it is sampled
	Place   string    `json:"place,omitempty"`
}

// Wait is an edge of the waits-for graph: a call, and who is in its way.
type Wait struct {
	Key     Name    `json:"key"`
	Mode    string  `json:"mode"`
	Age     Seconds `json:"age"`
	Callers []int   `json:"callers,omitempty"` // who it is made by
	Has     []Name  `json:"has,omitempty"`     // keys that these hold
	For     []int   `json:"for,omitempty"`     // callers who hold the key
	Behind  *Waiter `json:"behind,omitempty"`  // of a reader: the writer before it, who is next
	Trace   *Trace  `json:"trace,omitempty"`   // see Waiter.Trace
	Holder  string  `json:"holder,omitempty"`  // another process that has it
	Cycle   bool    `json:"cycle,omitempty"`   // see Key.Cycle

	HolderTrace *Trace `json:"holder_trace,omitempty"` // see Key.HolderTrace
}

// Cycle is a deadlock: each step waits for what the next one has, and the last
// for what the first one has, unless steps were cut.
type Cycle struct {
	// Possible says that the steps are processes: it is a deadlock if in each of
	// them it is the waiting call that has the key.
	Possible bool   `json:"possible"`
	Steps    []Step `json:"steps"`
	// Cut is how many steps were cut, between the last of Steps and the first.
	Cut int `json:"cut,omitempty"`
	// More is how many calls beside all these steps are in the same knot: each of them
	// waits for all of it, and all of it for each of them.
	More int `json:"more,omitempty"`
}

// Step is one part of a [Cycle]: a caller, or a process, that has a key and waits
// for another.
type Step struct {
	Caller  int    `json:"caller,omitempty"`
	Process string `json:"process,omitempty"`
	// Has is the key that the step before waits for. Next says that it is not
	// held, but the step is a writer that is before that one, a reader, in the
	// queue.
	Has   Name    `json:"has"`
	Next  bool    `json:"next,omitempty"`
	Token uint64  `json:"token,omitempty"`
	Held  Seconds `json:"held,omitempty"`
	Trace *Trace  `json:"trace,omitempty"`

	Key   Name    `json:"waits_for"`
	Mode  string  `json:"mode"`
	Age   Seconds `json:"age"` // of the wait
	Place string  `json:"place,omitempty"`
}

// Fleet is what the store says about keys that somebody waits for.
type Fleet struct {
	At   time.Time  `json:"at"`
	Keys []FleetKey `json:"keys"`
	More int        `json:"more"` // keys that were not asked about
}

// FleetKey is one key of [Fleet].
type FleetKey struct {
	Name
	Error   string    `json:"error,omitempty"`
	Token   uint64    `json:"token,omitempty"` // the newest given out
	Holders []Process `json:"holders"`
	Waiters []Process `json:"waiters"` // in their order
	More    int       `json:"more"`    // of both
}

// Process is a process's part in a [FleetKey].
type Process struct {
	Owner string    `json:"owner"`
	Here  bool      `json:"here"` // it is this one
	Mode  string    `json:"mode"`
	TTL   Seconds   `json:"ttl"` // what is left to a holder; the whole of a waiter
	Since time.Time `json:"since,omitzero"`
	Age   Seconds   `json:"age,omitempty"`
	Trace *Trace    `json:"trace,omitempty"` // of the hold
}

// Seconds is a duration, in seconds.
type Seconds float64

func seconds(d time.Duration) Seconds {
	return Seconds(d.Round(time.Microsecond).Seconds())
}

// String returns the duration for people: two units at most.
func (s Seconds) String() string {
	number := func(v float64, digits int) string { return strconv.FormatFloat(v, 'f', digits, 64) }
	whole := int64(math.Round(float64(s)))
	switch {
	case s < 0.01:
		return number(float64(s)*1000, 1) + " ms"
	case s < 0.9995:
		return number(float64(s)*1000, 0) + " ms"
	case s < 59.95:
		return number(float64(s), 1) + " s"
	case whole < 3600:
		return strconv.FormatInt(whole/60, 10) + " min " + strconv.FormatInt(whole%60, 10) + " s"
	case whole < 48*3600:
		return strconv.FormatInt(whole/3600, 10) + " h " + strconv.FormatInt(whole%3600/60, 10) + " min"
	}
	return strconv.FormatInt(whole/86400, 10) + " d " + strconv.FormatInt(whole%86400/3600, 10) + " h"
}
