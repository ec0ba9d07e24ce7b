package main

import (
	"flag"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/otel/trace"

	"github.com/go-leasehold/leasehold/examples/tracing/blame"
	"github.com/go-leasehold/leasehold/examples/tracing/otlp"
	"github.com/go-leasehold/leasehold/telemetry"
)

func TestParseRefusesWhatMakesNoSense(t *testing.T) {
	t.Parallel()
	s, err := parse(nil, io.Discard)
	require.NoError(t, err)
	require.Equal(t, settings{
		hold: 1200 * time.Millisecond, patience: 300 * time.Millisecond, traceURL: "http://localhost:16686/trace/{trace}",
	}, s)
	for args, want := range map[string]string{
		"-hold 1ms":                    "-hold must be",
		"-hold 2m":                     "-hold must be",
		"-hold x":                      "invalid value",
		"-patience 1ms":                "-patience must be",
		"-patience 2s":                 "-patience must be",
		"-for -1s":                     "-for must not be negative",
		"-trace-url http://localhost/": "has no {trace}",
		"surplus":                      `unexpected argument "surplus"`,
		"-nothing-of-that-name 3":      "not defined",
	} {
		var said strings.Builder
		_, err := parse(strings.Fields(args), &said)
		require.Error(t, err, args)
		require.Contains(t, said.String(), want, args)
	}
	_, err = parse([]string{"-h"}, io.Discard)
	require.ErrorIs(t, err, flag.ErrHelp)
}

func TestClassLeavesOutWhatIsDrawnByLot(t *testing.T) {
	t.Parallel()
	require.Equal(t, "stock", classOf("tracing:XYZ:stock"))
	require.Equal(t, "stock", classOf("stock"))
}

// What the environment says decides where spans and metrics go.
func TestEnvironmentSaysWhereTo(t *testing.T) {
	names := []string{
		"OTEL_EXPORTER_OTLP_ENDPOINT", "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "OTEL_TRACES_EXPORTER",
		"OTEL_EXPORTER_OTLP_METRICS_ENDPOINT", "OTEL_METRICS_EXPORTER", "OTEL_TRACES_SAMPLER",
	}
	for set, want := range map[string][]bool{ // traces, metrics, some are not traced
		"":                                    {false, false, false},
		"OTEL_EXPORTER_OTLP_ENDPOINT":         {true, true, false},
		"OTEL_EXPORTER_OTLP_TRACES_ENDPOINT":  {true, false, false},
		"OTEL_TRACES_EXPORTER":                {true, false, false},
		"OTEL_EXPORTER_OTLP_METRICS_ENDPOINT": {false, true, false},
		"OTEL_METRICS_EXPORTER":               {false, true, false},
		"OTEL_TRACES_SAMPLER":                 {false, false, true},
	} {
		for _, name := range names {
			value := ""
			if name == set {
				value = "something"
			}
			t.Setenv(name, value)
		}
		require.Equal(t, want, []bool{exportsTraces(), exportsMetrics(), sampled()}, set)
		require.Equal(t, want[0] || want[1], exported(), set)
	}
	t.Setenv("OTEL_TRACES_SAMPLER", "parentbased_always_on")
	require.False(t, sampled())
}

// scene is a round as it has to be, for tests to spoil.
type scene struct {
	evidence
	spans map[string]*otlp.Span
}

func newScene() *scene {
	s := &scene{spans: map[string]*otlp.Span{}}
	s.keys, s.renewals, s.statuses = "tracing:XYZ", 2, map[string]int{}
	for _, name := range append([]string{nightly}, victims...) {
		s.statuses[name] = http.StatusNoContent
		root := s.add(name, "", "POST /", nil)
		root.Attributes[blame.RequestAttribute] = name
	}
	s.statuses[impatient] = http.StatusServiceUnavailable
	s.ours(nightly+" stock", nightly, telemetry.SpanHold, "stock")
	for _, name := range []string{first, second, impatient} {
		s.ours(name+" catalog", name, telemetry.SpanHold, "catalog")
		s.ours(name+" wait", name+" catalog", telemetry.SpanAcquire, "stock", nightly+" stock")
	}
	s.ours(first+" stock", first+" catalog", telemetry.SpanHold, "stock")
	s.ours(second+" stock", second+" catalog", telemetry.SpanHold, "stock")
	failed := s.spans[impatient+" wait"]
	failed.Failed = true
	failed.Attributes[string(telemetry.AttrOutcome)] = string(telemetry.Timeout)
	s.ours(change+" wait", change, telemetry.SpanAcquire, "catalog", first+" catalog")
	s.ours(change+" catalog", change, telemetry.SpanHold, "catalog")
	s.ours(look+" wait", look, telemetry.SpanAcquire, "catalog", second+" catalog")
	s.ours(look+" catalog", look, telemetry.SpanHold, "catalog")
	return s
}

// add adds a span below another one, or the first of a trace.
func (s *scene) add(name, below, is string, attributes map[string]string) *otlp.Span {
	n := byte(len(s.spans) + 1)
	span := &otlp.Span{
		Ref: otlp.Ref{Trace: trace.TraceID{n}, Span: trace.SpanID{n}}, Name: is, Service: "a service",
		Start: time.UnixMilli(0), End: time.UnixMilli(1000), Attributes: map[string]string{},
	}
	if below != "" {
		span.Trace, span.Parent = s.spans[below].Trace, s.spans[below].Span
	}
	for key, value := range attributes {
		span.Attributes[key] = value
	}
	s.spans[name] = span
	return span
}

// ours adds a span of leasehold.
func (s *scene) ours(name, below, is, class string, to ...string) {
	span := s.add(name, below, is, map[string]string{
		string(telemetry.AttrClass): class, string(telemetry.AttrOutcome): string(telemetry.Acquired),
	})
	span.Scope = telemetry.ScopeName
	for _, target := range to {
		span.Links = append(span.Links, otlp.Link{Ref: s.spans[target].Ref})
	}
}

func (s *scene) prove() error {
	s.evidence.spans = nil
	for _, span := range s.spans {
		s.evidence.spans = append(s.evidence.spans, *span)
	}
	return prove(s.evidence).Verdict()
}

func TestProofHolds(t *testing.T) {
	t.Parallel()
	require.NoError(t, newScene().prove())
}

// Each thing that can be wrong is found.
func TestProofFindsWhatIsWrong(t *testing.T) {
	t.Parallel()
	for want, spoil := range map[string]func(*scene){
		"order 1: status 500":           func(s *scene) { s.statuses[first] = 500 },
		"impatient: status 204":         func(s *scene) { s.statuses[impatient] = 204 },
		"look at the prices: status 0":  func(s *scene) { delete(s.statuses, look) },
		"nothing was renewed":           func(s *scene) { s.renewals = 0 },
		`there are spans ["lock.rene`:   func(s *scene) { s.ours("new", first, "lock.renewal", "stock") },
		"a service has one":             func(s *scene) { s.spans[first].Attributes["url"] = "/" + s.keys + ":stock" },
		"POST / of a service":           func(s *scene) { s.spans[first].Events = []otlp.Event{{Name: s.keys}} },
		"3 spans were lost":             func(s *scene) { s.lost = 3 },
		"there were 8 holds":            func(s *scene) { delete(s.spans, first+" stock") },
		"1 of 5 do not":                 func(s *scene) { s.spans[change+" wait"].Links[0].Span = trace.SpanID{99} },
		"5 of 5 do not":                 func(s *scene) { s.toWaits() },
		"0 of 0 do not":                 func(s *scene) { s.unlink() },
		"that of catalog in a service ": func(s *scene) { s.spans[look+" wait"].Links[0].Ref = s.spans[change+" catalog"].Ref },
		"order 2 has not waited":        func(s *scene) { s.spans[second+" wait"].Links = nil },
		"the report's hold is not":      func(s *scene) { delete(s.spans, nightly+" stock") },
		"timeout, error: false":         func(s *scene) { s.spans[impatient+" wait"].Failed = false },
		"acquired, error: true":         func(s *scene) { s.spans[first+" wait"].Failed = true },
		"there is none": func(s *scene) {
			s.spans[impatient+" wait"].Attributes[string(telemetry.AttrOutcome)] = "acquired"
			s.spans[impatient+" wait"].Failed = false
		},
		"order 2: timeout": func(s *scene) {
			s.spans[second+" wait"].Attributes[string(telemetry.AttrOutcome)] = "timeout"
			s.spans[second+" wait"].Failed = true
		},
	} {
		s := newScene()
		spoil(s)
		require.ErrorContains(t, s.prove(), want)
	}
}

// toWaits has links lead to spans that are there, but no holds.
func (s *scene) toWaits() {
	for _, span := range s.spans {
		for i := range span.Links {
			span.Links[i].Ref = s.spans[first+" wait"].Ref
		}
	}
}

func (s *scene) unlink() {
	for _, span := range s.spans {
		span.Links = nil
	}
}

// Where not everything was traced, what there is has to be right, and no more.
func TestProofOfAPart(t *testing.T) {
	t.Parallel()
	s := newScene()
	s.partial = true
	s.spans = map[string]*otlp.Span{look + " wait": s.spans[look+" wait"]}
	require.NoError(t, s.prove())
	s.spans[look+" wait"].Name = "lock.renewal"
	require.ErrorContains(t, s.prove(), "lock.renewal")
}

func TestPrintedProofSaysWhatFailed(t *testing.T) {
	t.Parallel()
	var out strings.Builder
	s := newScene()
	s.renewals = 0
	require.Error(t, s.prove())
	prove(s.evidence).Print(&out)
	require.Equal(t, 6, strings.Count(out.String(), " ok\n"))
	require.Contains(t, out.String(), "FAILED: nothing was renewed\n")
}

func TestTableSaysHowLongWhoWaited(t *testing.T) {
	t.Parallel()
	var out strings.Builder
	printRequests(&out, []blame.Request{
		{Name: "a", Service: "x", Took: 2 * time.Second, Waited: time.Second, Waits: []blame.Wait{
			{Class: "one", Path: telemetry.PathRedis, Outcome: telemetry.Acquired, Took: time.Millisecond},
			{Class: "two", Outcome: telemetry.Timeout, Took: 999 * time.Millisecond},
		}},
		{Name: "b"},
	})
	require.Equal(t, ""+
		"request   at   took     waited   share    for\n"+
		"a         x    2.00 s   1.00 s   50.0 %   one 1.00 ms: redis, two 999 ms: TIMEOUT\n"+
		"b              0s       0s       0.0 %    \n", out.String())
}
