package lockz

import (
	"cmp"
	"context"
	"reflect"
	"slices"
	"strings"
	"time"

	"go.opentelemetry.io/otel/trace"

	"github.com/go-leasehold/leasehold/coordinator"
	"github.com/go-leasehold/leasehold/lease"
)

// picture is a Page in the making, and what only its HTML has.
type picture struct {
	Page
	total []total   // Page.Totals, in the order of coordinator.Stats
	tree  []*branch // of the keys that are waited for
	graph *graph
	rest  int // trees that there was no room for

	h       *handler
	asked   request
	callers map[int]int // numbers of owners in the snapshot → in the Page
}

type total struct {
	name  string
	count uint64
}

// look makes a Page, or nil where nobody waits for it any more. Of the coordinator
// it takes one snapshot; the store is asked by the checker, and with fleet=1. Pages
// are made one after the other, so that no crowd of readers makes a crowd of
// snapshots.
func (h *handler) look(ctx context.Context, asked request) *picture {
	p := &picture{h: h, asked: asked, callers: map[int]int{}}
	p.Check = h.check.result(ctx)
	if asked.fleet {
		if !enter(ctx, h.fleetTurn) {
			return nil
		}
		defer leave(h.fleetTurn)
	}
	if !enter(ctx, h.turn) {
		return nil
	}
	ranks := p.take(ctx, h.c)
	if asked.fleet && ctx.Err() == nil {
		p.fleet(ctx, ranks)
	}
	if ctx.Err() != nil {
		return nil
	}
	return p
}

// take takes a snapshot and fills in what it tells, unless nobody waits for it any
// more. It ends the turn.
func (p *picture) take(ctx context.Context, c *coordinator.Coordinator) []rank {
	defer leave(p.h.turn)
	began := time.Now()
	s := c.Snapshot()
	p.At = time.Now()
	return p.tell(ctx, s, p.At.Sub(began))
}

// tell fills in what a snapshot tells that took so long to be made.
func (p *picture) tell(ctx context.Context, s coordinator.Snapshot, took time.Duration) []rank {
	p.Title, p.ID, p.Server = p.h.conf.title, s.ID, clip(s.Capabilities.Server)
	p.Missing = []string{}
	for _, m := range s.Capabilities.Missing {
		p.Missing = append(p.Missing, clip(m))
	}
	p.LogDropped, p.Query = s.LogDropped, strings.ToValidUTF8(p.asked.query, "\uFFFD")
	p.count(s.Stats)
	p.graph = newGraph(s.Keys)
	if ctx.Err() != nil {
		return nil
	}
	p.cycles(p.graph.rings(p.graph.number(took)))
	if ctx.Err() != nil {
		return nil
	}
	ranks := p.ranks(s.Keys)
	p.waits(ctx, ranks)
	if ctx.Err() != nil {
		return nil
	}
	p.keys(ranks)
	return ranks
}

// count fills in the totals.
func (p *picture) count(stats coordinator.Stats) {
	p.Totals = map[string]uint64{}
	v := reflect.ValueOf(stats)
	for i := range v.NumField() {
		name := snake(v.Type().Field(i).Name)
		p.total = append(p.total, total{name, v.Field(i).Uint()})
		p.Totals[name] = v.Field(i).Uint()
	}
}

// caller returns the Page's number of an owner.
func (p *picture) caller(owner int) int {
	if owner == 0 {
		return 0
	}
	n, ok := p.callers[owner]
	if !ok {
		n = len(p.callers) + 1
		p.callers[owner] = n
	}
	return n
}

func (p *picture) callersOf(owners []int) (numbers []int) {
	for _, owner := range owners {
		numbers = append(numbers, p.caller(owner))
	}
	return numbers
}

// cycles fills in the deadlocks.
func (p *picture) cycles(rings []ring) {
	p.Cycles = []Cycle{}
	p.MoreCycles = max(len(rings)-maxCycles, 0)
	g := p.graph
	for _, r := range rings[:len(rings)-p.MoreCycles] {
		c := Cycle{Cut: max(len(r.links)-maxSteps, 0), More: r.knot - len(r.links)}
		for i, l := range r.links[:len(r.links)-c.Cut] {
			before := r.links[(i+len(r.links)-1)%len(r.links)].wait
			w := g.waiter(l.wait)
			step := Step{
				Caller: p.caller(l.owner), Has: nameOf(g.keys[before.key].Key), Next: l.owner == 0,
				Key: nameOf(g.keys[l.wait.key].Key), Mode: w.Mode.String(), Age: seconds(w.Waited), Place: clip(w.Place),
			}
			if l.owner == 0 && len(w.Owners) > 0 {
				step.Caller = p.caller(w.Owners[0])
			}
			for _, has := range g.holdsOf[l.owner] {
				if has.key == before.key {
					hold := g.hold(has)
					step.Token, step.Held, step.Trace = hold.Token, seconds(hold.Age), p.h.trace(hold.Trace)
				}
			}
			c.Steps = append(c.Steps, step)
		}
		p.Cycles = append(p.Cycles, c)
	}
}

// trace returns where a span is, or nil.
func (h *handler) trace(span trace.SpanContext) *Trace {
	if !span.IsValid() {
		return nil
	}
	return &Trace{TraceID: span.TraceID().String(), SpanID: span.SpanID().String(), URL: h.conf.telemetry.URL(span)}
}

// waits fills in the edges of the waits-for graph, and the trees.
func (p *picture) waits(ctx context.Context, ranks []rank) {
	p.Waits = []Wait{}
	type edge struct {
		spot
		age time.Duration
	}
	var all []edge
	var waited []int
	for _, r := range ranks {
		for at, w := range p.graph.keys[r.key].Waiters {
			all = append(all, edge{spot{r.key, at}, w.Waited})
		}
		if r.wait > 0 {
			waited = append(waited, r.key)
		}
	}
	slices.SortStableFunc(all, func(a, b edge) int { return cmp.Compare(b.age, a.age) })
	p.MoreWaits = max(len(all)-p.asked.limit, 0)
	for _, e := range all[:len(all)-p.MoreWaits] {
		p.Waits = append(p.Waits, p.wait(e.spot))
	}
	p.tree, p.rest = p.graph.grow(ctx, waited, room{keys: min(p.asked.limit, maxBranches), twigs: p.asked.each})
}

// wait returns one edge.
func (p *picture) wait(s spot) Wait {
	k, w := &p.graph.keys[s.key], p.graph.waiter(s)
	wait := Wait{
		Key: nameOf(k.Key), Mode: w.Mode.String(), Age: seconds(w.Waited), Callers: p.callersOf(w.Owners),
		Trace: p.h.trace(w.Trace), Holder: clip(k.Holder), HolderTrace: p.h.trace(k.HolderTrace), Cycle: p.graph.stuck[s],
	}
	for _, owner := range w.Owners {
		has := p.graph.holdsOf[owner]
		for _, s := range has[:min(len(has), p.asked.each-len(wait.Has))] {
			wait.Has = append(wait.Has, nameOf(p.graph.keys[s.key].Key))
		}
	}
	if writer := p.graph.behind(s); writer != nil {
		behind := p.waiter(writer)
		wait.Behind = &behind
	}
	for i := range k.Holds {
		hold := &k.Holds[i]
		if len(wait.For) == p.asked.each {
			break
		}
		if hold.Owner != 0 && (w.Mode == lease.Exclusive || hold.Mode == lease.Exclusive) {
			wait.For = append(wait.For, p.caller(hold.Owner))
		}
	}
	return wait
}
