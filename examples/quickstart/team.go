package main

import (
	"context"
	"sync/atomic"

	"github.com/go-leasehold/leasehold/examples/internal/fleet"
)

// team is all worker processes.
type team struct {
	*fleet.Team[word]
	done []atomic.Int64 // how far each is, as far as it has said
}

// startTeam starts the workers and waits until each is connected.
func startTeam(ctx context.Context, s settings, addr string) (t *team, err error) {
	t = &team{done: make([]atomic.Int64, s.processes)}
	t.Team, _, err = fleet.Start(ctx, s.processes, workerVariable+"="+addr, t.note)
	return t, err
}

// note notes how far a worker is, and tells whether that is all that the word is about.
func (t *team) note(i int, w word) bool {
	if w.Ready || w.Done || w.Error != "" {
		t.done[i].Store(0) // until the next round
		return false
	}
	t.done[i].Store(w.Locks)
	return true
}

// locks returns how far all are.
func (t *team) locks() int64 {
	var sum int64
	for i := range t.done {
		sum += t.done[i].Load()
	}
	return sum
}
