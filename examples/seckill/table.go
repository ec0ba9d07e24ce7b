package main

import (
	"fmt"
	"io"

	"github.com/go-leasehold/leasehold/examples/internal/report"
)

// printTable prints what the sale came to.
func printTable(out io.Writer, r *result) {
	row := report.Rows(out, []*result{r})
	tally := &r.crowd.tally
	count := func(name string, n int64) {
		row(name, func(*result) string { return report.Thousands(n) })
	}
	rate := func(name string, n int64) { count(name, int64(float64(n)/r.duration.Seconds())) }
	wait := func(name string, s *report.Samples, q float64) {
		row(name, func(*result) string { return report.Duration(s.Quantile(q)) })
	}
	count("orders", tally.orders.Load())
	rate("orders per second", tally.orders.Load())
	count("  accepted", tally.accepted.Load())
	count("  sold out", tally.soldOut.Load())
	count("  over the limit", tally.limited.Load())
	count("paid", int64(len(r.book)))
	rate("paid per second", int64(len(r.book)))
	count("tries with no answer", tally.lost.Load())
	count("tries put off", tally.busy.Load())
	row("Redis commands per order", func(r *result) string { return report.Rate(r.commands) })
	row("  scripts among them", func(r *result) string { return report.Rate(r.scripts) })
	row("orders in one script", func(r *result) string {
		return report.Rate(float64(r.servers.Orders) / float64(max(r.servers.Scripts, 1)))
	})
	row("sold out, no command", func(r *result) string {
		return report.Percent(float64(r.servers.Known) / float64(max(r.servers.SoldOut, 1)))
	})
	wait("accepted p50", &r.crowd.accepted, 0.50)
	wait("accepted p99", &r.crowd.accepted, 0.99)
	wait("sold out p50", &r.crowd.soldOut, 0.50)
	wait("sold out p99", &r.crowd.soldOut, 0.99)
	fmt.Fprint(out, note)
}

const note = `
Commands are all that Redis ran by its INFO, those inside scripts too, for buying, paying, cancelling and looking. A try
with no answer is one whose buyer hung up, or whose server died; a try put off got 429 or 503. The share of sold-out answers
that took no command is that of the servers that lived to tell.
`
