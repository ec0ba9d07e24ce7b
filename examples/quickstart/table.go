package main

import (
	"fmt"
	"io"
	"strconv"

	"github.com/go-leasehold/leasehold/examples/internal/report"
)

// printTable prints the rounds beside each other.
func printTable(out io.Writer, rounds []result) {
	if len(rounds) == 0 {
		return
	}
	row := report.Rows(out, rounds)
	row("", func(r result) string { return r.name })
	row("locks done", func(r result) string { return report.Thousands(r.locks) })
	row("locks per second", func(r result) string { return report.Thousands(int64(float64(r.locks) / r.duration.Seconds())) })
	row("counter", func(r result) string {
		if r.exact() {
			return report.Thousands(r.counted) + " exact"
		}
		return report.Thousands(r.counted) + " WRONG"
	})
	row("Redis commands per lock", func(r result) string { return report.Rate(r.commands) })
	row("  scripts among them", func(r result) string { return report.Rate(r.scripts) })
	row("wait p50", func(r result) string { return report.Duration(r.waits.Quantile(0.50)) })
	row("wait p99", func(r result) string { return report.Duration(r.waits.Quantile(0.99)) })
	for i := range rounds[0].shares {
		row("share of process "+strconv.Itoa(i+1), func(r result) string { return report.Percent(r.shares[i]) })
	}
	fmt.Fprintln(out, "\nCommands are all that Redis ran, those inside scripts too, but for the counter's own GET and SET.")
}
