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
	row("locks done", func(r result) string { return thousands(r.locks) })
	row("locks per second", func(r result) string { return thousands(int64(float64(r.locks) / r.duration.Seconds())) })
	row("counter", func(r result) string {
		if r.exact() {
			return thousands(r.counted) + " exact"
		}
		return thousands(r.counted) + " WRONG"
	})
	row("Redis commands per lock", func(r result) string { return perLock(r.commands) })
	row("  scripts among them", func(r result) string { return perLock(r.scripts) })
	row("wait p50", func(r result) string { return short(r.waits.quantile(0.50)) })
	row("wait p99", func(r result) string { return short(r.waits.quantile(0.99)) })
	for i := range rounds[0].shares {
		row("share of process "+strconv.Itoa(i+1), func(r result) string {
			return strconv.FormatFloat(100*r.shares[i], 'f', 1, 64) + " %"
		})
	}
	fmt.Fprintln(out, "\nCommands are all that Redis ran, those inside scripts too, but for the counter's own GET and SET.")
}

func perLock(x float64) string {
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
