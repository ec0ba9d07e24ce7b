package contender

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/go-redsync/redsync/v4"
	"github.com/go-redsync/redsync/v4/redis/goredis/v9"
	"github.com/redis/go-redis/v9"
)

func init() {
	const about = "redsync: Redlock, here on one server; SET NX for each lock, tried again after a while"
	Register(redsyncWith("redsync", "", about, "its defaults: tried again after 50 to 250 ms by chance"))
	Register(redsyncWith("redsync/1ms", "redsync", about, "WithRetryDelay(1ms): more throughput, for more commands",
		redsync.WithRetryDelay(time.Millisecond)))
}

func redsyncWith(name, variant, about, setting string, options ...redsync.Option) Info {
	return Info{
		Name: name, Kind: Peer, Variant: variant, Module: "github.com/go-redsync/redsync/v4", About: about,
		Settings: []string{setting, "go-redis v9 with its defaults", "after 32 tries it gives up, and is asked again", "it does not renew: a lock is lost at its TTL"},
		Open: func(ctx context.Context, setup Setup) (Process, error) {
			client := goRedis(setup)
			if err := client.Ping(ctx).Err(); err != nil {
				return nil, fmt.Errorf("redsync: %w", errors.Join(err, client.Close()))
			}
			return redsyncProcess{
				client: client, redsync: redsync.New(goredis.NewPool(client)),
				options: append([]redsync.Option{redsync.WithExpiry(setup.TTL)}, options...),
			}, nil
		},
	}
}

type redsyncProcess struct {
	client  *redis.Client
	redsync *redsync.Redsync
	options []redsync.Option
}

func (p redsyncProcess) Mutex(key string) Mutex { return redsyncMutex{p, key} }

func (p redsyncProcess) Close() error { return p.client.Close() }

type redsyncMutex struct {
	process redsyncProcess
	key     string
}

// one is a mutex for one hold, for it keeps what it holds.
func (m redsyncMutex) one() *redsync.Mutex {
	return m.process.redsync.NewMutex(m.key, m.process.options...)
}

// Lock goes on until ctx ends: one LockContext gives up after its tries, the last of which may have met its own deadline of
// a twentieth of the TTL, as where goroutines queue for go-redis's connections.
func (m redsyncMutex) Lock(ctx context.Context) (Hold, error) {
	mutex := m.one()
	for {
		err := mutex.LockContext(ctx)
		if err == nil {
			return redsyncHold{mutex}, nil
		}
		gaveUp := taken(err) || errors.Is(err, redsync.ErrFailed) || errors.Is(err, context.DeadlineExceeded)
		if ctx.Err() != nil || !gaveUp {
			return nil, errors.Join(err, ctx.Err())
		}
	}
}

func (m redsyncMutex) TryLock(ctx context.Context) (Hold, error) {
	mutex := m.one()
	err := mutex.TryLockContext(ctx)
	if err != nil && taken(err) {
		return nil, ErrHeld
	}
	if err != nil {
		return nil, err
	}
	return redsyncHold{mutex}, nil
}

// taken tells whether redsync says that somebody else has the lock.
func taken(err error) bool {
	var byNodes *redsync.ErrTaken
	return errors.As(err, &byNodes)
}

type redsyncHold struct{ mutex *redsync.Mutex }

func (h redsyncHold) Unlock() error {
	ok, err := h.mutex.Unlock()
	if err == nil && !ok {
		err = errors.New("redsync: it was not locked any more")
	}
	return err
}
