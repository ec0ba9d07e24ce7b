package claim

import (
	"cmp"
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

// judged returns a cell. One of ours that failed shows nothing, whatever its rounds before that were,
// and the text says why.
func (p place) judged(r result.Report, contender string) (cell result.Cell, why string, ok bool) {
	cell, ok = p.cell(r, contender)
	if cell.Failure != "" && isOurs(r, contender) {
		return cell, fmt.Sprintf("%s failed: %s", contender, cell.Failure), false
	}
	return cell, "", ok
}

// value is a metric of one contender.
func (p place) value(contender, metric string) measure {
	return func(r result.Report) (Measured, bool) {
		cell, why, ok := p.judged(r, contender)
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
		a, why, okA := p.judged(r, contender)
		b, whyB, okB := p.judged(r, other)
		if !okA || !okB {
			return Measured{Why: cmp.Or(why, whyB)}, false
		}
		spread, ok := result.Ratio(a, b, metric)
		return Measured{Spread: spread, Beside: other}, ok
	}
}

// beside is a metric at one point over that at another point, of which there may be some times as much, and some more.
func (p place) beside(contender, other, metric string, times, more float64) measure {
	return func(r result.Report) (Measured, bool) {
		q := p
		q.point = other
		a, why, okA := p.judged(r, contender)
		b, whyB, okB := q.judged(r, contender)
		if !okA || !okB {
			return Measured{Why: cmp.Or(why, whyB)}, false
		}
		var allowed []result.Round
		for _, round := range b.Rounds {
			if v, ok := round[metric]; ok {
				round = result.Round{metric: times*v + more}
			}
			allowed = append(allowed, round)
		}
		spread, ok := result.Ratio(a, result.Cell{Rounds: allowed}, metric)
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
