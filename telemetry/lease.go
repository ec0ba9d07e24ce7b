package telemetry

import (
	"context"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/trace"
)

// Lease is the time for which a process had a lease.
type Lease struct {
	Key      string
	Class    *Class
	Shared   bool
	Path     Path // PathRedis or PathHandoff
	Asker    *Call
	From, To time.Time
	Holds    int
	Outcome  Outcome
	Cause    string
	Events   []Event
}

// LeaseSpans says that leases are to be told of, if a traced call asked for them.
func (t *Telemetry) LeaseSpans() bool { return t.conf.LeaseSpans }

// Lease makes the span of a lease. It is for the goroutine of Later.
func (t *Telemetry) Lease(l Lease) {
	c := l.Asker
	with := []trace.SpanStartOption{
		trace.WithNewRoot(), trace.WithTimestamp(l.From), trace.WithLinks(c.asLink()...),
		l.Class.spans[modeOf(l.Shared)][l.Path], trace.WithAttributes(AttrHolds.Int(l.Holds)),
	}
	if t.conf.KeyAttribute {
		with = append(with, trace.WithAttributes(names(l.Key, 0)...))
	}
	_, span, _ := c.start(context.Background(), SpanLease, with...)
	if span != nil {
		t.finish(span, l.To, l.Events, l.Outcome, l.Cause)
	}
}

// asLink leads to the hold of the call, or, where it came to none, to its caller's
// span.
func (c *Call) asLink() []trace.Link {
	to := c.Hold()
	if !to.IsValid() {
		to = c.from
	}
	if !to.IsValid() {
		return nil
	}
	return []trace.Link{{SpanContext: to, Attributes: []attribute.KeyValue{AttrLink.String(string(LinkAsker))}}}
}
