package faulttest

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/go-leasehold/leasehold/coordinator"
	"github.com/go-leasehold/leasehold/internal/faults"
	"github.com/go-leasehold/leasehold/internal/redistest"
	"github.com/go-leasehold/leasehold/lease"
	"github.com/go-leasehold/leasehold/lease/redislease"
)

// J1: the server forgets its scripts between any two commands. Each call works all the same, the first time, and has
// its effect once.
func TestForgottenScriptsCostNoCall(t *testing.T) {
	t.Parallel()
	const ttl = 6 * time.Second
	server := redistest.Start(t)
	proxy := faults.NewProxy(t, server.Addr())
	net := listen(proxy)
	c := steady(t, proxy.Addr(), ours(ttl)...)
	other := steady(t, server.Addr(), ours(ttl)...)
	forget := func() { server.Do(t, "SCRIPT", "FLUSH") }

	forget()
	hold := grab(t, c.Mutex("k"))
	require.Len(t, owners(t, server, "k"), 1)
	require.Equal(t, []string{"1"}, values(t, server, "k"))
	forget()
	before := stats(c).Renewals
	eventually(t, ttl, "a renewal", func() bool { return stats(c).Renewals > before })
	require.NoError(t, hold.Err())
	forget()
	require.Len(t, inspect(t, c, "k").Holders, 1)
	forget()
	waits := lockLater(t.Context(), other.Mutex("k"))
	awaitQueue(t, other, "k", 1)
	forget()
	require.NoError(t, hold.Unlock())
	out := await(t, waits, hangs, "the hand-over")
	require.NoError(t, out.err)
	require.Greater(t, out.hold.Token(), hold.Token())
	require.Len(t, owners(t, server, "k"), 1)
	forget()
	_, _, err := try(t, c.Mutex("k"))
	require.ErrorIs(t, err, coordinator.ErrNotAcquired)
	forget()
	require.NoError(t, c.ForceUnlock(t.Context(), "k"))
	require.ErrorIs(t, ended(t, out.hold, hangs), coordinator.ErrLeaseLost)
	require.ErrorIs(t, out.hold.Unlock(), coordinator.ErrLeaseLost)
	require.Zero(t, stats(c).Failures, "a forgotten script is no failure")
	require.Zero(t, stats(other).Failures)
	require.GreaterOrEqual(t, net.count(faults.Is("eval")), 4, "scripts were sent again")
	var byText int
	for range 2 { // the first one makes the scripts known again
		byText = net.count(faults.Is("eval"))
		free(t, c, "k")
		eventually(t, hangs, "nothing left to do", func() bool { return len(c.Snapshot().Keys) == 0 })
	}
	require.Equal(t, byText, net.count(faults.Is("eval")), "what is known is called by name")
}

// J1: the same for the downgrade of a writer, which only the store has so far.
func TestForgottenScriptsCostNoDowngrade(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	store, err := redislease.New(at(server.Addr()), redislease.Config{})
	require.NoError(t, err)
	_, err = store.Open(t.Context(), "me", func(lease.Event) {})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, store.Close(context.Background())) })
	ask := func(op lease.Op) lease.Reply {
		server.Do(t, "SCRIPT", "FLUSH")
		replies := make(chan lease.Reply, 1)
		store.Send(lease.Request{
			Op: op, Key: "k", Kind: lease.ReadWrite, Mode: lease.Exclusive, Ticket: 7, TTL: time.Minute, Tokens: 4,
		}, func(r lease.Reply, err error) {
			if err != nil {
				t.Errorf("%v: %v", op, err)
			}
			replies <- r
		})
		return await(t, replies, hangs, op.String())
	}
	written := ask(lease.Acquire)
	require.Equal(t, lease.Held, written.Status)
	renewed := ask(lease.Renew)
	require.Equal(t, lease.Held, renewed.Status)
	require.Greater(t, renewed.First, written.Last)
	read := ask(lease.Downgrade)
	require.Equal(t, lease.Held, read.Status)
	require.Greater(t, read.First, renewed.Last)
	info, err := store.Inspect(t.Context(), "k")
	require.NoError(t, err)
	require.Len(t, info.Holders, 1)
	require.Equal(t, lease.Shared, info.Holders[0].Mode)
	require.Equal(t, lease.Done, ask(lease.Release).Status)
}

// J1: the server restarts, empty. Whoever held knows, whoever waits is granted, and new calls work without a new
// process.
func TestRestartedServerWorksForTheSameProcess(t *testing.T) {
	t.Parallel()
	const ttl = 1500 * time.Millisecond
	server := redistest.Start(t)
	c := steady(t, server.Addr(), ours(ttl)...)
	other := steady(t, server.Addr(), ours(ttl)...)
	held := grab(t, c.Mutex("k"))
	waits := lockLater(t.Context(), other.Mutex("k"))
	awaitQueue(t, other, "k", 1)
	unlocked := grab(t, c.Mutex("u"))

	server.Kill()
	require.NoError(t, unlocked.Unlock())
	server.Restart()
	require.ErrorIs(t, ended(t, held, ttl+slack), coordinator.ErrLeaseLost)
	require.ErrorIs(t, held.Unlock(), coordinator.ErrLeaseLost)
	out := await(t, waits, hangs, "the waiter's grant")
	require.NoError(t, out.err)
	require.Greater(t, out.hold.Token(), held.Token(), "tokens grow though the counter is gone")
	require.NoError(t, out.hold.Unlock())
	free(t, c, "k")
	free(t, c, "u")
	free(t, other, "u")
	eventually(t, ttl+slack, "nothing left", func() bool { return len(leftovers(t, server)) == 0 })
}
