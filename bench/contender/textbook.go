package contender

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/redis/rueidis"
)

func init() {
	const about = "the textbook: SET NX PX with a random token, a sleep where it is held, compare-and-delete"
	Register(textbook("textbook", "", about, 10*time.Millisecond))
	Register(textbook("textbook/1ms", "textbook", about, time.Millisecond))
}

func textbook(name, variant, about string, pause time.Duration) Info {
	return Info{
		Name: name, Kind: Peer, Variant: variant, Module: "github.com/redis/rueidis", About: about,
		Settings: []string{
			fmt.Sprintf("tried again after %v", pause), "rueidis without client-side caching, pipelined", "it does not renew: a lock is lost at its TTL",
			"read/write locks and stock: one script for each call",
		},
		Open: func(_ context.Context, setup Setup) (Process, error) {
			client, err := plainRueidis(setup)
			if err != nil {
				return nil, fmt.Errorf("textbook: %w", err)
			}
			return &textbookProcess{client: client, ttl: setup.TTL, pause: pause}, nil
		},
	}
}

// plainRueidis is a client as a user makes one who needs no client-side caching.
func plainRueidis(setup Setup) (rueidis.Client, error) {
	option := rueidisOption(setup)
	option.DisableCache = true
	return rueidis.NewClient(option)
}

type textbookProcess struct {
	client rueidis.Client
	ttl    time.Duration
	pause  time.Duration
}

func (p *textbookProcess) Mutex(key string) Mutex { return textbookMutex{p, key} }

func (p *textbookProcess) Close() error {
	p.client.Close()
	return nil
}

type textbookMutex struct {
	*textbookProcess
	key string
}

func (m textbookMutex) Lock(ctx context.Context) (Hold, error) {
	for {
		hold, err := m.TryLock(ctx)
		if !errors.Is(err, ErrHeld) {
			return hold, err
		}
		if err := m.rest(ctx); err != nil {
			return nil, err
		}
	}
}

// TryLock does not cut a command short: an answer that nobody waits for would leave a lock that nobody has, until its TTL.
func (m textbookMutex) TryLock(ctx context.Context) (Hold, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	token := rand.Text()
	err := m.client.Do(context.Background(), m.client.B().Set().Key(m.key).Value(token).Nx().PxMilliseconds(m.ttl.Milliseconds()).Build()).Error()
	if rueidis.IsRedisNil(err) {
		return nil, ErrHeld
	}
	if err != nil {
		return nil, err
	}
	return textbookHold{m, token}, nil
}

// rest is the sleep between two tries.
func (p *textbookProcess) rest(ctx context.Context) error {
	timer := time.NewTimer(p.pause)
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-timer.C:
		return nil
	}
}

type textbookHold struct {
	mutex textbookMutex
	token string
}

var deleteScript = rueidis.NewLuaScript(`
if redis.call('GET', KEYS[1]) == ARGV[1] then
  return redis.call('DEL', KEYS[1])
end
return 0`)

func (h textbookHold) Unlock() error {
	return deleteScript.Exec(context.Background(), h.mutex.client, []string{h.mutex.key}, []string{h.token}).Error()
}

// RW is a read/write lock in the simplest way that excludes anybody: one script to lock, one to unlock.
func (p *textbookProcess) RW(key string) RW { return textbookRW{p, key} }

type textbookRW struct {
	*textbookProcess
	key string
}

var (
	takeScript = rueidis.NewLuaScript(`
local writers, readers = redis.call('HGET', KEYS[1], 'write'), redis.call('HGET', KEYS[1], 'read')
if writers and tonumber(writers) > 0 or ARGV[1] == 'write' and readers and tonumber(readers) > 0 then
  return 0
end
redis.call('PEXPIRE', KEYS[1], ARGV[2])
return redis.call('HINCRBY', KEYS[1], ARGV[1], 1)`)
	giveScript = rueidis.NewLuaScript(`return redis.call('HINCRBY', KEYS[1], ARGV[1], -1)`)
)

func (l textbookRW) RLock(ctx context.Context) (Hold, error) { return l.lock(ctx, "read") }
func (l textbookRW) Lock(ctx context.Context) (Hold, error)  { return l.lock(ctx, "write") }

// lock does not cut a command short either, for a count that nobody gives back would stay.
func (l textbookRW) lock(ctx context.Context, mode string) (Hold, error) {
	args := []string{mode, strconv.FormatInt(l.ttl.Milliseconds(), 10)}
	for {
		if err := ctx.Err(); err != nil {
			return nil, err
		}
		taken, err := takeScript.Exec(context.Background(), l.client, []string{l.key}, args).AsInt64()
		if err != nil {
			return nil, err
		}
		if taken > 0 {
			return textbookRWHold{l, mode}, nil
		}
		if err := l.rest(ctx); err != nil {
			return nil, err
		}
	}
}

type textbookRWHold struct {
	lock textbookRW
	mode string
}

func (h textbookRWHold) Unlock() error {
	return giveScript.Exec(context.Background(), h.lock.client, []string{h.lock.key}, []string{h.mode}).Error()
}

// Stock is a counter, and a script for each order, which neither oversells nor takes an order twice.
func (p *textbookProcess) Stock(ctx context.Context, name string, units int64) (Stock, error) {
	left := "{" + name + "}:left"
	err := p.client.Do(ctx, p.client.B().Set().Key(left).Value(strconv.FormatInt(units, 10)).Nx().ExSeconds(stockKept).Build()).Error()
	if err != nil && !rueidis.IsRedisNil(err) {
		return nil, err
	}
	return textbookStock{p.client, []string{left, "{" + name + "}:orders"}}, nil
}

// stockKept is for how many seconds Redis keeps what a benchmark sold.
const stockKept = 600

type textbookStock struct {
	client rueidis.Client
	keys   []string
}

var sellScript = rueidis.NewLuaScript(`
if ARGV[1] ~= '' and redis.call('HEXISTS', KEYS[2], ARGV[1]) == 1 then
  return 1
end
if tonumber(redis.call('GET', KEYS[1])) < 1 then
  return 0
end
redis.call('DECRBY', KEYS[1], 1)
if ARGV[1] ~= '' then
  redis.call('HSET', KEYS[2], ARGV[1], 1)
end
return 1`)

func (s textbookStock) Sell(ctx context.Context, id string) (bool, error) {
	sold, err := sellScript.Exec(ctx, s.client, s.keys, []string{id}).AsInt64()
	return sold == 1, err
}
