package blame

import (
	"fmt"
	"io"
	"strings"

	"github.com/go-leasehold/leasehold/examples/internal/report"
	"github.com/go-leasehold/leasehold/telemetry"
)

// deepest is how many levels of a tree are printed.
const deepest = 40

// PrintTrees prints, for each request that waited for somebody, whom it waited for, whom these waited for, and so on.
// The hold that is most to blame is marked.
func (g *Graph) PrintTrees(out io.Writer) {
	var worst *node
	if culprits := g.Culprits(); len(culprits) > 0 {
		worst = g.spans[culprits[0].Ref]
	}
	for _, root := range g.roots {
		t := &tree{g: g, out: out, worst: worst, done: map[*node]bool{}, open: map[*node]bool{}}
		t.request(root)
	}
}

// tree is one request's.
type tree struct {
	g     *Graph
	out   io.Writer
	worst *node
	done  map[*node]bool // printed with all that is below it
	open  map[*node]bool // between here and the root
	depth int
}

func (t *tree) request(root *node) {
	waits := root.blockedWaits()
	if len(waits) == 0 {
		return
	}
	fmt.Fprintf(t.out, "%s at %s, %s\n", requestName(root), service(root), report.Duration(root.took()))
	for i, w := range waits {
		t.wait(w, "", i == len(waits)-1)
	}
	fmt.Fprintln(t.out)
}

// wait prints a wait, and the holds that were in its way.
func (t *tree) wait(w *node, indent string, last bool) {
	blockers := t.g.blockers(w)
	below := t.line(indent, last, "%s waited %s for %s%s", service(w), report.Duration(w.took()), lockName(w), became(w))
	if len(blockers) == 0 {
		t.line(below, true, "for whom is not known: that hold is not traced")
		return
	}
	for i, b := range blockers {
		t.hold(w, b, below, i == len(blockers)-1)
	}
}

// hold prints a hold that was in the way of a wait, and what it waited for meanwhile.
func (t *tree) hold(of *node, b blocker, indent string, last bool) {
	how := "blocked by"
	if b.relation == telemetry.LinkPredecessor {
		how = "last before it:"
	}
	if b.node == nil {
		t.line(indent, last, "%s a hold that is not here: trace %s, span %s", how, b.to.Trace, b.to.Span)
		return
	}
	text := fmt.Sprintf("%s %s of %s: %s held for %s%s, in %s",
		how, b.Name, service(b.node), lockName(b.node), report.Duration(b.took()), alarmed(b.node), requestName(b.root()))
	waits := b.during(of)
	switch {
	case t.open[b.node]:
		t.line(indent, last, "%s: A CIRCLE, they wait for each other", text)
		return
	case b.node == t.worst:
		text += "  <== THE CULPRIT"
	case len(waits) > 0 && t.done[b.node]:
		text += " (see above)"
	}
	below := t.line(indent, last, "%s", text)
	if t.done[b.node] {
		return
	}
	t.open[b.node] = true
	t.depth++
	if t.depth == deepest && len(waits) > 0 {
		t.line(below, true, "...")
		waits = nil
	}
	for i, w := range waits {
		t.wait(w, below, i == len(waits)-1)
	}
	t.depth--
	t.done[b.node] = true
	delete(t.open, b.node)
}

// line prints a line of the tree, and returns what stands before the lines below it.
func (t *tree) line(indent string, last bool, format string, args ...any) (below string) {
	branch, below := "├─ ", indent+"│  "
	if last {
		branch, below = "└─ ", indent+"   "
	}
	fmt.Fprintln(t.out, indent+branch+fmt.Sprintf(format, args...))
	return below
}

// service names who has exported a span.
func service(n *node) string {
	if n.Service == "" {
		return "somebody"
	}
	return n.Service
}

// requestName names a request, by its first span.
func requestName(root *node) string {
	if name := root.Attributes[RequestAttribute]; name != "" {
		return fmt.Sprintf("%q", name)
	}
	return fmt.Sprintf("%q", root.Name)
}

// lockName names a lock by its class, for its key is not in a span.
func lockName(n *node) string {
	return fmt.Sprintf("%s (%s)", n.attribute(telemetry.AttrClass), n.attribute(telemetry.AttrMode))
}

// became says how a wait ended.
func became(w *node) string {
	outcome := w.attribute(telemetry.AttrOutcome)
	if outcome != string(telemetry.Acquired) {
		return ", in vain: " + outcome
	}
	return ", granted: " + w.attribute(telemetry.AttrPath)
}

// alarmed says which alarms there were about a hold.
func alarmed(hold *node) string {
	var kinds []string
	for _, e := range hold.Events {
		if e.Name == telemetry.EventAlarm {
			kinds = append(kinds, e.Attributes[string(telemetry.AttrAlarm)])
		}
	}
	if len(kinds) == 0 {
		return ""
	}
	return " (alarm: " + strings.Join(kinds, ", ") + ")"
}
