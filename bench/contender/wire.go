package contender

import (
	"context"
	"fmt"
	"strconv"

	"github.com/redis/rueidis"
)

func init() {
	open := func(_ context.Context, setup Setup) (Process, error) {
		client, err := plainRueidis(setup)
		if err != nil {
			return nil, fmt.Errorf("client: %w", err)
		}
		return wireProcess{client}, nil
	}
	Register(Info{
		Name: "ping", Kind: Limit, Module: "github.com/redis/rueidis", ExcludesNobody: true,
		About:    "a PING in the place of each Lock, and nothing in that of Unlock: what one round trip costs",
		Settings: []string{"rueidis, pipelined: goroutines share a connection", "it excludes nobody"},
		Open:     open,
	})
	Register(Info{
		Name: "pipeline", Kind: Limit, Module: "github.com/redis/rueidis", ExcludesNobody: true,
		About:    "a DECRBY for each order, pipelined: what Redis does where nobody looks at anything",
		Settings: []string{"rueidis, pipelined: goroutines share a connection", "it oversells, and takes an order twice"},
		Open:     open,
	})
}

// wireProcess is bare commands.
type wireProcess struct{ client rueidis.Client }

func (p wireProcess) Mutex(string) Mutex { return wireMutex(p) }

func (p wireProcess) Close() error {
	p.client.Close()
	return nil
}

type wireMutex struct{ client rueidis.Client }

// Lock is a round trip.
func (m wireMutex) Lock(ctx context.Context) (Hold, error) {
	if err := m.client.Do(ctx, m.client.B().Ping().Build()).Error(); err != nil {
		return nil, err
	}
	return wireHold{}, nil
}

type wireHold struct{}

func (wireHold) Unlock() error { return nil }

func (p wireProcess) Stock(ctx context.Context, name string, units int64) (Stock, error) {
	err := p.client.Do(ctx, p.client.B().Set().Key(name).Value(strconv.FormatInt(units, 10)).Nx().ExSeconds(stockKept).Build()).Error()
	if err != nil && !rueidis.IsRedisNil(err) {
		return nil, err
	}
	return wireStock{p.client, name}, nil
}

type wireStock struct {
	client rueidis.Client
	key    string
}

func (s wireStock) Sell(ctx context.Context, _ string) (bool, error) {
	return true, s.client.Do(ctx, s.client.B().Decrby().Key(s.key).Decrement(1).Build()).Error()
}
