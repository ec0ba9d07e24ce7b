package blame

import (
	"cmp"
	"slices"
	"time"

	"github.com/go-leasehold/leasehold/examples/tracing/otlp"
	"github.com/go-leasehold/leasehold/telemetry"
)

// Wait is a wait of a request.
type Wait struct {
	otlp.Ref
	Service string
	Class   string
	Mode    string
	Path    telemetry.Path // of one that was granted
	Outcome telemetry.Outcome
	Failed  bool // the span's status is an error
	Took    time.Duration
	Blocked bool     // it was for somebody, and not just for the store's answer
	Culprit otlp.Ref // the hold at which the chain ends; not valid where it is not known
}

// Request is a request with its waits, also those for nothing but the store's answer.
type Request struct {
	otlp.Ref
	Name    string
	Service string
	Took    time.Duration
	Waited  time.Duration // for all locks, no time counted twice
	Waits   []Wait        // by their beginning
}

// Requests returns all requests that waited, by their beginning.
func (g *Graph) Requests() (all []Request) {
	for _, root := range g.roots {
		r := Request{Ref: root.Ref, Name: root.Attributes[RequestAttribute], Service: root.Service, Took: root.took()}
		until := root.Start
		for _, w := range root.allWaits() {
			r.Waits = append(r.Waits, g.waitOf(w))
			from := w.Start
			if from.Before(until) {
				from = until
			}
			if w.End.After(from) {
				r.Waited += w.End.Sub(from)
				until = w.End
			}
		}
		all = append(all, r)
	}
	return all
}

func (g *Graph) waitOf(w *node) Wait {
	is := Wait{
		Ref: w.Ref, Service: w.Service, Class: w.attribute(telemetry.AttrClass), Mode: w.attribute(telemetry.AttrMode),
		Path:    telemetry.Path(w.attribute(telemetry.AttrPath)),
		Outcome: telemetry.Outcome(w.attribute(telemetry.AttrOutcome)), Failed: w.Failed, Took: w.took(), Blocked: w.blocked(),
	}
	if c := g.culprit(w); c != nil {
		is.Culprit = c.Ref
	}
	return is
}

// Culprit is a hold at which chains end.
type Culprit struct {
	otlp.Ref
	Request string
	Service string
	Class   string
	Mode    string
	Held    time.Duration
	Waits   int           // how many were for it in the end
	Waited  time.Duration // in sum
}

// Culprits returns the holds at which chains end, the worst first: that for which others waited longest.
func (g *Graph) Culprits() (all []Culprit) {
	at := map[*node]int{}
	for _, root := range g.roots {
		for _, w := range root.blockedWaits() {
			c := g.culprit(w)
			if c == nil {
				continue
			}
			i, known := at[c]
			if !known {
				i = len(all)
				at[c] = i
				all = append(all, Culprit{
					Ref: c.Ref, Request: c.root().Attributes[RequestAttribute], Service: c.Service,
					Class: c.attribute(telemetry.AttrClass), Mode: c.attribute(telemetry.AttrMode), Held: c.took(),
				})
			}
			all[i].Waits++
			all[i].Waited += w.took()
		}
	}
	slices.SortStableFunc(all, func(a, b Culprit) int { return cmp.Compare(b.Waited, a.Waited) })
	return all
}
