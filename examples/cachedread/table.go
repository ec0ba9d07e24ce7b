package main

import (
	"fmt"
	"io"

	"github.com/go-leasehold/leasehold/examples/internal/report"
)

// printTable prints the rounds beside each other.
func printTable(out io.Writer, rounds []result) {
	if len(rounds) == 0 {
		return
	}
	row := report.Rows(out, rounds)
	row("", func(r result) string { return r.name })
	row("reads", func(r result) string { return report.Thousands(r.reads) })
	row("reads per second", func(r result) string { return report.Thousands(int64(float64(r.reads) / r.duration.Seconds())) })
	row("writes", func(r result) string { return report.Thousands(r.writes) })
	row("Redis commands per read", func(r result) string { return report.Rate(r.commands) })
	row("  scripts among them", func(r result) string { return report.Rate(r.scripts) })
	row("reads out of memory", func(r result) string { return report.Percent(float64(r.Memory) / float64(max(r.reads, 1))) })
	row("rebuilds", func(r result) string { return report.Thousands(r.Rebuilds) })
	row("rebuilds per expiry", func(r result) string { return report.Rate(r.perExpiry()) })
	row("  too many", func(r result) string { return report.Thousands(r.Surplus) })
	row("  avoided by the lock", func(r result) string { return report.Thousands(r.Avoided) })
	row("stale reads", func(r result) string { return report.Thousands(r.stale) })
	row("read p50", func(r result) string { return report.Duration(r.waits.Quantile(0.50)) })
	row("read p99", func(r result) string { return report.Duration(r.waits.Quantile(0.99)) })
	fmt.Fprint(out, note)
}

const note = `
Commands are all that Redis ran by its INFO, those inside scripts too, for the lock, reads, writes and rebuilds. A
rebuild was one too many if the entry was there again when it was done, and avoided if it was there when the lock was
had. A read is stale if it is older than an answer that anybody had got, from a PUT or a GET, before it was sent.
`
