package main

import (
	"fmt"
	"io"
	"strconv"
	"strings"
	"time"
)

// printTable prints the rounds beside each other.
func printTable(out io.Writer, rounds []result) {
	if len(rounds) == 0 {
		return
	}
	row := func(name string, cell func(result) string) {
		fmt.Fprintf(out, "%-24s", name)
		for _, r := range rounds {
			fmt.Fprintf(out, "%18s", cell(r))
		}
		fmt.Fprintln(out)
	}
	row("", func(r result) string { return r.name })
	row("reads", func(r result) string { return thousands(r.reads) })
	row("reads per second", func(r result) string { return thousands(int64(float64(r.reads) / r.duration.Seconds())) })
	row("writes", func(r result) string { return thousands(r.writes) })
	row("Redis commands per read", func(r result) string { return perRead(r.commands) })
	row("  scripts among them", func(r result) string { return perRead(r.scripts) })
	row("reads out of memory", func(r result) string {
		return strconv.FormatFloat(100*float64(r.Memory)/float64(max(r.reads, 1)), 'f', 1, 64) + " %"
	})
	row("rebuilds", func(r result) string { return thousands(r.Rebuilds) })
	row("rebuilds per expiry", func(r result) string { return strconv.FormatFloat(r.perExpiry(), 'f', 2, 64) })
	row("  too many", func(r result) string { return thousands(r.Surplus) })
	row("  avoided by the lock", func(r result) string { return thousands(r.Avoided) })
	row("stale reads", func(r result) string { return thousands(r.stale) })
	row("read p50", func(r result) string { return short(r.waits.quantile(0.50)) })
	row("read p99", func(r result) string { return short(r.waits.quantile(0.99)) })
	fmt.Fprint(out, note)
}

const note = `
Commands are all that Redis ran by its INFO, those inside scripts too, for the lock, reads, writes and rebuilds. A
rebuild was one too many if the entry was there again when it was done, and avoided if it was there when the lock was
had. A read is stale if it is older than an answer that anybody had got, from a PUT or a GET, before it was sent.
`

func perRead(x float64) string {
	if x < 0 {
		return "not known"
	}
	return strconv.FormatFloat(x, 'f', 2, 64)
}

// short writes a duration with three digits.
func short(d time.Duration) string {
	switch {
	case d < time.Microsecond:
		return d.String()
	case d < time.Millisecond:
		return digits(float64(d)/float64(time.Microsecond)) + " µs"
	case d < time.Second:
		return digits(float64(d)/float64(time.Millisecond)) + " ms"
	default:
		return digits(d.Seconds()) + " s"
	}
}

func digits(x float64) string {
	switch {
	case x < 10:
		return strconv.FormatFloat(x, 'f', 2, 64)
	case x < 100:
		return strconv.FormatFloat(x, 'f', 1, 64)
	default:
		return strconv.FormatFloat(x, 'f', 0, 64)
	}
}

// thousands writes a number with a comma every three digits.
func thousands(n int64) string {
	text := strconv.FormatInt(n, 10)
	var b strings.Builder
	for i, digit := range text {
		if i > 0 && text[i-1] != '-' && (len(text)-i)%3 == 0 {
			b.WriteByte(',')
		}
		b.WriteRune(digit)
	}
	return b.String()
}
