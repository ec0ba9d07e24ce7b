// Package blame reads out of spans who waited for a lock, and whose hold was to blame. It knows what package telemetry
// says of spans, and nothing else: it works on any that have come from leasehold, whatever exported them.
//
// A wait (lock.acquire) has links to the holds (lock.hold) that were in its way, wherever these are. A hold that was in
// the way may have been waiting itself, for another lock: then there is a wait below it, in its own trace. So the chain
// goes from wait to hold by a link, and from hold to wait by what is below, until it ends at a hold that waited for
// nobody.
package blame

import (
	"cmp"
	"slices"
	"time"

	"go.opentelemetry.io/otel/attribute"

	"github.com/go-leasehold/leasehold/examples/tracing/otlp"
	"github.com/go-leasehold/leasehold/telemetry"
)

// RequestAttribute is an attribute that the program gives to the first span of a request, so that people recognise it.
const RequestAttribute = "example.request"

// Graph is spans and what leads from one to the other.
type Graph struct {
	spans map[otlp.Ref]*node
	roots []*node // of those with a wait below them, by their beginning
}

type node struct {
	*otlp.Span
	parent   *node
	children []*node // by their beginning
}

// New makes a graph of spans. It is content with whatever there is: parents and targets may be missing, and links may go
// in circles.
func New(spans []otlp.Span) *Graph {
	g := &Graph{spans: make(map[otlp.Ref]*node, len(spans))}
	var all []*node
	for i := range spans {
		if g.spans[spans[i].Ref] == nil { // an exporter that repeats itself says the same again
			n := &node{Span: &spans[i]}
			g.spans[n.Ref] = n
			all = append(all, n)
		}
	}
	slices.SortStableFunc(all, func(a, b *node) int {
		return cmp.Or(a.Start.Compare(b.Start), slices.Compare(a.Ref.Span[:], b.Ref.Span[:]))
	})
	for _, n := range all {
		parent := g.spans[otlp.Ref{Trace: n.Trace, Span: n.Parent}]
		if parent != nil && !parent.below(n) {
			n.parent = parent
			parent.children = append(parent.children, n)
		}
	}
	seen := map[*node]bool{}
	for _, n := range all {
		if root := n.root(); n.is(telemetry.SpanAcquire) && !seen[root] {
			seen[root] = true
			g.roots = append(g.roots, root)
		}
	}
	slices.SortStableFunc(g.roots, func(a, b *node) int { return a.Start.Compare(b.Start) })
	return g
}

// below tells whether n is the other one, or below it.
func (n *node) below(other *node) bool {
	for ; n != nil; n = n.parent {
		if n == other {
			return true
		}
	}
	return false
}

// root returns the first span of the request: of what is known of it.
func (n *node) root() *node {
	for n.parent != nil {
		n = n.parent
	}
	return n
}

// is tells whether a span is leasehold's, and of this name.
func (n *node) is(name string) bool { return n.Scope == telemetry.ScopeName && n.Name == name }

// waits returns the waits below a span, by their beginning.
func (n *node) waits() (found []*node) {
	for left := slices.Clone(n.children); len(left) > 0; {
		c := left[len(left)-1]
		left = append(left[:len(left)-1], c.children...)
		if c.is(telemetry.SpanAcquire) {
			found = append(found, c)
		}
	}
	slices.SortStableFunc(found, func(a, b *node) int { return a.Start.Compare(b.Start) })
	return found
}

// allWaits returns the waits of a request, by their beginning. It may be nothing but a wait itself.
func (n *node) allWaits() []*node {
	if n.is(telemetry.SpanAcquire) {
		return append([]*node{n}, n.waits()...)
	}
	return n.waits()
}

// blockedWaits returns those of them that were for somebody.
func (n *node) blockedWaits() []*node {
	return slices.DeleteFunc(n.allWaits(), func(w *node) bool { return !w.blocked() })
}

func (n *node) attribute(key attribute.Key) string { return n.Attributes[string(key)] }

// blocked tells whether a wait was for somebody, and not just for the store's answer.
func (n *node) blocked() bool {
	return len(n.Links) > 0 || slices.ContainsFunc(n.Events, func(e otlp.Event) bool {
		return e.Name == telemetry.EventDenied || e.Name == telemetry.EventQueued
	})
}

// blocker is a hold that was in a wait's way; its node is nil where the link leads to a span that is not here.
type blocker struct {
	*node
	to       otlp.Ref
	relation telemetry.Relation
}

// blockers returns the holds that were in a wait's way.
func (g *Graph) blockers(wait *node) (found []blocker) {
	for _, l := range wait.Links {
		relation := telemetry.Relation(l.Attributes[string(telemetry.AttrLink)])
		found = append(found, blocker{g.spans[l.Ref], l.Ref, relation})
	}
	return found
}

// during returns the waits below a hold that lasted while it was in the way of the given one.
func (n *node) during(wait *node) (found []*node) {
	for _, w := range n.waits() {
		if w.blocked() && w.overlap(wait.Start, wait.End) > 0 {
			found = append(found, w)
		}
	}
	return found
}

// overlap returns for how long a span lasted within this time.
func (n *node) overlap(from, to time.Time) time.Duration {
	if n.Start.After(from) {
		from = n.Start
	}
	if n.End.Before(to) {
		to = n.End
	}
	return max(0, to.Sub(from))
}

// took is how long a span lasted.
func (n *node) took() time.Duration { return max(0, n.End.Sub(n.Start)) }

// culprit follows a wait to the hold at which its chain ends. At each wait it goes to the hold that was in the way for
// most of the time, and from there to a wait below it, if that took most of this time. It returns nil where the chain
// leads out of what is here, or in a circle, and where no single hold was in the way for most of the time: a queue of
// many short ones is nobody's fault.
func (g *Graph) culprit(wait *node) *node {
	seen := map[*node]bool{}
	for {
		var hold *node
		longest := time.Duration(-1)
		for _, b := range g.blockers(wait) {
			if b.node != nil && b.overlap(wait.Start, wait.End) > longest {
				hold, longest = b.node, b.overlap(wait.Start, wait.End)
			}
		}
		if hold == nil || seen[hold] || 2*longest < wait.took() {
			return nil
		}
		seen[hold] = true
		next := hold.longestDuring(wait)
		if next == nil || 2*next.overlap(wait.Start, wait.End) < longest {
			return hold
		}
		wait = next
	}
}

// longestDuring returns the one of [node.during] that shares most time with the wait, or nil.
func (n *node) longestDuring(wait *node) (longest *node) {
	for _, w := range n.during(wait) {
		if longest == nil || w.overlap(wait.Start, wait.End) > longest.overlap(wait.Start, wait.End) {
			longest = w
		}
	}
	return longest
}
