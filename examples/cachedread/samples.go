package main

import (
	"cmp"
	"math/rand/v2"
	"slices"
	"time"
)

// keep is how many waits of each client are kept: a fair draw, however many there are.
const keep = 512

// weighted is a wait that stands for as many as weight says.
type weighted struct {
	wait   time.Duration
	weight float64
}

// samples are waits, seen by one client (seen and drawn) or by several (kept).
type samples struct {
	kept  []weighted
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

// merge adds another client's sample.
func (s *samples) merge(other samples) {
	s.kept = append(s.kept, other.kept...)
	for _, wait := range other.drawn {
		s.kept = append(s.kept, weighted{wait: wait, weight: float64(other.seen) / float64(len(other.drawn))})
	}
}

// quantile returns the wait that a share q of all waits did not exceed; zero if there was none.
func (s *samples) quantile(q float64) time.Duration {
	slices.SortFunc(s.kept, func(a, b weighted) int { return cmp.Compare(a.wait, b.wait) })
	total := 0.0
	for _, k := range s.kept {
		total += k.weight
	}
	passed := 0.0
	for _, k := range s.kept {
		if passed += k.weight; passed >= q*total {
			return k.wait
		}
	}
	return 0
}
