package report

import (
	"cmp"
	"math/rand/v2"
	"slices"
	"time"
)

// keep is how many waits of one goroutine are kept: a fair draw, however many there are.
const keep = 512

// Samples are waits: those of one goroutine, by Add, or those of several, by Merge.
type Samples struct {
	Kept []Weighted // what was merged, in no order

	seen  int
	drawn []time.Duration
}

// Weighted is a wait that stands for as many as Weight says.
type Weighted struct {
	Wait   time.Duration
	Weight float64
}

// Add draws a wait into the sample with the same chance for every wait there ever was (reservoir sampling).
func (s *Samples) Add(wait time.Duration) {
	s.seen++
	if len(s.drawn) < keep {
		s.drawn = append(s.drawn, wait)
		return
	}
	if at := rand.IntN(s.seen); at < keep {
		s.drawn[at] = wait
	}
}

// Merge adds another goroutine's, or another process's, sample.
func (s *Samples) Merge(other Samples) {
	s.Kept = append(s.Kept, other.Kept...)
	for _, wait := range other.drawn {
		s.Kept = append(s.Kept, Weighted{Wait: wait, Weight: float64(other.seen) / float64(len(other.drawn))})
	}
}

// Quantile returns the wait that a share q of all merged waits did not exceed; zero if there was none.
func (s *Samples) Quantile(q float64) time.Duration {
	slices.SortFunc(s.Kept, func(a, b Weighted) int { return cmp.Compare(a.Wait, b.Wait) })
	total := 0.0
	for _, k := range s.Kept {
		total += k.Weight
	}
	passed := 0.0
	for _, k := range s.Kept {
		if passed += k.Weight; passed >= q*total {
			return k.Wait
		}
	}
	return 0
}
