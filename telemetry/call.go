package telemetry

import (
	"context"
	"sync"
	"sync/atomic"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/propagation"
	"go.opentelemetry.io/otel/trace"
)

type tracedKey struct{}

// Traced has the calls to lock with the returned context make a span each, also
// where they enter at once, or where there were too many without a trace. Whether
// a trace is kept is the sampler's to say, as always.
func Traced(ctx context.Context) context.Context {
	return context.WithValue(ctx, tracedKey{}, true)
}

func asked(ctx context.Context) bool { return ctx.Value(tracedKey{}) != nil }

// Call is the trace of one call to lock, and of the hold that it ends in. Most
// calls have none, which is nil; its methods do nothing then.
type Call struct {
	t      *Telemetry
	tracer *tracer
	ctx    context.Context
	root   bool // ctx has no span
	all    bool // a span for the call, whether it waited or not
	hold   atomic.Pointer[holdSpan]

	mu    sync.Mutex // guards what follows
	ended bool
	early *End // it was over before its span was begun
}

// holdSpan is the span of a hold, and what leads to it, if it is sampled, which
// outlives it.
type holdSpan struct {
	span trace.Span
	is   trace.SpanContext
}

// Call returns the trace of a call with ctx, or nil.
func (t *Telemetry) Call(ctx context.Context) *Call {
	tracer := t.tracer.Load()
	if !tracer.records {
		return nil
	}
	span := spanIn(ctx)
	all := false
	if !span.IsSampled() {
		if span.IsValid() {
			return nil // it was decided for the whole of the trace
		}
		if !t.roots.take() {
			if all = asked(ctx); !all {
				return nil
			}
		}
	}
	return &Call{t: t, tracer: tracer, ctx: ctx, root: !span.IsValid(), all: all || t.conf.AllAcquires || asked(ctx)}
}

// Wants says that a call with ctx would have a trace.
func (t *Telemetry) Wants(ctx context.Context) bool {
	if !t.tracer.Load().records {
		return false
	}
	span := spanIn(ctx)
	return span.IsSampled() || !span.IsValid() && (t.roots.left() || asked(ctx))
}

// spanIn returns the span of a context, which is of somebody's making.
func spanIn(ctx context.Context) (is trace.SpanContext) {
	defer func() { _ = recover() }()
	return trace.SpanContextFromContext(ctx)
}

// Event is something that happened to a key.
type Event struct {
	Name string
	At   time.Time
	With []attribute.KeyValue
}

// Blocker is a hold that was in a call's way: one of this process that is traced,
// or the traceparent of one elsewhere.
type Blocker struct {
	Relation Relation
	Call     *Call
	Remote   string
}

// Wait is what became of a call.
type Wait struct {
	Key      string
	Class    *Class
	Shared   bool
	Outcome  Outcome
	Path     Path // "": it failed
	Token    uint64
	Ahead    int // callers of this process before it
	Holder   string
	From, To time.Time
	Blockers []Blocker
	Events   []Event
}

// Grant is the beginning of a hold.
type Grant struct {
	Key    string
	Class  *Class
	Shared bool
	Path   Path
	Token  uint64
	At     time.Time
	Waited bool // it did not enter at once
}

// End is what became of a hold.
type End struct {
	Outcome Outcome
	Cause   string // Lost: why
	At      time.Time
	Events  []Event
}

// Acquired begins the span of a hold, and makes that of the wait before it. It
// returns the context for the work under the lock, which is held already: what can
// be done later, such as asking for the wait, is.
func (c *Call) Acquired(g Grant, wait func() Wait) context.Context {
	ctx := c.ctx
	if g.Waited || c.all {
		if c.root { // the hold's span is to be in the trace that the wait begins
			w := wait()
			within, span, _ := c.startWait(ctx, w)
			if span == nil {
				return c.ctx
			}
			ctx = within
			c.t.spans.put(func() { c.t.finish(span, w.To, w.Events, w.Outcome, "") })
		} else {
			c.t.spans.put(func() { c.makeWait(wait()) })
		}
	}
	within, span, is := c.start(ctx, SpanHold, trace.WithTimestamp(g.At), g.Class.spans[modeOf(g.Shared)][g.Path], c.names(g.Key, g.Token))
	if span == nil {
		return c.ctx
	}
	c.begin(&holdSpan{span, is})
	if !is.IsSampled() {
		return c.ctx
	}
	return within
}

// begin makes the span of the hold known, and ends it if the hold is over already.
func (c *Call) begin(h *holdSpan) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.hold.Store(h)
	if e := c.early; e != nil {
		c.ended = true
		c.t.spans.put(func() { c.t.finish(h.span, e.At, e.Events, e.Outcome, e.Cause) })
	}
}

// NoHold makes the span of a call that begins no hold: it failed, or was inside
// already.
func (c *Call) NoHold(waited bool, wait func() Wait) {
	if waited || c.all {
		c.t.spans.put(func() { c.makeWait(wait()) })
	}
}

func (c *Call) makeWait(w Wait) {
	// The call's context may have ended since; what happened before may be told all
	// the same.
	if _, span, _ := c.startWait(context.WithoutCancel(c.ctx), w); span != nil {
		c.t.finish(span, w.To, w.Events, w.Outcome, "")
	}
}

func (c *Call) startWait(ctx context.Context, w Wait) (context.Context, trace.Span, trace.SpanContext) {
	attrs := []attribute.KeyValue{AttrAhead.Int(w.Ahead)}
	if w.Holder != "" {
		attrs = append(attrs, AttrHolder.String(w.Holder))
	}
	return c.start(ctx, SpanAcquire, trace.WithTimestamp(w.From), trace.WithLinks(c.links(w.Blockers)...),
		w.Class.spans[modeOf(w.Shared)][w.Path], trace.WithAttributes(attrs...), c.names(w.Key, w.Token))
}

// Ended ends the span of the hold. It is for the goroutine of Later: a span's end
// runs exporters.
func (c *Call) Ended(e End) {
	c.mu.Lock()
	h := c.hold.Load()
	if h == nil {
		c.early = &e
	}
	first := !c.ended && h != nil
	c.ended = c.ended || first
	c.mu.Unlock()
	if first {
		c.t.finish(h.span, e.At, e.Events, e.Outcome, e.Cause)
	}
}

// Later has a function run on the goroutine that ends spans, and may meet the code
// of exporters. It does not block; where that goroutine hangs, the function is dropped
// and counted.
func (t *Telemetry) Later(f func()) { t.spans.put(f) }

// Count is Later for what records metrics: it goes on where an exporter of spans
// hangs.
func (t *Telemetry) Count(f func()) { t.counts.put(f) }

// Hold returns what leads to the span of the hold, also when it has ended; it is
// not valid where there is none.
func (c *Call) Hold() trace.SpanContext {
	if c == nil {
		return trace.SpanContext{}
	}
	if h := c.hold.Load(); h != nil {
		return h.is
	}
	return trace.SpanContext{}
}

// start begins a span. A tracer that panics makes none.
func (c *Call) start(ctx context.Context, name string, with ...trace.SpanStartOption) (within context.Context, span trace.Span, is trace.SpanContext) {
	defer func() {
		if recover() != nil {
			c.t.dropped.Add(1)
			within, span = ctx, nil
		}
	}()
	within, span = c.tracer.Start(ctx, name, with...)
	if within == nil {
		within = ctx
	}
	if span == nil {
		return within, nil, is
	}
	if is = span.SpanContext(); !is.IsSampled() {
		is = trace.SpanContext{} // nobody will find it
	}
	return within, span, is
}

// names are the key and the token, where they were asked for.
func (c *Call) names(key string, token uint64) trace.SpanStartOption {
	switch {
	case !c.t.conf.KeyAttribute:
		return noAttributes
	case token == 0:
		return trace.WithAttributes(AttrKey.String(key))
	}
	return trace.WithAttributes(AttrKey.String(key), AttrToken.Int64(int64(token)))
}

var noAttributes trace.SpanStartOption = trace.WithAttributes()

// links leads to the holds that were in the way, as far as they are traced, each
// once.
func (c *Call) links(blockers []Blocker) (links []trace.Link) {
	seen := map[trace.SpanID]bool{}
	for _, b := range blockers {
		to := b.Call.Hold()
		if b.Remote != "" {
			to = ParseTrace(b.Remote)
		}
		if !to.IsValid() || seen[to.SpanID()] {
			continue
		}
		seen[to.SpanID()] = true
		links = append(links, trace.Link{SpanContext: to, Attributes: []attribute.KeyValue{AttrLink.String(string(b.Relation))}})
	}
	return links
}

func (t *Telemetry) finish(span trace.Span, at time.Time, events []Event, o Outcome, cause string) {
	for _, e := range events {
		span.AddEvent(e.Name, trace.WithTimestamp(e.At), trace.WithAttributes(e.With...))
	}
	span.SetAttributes(AttrOutcome.String(string(o)))
	if cause != "" {
		span.SetAttributes(AttrCause.String(cause))
	}
	if o.Failed() {
		span.SetAttributes(AttrErrorType.String(string(o)))
		span.SetStatus(codes.Error, string(o))
	}
	span.End(trace.WithTimestamp(at))
}

const traceparent = "traceparent"

// FormatTrace writes a span as a traceparent of W3C Trace Context; "" if there is
// none.
func FormatTrace(s trace.SpanContext) string {
	carrier := propagation.MapCarrier{}
	propagation.TraceContext{}.Inject(trace.ContextWithSpanContext(context.Background(), s), carrier)
	return carrier[traceparent]
}

// ParseTrace reads a traceparent. What is none gives a span that is not valid.
func ParseTrace(s string) trace.SpanContext {
	ctx := propagation.TraceContext{}.Extract(context.Background(), propagation.MapCarrier{traceparent: s})
	return trace.SpanContextFromContext(ctx)
}
