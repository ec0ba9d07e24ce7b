package claim

import (
	"fmt"
	"math"
	"time"

	"github.com/go-leasehold/leasehold/bench/result"
)

// measure finds in a report what a claim is about.
type measure = func(result.Report) (Measured, bool)

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

// ours returns a cell of which the claim is: one that failed shows nothing, whatever its rounds before that were.
func (p place) ours(r result.Report, contender string) (result.Cell, string, bool) {
	cell, ok := p.cell(r, contender)
	if cell.Failure != "" {
		return cell, fmt.Sprintf("%s failed: %s", contender, cell.Failure), false
	}
	return cell, "", ok
}

// value is a metric of one contender.
func (p place) value(contender, metric string) measure {
	return func(r result.Report) (Measured, bool) {
		cell, why, ok := p.ours(r, contender)
		if !ok {
			return Measured{Why: why}, false
		}
		spread, ok := cell.Spread(metric)
		return Measured{Spread: spread}, ok
	}
}

// ratio is a metric of one contender over another's.
func (p place) ratio(contender, other, metric string) measure {
	return func(r result.Report) (Measured, bool) {
		a, why, okA := p.ours(r, contender)
		b, okB := p.cell(r, other)
		if !okA || !okB {
			return Measured{Why: why}, false
		}
		spread, ok := result.Ratio(a, b, metric)
		return Measured{Spread: spread, Beside: other}, ok
	}
}

// beside is a metric at one point, less a number, over that at another point.
func (p place) beside(contender, other, metric string, less float64) measure {
	return func(r result.Report) (Measured, bool) {
		q := p
		q.point = other
		a, why, okA := p.ours(r, contender)
		b, whyB, okB := q.ours(r, contender)
		if !okA || !okB {
			return Measured{Why: why + whyB}, false
		}
		var rounds []result.Round
		for _, round := range a.Rounds {
			v, ok := round[metric]
			if ok {
				round = result.Round{metric: max(0, v-less)}
			}
			rounds = append(rounds, round)
		}
		spread, ok := result.Ratio(result.Cell{Rounds: rounds}, b, metric)
		return Measured{Spread: spread, Beside: contender + " at " + other}, ok
	}
}

// best is a metric of one contender over that of the peer, variants included, whose median is the best.
func (p place) best(contender, metric string) measure {
	return func(r result.Report) (Measured, bool) {
		m, _ := result.MetricOf(metric)
		best, found := "", math.NaN()
		for _, c := range r.Contenders {
			cell, _ := p.cell(r, c.Name)
			spread, ok := cell.Spread(metric)
			if ok && c.Kind == "peer" && (best == "" || spread.Median != found && m.Higher == (spread.Median > found)) {
				best, found = c.Name, spread.Median
			}
		}
		if best == "" {
			return Measured{}, false
		}
		return p.ratio(contender, best, metric)(r)
	}
}

// none is how often a metric was counted of ours, anywhere.
func none(metric string) measure {
	return func(r result.Report) (Measured, bool) {
		total, known := 0.0, false
		for _, s := range r.Scenarios {
			for _, c := range s.Cells {
				if isOurs(r, c.Contender) {
					values := c.Values(metric)
					total += sum(values)
					known = known || len(values) > 0
				}
			}
		}
		return Measured{Spread: result.Spread{Median: total, Min: total, Max: total}}, known
	}
}
