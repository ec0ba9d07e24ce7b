package faulttest

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/go-leasehold/leasehold/coordinator"
	"github.com/go-leasehold/leasehold/internal/redistest"
	"github.com/go-leasehold/leasehold/lease"
	"github.com/go-leasehold/leasehold/lease/redislease"
)

// foreign makes values that are no locks, by the command that makes them.
var foreign = map[string][]string{
	"string":                     {"SET", "", "somebody's"},
	"hash":                       {"HSET", "", "name", "bob", "mail", "bob@example.com"},
	"hash with a mode":           {"HSET", "", "mode", "fast"},
	"list":                       {"RPUSH", "", "a", "b"},
	"set":                        {"SADD", "", "a", "b"},
	"sorted set":                 {"ZADD", "", "1", "a"},
	"stream":                     {"XADD", "", "1-1", "a", "b"},
	"string with an expiry":      {"SET", "", "somebody's", "PX", "600000"},
	"read/write lock of a store": nil, // made by a store
}

// J5: the lock's name is in use for data. Every call says so at once, and the data stays as it is.
func TestDataUnderTheLocksNameIsLeftAlone(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	c := steady(t, server.Addr(), coordinator.WithTTL(time.Second))
	for name, command := range foreign {
		key := name
		if command == nil {
			readLock(t, server, key)
		} else {
			args := append([]string{}, command...)
			args[1] = "lock:" + key
			server.Do(t, args...)
		}
		before := dump(t, server, key)
		m := c.Mutex(key)
		calls := map[string]func() error{
			"TryLock":    func() error { _, err := m.TryLock(context.Background()); return err },
			"Lock":       func() error { _, err := m.Lock(context.Background()); return err },
			"TryLockFor": func() error { _, err := m.TryLockFor(context.Background(), time.Hour); return err },
			"Do":         func() error { return m.Do(context.Background(), func(context.Context) error { panic("inside") }) },
			"LockAll":    func() error { _, err := c.LockAll(context.Background(), "free", key); return err },
		}
		if command != nil { // who has a read/write lock may be asked and forced
			calls["Inspect"] = func() error { _, err := c.Inspect(context.Background(), key); return err }
			calls["ForceUnlock"] = func() error { return c.ForceUnlock(context.Background(), key) }
		}
		for call, fn := range calls {
			var err error
			within(t, slack, call, func() { err = fn() })
			require.ErrorIs(t, err, coordinator.ErrKind, "%s on a %s", call, name)
			require.NotErrorIs(t, err, coordinator.ErrNotAcquired, "%s on a %s", call, name)
			require.NotErrorIs(t, err, coordinator.ErrUnavailable, "%s on a %s", call, name)
			require.Equal(t, before, dump(t, server, key), "%s changed a %s", call, name)
		}
	}
	free(t, c, "free")
}

// dump is a value whole, with its type, and whether it has an expiry.
func dump(t testing.TB, s *redistest.Server, key string) string {
	t.Helper()
	message := s.Do(t, "DUMP", "lock:"+key)
	text, err := message.ToString()
	require.NoError(t, err)
	if pttl(t, s, "lock:"+key) > 0 {
		text += ", with an expiry"
	}
	return text
}

// readLock has another process hold the name as a read/write lock.
func readLock(t testing.TB, s *redistest.Server, key string) {
	t.Helper()
	store, err := redislease.New(at(s.Addr()), redislease.Config{})
	require.NoError(t, err)
	_, err = store.Open(t.Context(), "reader", func(lease.Event) {})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, store.Close(context.Background())) })
	replies := make(chan error, 1)
	store.Send(lease.Request{
		Op: lease.Acquire, Key: key, Kind: lease.ReadWrite, Mode: lease.Shared, Ticket: 1, TTL: time.Minute, Tokens: 1,
	}, func(r lease.Reply, err error) { replies <- err })
	require.NoError(t, await(t, replies, hangs, "the reader's lease"))
}

// J5: somebody writes data over a held lock. The holder learns of it, and its unlock, renewal and retries leave the
// data alone.
func TestDataWrittenOverAHeldLockIsLeftAlone(t *testing.T) {
	t.Parallel()
	const ttl = 900 * time.Millisecond
	server := redistest.Start(t)
	c := steady(t, server.Addr(), ours(ttl)...)
	for name, command := range foreign {
		if command == nil {
			continue
		}
		hold, quick := grab(t, c.Mutex(name)), grab(t, c.Mutex(name+", quick"))
		for _, key := range []string{name, name + ", quick"} {
			args := append([]string{}, command...)
			args[1] = "lock:" + key
			server.Do(t, "MULTI")
			server.Do(t, "DEL", "lock:"+key)
			server.Do(t, args...)
			server.Do(t, "EXEC")
		}
		before, beforeQuick := dump(t, server, name), dump(t, server, name+", quick")
		_ = quick.Unlock() // nil or lost: whether it is known already is a matter of luck
		require.ErrorIs(t, ended(t, hold, ttl+slack), coordinator.ErrLeaseLost, name)
		require.ErrorIs(t, hold.Unlock(), coordinator.ErrLeaseLost, name)
		eventually(t, ttl+slack, "nothing left to do", func() bool { return len(c.Snapshot().Keys) == 0 })
		require.Equal(t, before, dump(t, server, name), name)
		require.Equal(t, beforeQuick, dump(t, server, name+", quick"), name)
	}
}

// J5: a lock's name never falls on a user's own key, unless it is asked to: there is a prefix by default.
func TestLocksHaveNamesOfTheirOwn(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	server.Do(t, "SET", "order:42", "data")
	c := steady(t, server.Addr(), ours(time.Second)...)
	hold := grab(t, c.Mutex("order:42"))
	require.True(t, exists(t, server, "order:42"), "lock:order:42")
	require.NoError(t, hold.Unlock())
	message := server.Do(t, "GET", "order:42")
	data, err := message.ToString()
	require.NoError(t, err)
	require.Equal(t, "data", data)
	for _, key := range server.Keys(t, "*") {
		require.Regexp(t, `^(lock:.*|order:42)$`, key)
	}
}
