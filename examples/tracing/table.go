package main

import (
	"fmt"
	"io"
	"strings"
	"text/tabwriter"
	"time"

	"go.opentelemetry.io/otel/trace"

	"github.com/go-leasehold/leasehold/examples/internal/report"
	"github.com/go-leasehold/leasehold/examples/tracing/blame"
	"github.com/go-leasehold/leasehold/telemetry"
)

// printRound prints what the spans of a round say.
func printRound(out io.Writer, e evidence, s settings) {
	g := blame.New(e.spans)
	if e.partial {
		fmt.Fprintln(out, "OTEL_TRACES_SAMPLER is set: here is what was traced, and no more is proved")
	}
	if len(g.Requests()) == 0 {
		return
	}
	fmt.Fprint(out, "who waited for whom\n\n")
	g.PrintTrees(out)
	printRequests(out, g.Requests())
	for _, c := range g.Culprits() {
		fmt.Fprintf(out, "\nto blame: %s, in %q, held %s (%s) for %s: %d waits, %s in sum\n",
			c.Service, c.Request, c.Class, c.Mode, report.Duration(c.Held), c.Waits, report.Duration(c.Waited))
	}
	if exportsTraces() {
		fmt.Fprintln(out, "\nthe traces")
		for _, r := range g.Requests() {
			fmt.Fprintf(out, "%-22s %s\n", r.Name, telemetry.Config{TraceURL: s.traceURL}.URL(spanContext(r)))
		}
	}
}

// spanContext names the first span of a request.
func spanContext(r blame.Request) trace.SpanContext {
	return trace.NewSpanContext(trace.SpanContextConfig{TraceID: r.Trace, SpanID: r.Span})
}

// printRequests prints for each request how long it took, and how much of that it waited.
func printRequests(out io.Writer, requests []blame.Request) {
	table := tabwriter.NewWriter(out, 0, 0, 3, ' ', 0)
	fmt.Fprintln(table, "request\tat\ttook\twaited\tshare\tfor")
	for _, r := range requests {
		share := float64(r.Waited) / float64(max(r.Took, time.Nanosecond))
		fmt.Fprintf(table, "%s\t%s\t%s\t%s\t%s\t%s\n", r.Name, r.Service,
			report.Duration(r.Took), report.Duration(r.Waited), report.Percent(share), waits(r.Waits))
	}
	_ = table.Flush() // what is printed for a person
}

// waits says what was waited for, and how it was granted: by redis, if nobody was in the way; by handoff, from another
// process; or local, from another caller in the same one.
func waits(all []blame.Wait) string {
	var parts []string
	for _, w := range all {
		how := string(w.Path)
		if w.Outcome != telemetry.Acquired {
			how = strings.ToUpper(string(w.Outcome))
		}
		parts = append(parts, fmt.Sprintf("%s %s: %s", w.Class, report.Duration(w.Took), how))
	}
	return strings.Join(parts, ", ")
}

// traceURL is an error where traces can't be looked at in this way.
func traceURL(template string) error { return telemetry.Config{TraceURL: template}.Validate() }
