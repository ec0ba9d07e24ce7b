package main

import (
	"errors"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strings"

	"go.opentelemetry.io/otel/trace"

	"github.com/go-leasehold/leasehold/examples/internal/report"
	"github.com/go-leasehold/leasehold/examples/tracing/blame"
	"github.com/go-leasehold/leasehold/examples/tracing/otlp"
	"github.com/go-leasehold/leasehold/telemetry"
)

// holdsOfARound is how many holds there are in a round: two of each order, but for the impatient one, which has one, and one
// each of the report, the change and the look.
const holdsOfARound = 8

// prove compares what the spans say with what happened. Where not everything was traced, it compares what there is.
func prove(e evidence) report.Checks {
	g := blame.New(e.spans)
	requests := map[string]blame.Request{}
	for _, r := range g.Requests() {
		requests[r.Name] = r
	}
	checks := report.Checks{e.answers(), e.noNoise(), e.noKeys()}
	if e.partial {
		return checks
	}
	return append(checks, e.complete(), e.targets(), e.chains(requests), inVain(requests))
}

// ours returns the spans of leasehold.
func (e *evidence) ours() (found []otlp.Span) {
	for _, s := range e.spans {
		if s.Scope == telemetry.ScopeName {
			found = append(found, s)
		}
	}
	return found
}

// answers: everybody got what they came for, but for who was in a hurry.
func (e *evidence) answers() report.Check {
	c := report.Check{Name: "all were served, but for the impatient", Fact: fmt.Sprintf("%d answers", len(e.statuses))}
	for _, name := range append([]string{nightly}, victims...) {
		want := http.StatusNoContent
		if name == impatient {
			want = http.StatusServiceUnavailable
		}
		if e.statuses[name] != want {
			c.Err = errors.Join(c.Err, fmt.Errorf("%s: status %d", name, e.statuses[name]))
		}
	}
	return c
}

// complete: every hold has a span, and nothing was lost on the way.
func (e *evidence) complete() report.Check {
	holds, services := 0, map[string]bool{}
	for _, s := range e.ours() {
		services[s.Service] = true
		if s.Name == telemetry.SpanHold {
			holds++
		}
	}
	c := report.Check{Name: "each hold has one span", Fact: fmt.Sprintf("%d holds", holds)}
	switch {
	case e.lost > 0:
		c.Err = fmt.Errorf("%d spans were lost", e.lost)
	case holds != holdsOfARound:
		c.Err = fmt.Errorf("there were %d holds", holdsOfARound)
	}
	return c
}

// noNoise: a lease was renewed, which has no span; nor has anything else but waits and holds.
func (e *evidence) noNoise() report.Check {
	c := report.Check{Name: "no span for renewals", Fact: fmt.Sprintf("%d renewals", e.renewals)}
	others := map[string]bool{}
	for _, s := range e.ours() {
		if s.Name != telemetry.SpanAcquire && s.Name != telemetry.SpanHold {
			others[s.Name] = true
		}
	}
	switch {
	case e.renewals == 0:
		c.Err = errors.New("nothing was renewed")
	case len(others) > 0:
		c.Err = fmt.Errorf("there are spans %q", slices.Sorted(maps.Keys(others)))
	}
	return c
}

// noKeys: a key is in no span, whoever made it, but its class is.
func (e *evidence) noKeys() report.Check {
	c := report.Check{Name: "no key in any span", Fact: fmt.Sprintf("%d spans", len(e.spans))}
	for _, s := range e.spans {
		if strings.Contains(fmt.Sprintf("%+v", s), e.keys) {
			c.Err = fmt.Errorf("%s of %s has one", s.Name, s.Service)
		}
	}
	return c
}

// targets: what links lead to is there, and is a hold.
func (e *evidence) targets() report.Check {
	holds := map[otlp.Ref]bool{}
	for _, s := range e.ours() {
		holds[s.Ref] = holds[s.Ref] || s.Name == telemetry.SpanHold
	}
	links, astray := 0, 0
	for _, s := range e.ours() {
		for _, l := range s.Links {
			links++
			if !holds[l.Ref] {
				astray++
			}
		}
	}
	c := report.Check{Name: "every link leads to a hold that is there", Fact: fmt.Sprintf("%d links", links)}
	if links == 0 || astray > 0 {
		c.Err = fmt.Errorf("%d of %d do not", astray, links)
	}
	return c
}

// chains: every wait that was for somebody was for the report in the end.
func (e *evidence) chains(requests map[string]blame.Request) report.Check {
	c := report.Check{Name: "every chain ends at the report's hold"}
	culprit, ok := e.culprit()
	if !ok {
		c.Err = errors.New("the report's hold is not there")
		return c
	}
	chains := 0
	for _, name := range victims {
		waited := false
		for _, w := range requests[name].Waits {
			if !w.Blocked {
				continue
			}
			waited = true
			chains++
			if w.Culprit != culprit {
				c.Err = errors.Join(c.Err, fmt.Errorf("%s: that of %s in %s does not", name, w.Class, w.Service))
			}
		}
		if !waited {
			c.Err = errors.Join(c.Err, fmt.Errorf("%s has not waited", name))
		}
	}
	c.Fact = fmt.Sprintf("%d chains", chains)
	return c
}

// culprit returns the report's hold.
func (e *evidence) culprit() (otlp.Ref, bool) {
	var report trace.TraceID
	for _, s := range e.spans {
		if s.Attributes[blame.RequestAttribute] == nightly {
			report = s.Trace
		}
	}
	for _, s := range e.ours() {
		if s.Name == telemetry.SpanHold && s.Trace == report {
			return s.Ref, true
		}
	}
	return otlp.Ref{}, false
}

// inVain: the impatient one's wait is an error, as its span says, and the only one.
func inVain(requests map[string]blame.Request) report.Check {
	c := report.Check{Name: "the wait that was in vain is an error"}
	for name, r := range requests {
		for _, w := range r.Waits {
			timeout := w.Outcome == telemetry.Timeout
			if timeout {
				c.Fact = fmt.Sprintf("%s: %s", name, w.Outcome)
			}
			if timeout != w.Failed || timeout && name != impatient {
				c.Err = fmt.Errorf("%s: %s, error: %t", name, w.Outcome, w.Failed)
			}
		}
	}
	if c.Fact == "" && c.Err == nil {
		c.Err = errors.New("there is none")
	}
	return c
}
