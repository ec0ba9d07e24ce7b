package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/redis/rueidis"
)

// product is what the service serves. Its version grows with every change.
type product struct {
	ID      int    `json:"id"`
	Version uint64 `json:"version"`
	Name    string `json:"name"`
}

var (
	// errMissing says that the cache has no entry: it has expired, was dropped, or never was.
	errMissing = errors.New("not in the cache")
	// errFenced says that somebody with a greater token has been here, so the lock was lost before.
	errFenced = errors.New("refused: a later holder of the lock has been here")
)

// fenceKept is for how long the cache refuses lower tokens than the greatest that it has seen: longer than anybody
// may be paused and go on. It is short here, so that a real server is soon as it was before.
const fenceKept = time.Minute

// cache is the cache in Redis: one entry for each product. When an entry expires is for Redis alone to say.
type cache struct {
	redis  rueidis.Client
	prefix string
	expiry time.Duration
}

// entry and fence name the keys of a product, which share a slot of a cluster.
func (c *cache) entry(id int) string { return fmt.Sprintf("%s{%d}", c.prefix, id) }
func (c *cache) fence(id int) string { return c.entry(id) + ":fence" }

// get returns an entry, or errMissing.
func (c *cache) get(ctx context.Context, id int) (product, error) {
	return c.read(id, c.redis.Do(ctx, c.redis.B().Get().Key(c.entry(id)).Build()))
}

// look is get that says for how long the entry will be there.
func (c *cache) look(ctx context.Context, id int) (p product, left time.Duration, err error) {
	replies := c.redis.DoMulti(ctx, // one round trip
		c.redis.B().Get().Key(c.entry(id)).Build(),
		c.redis.B().Pttl().Key(c.entry(id)).Build())
	if p, err = c.read(id, replies[0]); err != nil {
		return p, 0, err
	}
	ms, err := replies[1].AsInt64()
	if err != nil {
		return p, 0, fmt.Errorf("read %s: %w", c.entry(id), err)
	}
	return p, max(0, time.Duration(ms)*time.Millisecond), nil // negative if it has expired meanwhile
}

func (c *cache) read(id int, reply rueidis.RedisResult) (p product, err error) {
	text, err := reply.AsBytes()
	if rueidis.IsRedisNil(err) {
		return p, errMissing
	}
	if err == nil {
		err = json.Unmarshal(text, &p)
	}
	if err != nil {
		return p, fmt.Errorf("read %s: %w", c.entry(id), err)
	}
	return p, nil
}

// write replaces an entry, unless somebody with a greater token was here before. Tokens are microseconds, which are
// exact as Lua's numbers for two centuries to come. The fence is another key, for it must outlive the entry.
//
//	KEYS  entry, fence
//	ARGV  token, entry ("": none), its milliseconds, the fence's
//	Returns  -1: refused; or how many entries were there before, 0 or 1
var write = rueidis.NewLuaScript(`
if tonumber(ARGV[1]) < tonumber(redis.call('GET', KEYS[2]) or '0') then
	return -1
end
redis.call('SET', KEYS[2], ARGV[1], 'PX', ARGV[4])
local met = redis.call('DEL', KEYS[1])
if ARGV[2] ~= '' then
	redis.call('SET', KEYS[1], ARGV[2], 'PX', ARGV[3])
end
return met
`)

// put stores an entry, and says whether it met one that was still there.
func (c *cache) put(ctx context.Context, id int, p product, token uint64) (met bool, err error) {
	text, err := json.Marshal(p)
	if err != nil {
		return false, err
	}
	return c.write(ctx, id, string(text), token)
}

// drop takes an entry away.
func (c *cache) drop(ctx context.Context, id int, token uint64) error {
	_, err := c.write(ctx, id, "", token)
	return err
}

func (c *cache) write(ctx context.Context, id int, text string, token uint64) (met bool, err error) {
	key := c.entry(id)
	n, err := write.Exec(ctx, c.redis, []string{key, c.fence(id)}, []string{
		strconv.FormatUint(token, 10), text,
		strconv.FormatInt(c.expiry.Milliseconds(), 10), strconv.FormatInt(fenceKept.Milliseconds(), 10),
	}).AsInt64()
	switch {
	case err != nil:
		return false, fmt.Errorf("write %s: %w", key, err)
	case n < 0:
		return false, fmt.Errorf("write %s: %w", key, errFenced)
	}
	return n > 0, nil
}
