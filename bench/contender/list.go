package contender

import (
	"context"
	"fmt"
	"sync"

	"github.com/redis/rueidis"
)

func init() {
	Register(Info{
		Name: "list", Kind: Limit, Module: "github.com/redis/rueidis",
		About: "a token in a list, BLPOP and RPUSH: a hand-off by Redis itself, of one command that looks at nothing",
		Settings: []string{
			"rueidis: who waits has a connection for himself", "a crashed holder's lock is lost for ever",
			"no context can end its waiting, so each holder has to unlock before a round can end",
		},
		Open: func(_ context.Context, setup Setup) (Process, error) {
			client, err := plainRueidis(setup)
			if err != nil {
				return nil, fmt.Errorf("list: %w", err)
			}
			return &listProcess{client: client}, nil
		},
	})
}

type listProcess struct {
	client rueidis.Client
	made   sync.Map // keys whose token is out
}

func (p *listProcess) Mutex(key string) Mutex { return listMutex{p, key} }

func (p *listProcess) Close() error {
	p.client.Close()
	return nil
}

type listMutex struct {
	*listProcess
	key string
}

// Lock does not cut a command short: a token that nobody waits for would be lost.
func (m listMutex) Lock(ctx context.Context) (Hold, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	if _, made := m.made.Load(m.key); !made {
		err := m.client.Do(context.Background(), m.client.B().Set().Key(m.key).Value("").Nx().Build()).Error()
		if err != nil && !rueidis.IsRedisNil(err) {
			return nil, err
		}
		m.made.Store(m.key, true)
		if err == nil {
			return m, nil
		}
	}
	return m, m.client.Do(context.Background(), m.client.B().Blpop().Key(m.tokens()).Timeout(0).Build()).Error()
}

func (m listMutex) Unlock() error {
	return m.client.Do(context.Background(), m.client.B().Rpush().Key(m.tokens()).Element("").Build()).Error()
}

func (m listMutex) tokens() string { return m.key + ":tokens" }
