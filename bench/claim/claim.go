// Package claim is what was promised of leasehold in numbers, and whether a report shows it.
package claim

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/go-leasehold/leasehold/bench/result"
)

// Claim is a promise.
type Claim struct {
	Name    string  // for -check and for reports
	Text    string  // in words
	Asked   float64 // the number that is promised
	AtLeast bool    // or at most
	Worst   bool    // all rounds have to be so, and not the median only
	Unit    string  // as in result.Metric; empty for a ratio
	Floor   float64 // what -check asks for: loose, for a noisy machine. Zero: it is not checked
	Measure func(result.Report) (Measured, bool)
}

// Measured is what a report shows of a claim.
type Measured struct {
	result.Spread
	Beside string // who was compared with: "rueidislock", or nobody
	Why    string // why there is nothing, where something was measured but failed
}

// Verdict is a claim and what became of it.
type Verdict struct {
	Claim
	Measured
	Known bool // the report has what the claim is about
	Met   bool // what was measured is what was promised
}

// judged is the number that is compared: the median, or the worst.
func (v Verdict) judged() float64 {
	switch {
	case !v.Worst:
		return v.Median
	case v.AtLeast:
		return v.Min
	}
	return v.Max
}

// Judge compares a report with all claims.
func Judge(r result.Report) []Verdict {
	var all []Verdict
	for _, c := range All {
		v := Verdict{Claim: c}
		v.Measured, v.Known = c.Measure(r)
		v.Met = v.Known && holds(v.judged(), c.Asked, c.AtLeast)
		all = append(all, v)
	}
	return all
}

// Check returns an error that names each claim that is beyond its floor, or that was not measured, and whatever of ours
// did not exclude or failed: the ratios of a lock that excludes nobody are the best there are.
func Check(r result.Report) error {
	var wrong []string
	for _, v := range Judge(r) {
		switch {
		case v.Floor == 0:
		case !v.Known:
			wrong = append(wrong, v.Name+": "+v.Missing())
		case !holds(v.judged(), v.Floor, v.AtLeast):
			wrong = append(wrong, fmt.Sprintf("%s: %s is %.3g (%.3g to %.3g), and has to be %s %.3g",
				v.Name, v.Text, v.Median, v.Min, v.Max, bound(v.AtLeast), v.Floor))
		}
	}
	wrong = append(wrong, faults(r)...)
	if len(wrong) > 0 {
		return errors.New("below the floors:\n" + strings.Join(wrong, "\n"))
	}
	return nil
}

// faults are what of ours did not exclude, or failed.
func faults(r result.Report) []string {
	var wrong []string
	for _, s := range r.Scenarios {
		for _, c := range s.Cells {
			if !isOurs(r, c.Contender) {
				continue
			}
			if met := sum(c.Values(result.Violations)); met > 0 {
				wrong = append(wrong, fmt.Sprintf("violations: %s at %s: %s let two in, %.0f times", s.Name, c.Point, c.Contender, met))
			}
			if failed := sum(c.Values(result.Errors)); failed > 0 {
				wrong = append(wrong, fmt.Sprintf("errors: %s at %s: %.0f calls of %s failed", s.Name, c.Point, failed, c.Contender))
			}
			if c.Failure != "" {
				wrong = append(wrong, fmt.Sprintf("%s at %s: %s failed: %s", s.Name, c.Point, c.Contender, c.Failure))
			}
		}
	}
	return wrong
}

// Missing tells that nothing was measured, and why, if there is a reason.
func (v Verdict) Missing() string {
	if v.Why != "" {
		return "not measured: " + v.Why
	}
	return "not measured"
}

// isOurs tells whether a contender is leasehold or a variant of it.
func isOurs(r result.Report, name string) bool {
	return name == ours || strings.HasPrefix(name, ours+"/") ||
		slices.ContainsFunc(r.Contenders, func(c result.Contender) bool { return c.Name == name && c.Kind == "ours" })
}

func sum(values []float64) (total float64) {
	for _, v := range values {
		total += v
	}
	return total
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
