package contender

import (
	"context"
	"errors"
	"fmt"
	"net"
	"time"

	"github.com/bsm/redislock"
	"github.com/redis/go-redis/v9"
)

func init() {
	const about = "bsm/redislock: SET NX for each lock, tried again after a while"
	Register(redislockWith("redislock", "", about, 100*time.Millisecond,
		"RetryStrategy LinearBackoff(100ms), as in its documentation's example"))
	Register(redislockWith("redislock/1ms", "redislock", about, time.Millisecond,
		"RetryStrategy LinearBackoff(1ms): more throughput, for more commands"))
}

func redislockWith(name, variant, about string, pause time.Duration, setting string) Info {
	return Info{
		Name: name, Kind: Peer, Variant: variant, Module: "github.com/bsm/redislock", About: about,
		Settings: []string{setting, "go-redis v9 with its defaults", "it does not renew: a lock is lost at its TTL"},
		Open: func(ctx context.Context, setup Setup) (Process, error) {
			client := goRedis(setup)
			if err := client.Ping(ctx).Err(); err != nil {
				return nil, fmt.Errorf("redislock: %w", errors.Join(err, client.Close()))
			}
			return redislockProcess{
				client: client, locker: redislock.New(client), ttl: setup.TTL,
				options: &redislock.Options{RetryStrategy: redislock.LinearBackoff(pause)},
			}, nil
		},
	}
}

// goRedis is the client of contenders on go-redis, with its defaults.
func goRedis(setup Setup) *redis.Client {
	options := &redis.Options{Addr: setup.Addr}
	if setup.Dial != nil {
		options.Dialer = func(ctx context.Context, _, addr string) (net.Conn, error) { return setup.Dial(ctx, addr) }
	}
	return redis.NewClient(options)
}

type redislockProcess struct {
	client  *redis.Client
	locker  *redislock.Client
	ttl     time.Duration
	options *redislock.Options
}

func (p redislockProcess) Mutex(key string) Mutex { return redislockMutex{p, key} }

func (p redislockProcess) Close() error { return p.client.Close() }

type redislockMutex struct {
	process redislockProcess
	key     string
}

// Lock goes on until ctx ends: one Obtain gives up after a TTL, by a deadline of its own, where ctx has none.
func (m redislockMutex) Lock(ctx context.Context) (Hold, error) {
	for {
		lock, err := m.process.locker.Obtain(ctx, m.key, m.process.ttl, m.process.options)
		if err == nil {
			return redislockHold{lock}, nil
		}
		gaveUp := errors.Is(err, redislock.ErrNotObtained) || errors.Is(err, context.DeadlineExceeded)
		if ctx.Err() != nil || !gaveUp {
			return nil, errors.Join(err, ctx.Err())
		}
	}
}

func (m redislockMutex) TryLock(ctx context.Context) (Hold, error) {
	lock, err := m.process.locker.Obtain(ctx, m.key, m.process.ttl, nil)
	if errors.Is(err, redislock.ErrNotObtained) {
		return nil, ErrHeld
	}
	if err != nil {
		return nil, err
	}
	return redislockHold{lock}, nil
}

type redislockHold struct{ lock *redislock.Lock }

func (h redislockHold) Unlock() error { return h.lock.Release(context.Background()) }
