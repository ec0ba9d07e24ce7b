// Package otlp is a receiver of spans for a program that wants to look at its own: OTLP over HTTP with protobuf, on a free
// loopback port, in memory. For anything else there is the collector of OpenTelemetry, or Jaeger.
package otlp

import (
	"math"
	"strconv"
	"time"

	"go.opentelemetry.io/otel/trace"
	commonpb "go.opentelemetry.io/proto/otlp/common/v1"
	tracepb "go.opentelemetry.io/proto/otlp/trace/v1"
)

// Ref names a span.
type Ref struct {
	Trace trace.TraceID
	Span  trace.SpanID
}

// Span is what is kept of a span.
type Span struct {
	Ref
	Parent     trace.SpanID // not valid: it has none
	Service    string       // service.name
	Scope      string       // of the instrumentation
	Name       string
	Start, End time.Time
	Failed     bool // its status is an error
	Attributes map[string]string
	Events     []Event
	Links      []Link
}

// Event is an event of a span.
type Event struct {
	Name       string
	Attributes map[string]string
}

// Link leads to another span.
type Link struct {
	Ref
	Attributes map[string]string
}

// spansOf returns the spans of a message, and how many of them have no valid name.
func spansOf(batches []*tracepb.ResourceSpans) (spans []Span, invalid int64) {
	for _, resource := range batches {
		service := texts(resource.GetResource().GetAttributes())["service.name"]
		for _, scope := range resource.GetScopeSpans() {
			for _, s := range scope.GetSpans() {
				span, ok := spanOf(s)
				if !ok {
					invalid++
					continue
				}
				span.Service, span.Scope = service, scope.GetScope().GetName()
				spans = append(spans, span)
			}
		}
	}
	return spans, invalid
}

func spanOf(s *tracepb.Span) (span Span, ok bool) {
	if span.Ref, ok = refOf(s.GetTraceId(), s.GetSpanId()); !ok {
		return span, false
	}
	copy(span.Parent[:], s.GetParentSpanId()) // a root has none
	span.Name = s.GetName()
	span.Start, span.End = at(s.GetStartTimeUnixNano()), at(s.GetEndTimeUnixNano())
	span.Failed = s.GetStatus().GetCode() == tracepb.Status_STATUS_CODE_ERROR
	span.Attributes = texts(s.GetAttributes())
	for _, e := range s.GetEvents() {
		span.Events = append(span.Events, Event{Name: e.GetName(), Attributes: texts(e.GetAttributes())})
	}
	for _, l := range s.GetLinks() {
		if to, ok := refOf(l.GetTraceId(), l.GetSpanId()); ok {
			span.Links = append(span.Links, Link{Ref: to, Attributes: texts(l.GetAttributes())})
		}
	}
	return span, true
}

// refOf reads the name of a span, which is of so many bytes, and not all of them zero.
func refOf(traceID, spanID []byte) (r Ref, ok bool) {
	if len(traceID) != len(r.Trace) || len(spanID) != len(r.Span) {
		return r, false
	}
	copy(r.Trace[:], traceID)
	copy(r.Span[:], spanID)
	return r, r.Trace.IsValid() && r.Span.IsValid()
}

func at(nanos uint64) time.Time { return time.Unix(0, int64(min(nanos, math.MaxInt64))) }

func texts(attributes []*commonpb.KeyValue) map[string]string {
	all := make(map[string]string, len(attributes))
	for _, a := range attributes {
		all[a.GetKey()] = text(a.GetValue())
	}
	return all
}

// text writes a value as a person would.
func text(v *commonpb.AnyValue) string {
	switch v := v.GetValue().(type) {
	case nil:
		return ""
	case *commonpb.AnyValue_StringValue:
		return v.StringValue
	case *commonpb.AnyValue_BoolValue:
		return strconv.FormatBool(v.BoolValue)
	case *commonpb.AnyValue_IntValue:
		return strconv.FormatInt(v.IntValue, 10)
	case *commonpb.AnyValue_DoubleValue:
		return strconv.FormatFloat(v.DoubleValue, 'g', -1, 64)
	}
	return v.String() // lists and the like
}
