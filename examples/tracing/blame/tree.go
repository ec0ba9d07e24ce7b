package blame

import (
	"fmt"
	"io"
	"slices"
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
		t := &tree{g: g, out: out, worst: worst, seen: map[*node]bool{}, open: map[*node]bool{}}
		t.request(root)
	}
}

// tree is one request's.
type tree struct {
	g     *Graph
	out   io.Writer
	worst *node
	seen  map[*node]bool // waits that were printed with all that is below them
	open  map[*node]bool // those of them between here and the root
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

// wait prints a wait, and the holds that were in its way. However links go, each wait is followed once only.
func (t *tree) wait(w *node, indent string, last bool) {
	text := fmt.Sprintf("%s waited %s for %s%s", service(w), report.Duration(w.took()), lockName(w), became(w))
	switch {
	case t.open[w]:
		t.line(indent, last, "%s: A CIRCLE, they wait for each other", text)
		return
	case t.seen[w]:
		t.line(indent, last, "%s (see above)", text)
		return
	case len(t.open) == deepest:
		t.line(indent, last, "%s ...", text)
		return
	}
	t.seen[w], t.open[w] = true, true
	defer delete(t.open, w)
	below := t.line(indent, last, "%s", text)
	blockers := t.g.blockers(w)
	if len(blockers) == 0 {
		t.line(below, true, "for whom is not known, since that hold is not traced")
	}
	for i, b := range blockers {
		t.hold(w, b, below, i == len(blockers)-1)
	}
}

// hold prints a hold that was in the way of a wait, and what it waited for meanwhile.
func (t *tree) hold(of *node, b blocker, indent string, last bool) {
	how := "blocked by"
	if b.relation == telemetry.LinkPredecessor {
		how = "after"
	}
	if b.node == nil {
		t.line(indent, last, "%s a hold that is not here: trace %s, span %s", how, b.to.Trace, b.to.Span)
		return
	}
	mark := ""
	if b.node == t.worst {
		mark = "  <== THE CULPRIT"
	}
	below := t.line(indent, last, "%s %s's %s (%s) in %s, %s%s%s", how, service(b.node), b.Name, b.attribute(telemetry.AttrMode),
		requestName(b.root()), report.Duration(b.took()), alarmed(b.node), mark)
	waits := b.during(of)
	for i, w := range waits {
		t.wait(w, below, i == len(waits)-1)
	}
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
		kind := e.Attributes[string(telemetry.AttrAlarm)]
		if e.Name == telemetry.EventAlarm && !slices.Contains(kinds, kind) {
			kinds = append(kinds, kind)
		}
	}
	if len(kinds) == 0 {
		return ""
	}
	return ", alarm: " + strings.Join(kinds, ", ")
}
