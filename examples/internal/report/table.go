// Package report is how the examples tell what came out: waits and their quantiles, a table with the rounds beside
// each other, numbers that are easy to read, and a line that shows how far a round is.
package report

import (
	"fmt"
	"io"
	"strconv"
	"strings"
	"time"
)

// Rows returns a function that prints a row of a table: its name, and a cell for each round.
func Rows[R any](out io.Writer, rounds []R) func(name string, cell func(R) string) {
	return func(name string, cell func(R) string) {
		fmt.Fprintf(out, "%-24s", name)
		for _, r := range rounds {
			fmt.Fprintf(out, "%18s", cell(r))
		}
		fmt.Fprintln(out)
	}
}

// Rate writes how many of something there were for each of something else. A negative one is not known.
func Rate(x float64) string {
	if x < 0 {
		return "not known"
	}
	return strconv.FormatFloat(x, 'f', 2, 64)
}

// Percent writes a share.
func Percent(share float64) string { return strconv.FormatFloat(100*share, 'f', 1, 64) + " %" }

// Duration writes a duration with three digits.
func Duration(d time.Duration) string {
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

// Thousands writes a number with a comma every three digits.
func Thousands(n int64) string {
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
