package render

import (
	"fmt"
	"io"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/go-leasehold/leasehold/bench/result"
)

// Table tells a report on a terminal: of each scenario the metric to look at first, at all points, and then all metrics at
// the point to look at first.
func Table(w io.Writer, r result.Report) error {
	t := &teller{to: tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)}
	t.line("%s, %d cores, %s, %s, Redis %s", r.Machine.CPU, r.Machine.Cores, r.Machine.Kernel, r.Machine.Go, r.Machine.Redis)
	t.line("medians of %d rounds, ± half of the spread; it took %v", r.Rounds, r.Took.Round(time.Second))
	for _, s := range r.Scenarios {
		for _, delay := range delays(s) {
			t.line("\n%s: %s (%s)", s.Name, s.Title, added(delay))
			t.headline(s, delay)
			t.details(s, delay)
		}
		t.troubles(s)
	}
	t.flush()
	return t.err
}

// teller writes lines, and keeps the first error.
type teller struct {
	to  *tabwriter.Writer
	err error
}

func (t *teller) line(format string, args ...any) {
	if _, err := fmt.Fprintf(t.to, format+"\n", args...); err != nil && t.err == nil {
		t.err = err
	}
}

func (t *teller) flush() {
	if err := t.to.Flush(); err != nil && t.err == nil {
		t.err = err
	}
}

func (t *teller) headline(s result.Scenario, delay time.Duration) {
	t.line("%s by %s\t%s", title(s.Headline), s.Axis, strings.Join(points(s, delay), "\t"))
	for _, name := range contenders(s, delay) {
		row := []string{name}
		for _, point := range points(s, delay) {
			cell, _ := s.Of(name, point, delay)
			row = append(row, short(cell, s.Headline))
		}
		t.line("  %s", strings.Join(row, "\t"))
	}
	t.flush()
}

// columns is what fits beside each other.
const columns = 7

func (t *teller) details(s result.Scenario, delay time.Duration) {
	point := mainPoint(s, delay)
	all := metrics(s, point, delay)
	for from := 0; from < len(all); from += columns {
		part := all[from:min(from+columns, len(all))]
		var heads []string
		for _, m := range part {
			heads = append(heads, m.Title)
		}
		t.line("at %s %s\t%s", point, s.Axis, strings.Join(heads, "\t"))
		for _, name := range contenders(s, delay) {
			cell, ok := s.Of(name, point, delay)
			if !ok {
				continue
			}
			row := []string{name}
			for _, m := range part {
				text := "-"
				if spread, ok := told(cell, m.Name); ok {
					text = Number(m.Unit, spread.Median)
				}
				row = append(row, text)
			}
			t.line("  %s", strings.Join(row, "\t"))
		}
		t.flush()
	}
}

// troubles names what failed, and who let two in at a time.
func (t *teller) troubles(s result.Scenario) {
	for _, text := range Troubles(s) {
		t.line("  ! %s", text)
	}
}

// Troubles tells, in words, what failed in a scenario, and which locks did not exclude.
func Troubles(s result.Scenario) []string {
	var all []string
	for _, c := range s.Cells {
		where := fmt.Sprintf("%s at %s (%s)", c.Contender, c.Point, added(c.Delay))
		if c.Failure != "" {
			first, _, _ := strings.Cut(c.Failure, "\n")
			all = append(all, where+": "+first)
		}
		if v := sum(c.Values(result.Violations)); v > 0 {
			all = append(all, fmt.Sprintf("%s: %.0f times two had the lock", where, v))
		}
		if v := sum(c.Values(result.Errors)); v > 0 {
			all = append(all, fmt.Sprintf("%s: %.0f calls failed%s", where, v, firstOf(c.Error)))
		}
	}
	return all
}

// firstOf tells the first error of some, if it is known.
func firstOf(message string) string {
	if message == "" {
		return ""
	}
	line, _, _ := strings.Cut(message, "\n")
	return ", the first: " + line
}

func sum(values []float64) (total float64) {
	for _, v := range values {
		total += v
	}
	return total
}
