package coordinator

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/otel/attribute"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/trace"
	"go.opentelemetry.io/otel/trace/embedded"

	"github.com/go-leasehold/leasehold/lease"
	"github.com/go-leasehold/leasehold/telemetry"
)

// Receivers that panic, hang, or answer nonsense. Locks go on, Close ends in time,
// and what is dropped is counted.

// brokenProvider panics or returns nothing where its fields say so.
type brokenProvider struct {
	embedded.TracerProvider

	real             trace.Tracer
	tracer, start    func() // called first; may panic
	noTracer, noSpan bool
	noContext        bool
	span             func(what string) // called in each method of a span; may panic
	begun            atomic.Int64
}

func (p *brokenProvider) Tracer(string, ...trace.TracerOption) trace.Tracer {
	if p.tracer != nil {
		p.tracer()
	}
	if p.noTracer {
		return nil
	}
	return &brokenTracer{p: p}
}

type brokenTracer struct {
	embedded.Tracer
	p *brokenProvider
}

func (b *brokenTracer) Start(ctx context.Context, name string, opts ...trace.SpanStartOption) (context.Context, trace.Span) {
	probe := trace.SpanContextFromContext(ctx).SpanID() == trace.SpanID{1}
	if !probe {
		b.p.begun.Add(1)
	}
	if b.p.start != nil && !probe {
		b.p.start()
	}
	ctx2, span := b.p.real.Start(ctx, name, opts...)
	switch {
	case probe:
		return ctx2, span
	case b.p.noSpan:
		return nil, nil
	case b.p.noContext:
		ctx2 = nil
	}
	if b.p.span != nil {
		span = &brokenSpan{span, b.p.span}
	}
	return ctx2, span
}

// brokenSpan panics in the methods that its function chooses.
type brokenSpan struct {
	trace.Span
	in func(what string)
}

func (s *brokenSpan) End(opts ...trace.SpanEndOption) { s.in("End"); s.Span.End(opts...) }
func (s *brokenSpan) AddEvent(name string, opts ...trace.EventOption) {
	s.in("AddEvent")
	s.Span.AddEvent(name, opts...)
}

func (s *brokenSpan) SetAttributes(kv ...attribute.KeyValue) {
	s.in("SetAttributes")
	s.Span.SetAttributes(kv...)
}

func (s *brokenSpan) SpanContext() trace.SpanContext {
	s.in("SpanContext")
	return s.Span.SpanContext()
}

// works makes sure that locks are what they always are: taken, handed over,
// excluding each other, many times.
func works(t *testing.T, s *script, c *Coordinator, r *listener) {
	t.Helper()
	s.obey()
	var inside, most atomic.Int32
	done := make(chan error)
	for range 8 {
		go func() {
			ctx, span := r.request(context.Background(), "request")
			defer span.End()
			for range 25 {
				h, err := c.Mutex("w").Lock(ctx)
				if err != nil {
					done <- err
					return
				}
				most.Store(max(most.Load(), inside.Add(1)))
				_ = h.Context()
				inside.Add(-1)
				if err := h.Unlock(); err != nil {
					done <- err
					return
				}
			}
			done <- nil
		}()
	}
	for range 8 {
		require.NoError(t, <-done)
	}
	require.Equal(t, int32(1), most.Load())
}

func TestLocksWorkWithTracersThatAreBroken(t *testing.T) {
	boom := func() { panic("a tracer that is broken") }
	in := func(method string) func(string) {
		return func(what string) {
			if what == method {
				boom()
			}
		}
	}
	for name, broken := range map[string]*brokenProvider{
		"Tracer panics":             {tracer: boom},
		"no Tracer":                 {noTracer: true},
		"Start panics":              {start: boom},
		"Start returns nothing":     {noSpan: true},
		"Start returns no context":  {noContext: true},
		"Span.End panics":           {span: in("End")},
		"Span.SpanContext panics":   {span: in("SpanContext")},
		"Span.SetAttributes panics": {span: in("SetAttributes")},
		"Span.AddEvent panics":      {span: in("AddEvent")},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r := listen(t)
				broken.real = r.provider.Tracer(telemetry.ScopeName, trace.WithInstrumentationVersion(telemetry.Version))
				s, c := scriptOf(t, r.config(telemetry.Config{TracerProvider: broken, AllAcquires: true, LeaseSpans: true}))
				works(t, s, c, r)
				require.NoError(t, c.FlushTelemetry(t.Context()))
				if broken.tracer != nil || broken.noTracer {
					require.Zero(t, broken.begun.Load(), "it was found to be broken at first")
				} else {
					require.NotZero(t, broken.begun.Load())
				}
				if broken.start != nil || broken.span != nil {
					require.NotEmpty(t, r.some(telemetry.MetricDropped), "what was dropped is not counted")
				}
				require.NoError(t, c.Close(t.Context()))
			})
		})
	}
}

// scriptOf returns a coordinator on a scripted store in a bubble.
func scriptOf(t *testing.T, conf telemetry.Config, opts ...Option) (*script, *Coordinator) {
	t.Helper()
	caps := lease.Capabilities{Server: "script", Notices: true, Receipts: true}
	s := &script{t: t, caps: caps, flying: make(map[string]*sent), arrived: make(chan struct{}, 1)}
	c, err := NewWithStore(s, append([]Option{WithTTL(3 * time.Second), WithTelemetry(conf)}, opts...)...)
	require.NoError(t, err)
	return s, c
}

type samplerFunc func(sdktrace.SamplingParameters) sdktrace.SamplingResult

func (f samplerFunc) ShouldSample(p sdktrace.SamplingParameters) sdktrace.SamplingResult { return f(p) }
func (samplerFunc) Description() string                                                  { return "a test's" }

// scopedSampler leaves the test's own spans, and the trial of the tracer, alone.
func scopedSampler(f func(p sdktrace.SamplingParameters) sdktrace.SamplingResult) sdktrace.TracerProviderOption {
	usual := sdktrace.ParentBased(sdktrace.AlwaysSample())
	return sdktrace.WithSampler(samplerFunc(func(p sdktrace.SamplingParameters) sdktrace.SamplingResult {
		if p.Name == "request" || trace.SpanContextFromContext(p.ParentContext).SpanID() == (trace.SpanID{1}) {
			return usual.ShouldSample(p)
		}
		return f(p)
	}))
}

func TestLocksWorkWithASamplerThatPanics(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := listen(t, scopedSampler(func(sdktrace.SamplingParameters) sdktrace.SamplingResult { panic("a sampler") }))
		s, c := scriptOf(t, r.config(telemetry.Config{AllAcquires: true}))
		works(t, s, c, r)
		require.NoError(t, c.FlushTelemetry(t.Context()))
		require.NotEmpty(t, r.some(telemetry.MetricDropped))
		require.NoError(t, c.Close(t.Context()))
	})
}

// TestHoldThatIsOverBeforeItsSpanBeganIsTold: its caller was asking a sampler that
// takes its time, for the hold's span, or, where there is no other above it, for that
// of the wait.
func TestHoldThatIsOverBeforeItsSpanBeganIsTold(t *testing.T) {
	for slow, root := range map[string]bool{telemetry.SpanHold: false, telemetry.SpanAcquire: true} {
		synctest.Test(t, func(t *testing.T) {
			r := listen(t, scopedSampler(func(p sdktrace.SamplingParameters) sdktrace.SamplingResult {
				if p.Name == slow {
					time.Sleep(time.Second)
				}
				return sdktrace.SamplingResult{Decision: sdktrace.RecordAndSample}
			}))
			s, c := scriptOf(t, r.config(telemetry.Config{}))
			ctx := t.Context()
			if !root {
				ctx, _ = r.request(ctx, "request")
			}
			call := lockWith(t, ctx, c.Mutex("k", MaxHold(100*time.Millisecond)))
			s.next(lease.Acquire).held(1, 100)
			s.obey()
			time.Sleep(time.Second)
			require.ErrorIs(t, call.holds().Unlock(), ErrHoldExpired)
			require.NoError(t, c.Close(t.Context()))
			hold := r.only(c, telemetry.SpanHold)
			r.has(hold, wanted{telemetry.AttrPath: "redis", telemetry.AttrOutcome: "expired"})
			require.Equal(t, 100*time.Millisecond, hold.EndTime.Sub(hold.StartTime))
			require.Empty(t, r.live.names())
		})
	}
}

// TestSpansAreNotMadeInContextsThatHaveEnded: what is made of it may be cut short by
// a sampler or a processor that heeds it.
func TestSpansAreNotMadeInContextsThatHaveEnded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var ended []string
		r := listen(t, scopedSampler(func(p sdktrace.SamplingParameters) sdktrace.SamplingResult {
			if p.ParentContext.Err() != nil {
				ended = append(ended, p.Name)
			}
			return sdktrace.SamplingResult{Decision: sdktrace.RecordAndSample}
		}))
		s, c := scriptOf(t, r.config(quietly))
		h := lockOf(t, c.Mutex("k")).holdsAfter(s)
		ctx, _ := r.request(t.Context(), "request")
		ctx, cancel := context.WithTimeout(ctx, time.Second/2)
		defer cancel()
		call := lockWith(t, ctx, c.Mutex("k"))
		time.Sleep(time.Second / 2)
		call.fails(context.DeadlineExceeded)
		unlock(t, h)
		s.obey()
		ctx, span := r.request(t.Context(), "request")
		ctx, cancel = context.WithCancel(ctx)
		h, err := c.Mutex("k").Lock(ctx)
		require.NoError(t, err)
		require.NoError(t, h.Unlock())
		cancel()
		require.NoError(t, c.Close(t.Context()))
		require.Len(t, r.of(c, telemetry.SpanAcquire), 1)
		r.under(c, span.SpanContext(), telemetry.SpanHold)
		require.Empty(t, ended)
	})
}

// TestSpansThatAreRecordedAndNotSampledEnd: processors that keep what is going on
// would keep them for ever.
func TestSpansThatAreRecordedAndNotSampledEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := listen(t, scopedSampler(func(sdktrace.SamplingParameters) sdktrace.SamplingResult {
			return sdktrace.SamplingResult{Decision: sdktrace.RecordOnly}
		}))
		s, c := scriptOf(t, r.config(telemetry.Config{AllAcquires: true, LeaseSpans: true}))
		works(t, s, c, r)
		unlock(t, lockOf(t, c.Mutex("root")).holds())
		require.NoError(t, c.Close(t.Context()))
		require.Empty(t, r.live.names())
	})
}

// hangingExporter does not return before it is let go.
type hangingExporter struct {
	letGo   chan struct{}
	panics  bool
	entered atomic.Int64
}

func (e *hangingExporter) ExportSpans(_ context.Context, spans []sdktrace.ReadOnlySpan) error {
	for _, s := range spans {
		if s.InstrumentationScope().Name != telemetry.ScopeName {
			return nil
		}
	}
	e.entered.Add(1)
	if e.panics {
		panic("an exporter")
	}
	<-e.letGo
	return errors.New("gone")
}

func (*hangingExporter) Shutdown(context.Context) error { return nil }

func TestLocksDoNotWaitForAnExporterThatHangs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		hangs := &hangingExporter{letGo: make(chan struct{})}
		r := listen(t)
		provider := sdktrace.NewTracerProvider(sdktrace.WithSyncer(hangs))
		s, c := scriptOf(t, r.config(telemetry.Config{TracerProvider: provider, AllAcquires: true}))
		s.obey()
		ctx, span := provider.Tracer("test").Start(t.Context(), "request")
		defer span.End()
		const calls = 5000
		begun := time.Now()
		for range calls {
			h, err := c.Mutex("k").Lock(ctx)
			require.NoError(t, err)
			require.NoError(t, h.Unlock())
		}
		require.Equal(t, begun, time.Now(), "time has passed") // in the bubble it only does where all wait
		synctest.Wait()
		require.Equal(t, int64(1), hangs.entered.Load())
		dropped := r.series(telemetry.MetricDropped)[""]
		require.Equal(t, int64(2*calls-1-4096), dropped, "two spans a call, one in the exporter, and as many as there is room for")

		limited, cancel := context.WithTimeout(t.Context(), 70*time.Millisecond)
		defer cancel()
		require.ErrorIs(t, c.FlushTelemetry(limited), context.DeadlineExceeded)
		require.Equal(t, 70*time.Millisecond, time.Since(begun))
		require.NoError(t, c.Close(t.Context()))
		require.LessOrEqual(t, time.Since(begun), 70*time.Millisecond+50*time.Millisecond+3*closeGrace)
		close(hangs.letGo)
	})
}

func TestLocksWorkWithAnExporterThatPanics(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		panics := &hangingExporter{panics: true}
		r := listen(t, sdktrace.WithSyncer(panics))
		s, c := scriptOf(t, r.config(quietly))
		works(t, s, c, r)
		require.NoError(t, c.FlushTelemetry(t.Context()))
		require.NotZero(t, panics.entered.Load())
		require.Equal(t, panics.entered.Load(), r.series(telemetry.MetricDropped)[""])
		require.NoError(t, c.Close(t.Context()))
	})
}
