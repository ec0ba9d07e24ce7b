package telemetry

import (
	"errors"
	"fmt"
	"strings"
	"time"

	"go.opentelemetry.io/otel/metric"
	"go.opentelemetry.io/otel/trace"
)

// Config says what is told, and to whom. The zero Config tells the global
// providers of OpenTelemetry, in one class of keys, and raises an alarm for a
// hold of 10 s: that is logged also where there is no SDK, and so no spans and no
// metrics.
type Config struct {
	// TracerProvider and MeterProvider make the spans and metrics. nil: the
	// global ones, also where these are set later, which is noticed within a
	// second.
	TracerProvider trace.TracerProvider
	MeterProvider  metric.MeterProvider

	// KeyClass names the class of a key: what metrics and spans show in the
	// place of the key. It must have few values: the first [MaxClasses] of them
	// are kept apart, the rest is [OtherClass], as are all keys where KeyClass is
	// nil, and a key for which it returns "" or panics. Names are cut at
	// [MaxClassName] bytes, so that two which begin alike for so long are one class.
	// It is called on the goroutine that locks, once for each time that the key
	// comes into use.
	//
	// Of segmented locks and of stock it gets the name, and not the keys that are made
	// of that: see coordinator.ClassAs. It is called once for each handle on a stock.
	KeyClass func(key string) string

	// KeyAttribute adds key and fencing token to spans: [AttrKey], [AttrToken].
	// Metrics never have them.
	KeyAttribute bool

	// AllAcquires makes a span for each call, also where it entered at once.
	// [Traced] does the same for single calls.
	AllAcquires bool

	// LeaseSpans makes a span, with a trace of its own, for each lease that a
	// traced call asked for: from the grant to the release or the loss.
	LeaseSpans bool

	// Roots is how many calls in a second may begin a trace where their context
	// has none (the provider's sampler decides whether they do). 0:
	// [DefaultRoots]; negative: none. A call whose context has a span is traced
	// if that one is sampled.
	Roots int

	// HoldAlarm is how long a hold lasts before an alarm is raised, once. 0:
	// [DefaultHoldAlarm]; negative: never.
	HoldAlarm time.Duration

	// WaitAlarm is how long a call waits before an alarm is raised, once. 0 or
	// negative: never.
	WaitAlarm time.Duration

	// OnAlarm is told of each alarm, on a goroutine of its own, one after the
	// other. While it does not return, 4096 alarms wait; what is more is dropped, and
	// counted.
	OnAlarm func(Alarm)

	// AlarmStack has alarms tell where the lock was called. It costs about a
	// microsecond a call.
	AlarmStack bool

	// TraceURL is where traces can be looked at, with {trace} and, if you like,
	// {span} in the place of their ids, in hexadecimal digits:
	// "http://localhost:16686/trace/{trace}". Alarms and the live page have it.
	TraceURL string
}

// Defaults and limits of [Config].
const (
	DefaultHoldAlarm = 10 * time.Second
	DefaultRoots     = 1000
	// MaxClasses bounds the classes of keys, and with it the series of a metric.
	MaxClasses = 64
	// MaxClassName is the length of the longest class name, in bytes.
	MaxClassName = 64
)

// OtherClass is the class of the keys that have no other.
const OtherClass = "other"

// ErrConfig says that a [Config] asks for what can't be.
var ErrConfig = errors.New("leasehold: invalid telemetry configuration")

// Validate says what is wrong with the Config, or nil.
func (c Config) Validate() error {
	if c.TraceURL != "" && !strings.Contains(c.TraceURL, "{trace}") {
		return fmt.Errorf("%w: TraceURL %q has no {trace} in the place of the trace's id", ErrConfig, c.TraceURL)
	}
	return nil
}

// withDefaults returns the Config with what it leaves open filled in. A limit of
// 0 is none from here on.
func (c Config) withDefaults() Config {
	switch {
	case c.HoldAlarm == 0:
		c.HoldAlarm = DefaultHoldAlarm
	case c.HoldAlarm < 0:
		c.HoldAlarm = 0
	}
	c.WaitAlarm = max(c.WaitAlarm, 0)
	switch {
	case c.Roots == 0:
		c.Roots = DefaultRoots
	case c.Roots < 0:
		c.Roots = 0
	}
	return c
}

// URL returns where a trace can be looked at, or "" where [Config.TraceURL] does
// not say, or there is no trace.
func (c Config) URL(s trace.SpanContext) string {
	if c.TraceURL == "" || !s.HasTraceID() {
		return ""
	}
	return strings.NewReplacer("{trace}", s.TraceID().String(), "{span}", s.SpanID().String()).Replace(c.TraceURL)
}
