package coordinator

import (
	"context"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	sdkmetric "go.opentelemetry.io/otel/sdk/metric"
	"go.opentelemetry.io/otel/sdk/metric/metricdata"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"
	"go.opentelemetry.io/otel/trace"

	"github.com/go-leasehold/leasehold/lease"
	"github.com/go-leasehold/leasehold/telemetry"
)

// What the tests of telemetry have in common: an SDK that keeps what it is told.

// listener is an SDK with its spans and metrics in memory.
type listener struct {
	t        *testing.T
	spans    *tracetest.InMemoryExporter
	provider *sdktrace.TracerProvider
	reader   *sdkmetric.ManualReader
	meters   *sdkmetric.MeterProvider
	live     *liveSpans
}

// liveSpans are those of leasehold that have begun and not ended.
type liveSpans struct {
	mu   sync.Mutex
	open map[trace.SpanID]string
}

func (l *liveSpans) OnStart(_ context.Context, s sdktrace.ReadWriteSpan) {
	if s.InstrumentationScope().Name != telemetry.ScopeName {
		return
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.open[s.SpanContext().SpanID()] = s.Name()
}

func (l *liveSpans) OnEnd(s sdktrace.ReadOnlySpan) {
	l.mu.Lock()
	defer l.mu.Unlock()
	delete(l.open, s.SpanContext().SpanID())
}

func (*liveSpans) Shutdown(context.Context) error   { return nil }
func (*liveSpans) ForceFlush(context.Context) error { return nil }

// names are those of the spans that are open.
func (l *liveSpans) names() (names []string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, name := range l.open {
		names = append(names, name)
	}
	return names
}

// listen returns an SDK. Calls without a span are not sampled, unless a sampler
// among the options says otherwise.
func listen(t *testing.T, opts ...sdktrace.TracerProviderOption) *listener {
	t.Helper()
	r := &listener{
		t: t, spans: tracetest.NewInMemoryExporter(), reader: sdkmetric.NewManualReader(),
		live: &liveSpans{open: map[trace.SpanID]string{}},
	}
	r.provider = sdktrace.NewTracerProvider(append([]sdktrace.TracerProviderOption{
		sdktrace.WithSyncer(r.spans), sdktrace.WithSpanProcessor(r.live),
	}, opts...)...)
	r.meters = sdkmetric.NewMeterProvider(sdkmetric.WithReader(r.reader))
	return r
}

// config adds the listener to a Config.
func (r *listener) config(conf telemetry.Config) telemetry.Config {
	if conf.TracerProvider == nil {
		conf.TracerProvider = r.provider
	}
	if conf.MeterProvider == nil {
		conf.MeterProvider = r.meters
	}
	return conf
}

// heard is scripted with a listener.
func heard(t *testing.T, conf telemetry.Config, test func(t *testing.T, s *script, c *Coordinator, r *listener), opts ...Option) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		r := listen(t)
		caps := lease.Capabilities{Server: "script", Notices: true, Receipts: true}
		s := &script{t: t, caps: caps, flying: make(map[string]*sent), arrived: make(chan struct{}, 1)}
		opts := append([]Option{WithTTL(3 * time.Second), WithTelemetry(r.config(conf))}, opts...)
		c, err := NewWithStore(s, opts...)
		require.NoError(t, err)
		defer func() {
			s.obey()
			ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
			defer cancel()
			_ = c.Close(ctx)
			synctest.Wait()
			require.Zero(t, c.live.Load(), "actors are left behind")
			require.Empty(t, r.live.names(), "spans that never end")
		}()
		test(t, s, c, r)
	})
}

// request is a span of the caller's, that is sampled, and its context.
func (r *listener) request(ctx context.Context, name string) (context.Context, trace.Span) {
	return r.provider.Tracer("test").Start(ctx, name, trace.WithNewRoot())
}

// all returns the spans of leasehold that have ended, in the order in which they
// did.
func (r *listener) all(c *Coordinator) (spans tracetest.SpanStubs) {
	r.t.Helper()
	require.NoError(r.t, c.FlushTelemetry(context.Background()))
	for _, s := range r.spans.GetSpans() {
		if s.InstrumentationScope.Name == telemetry.ScopeName {
			require.Equal(r.t, telemetry.Version, s.InstrumentationScope.Version)
			require.Equal(r.t, trace.SpanKindInternal, s.SpanKind)
			spans = append(spans, s)
		}
	}
	return spans
}

// of returns the spans with a name.
func (r *listener) of(c *Coordinator, name string) (spans []tracetest.SpanStub) {
	r.t.Helper()
	for _, s := range r.all(c) {
		if s.Name == name {
			spans = append(spans, s)
		}
	}
	return spans
}

// only returns the one span with a name.
func (r *listener) only(c *Coordinator, name string) tracetest.SpanStub {
	r.t.Helper()
	spans := r.of(c, name)
	require.Len(r.t, spans, 1, "%s", name)
	return spans[0]
}

// under returns the one span with a name whose parent is that one.
func (r *listener) under(c *Coordinator, parent trace.SpanContext, name string) tracetest.SpanStub {
	r.t.Helper()
	var found []tracetest.SpanStub
	for _, s := range r.of(c, name) {
		if s.Parent.SpanID() == parent.SpanID() {
			found = append(found, s)
		}
	}
	require.Len(r.t, found, 1, "%s under %v", name, parent.SpanID())
	require.Equal(r.t, parent.TraceID(), found[0].SpanContext.TraceID())
	return found[0]
}

// reset forgets the spans so far.
func (r *listener) reset(c *Coordinator) {
	r.t.Helper()
	require.NoError(r.t, c.FlushTelemetry(context.Background()))
	r.spans.Reset()
}

// attrs are attributes by key.
func attrs(all []attribute.KeyValue) map[attribute.Key]any {
	m := map[attribute.Key]any{}
	for _, kv := range all {
		m[kv.Key] = kv.Value.AsInterface()
	}
	return m
}

// has makes sure that a span has exactly these attributes, and the status that goes
// with its outcome.
func (r *listener) has(s tracetest.SpanStub, want map[attribute.Key]any) {
	r.t.Helper()
	o := telemetry.Outcome(want[telemetry.AttrOutcome].(string))
	all := map[attribute.Key]any{telemetry.AttrClass: telemetry.OtherClass, telemetry.AttrMode: "exclusive"}
	status := sdktrace.Status{Code: codes.Unset}
	if o.Failed() {
		all[telemetry.AttrErrorType] = string(o)
		status = sdktrace.Status{Code: codes.Error, Description: string(o)}
	}
	for k, v := range want {
		all[k] = v
	}
	require.Equal(r.t, all, attrs(s.Attributes), "%s", s.Name)
	require.Equal(r.t, status, s.Status, "%s", s.Name)
}

// happened are the names of a span's events.
func happened(s tracetest.SpanStub) (names []string) {
	for _, e := range s.Events {
		names = append(names, e.Name)
	}
	return names
}

// leads are the spans that a span's links lead to, by what the links say.
func leads(s tracetest.SpanStub) (links []string) {
	for _, l := range s.Links {
		links = append(links, l.Attributes[0].Value.AsString()+" "+l.SpanContext.SpanID().String())
	}
	return links
}

// lead is a link as leads has it.
func lead(as telemetry.Relation, to trace.SpanContext) string {
	return string(as) + " " + to.SpanID().String()
}

// collect returns the metrics of now.
func (r *listener) collect() map[string]metricdata.Metrics {
	r.t.Helper()
	var rm metricdata.ResourceMetrics
	require.NoError(r.t, r.reader.Collect(context.Background(), &rm))
	all := map[string]metricdata.Metrics{}
	for _, scope := range rm.ScopeMetrics {
		require.Equal(r.t, telemetry.ScopeName, scope.Scope.Name)
		for _, m := range scope.Metrics {
			require.NotContains(r.t, all, m.Name)
			all[m.Name] = m
		}
	}
	return all
}

// series are the values of a metric by its attributes but the class other, in
// their order: "local", or "exclusive acquired". A histogram's are its counts.
func (r *listener) series(name string) map[string]int64 {
	r.t.Helper()
	m, ok := r.collect()[name]
	all := map[string]int64{}
	if !ok {
		return all
	}
	label := func(set attribute.Set) (text string) {
		for _, kv := range set.ToSlice() {
			if kv.Key == telemetry.AttrClass && kv.Value.AsString() == telemetry.OtherClass {
				continue
			}
			if text != "" {
				text += " "
			}
			text += kv.Value.AsString()
		}
		return text
	}
	switch data := m.Data.(type) {
	case metricdata.Sum[int64]:
		for _, p := range data.DataPoints {
			all[label(p.Attributes)] = p.Value
		}
	case metricdata.Histogram[float64]:
		for _, p := range data.DataPoints {
			all[label(p.Attributes)] = int64(p.Count)
		}
	default:
		require.Fail(r.t, "another kind of metric", "%s: %T", name, m.Data)
	}
	return all
}

// some are the series that are not zero.
func (r *listener) some(name string) map[string]int64 {
	r.t.Helper()
	all := r.series(name)
	for k, v := range all {
		if v == 0 {
			delete(all, k)
		}
	}
	return all
}

// lockWith calls Lock with a context in a goroutine.
func lockWith(t *testing.T, ctx context.Context, m *Mutex) *attempt {
	t.Helper()
	return begin(t, func() (*Hold, error) { return m.Lock(ctx) })
}
