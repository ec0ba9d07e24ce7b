package telemetry

import (
	"fmt"
	"strconv"
	"time"

	"go.opentelemetry.io/otel/trace"
)

// AlarmKind is what an [Alarm] is about.
type AlarmKind string

// The alarms.
const (
	// LongHold: a hold has lasted for [Config.HoldAlarm], and goes on.
	LongHold AlarmKind = "long_hold"
	// LongWait: a call has waited for [Config.WaitAlarm], and goes on.
	LongWait AlarmKind = "long_wait"
	// LateRenewal: a lease was renewed when less than a third of its TTL was
	// left. Renewals are due when two thirds are.
	LateRenewal AlarmKind = "late_renewal"
)

// Alarm tells of something that takes too long.
type Alarm struct {
	Kind    AlarmKind
	Key     string
	Class   string
	Mode    string        // "exclusive" or "shared"
	Since   time.Time     // the grant, the call, or when the renewal was due
	Lasted  time.Duration // since then
	Limit   time.Duration // that it exceeds
	Owner   string        // of LongHold and LateRenewal: the lease's name in the store
	Token   uint64        // of LongHold: its fencing token
	Holder  string        // of LongWait: who has the key, as far as known; a lease's name in the store
	Waiters int           // who wait for the key in this process
	Wanted  bool          // another process waits for it
	Stack   string        // of the Lock call, with [Config.AlarmStack]

	// Trace is the hold's span, or, of LongWait, that of the hold in the way; not
	// valid where it is not traced. TraceURL is where to look at it.
	Trace    trace.SpanContext
	TraceURL string
}

// maxKeyShown bounds what a log line shows of a key.
const maxKeyShown = 128

// shown returns a key as texts show it.
func shown(key string) string {
	if len(key) > maxKeyShown {
		return fmt.Sprintf("%q... (%d bytes)", key[:maxKeyShown], len(key))
	}
	return strconv.Quote(key)
}
