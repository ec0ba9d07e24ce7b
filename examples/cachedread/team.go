package main

import (
	"context"

	"github.com/go-leasehold/leasehold/examples/internal/fleet"
)

// team is all servers.
type team struct {
	*fleet.Team[word]
	urls []string
}

// startTeam starts the servers and waits until each listens.
func startTeam(ctx context.Context, s settings, redisAddr string) (*team, error) {
	servers, words, err := fleet.Start[word](ctx, s.processes, workerVariable+"="+redisAddr, nil)
	if err != nil {
		return nil, err
	}
	t := &team{Team: servers}
	for _, w := range words {
		t.urls = append(t.urls, "http://"+w.Addr)
	}
	return t, nil
}

// tell gives every server the same order, and returns what they answer.
func (t *team) tell(ctx context.Context, o order) ([]word, error) {
	t.Order(o)
	return t.Answers(ctx)
}
