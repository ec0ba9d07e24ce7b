package faulttest

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/go-leasehold/leasehold/internal/faults"
	"github.com/go-leasehold/leasehold/internal/redistest"
	"github.com/go-leasehold/leasehold/rwlock"
)

// F1: a hundred readers in each of two processes hold for three leases, each nested three deep, the last of it when a
// writer waits already. None of them is lost, the writer stays out until the very last unlock and enters by it, and
// nothing is renewed behind that.
func TestManyNestedReadersAreRenewedUntilTheLastUnlock(t *testing.T) {
	t.Parallel()
	const ttl, readers = 2500 * time.Millisecond, "100"
	server := redistest.Start(t)
	warm(t, server)
	var crowds []*reader
	var nets []*wire
	for _, untracked := range []bool{false, true} { // one process looks at what others change, which renews too
		proxy := faults.NewProxy(t, server.Addr())
		nets = append(nets, listen(proxy))
		p := startReader(t, readerOrder{Addr: proxy.Addr(), TTL: ttl, Untracked: untracked})
		require.Equal(t, "ok", p.ask(t, "gather all "+readers+" k", "gather all"))
		require.Equal(t, "ok", p.ask(t, "deepen all k", "deepen all"))
		crowds = append(crowds, p)
	}
	begun := time.Now()
	c := steady(t, server.Addr(), ours(ttl)...)
	bothRead := func(until time.Duration) {
		t.Helper()
		for time.Since(begun) < until {
			require.Len(t, holdersOf(t, c, "k"), 2)
			time.Sleep(ttl / 20)
		}
	}
	bothRead(3 * ttl / 2) // renewed by schedule: as soon as somebody waits, looks at whether it still does renew too
	waits := later(t.Context(), rwlock.New(c, "k").Lock)
	awaitQueue(t, c, "k", 1)
	for _, p := range crowds {
		require.Equal(t, "ok", p.ask(t, "deepen all k", "deepen all"), "who is inside waits for no writer")
	}
	bothRead(3 * ttl)
	require.Equal(t, "ok", crowds[0].ask(t, "disperse all", "disperse all"), "no reader was lost")
	eventually(t, hangs, "the first process out", func() bool { return len(holdersOf(t, c, "k")) == 1 })
	require.Equal(t, []string{shares(crowds[1])}, holdersOf(t, c, "k"))
	require.Empty(t, waits, "the readers of one process are inside")
	require.Equal(t, "ok", crowds[1].ask(t, "disperse all", "disperse all"))
	got := letInAtOnce(t, c, waits, ttl)
	for i, net := range nets {
		require.Positive(t, net.count(is("renew")))
		eventually(t, hangs, "the release", func() bool { return net.count(is("release")) == 1 })
		require.Zero(t, crowds[i].stats(t).Lost)
	}
	staysQuiet(t, nets[0], ttl/3+100*time.Millisecond, takes, "a renewal after the last unlock")
	for _, net := range nets {
		renewedOnlyWhileHeld(t, net)
	}
	require.NoError(t, got.hold.Unlock())
}

// F1, the last sentence: what becomes of the lease when the last reader is out. With no retention nothing is renewed
// after it, not once; with one that is shorter than the interval neither; with a long one the lease is renewed until
// a writer comes, who enters at once, and then no more.
func TestNothingIsRenewedAfterTheLastReader(t *testing.T) {
	t.Parallel()
	const ttl = 3 * time.Second
	for name, kept := range map[string]time.Duration{
		"given up at once": 0, "kept for a moment": 200 * time.Millisecond, "kept for an hour": time.Hour,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			server := redistest.Shared(t)
			key := redistest.Prefix(t) + "k"
			proxy := faults.NewProxy(t, server.Addr())
			net := listen(proxy)
			order := readersOf(proxy.Addr(), ttl)
			order.Shared = kept
			p := startReader(t, order)
			for range 2 { // the second time by the short way of readers, where there is one
				require.Equal(t, "ok", p.ask(t, "gather all 100 "+key, "gather all"))
				require.Equal(t, "ok", p.ask(t, "disperse all", "disperse all"))
			}
			require.Equal(t, "ok", p.ask(t, "gather all 100 "+key, "gather all"))
			require.Equal(t, "ok", p.ask(t, "deepen all "+key, "deepen all"))
			eventually(t, hangs, "a renewal", func() bool { return net.count(both(is("renew"), about(key))) > 1 })
			require.Equal(t, "ok", p.ask(t, "disperse all", "disperse all"))

			c := steady(t, server.Addr(), ours(30*time.Second)...)
			writer := rwlock.New(c, key)
			if kept == time.Hour {
				before := net.count(is("renew"))
				eventually(t, hangs, "a renewal of what is kept", func() bool { return net.count(is("renew")) > before })
				require.Equal(t, []string{shares(p)}, holdersOf(t, c, key))
			} else {
				eventually(t, slack, "the lease given up", func() bool { return len(holdersOf(t, c, key)) == 0 })
			}
			got := await(t, later(t.Context(), writer.Lock), soon, "the writer")
			require.NoError(t, got.err)
			require.EqualValues(t, 1, stats(c).Grants)
			staysQuiet(t, net, ttl/3+200*time.Millisecond, takes, "a command of a process that has left")
			renewedOnlyWhileHeld(t, net)
			require.NoError(t, got.hold.Unlock())
		})
	}
}

// F2: of two processes that read one is killed. The other's renewals keep the other's lease only: the dead one's ends
// at the deadline it had, and no later. Whoever waits to write enters with the last unlock of the living one.
func TestCrashedReaderIsDroppedAtItsOwnDeadline(t *testing.T) {
	t.Parallel()
	const ttl = 2 * time.Second
	for name, early := range map[string]bool{"a writer waits": true, "nobody else is there": false} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			server := redistest.Shared(t)
			key := redistest.Prefix(t) + "k"
			dying, living := startReader(t, readersOf(server.Addr(), ttl)), startReader(t, readersOf(server.Addr(), ttl))
			for _, p := range []*reader{dying, living} {
				p.take(t, "read", "r", key, "-")
				p.ask(t, "watch r", "watching r")
			}
			c := steady(t, server.Addr(), ours(ttl)...)
			writer := rwlock.New(c, key)
			var waits <-chan outcome
			if early {
				waits = later(t.Context(), writer.Lock)
				awaitQueue(t, c, key, 1)
			}
			require.Len(t, holdersOf(t, c, key), 2)
			renewals := living.stats(t).Renewals
			dying.Kill()
			killed := time.Now()
			bound := ttl
			for left, ok := deadline(t, server, dying.id, key); ok; left, ok = deadline(t, server, dying.id, key) {
				require.LessOrEqual(t, left, bound, "a dead reader's lease grows no longer")
				bound = left
				require.Less(t, time.Since(killed), ttl+slack)
				time.Sleep(5 * time.Millisecond)
			}
			require.Equal(t, []string{shares(living)}, holdersOf(t, c, key))
			// Its field goes with the next script that looks, which is not ours.
			eventually(t, ttl+slack, "nothing left of it", func() bool { return len(owners(t, server, key)) == 2 })
			require.Len(t, owners(t, server, key), 2, "the mode, and the living reader")
			for time.Since(killed) < 3*ttl {
				require.Equal(t, []string{shares(living)}, holdersOf(t, c, key))
				time.Sleep(ttl / 20)
			}
			require.Greater(t, living.stats(t).Renewals, renewals+2)
			require.Equal(t, "ok", living.ask(t, "err r", "err r"))
			require.Empty(t, waits)
			if !early {
				shutOut(t, writer.TryLock, "one reader lives")
				waits = later(t.Context(), writer.Lock)
				awaitQueue(t, c, key, 1)
			}
			living.unlock(t, "r")
			got := letInAtOnce(t, c, waits, ttl)
			require.NoError(t, got.hold.Unlock())
		})
	}
}

// F1 and A1 for readers: a read hold ends, context and all, when its lease is gone: deleted, flushed, or not renewed
// because its process is cut off. Those of a process that is not cut off go on.
func TestReadHoldsOfRealProcessesEndWithTheirLease(t *testing.T) {
	t.Parallel()
	for name, fault := range map[string]struct {
		ttl    time.Duration
		end    func(t *testing.T, s *redistest.Server, p *faults.Proxy)
		spares bool // the other process
	}{
		"deleted": {30 * time.Second, func(t *testing.T, s *redistest.Server, _ *faults.Proxy) { s.Do(t, "DEL", "lock:k") }, false},
		"flushed": {30 * time.Second, func(t *testing.T, s *redistest.Server, _ *faults.Proxy) { s.Do(t, "FLUSHALL") }, false},
		"cut off": {2500 * time.Millisecond, func(_ *testing.T, _ *redistest.Server, p *faults.Proxy) { p.BlackHole(true) }, true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			server := redistest.Start(t)
			proxy := faults.NewProxy(t, server.Addr())
			var all []*reader
			for _, addr := range []string{proxy.Addr(), server.Addr()} {
				order := readersOf(addr, fault.ttl)
				order.Shared = time.Hour // so that the holds below come in by the short way
				p := startReader(t, order)
				for _, hold := range []string{"first", "second", "plain", "watched"} {
					p.take(t, "pass", hold, "k", "-")
				}
				p.ask(t, "watch watched", "watching watched")
				eventually(t, hangs, "the first look at the holds", func() bool { return p.stats(t).Renewals > 0 })
				all = append(all, p)
			}
			newest := all[0].take(t, "read", "newest", "k", "-")
			fault.end(t, server, proxy)
			begun := time.Now()
			for i, p := range all {
				if i > 0 && fault.spares {
					require.Equal(t, "ok", p.ask(t, "err watched", "err watched"))
					require.Equal(t, "ok", p.ask(t, "err plain", "err plain"))
					p.unlock(t, "watched")
					p.unlock(t, "plain")
					continue
				}
				lost := p.lost(t, "watched")
				require.Equal(t, "lost", lost.cause)
				require.Less(t, lost.signal.Sub(begun), min(fault.ttl/3, fault.ttl)+slack, "before any renewal by schedule")
				require.Equal(t, "lost", p.ask(t, "err plain", "err plain"))
				for _, hold := range []string{"plain", "watched"} {
					require.Equal(t, "lost", p.ask(t, "unlock "+hold, "unlocked "+hold))
					require.Equal(t, "lost", p.ask(t, "unlock "+hold, "unlocked "+hold), "told again")
				}
				require.EqualValues(t, 1, p.stats(t).Lost)
			}
			proxy.BlackHole(false)
			for _, hold := range []string{"first", "second"} {
				for i, p := range all {
					want := map[bool]string{true: "ok", false: "lost"}[i > 0 && fault.spares]
					require.Equal(t, want, p.ask(t, "unlock "+hold, "unlocked "+hold))
				}
			}
			c := steady(t, server.Addr(), ours(fault.ttl)...)
			hold := come(t, rwlock.New(c, "k").Lock)
			require.Greater(t, hold.Token(), newest)
			require.NoError(t, hold.Unlock())
		})
	}
}

// F1, with what is kept: read leases that several processes keep for an hour are given up the moment another one
// wants to write, for TryLock too, and the processes read again afterwards.
func TestKeptReadLeasesAreGivenUpForAWriterAtOnce(t *testing.T) {
	t.Parallel()
	server := redistest.Shared(t)
	key := redistest.Prefix(t) + "k"
	var all []*reader
	for range 3 {
		order := readersOf(server.Addr(), 30*time.Second)
		order.Shared = time.Hour
		all = append(all, startReader(t, order))
	}
	c := steady(t, server.Addr(), ours(30*time.Second)...)
	writer := rwlock.New(c, key)
	child := startReader(t, readersOf(server.Addr(), 30*time.Second))
	atOnce := 0
	for range 10 {
		var newest uint64
		eventually(t, hangs, "all keep it", func() bool { // who was refused may still have been heard
			for _, p := range all {
				newest = max(newest, p.take(t, "pass", "r", key, "-"))
				p.unlock(t, "r")
			}
			return len(holdersOf(t, c, key)) == 3
		})
		// A machine that stalls may let the holders' answers be late for TryLock, so once is not enough to fail.
		if got := child.call(t, "try-write", "w", key, "-"); got.outcome == "ok" {
			atOnce++
			require.Greater(t, got.token, newest)
			shutOut(t, writer.TryRLock, "it is being written")
			child.unlock(t, "w")
		} else {
			require.Equal(t, "busy", got.outcome)
		}
	}
	require.Positive(t, atOnce, "TryLock never got what was merely kept")
	for _, p := range all {
		p.take(t, "read", "r", key, "-")
		p.unlock(t, "r")
	}
	got := await(t, later(t.Context(), writer.Lock), soon, "the writer")
	require.NoError(t, got.err)
	require.NoError(t, got.hold.Unlock())
}
