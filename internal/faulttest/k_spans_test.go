package faulttest

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/trace"

	"github.com/go-leasehold/leasehold/telemetry"
)

// spanID names a span: the ids of its trace and of itself, in hexadecimal digits.
type spanID struct{ Trace, Span string }

func idOf(s trace.SpanContext) spanID { return spanID{s.TraceID().String(), s.SpanID().String()} }

// traceparent is how it is written in Redis, sampled.
func (s spanID) traceparent() string { return "00-" + s.Trace + "-" + s.Span + "-01" }

// exported is a span as an exporter was given it, in a form that passes from process to process. Times are of the
// clock that all processes share.
type exported struct {
	Name       string
	ID         spanID
	Parent     spanID // zero: it has none
	Begin, End time.Time
	Attributes map[string]string
	Links      []exportedLink
	Events     []exportedEvent
	Failed     bool // its status is an error
	Scope      string
}

type exportedLink struct {
	To       spanID
	Relation string
}

type exportedEvent struct {
	Name       string
	At         time.Time
	Attributes map[string]string
}

func export(s sdktrace.ReadOnlySpan) exported {
	e := exported{
		Name: s.Name(), ID: idOf(s.SpanContext()), Begin: s.StartTime(), End: s.EndTime(), Attributes: texts(s.Attributes()),
		Failed: s.Status().Code == codes.Error, Scope: s.InstrumentationScope().Name,
	}
	if s.Parent().IsValid() {
		e.Parent = idOf(s.Parent())
	}
	for _, link := range s.Links() {
		e.Links = append(e.Links, exportedLink{idOf(link.SpanContext), texts(link.Attributes)[string(telemetry.AttrLink)]})
	}
	for _, event := range s.Events() {
		e.Events = append(e.Events, exportedEvent{event.Name, event.Time, texts(event.Attributes)})
	}
	return e
}

func texts(attributes []attribute.KeyValue) map[string]string {
	all := map[string]string{}
	for _, a := range attributes {
		all[string(a.Key)] = a.Value.String()
	}
	return all
}

func (e exported) outcome() telemetry.Outcome {
	return telemetry.Outcome(e.Attributes[string(telemetry.AttrOutcome)])
}

// leadsTo are the spans that its links lead to.
func (e exported) leadsTo() []spanID {
	var all []spanID
	for _, link := range e.Links {
		all = append(all, link.To)
	}
	return all
}

// eventNames are its events, in their order.
func (e exported) eventNames() []string {
	var all []string
	for _, event := range e.Events {
		all = append(all, event.Name)
	}
	return all
}

// exporter is one that gives each span to a function.
type exporter func(exported)

func (to exporter) ExportSpans(_ context.Context, spans []sdktrace.ReadOnlySpan) error {
	for _, s := range spans {
		to(export(s))
	}
	return nil
}

func (exporter) Shutdown(context.Context) error { return nil }

// spanList collects the spans of this process, and counts those that have begun.
type spanList struct {
	mu    sync.Mutex
	begun map[string]int
	ended []exported
}

func (l *spanList) OnStart(_ context.Context, s sdktrace.ReadWriteSpan) {
	if s.Parent().IsRemote() {
		return // by which a coordinator finds out whether spans are made at all; it never ends
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.begun == nil {
		l.begun = map[string]int{}
	}
	l.begun[s.Name()]++
}

func (l *spanList) OnEnd(s sdktrace.ReadOnlySpan) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.ended = append(l.ended, export(s))
}

func (l *spanList) Shutdown(context.Context) error { return nil }

func (l *spanList) ForceFlush(context.Context) error { return nil }

// provider makes spans that the list collects, all of them unless another sampler is given.
func (l *spanList) provider(options ...sdktrace.TracerProviderOption) *sdktrace.TracerProvider {
	options = append([]sdktrace.TracerProviderOption{sdktrace.WithSampler(sdktrace.AlwaysSample())}, options...)
	return sdktrace.NewTracerProvider(append(options, sdktrace.WithSpanProcessor(l))...)
}

// begunSoFar is how many spans of each name there were, ended or not.
func (l *spanList) begunSoFar() map[string]int {
	l.mu.Lock()
	defer l.mu.Unlock()
	all := map[string]int{}
	for name, n := range l.begun {
		all[name] = n
	}
	return all
}

// all are the spans that have ended.
func (l *spanList) all() []exported {
	l.mu.Lock()
	defer l.mu.Unlock()
	return slices.Clone(l.ended)
}

// named are those of a name.
func named(spans []exported, name string) []exported {
	return slices.DeleteFunc(slices.Clone(spans), func(e exported) bool { return e.Name != name })
}

// the is the only span of that name below a parent.
func the(t testing.TB, spans []exported, name string, parent spanID) exported {
	t.Helper()
	var found []exported
	for _, e := range named(spans, name) {
		if e.Parent == parent {
			found = append(found, e)
		}
	}
	require.Len(t, found, 1, "spans %s below %v, of %d spans", name, parent, len(spans))
	return found[0]
}

// beside wants two spans to have a moment in common.
func beside(t testing.TB, a, b exported) {
	t.Helper()
	apart := max(a.Begin.Sub(b.End), b.Begin.Sub(a.End))
	require.Less(t, apart, blur, "%s from %v to %v, and %s from %v to %v", a.Name, a.Begin, a.End, b.Name, b.Begin, b.End)
}

// shows wants attributes to have these values; "" stands for none.
func shows(t testing.TB, attributes map[string]string, want map[attribute.Key]string) {
	t.Helper()
	for name, value := range want {
		require.Equal(t, value, attributes[string(name)], name)
	}
}

// hidesAll wants no text to be anywhere in what was exported, which is any value that can be written as JSON.
func hidesAll(t testing.TB, export any, secrets ...string) {
	t.Helper()
	text, err := json.Marshal(export)
	require.NoError(t, err)
	for _, secret := range secrets {
		require.NotEmpty(t, secret)
		at := strings.Index(string(text), secret)
		if at >= 0 {
			require.FailNow(t, "exported", "%q in %s", secret, fmt.Sprintf("...%s", text[max(0, at-200):min(len(text), at+200)]))
		}
	}
}
