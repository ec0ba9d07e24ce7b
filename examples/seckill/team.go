package main

import (
	"context"
	"encoding/json"
	"math/rand/v2"
	"sync/atomic"
	"time"

	"github.com/go-leasehold/leasehold/examples/internal/fleet"
	"github.com/go-leasehold/leasehold/segment"
)

// team is all servers.
type team struct {
	*fleet.Team[word]
	urls []atomic.Pointer[string] // where each serves; one that is down has its last
}

// startTeam starts so many servers and waits until each listens.
func startTeam(ctx context.Context, processes int, to setup) (*team, error) {
	text, err := json.Marshal(to)
	if err != nil {
		return nil, err
	}
	servers, words, err := fleet.Start[word](ctx, processes, workerVariable+"="+string(text), nil)
	if err != nil {
		return nil, err
	}
	t := &team{Team: servers, urls: make([]atomic.Pointer[string], processes)}
	for i, w := range words {
		t.serves(i, w)
	}
	return t, nil
}

func (t *team) serves(i int, w word) {
	url := "http://" + w.Addr
	t.urls[i].Store(&url)
}

// crash kills one server, in the middle of whatever it does, and starts it again after a while, or when ctx ends.
func (t *team) crash(ctx, limit context.Context, down time.Duration, logf func(format string, args ...any)) error {
	i := rand.IntN(len(t.urls))
	logf("kill -9 of server %d", i+1)
	if err := t.Kill(i); err != nil {
		return err
	}
	timer := time.NewTimer(down)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-ctx.Done():
	}
	w, err := t.Restart(limit, i)
	if err != nil {
		return err
	}
	t.serves(i, w)
	logf("server %d is back", i+1)
	return nil
}

// done returns what the servers did with the stock; one that was killed can't tell.
func (t *team) done(ctx context.Context) (sum segment.Snapshot, err error) {
	t.Order(struct{}{})
	words, err := t.Answers(ctx)
	for _, w := range words {
		sum.Orders += w.Stock.Orders
		sum.Scripts += w.Stock.Scripts
		sum.SoldOut += w.Stock.SoldOut
		sum.Known += w.Stock.Known
		sum.Moves += w.Stock.Moves
	}
	return sum, err
}
