// Package claim is what was promised of leasehold in numbers, and whether a report shows it.
package claim

import (
	"fmt"
	"time"

	"github.com/go-leasehold/leasehold/bench/result"
)

// Claim is a promise.
type Claim struct {
	Name    string  // for -check and for reports
	Text    string  // in words
	Asked   float64 // the number that is promised
	AtLeast bool    // or at most
	Unit    string  // as in result.Metric; empty for a ratio
	Floor   float64 // what -check asks for: loose, for a noisy machine. Zero: it is not checked
	Measure func(result.Report) (Measured, bool)
}

// Measured is what a report shows of a claim.
type Measured struct {
	result.Spread
	Beside string // who was compared with: "rueidislock", or nobody
}

// Verdict is a claim and what became of it.
type Verdict struct {
	Claim
	Measured
	Known bool // the report has what the claim is about
	Met   bool // the median is what was promised
}

// Judge compares a report with all claims.
func Judge(r result.Report) []Verdict {
	var all []Verdict
	for _, c := range All {
		v := Verdict{Claim: c}
		v.Measured, v.Known = c.Measure(r)
		v.Met = v.Known && holds(v.Median, c.Asked, c.AtLeast)
		all = append(all, v)
	}
	return all
}

// Check returns an error that names each claim whose median is beyond its floor, or that was not measured.
func Check(r result.Report) error {
	text := ""
	for _, v := range Judge(r) {
		switch {
		case v.Floor == 0:
		case !v.Known:
			text += fmt.Sprintf("\n%s: not measured", v.Name)
		case !holds(v.Median, v.Floor, v.AtLeast):
			text += fmt.Sprintf("\n%s: %s is %.3g (%.3g to %.3g), and has to be %s %.3g",
				v.Name, v.Text, v.Median, v.Min, v.Max, bound(v.AtLeast), v.Floor)
		}
	}
	if text != "" {
		return fmt.Errorf("slower than the floors:%s", text)
	}
	return nil
}

func holds(measured, asked float64, atLeast bool) bool {
	if atLeast {
		return measured >= asked
	}
	return measured <= asked
}

func bound(atLeast bool) string {
	if atLeast {
		return "at least"
	}
	return "at most"
}

// Bound tells what is promised: "at least".
func (c Claim) Bound() string { return bound(c.AtLeast) }

// place is where a claim looks.
type place struct {
	scenario, point string
	delay           time.Duration
}

func (p place) cell(r result.Report, contender string) (result.Cell, bool) {
	s, ok := r.Scenario(p.scenario)
	if !ok {
		return result.Cell{}, false
	}
	return s.Of(contender, p.point, p.delay)
}

// value is a metric of one contender.
func (p place) value(contender, metric string) func(result.Report) (Measured, bool) {
	return func(r result.Report) (Measured, bool) {
		cell, _ := p.cell(r, contender)
		spread, ok := cell.Spread(metric)
		return Measured{Spread: spread}, ok
	}
}

// ratio is a metric of one contender over another's.
func (p place) ratio(ours, theirs, metric string) func(result.Report) (Measured, bool) {
	return func(r result.Report) (Measured, bool) {
		a, okA := p.cell(r, ours)
		b, okB := p.cell(r, theirs)
		spread, ok := result.Ratio(a, b, metric)
		return Measured{spread, theirs}, ok && okA && okB
	}
}

// beside is one point of one contender over another point of the same one.
func (p place) beside(contender, other, metric string) func(result.Report) (Measured, bool) {
	return func(r result.Report) (Measured, bool) {
		a, okA := p.cell(r, contender)
		q := p
		q.point = other
		b, okB := q.cell(r, contender)
		spread, ok := result.Ratio(a, b, metric)
		return Measured{spread, contender + " at " + other}, ok && okA && okB
	}
}

// best is a metric of one contender over that of the peer, variants included, whose median is the best.
func (p place) best(ours, metric string) func(result.Report) (Measured, bool) {
	return func(r result.Report) (Measured, bool) {
		m, _ := result.MetricOf(metric)
		best, found := "", 0.0
		for _, c := range r.Contenders {
			cell, _ := p.cell(r, c.Name)
			spread, ok := cell.Spread(metric)
			if ok && c.Kind == "peer" && (best == "" || m.Higher == (spread.Median > found)) {
				best, found = c.Name, spread.Median
			}
		}
		if best == "" {
			return Measured{}, false
		}
		return p.ratio(ours, best, metric)(r)
	}
}
