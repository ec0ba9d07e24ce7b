package main

import (
	"cmp"
	"math/rand/v2"
	"slices"
	"time"
)

// keep is how many waits of each goroutine are kept: a fair draw, however many there are.
const keep = 512

// weighted is a wait that stands for as many as Weight says.
type weighted struct {
	Wait   time.Duration
	Weight float64
}

// samples are waits, seen by one goroutine (Seen and drawn) or by several (Kept).
type samples struct {
	Kept  []weighted
	seen  int
	drawn []time.Duration
}

// add draws a wait into the sample with the same chance for every wait there ever was (reservoir sampling).
func (s *samples) add(wait time.Duration) {
	s.seen++
	if len(s.drawn) < keep {
		s.drawn = append(s.drawn, wait)
		return
	}
	if at := rand.IntN(s.seen); at < keep {
		s.drawn[at] = wait
	}
}

// merge adds another goroutine's, or another process's, sample.
func (s *samples) merge(other samples) {
	s.Kept = append(s.Kept, other.Kept...)
	for _, wait := range other.drawn {
		s.Kept = append(s.Kept, weighted{Wait: wait, Weight: float64(other.seen) / float64(len(other.drawn))})
	}
}

// quantile returns the wait that a share q of all waits did not exceed; zero if there was none.
func (s *samples) quantile(q float64) time.Duration {
	slices.SortFunc(s.Kept, func(a, b weighted) int { return cmp.Compare(a.Wait, b.Wait) })
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
