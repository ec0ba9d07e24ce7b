package telemetry

import (
	"context"
	"log/slog"
	"reflect"
	"sync/atomic"
	"time"

	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/metric"
	"go.opentelemetry.io/otel/trace"
	"go.opentelemetry.io/otel/trace/noop"
)

// Telemetry is what a coordinator tells by. It is for the packages of this
// module: programs give a [Config], and are told. A Telemetry is ready for many
// goroutines.
type Telemetry struct {
	conf Config
	log  *slog.Logger
	instruments
	classes      classes
	registration metric.Registration // of Observe; nil: there is none
	retire       func()              // has only the last totals told from then on; nil: there are none

	// What Look has found.
	active atomic.Bool // somebody wants spans or durations
	timing atomic.Bool // durations
	tracer atomic.Pointer[tracer]
	roots  roots

	looking atomic.Bool // look is to run

	dropped atomic.Int64
	spans   queue // ends spans
	soon    queue // records metrics, and begins spans, where that may not block
	raised  queue // calls OnAlarm
}

// spanDelay is how late spans end, at most, beside what an exporter takes.
const spanDelay = 10 * time.Millisecond

// New returns what tells by a Config. The logger is told of alarms; it must not
// block.
func New(conf Config, log *slog.Logger) (*Telemetry, error) {
	if err := conf.Validate(); err != nil {
		return nil, err
	}
	t := &Telemetry{conf: conf.withDefaults(), log: log}
	t.roots.perSecond, t.roots.base = t.conf.Roots, time.Now()
	t.spans.delay = spanDelay
	t.spans.dropped, t.soon.dropped, t.raised.dropped = &t.dropped, &t.dropped, &t.dropped
	var err error
	if t.instruments, err = makeInstruments(conf.MeterProvider); err != nil {
		log.Warn("leasehold: no metrics", "error", err)
	}
	t.classes.init(t, conf.KeyClass)
	t.look()
	return t, nil
}

// Look finds out who wants to be told. It is called now and then, so that locks
// need not ask: with no provider of its own, a Telemetry follows the global one. It
// does not block: providers may.
func (t *Telemetry) Look() {
	if t.looking.CompareAndSwap(false, true) && !t.soon.put(t.look) {
		t.looking.Store(false)
	}
}

// look is not for more than one goroutine at a time.
func (t *Telemetry) look() {
	defer t.looking.Store(false)
	p := t.conf.TracerProvider
	if p == nil {
		p = otel.GetTracerProvider()
	}
	now := t.tracer.Load()
	// The global one of before may have been given, and stand for another by now.
	if now == nil || !now.isOf(p) || !now.records && atFirst.isOf(p) {
		now = newTracer(p)
		t.tracer.Store(now)
	}
	timing := t.enabled()
	t.timing.Store(timing)
	t.active.Store(timing || now.records)
}

// Active says whether anybody wants to be told of calls, one by one.
func (t *Telemetry) Active() bool { return t.active.Load() }

// Timing says whether anybody wants durations.
func (t *Telemetry) Timing() bool { return t.timing.Load() }

// Config returns the Config, its defaults filled in.
func (t *Telemetry) Config() Config { return t.conf }

// Flush waits until all that has been told so far was handed on, or ctx ends.
func (t *Telemetry) Flush(ctx context.Context) error {
	// A span that is begun late has another ended behind it.
	for _, q := range []*queue{&t.soon, &t.spans, &t.spans, &t.raised} {
		if err := q.flush(ctx); err != nil {
			return err
		}
	}
	return nil
}

// Close hands on what is left, for at most grace where a receiver hangs. What was
// counted stays in the provider's collections.
func (t *Telemetry) Close(grace time.Duration) {
	closeQueues(grace, &t.spans, &t.soon, &t.raised)
	if t.retire != nil {
		t.retire()
	}
	if t.registration == nil || t.Timing() {
		return
	}
	defer func() { _ = recover() }()
	_ = t.registration.Unregister() // nobody collects, and there is nobody to tell of a failure
}

// tracer is a provider's, and whether it makes anything.
type tracer struct {
	provider   trace.TracerProvider
	comparable bool
	trace.Tracer
	records bool
}

// isOf says whether the tracer is of that provider, or, where that can't be told,
// of one of the same type.
func (t *tracer) isOf(p trace.TracerProvider) bool {
	if t.comparable && reflect.ValueOf(p).Comparable() {
		return p == t.provider
	}
	return reflect.TypeOf(p) == reflect.TypeOf(t.provider)
}

func newTracer(p trace.TracerProvider) *tracer {
	t := tracerOf(p)
	func() {
		defer func() { _ = recover() }()
		t.Tracer = p.Tracer(ScopeName, trace.WithInstrumentationVersion(Version))
		t.records = t.Tracer != nil && records(t)
	}()
	return t
}

// atFirst is the global provider before the program has begun: as a rule the one
// that stands for a provider to be set later.
var atFirst = tracerOf(otel.GetTracerProvider())

func tracerOf(p trace.TracerProvider) *tracer {
	return &tracer{provider: p, comparable: reflect.ValueOf(p).Comparable()}
}

// records finds out whether a tracer makes spans at all. All do, but for the one
// that is meant not to, and the global one before a provider is set.
func records(t *tracer) bool {
	switch t.provider.(type) {
	case noop.TracerProvider, *noop.TracerProvider:
		return false
	}
	if !atFirst.isOf(t.provider) {
		return true
	}
	// It may be that of instrumentation from outside, or have been set very early.
	// One that makes nothing hands on the span that is there. The span is not to be
	// sampled, and never ends, so that nobody hears of it.
	there := trace.NewSpanContext(trace.SpanContextConfig{TraceID: trace.TraceID{1}, SpanID: trace.SpanID{1}, Remote: true})
	_, span := t.Start(trace.ContextWithRemoteSpanContext(context.Background(), there), "leasehold.probe")
	return span.SpanContext().SpanID() != there.SpanID()
}
