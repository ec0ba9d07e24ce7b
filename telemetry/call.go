package telemetry

import (
	"context"
	"slices"
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
// calls have none, which is nil. The hold's span is begun when it is needed, with the
// time of the grant: for the context of the work, for a link, or when it ends. So
// nothing of it is done while others wait for the lock.
type Call struct {
	t      *Telemetry
	tracer *tracer
	ctx    context.Context
	from   trace.SpanContext // of the span in ctx; not valid: there is none
	all    bool              // a span for the call, whether it waited or not

	hold atomic.Pointer[holdSpan] // nil: not begun

	mu     sync.Mutex      // guards what follows
	grant  *Grant          // nil: it does not hold, or not yet
	wait   func() Wait     // its span is to be begun before that of the hold; nil: it is, or there is none
	within context.Context // with the hold's span; nil: not begun
	ended  bool
	early  *End // of a hold that was over before Acquired
}

// holdSpan is the span of a hold, if there is one, and what leads to it, if it is
// sampled, which outlives it.
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
	valid, sampled := spanIn(ctx)
	if !sampled {
		if valid {
			return nil // it was decided for the whole of the trace
		}
		if !t.roots.take() && !asked(ctx) {
			return nil
		}
	}
	c := &Call{t: t, tracer: tracer, ctx: ctx, all: t.conf.AllAcquires || asked(ctx)}
	if valid {
		c.from = spanOf(ctx)
	}
	return c
}

// From returns what leads to the span that the call was made in; it is not valid where
// there was none. It is for anywhere.
func (c *Call) From() trace.SpanContext {
	if c == nil {
		return trace.SpanContext{}
	}
	return c.from
}

// Wants says that a call with ctx would have a trace.
func (t *Telemetry) Wants(ctx context.Context) bool {
	if !t.tracer.Load().records {
		return false
	}
	valid, sampled := spanIn(ctx)
	return sampled || !valid && (t.roots.left() || asked(ctx))
}

// noSpan is what a context without one has.
var noSpan = trace.SpanFromContext(context.Background())

// spanIn looks at the span of a context, which is of somebody's making.
func spanIn(ctx context.Context) (valid, sampled bool) {
	is := spanOf(ctx)
	return is.IsValid(), is.IsSampled()
}

func spanOf(ctx context.Context) (is trace.SpanContext) {
	defer func() { _ = recover() }()
	if span := trace.SpanFromContext(ctx); span != noSpan {
		is = span.SpanContext()
	}
	return is
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
	Holders  int // the first so many Blockers: they had the lock when the call came. At most MaxHolders of them are led to
	Events   []Event
}

// MaxHolders is how many of the holds of a process a wait leads to, of those that had
// the lock when the call came.
const MaxHolders = 4

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

// Acquired says that the call holds. It makes the span of the wait before it, and
// has that of the hold begun when it is needed.
func (c *Call) Acquired(g Grant, wait func() Wait) {
	told := g.Waited || c.all
	c.mu.Lock()
	c.grant = &g
	if told && !c.from.IsValid() {
		c.wait = wait
	}
	early := c.early
	c.mu.Unlock()
	switch {
	case !told:
	case !c.from.IsValid():
		if !c.t.spans.put(c.begin) { // which makes that of the wait, too
			c.forget()
		}
	default:
		c.t.spans.put(func() { c.makeWait(wait()) })
	}
	if early != nil {
		c.t.spans.put(func() { c.Ended(*early) })
	}
}

// forget drops what is known of the wait. It leads to the calls that were in the way,
// which would be kept, each by the next, for as long as calls follow each other.
func (c *Call) forget() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.wait = nil
}

// begin begins the span of the hold, once.
func (c *Call) begin() {
	if c.hold.Load() != nil {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	g := c.grant
	if g == nil || c.within != nil {
		return
	}
	ctx := c.ctx
	c.within = ctx
	if c.wait != nil { // the hold is to be in the trace that the wait begins
		w := c.wait()
		c.wait = nil
		within, span, _ := c.startWait(ctx, w)
		if span == nil {
			return
		}
		ctx = within
		c.t.spans.put(func() {
			for _, l := range c.links(w) {
				span.AddLink(l)
			}
			c.t.finishWait(span, w)
		})
	}
	with := []trace.SpanStartOption{trace.WithTimestamp(g.At), g.Class.spans[modeOf(g.Shared)][g.Path], nil}[:2]
	if c.t.conf.KeyAttribute {
		with = append(with, trace.WithAttributes(names(g.Key, g.Token)...))
	}
	within, span, is := c.start(ctx, SpanHold, with...)
	if is.IsSampled() {
		c.within = within
	}
	c.hold.Store(&holdSpan{span, is})
}

// Context returns the context for the work under the lock, with the hold's span. It
// is for where the code of samplers may run.
func (c *Call) Context() context.Context {
	c.begin()
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.within == nil {
		return c.ctx
	}
	return c.within
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
	if _, span, _ := c.startWait(context.WithoutCancel(c.ctx), w, c.links(w)...); span != nil {
		c.t.finishWait(span, w)
	}
}

func (c *Call) startWait(ctx context.Context, w Wait, links ...trace.Link) (context.Context, trace.Span, trace.SpanContext) {
	attrs := make([]attribute.KeyValue, 0, 10)
	attrs = append(attrs, w.Class.waits[waitEnd{w.Shared, w.Path, w.Outcome}]...)
	attrs = append(attrs, AttrAhead.Int(w.Ahead))
	if w.Holder != "" {
		attrs = append(attrs, AttrHolder.String(w.Holder))
	}
	if c.t.conf.KeyAttribute {
		attrs = append(attrs, names(w.Key, w.Token)...)
	}
	with := []trace.SpanStartOption{trace.WithTimestamp(w.From), trace.WithAttributes(attrs...), nil}[:2]
	if len(links) > 0 {
		with = append(with, trace.WithLinks(links...))
	}
	return c.start(ctx, SpanAcquire, with...)
}

// Ended ends the span of the hold. It is for the goroutine of Later: a span's end
// runs exporters.
func (c *Call) Ended(e End) {
	c.mu.Lock()
	if c.grant == nil {
		c.early = &e
		c.mu.Unlock()
		return
	}
	again := c.ended
	c.ended = true
	c.mu.Unlock()
	if again {
		return
	}
	c.begin()
	if h := c.hold.Load(); h != nil && h.span != nil {
		c.t.finish(h.span, e.At, e.Events, e.Outcome, e.Cause)
	}
}

// Later has a function run on the goroutine that ends spans, and may meet the code
// of exporters. It does not block; where that goroutine hangs, the function is dropped
// and counted.
func (t *Telemetry) Later(f func()) { t.spans.put(f) }

// Soon is Later, and sooner, for what meets no exporter of spans: it goes on where
// one hangs.
func (t *Telemetry) Soon(f func()) { t.soon.put(f) }

// Unsampled says that there will be no span of the hold that anybody could be led to.
func (c *Call) Unsampled() bool {
	h := c.hold.Load()
	return h != nil && !h.is.IsValid()
}

// Hold returns what leads to the span of the hold, also when it has ended; it is
// not valid where there is none. It is for where the code of samplers may run.
func (c *Call) Hold() trace.SpanContext {
	if c != nil {
		c.begin()
	}
	return c.Begun()
}

// Begun is Hold for anywhere: a span that is still to be begun is none.
func (c *Call) Begun() trace.SpanContext {
	if c == nil {
		return trace.SpanContext{}
	}
	if h := c.hold.Load(); h != nil {
		return h.is
	}
	return trace.SpanContext{}
}

// start begins a span. A tracer that panics makes none. One that is begun late must not
// be cut short by a context that has ended since.
func (c *Call) start(ctx context.Context, name string, with ...trace.SpanStartOption) (within context.Context, span trace.Span, is trace.SpanContext) {
	defer func() {
		if recover() != nil {
			c.t.dropped.Add(1)
			within, span = ctx, nil
		}
	}()
	if ctx.Err() == nil {
		within, span = c.tracer.Start(ctx, name, with...)
	} else if _, span = c.tracer.Start(context.WithoutCancel(ctx), name, with...); span != nil {
		within = trace.ContextWithSpan(ctx, span)
	}
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

// names are the key and the token, for where they were asked for.
func names(key string, token uint64) []attribute.KeyValue {
	if token == 0 {
		return []attribute.KeyValue{AttrKey.String(key)}
	}
	return []attribute.KeyValue{AttrKey.String(key), AttrToken.Int64(int64(token))}
}

// links leads to the holds that were in the way, as far as they are traced, each
// once.
func (c *Call) links(w Wait) (links []trace.Link) {
	holders := 0
	for i, b := range w.Blockers {
		if i < w.Holders && holders == MaxHolders {
			continue
		}
		to := b.Call.Hold()
		if b.Remote != "" {
			to = ParseTrace(b.Remote)
		}
		known := slices.ContainsFunc(links, func(l trace.Link) bool { return l.SpanContext.SpanID() == to.SpanID() })
		if to.IsValid() && !known {
			if i < w.Holders {
				holders++
			}
			links = append(links, trace.Link{SpanContext: to, Attributes: []attribute.KeyValue{AttrLink.String(string(b.Relation))}})
		}
	}
	return links
}

// finish ends the span of a hold or a lease.
func (t *Telemetry) finish(span trace.Span, at time.Time, events []Event, o Outcome, cause string) {
	attrs := outcomeAttributes(o)
	if cause != "" {
		attrs = append(attrs, AttrCause.String(cause))
	}
	span.SetAttributes(attrs...)
	end(span, at, events, o)
}

// finishWait ends that of a wait, which has had its outcome since it was begun.
func (t *Telemetry) finishWait(span trace.Span, w Wait) { end(span, w.To, w.Events, w.Outcome) }

func end(span trace.Span, at time.Time, events []Event, o Outcome) {
	for _, e := range events {
		span.AddEvent(e.Name, trace.WithTimestamp(e.At), trace.WithAttributes(e.With...))
	}
	if o.Failed() {
		span.SetStatus(codes.Error, string(o))
	}
	span.End(trace.WithTimestamp(at))
}

func outcomeAttributes(o Outcome) []attribute.KeyValue {
	if o.Failed() {
		return []attribute.KeyValue{AttrOutcome.String(string(o)), AttrErrorType.String(string(o))}
	}
	return []attribute.KeyValue{AttrOutcome.String(string(o))}
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
