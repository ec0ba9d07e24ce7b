package faulttest

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/go-leasehold/leasehold/coordinator"
	"github.com/go-leasehold/leasehold/internal/faults"
	"github.com/go-leasehold/leasehold/internal/redistest"
	"github.com/go-leasehold/leasehold/rwlock"
)

// F5: an owner that reads asks to write, by every call and with every kind of owner; two such owners at once, in one
// process and in two; with a writer waiting elsewhere. Each is told at once that it can't be, nothing is sent, and
// no read hold is lost.
func TestUpgradeIsRefusedAtOnce(t *testing.T) {
	t.Parallel()
	const ttl = 30 * time.Second
	for name, owned := range map[string]struct {
		a, b   string        // what the two owners read within
		shared time.Duration // retention: with one, the hold comes in by the short way
	}{
		"by the hold's context": {"-", "-", 0}, "by the short way": {"-", "-", time.Hour}, "by WithOwner": {"owner:a", "owner:b", 0},
	} {
		for _, writerWaits := range []bool{false, true} {
			t.Run(name+map[bool]string{true: ", a writer waits"}[writerWaits], func(t *testing.T) {
				t.Parallel()
				server := redistest.Shared(t)
				key := redistest.Prefix(t) + "k"
				c := steady(t, server.Addr(), ours(ttl)...)
				var all []*reader
				var nets []*wire
				for range 2 {
					proxy := faults.NewProxy(t, server.Addr())
					nets = append(nets, listen(proxy))
					p := startReader(t, readerOrder{Addr: proxy.Addr(), TTL: ttl, Shared: owned.shared})
					how := map[bool]string{true: "pass", false: "read"}[owned.shared > 0]
					p.take(t, how, "a", key, owned.a)
					p.take(t, how, "b", key, owned.b)
					all = append(all, p)
				}
				var waits <-chan outcome
				if writerWaits {
					waits = later(t.Context(), rwlock.New(c, key).Lock)
					awaitQueue(t, c, key, 1)
				}
				acquires := func() int { return nets[0].count(is("acquire")) + nets[1].count(is("acquire")) }
				before := acquires()
				for _, how := range []string{"write", "try-write", "for-write"} {
					for _, p := range all { // all four owners at once
						for hold, within := range map[string]string{"a": owned.a, "b": owned.b} {
							if within == "-" {
								within = hold
							}
							p.begin(how, "up-"+hold, key, within)
						}
					}
					for _, p := range all {
						for _, hold := range []string{"a", "b"} {
							got := p.got(t, "up-"+hold)
							require.Equal(t, "upgrade", got.outcome, how)
							require.Less(t, got.took, slack, "at once, of the ten seconds it had")
							require.Equal(t, "0 1", p.counts(t, hold))
							require.Equal(t, "ok", p.ask(t, "err "+hold, "err "+hold))
						}
					}
				}
				require.Equal(t, before, acquires(), "nothing was asked of Redis")
				require.Len(t, holdersOf(t, c, key), 2)
				require.Len(t, inspect(t, c, key).Waiters, len(map[bool][]int{true: {1}}[writerWaits]))
				for _, p := range all { // deeper inside it is the same
					within := map[bool]string{true: owned.a, false: "a"}[owned.a != "-"]
					p.take(t, "read", "inner", key, within)
					require.Equal(t, "0 2", p.counts(t, "a"))
					require.Equal(t, "upgrade", p.call(t, "write", "up", key, map[bool]string{true: owned.a, false: "inner"}[owned.a != "-"]).outcome)
					require.Equal(t, "0 2", p.counts(t, "a"))
					for _, hold := range []string{"inner", "a", "b"} {
						require.Empty(t, waits)
						p.unlock(t, hold)
					}
				}
				if !writerWaits {
					waits = later(t.Context(), rwlock.New(c, key).Lock)
				}
				got := await(t, waits, soon, "the writer")
				require.NoError(t, got.err)
				require.NoError(t, got.hold.Unlock())
			})
		}
	}
}

// F5: a writer that has become a reader is a reader: it can't go back, and keeps what it has.
func TestUpgradeAfterADowngradeIsRefusedAtOnce(t *testing.T) {
	t.Parallel()
	for way, downgrade := range downgrades {
		t.Run(way, func(t *testing.T) {
			t.Parallel()
			server := redistest.Shared(t)
			key := redistest.Prefix(t) + "k"
			p := startReader(t, readersOf(server.Addr(), 30*time.Second))
			p.take(t, "write", "w", key, "owner:me")
			downgrade(t, p, key, "owner:me")
			for _, how := range []string{"write", "try-write", "for-write"} {
				got := p.call(t, how, "up", key, "owner:me")
				require.Equal(t, "upgrade", got.outcome)
				require.Less(t, got.took, slack)
			}
			require.Equal(t, "0 1", p.counts(t, "r"))
			require.Equal(t, "ok", p.ask(t, "err r", "err r"))
			other := rwlock.New(steady(t, server.Addr(), ours(30*time.Second)...), key)
			shutOut(t, other.TryLock, "it is being read")
			goOn(t, other.RLock)
			p.unlock(t, "r")
			goOn(t, other.Lock)
		})
	}
}

// F5, with nothing that says who it is: a reader that asks to write waits for itself, as long as its context lets it,
// and the error says who has the lock.
func TestUpgradeWithoutAnOwnerSaysWhoHasIt(t *testing.T) {
	t.Parallel()
	server := redistest.Shared(t)
	key := redistest.Prefix(t) + "k"
	c := steady(t, server.Addr(), ours(30*time.Second)...)
	lock := rwlock.New(c, key)
	hold := come(t, lock.RLock)
	ctx, cancel := context.WithTimeout(context.Background(), 100*time.Millisecond)
	defer cancel()
	got := await(t, later(ctx, lock.Lock), hangs, "the end of the wait")
	require.ErrorIs(t, got.err, coordinator.ErrNotAcquired)
	require.ErrorIs(t, got.err, context.DeadlineExceeded)
	require.NotErrorIs(t, got.err, coordinator.ErrUpgrade)
	var wait *coordinator.WaitError
	require.ErrorAs(t, got.err, &wait)
	require.Contains(t, wait.Holder, c.ID(), "it is held by ourselves")
	require.NoError(t, hold.Err())
	goOn(t, lock.RLock)
	require.NoError(t, hold.Unlock())
	goOn(t, lock.Lock)
}
