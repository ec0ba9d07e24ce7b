package faulttest

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/go-leasehold/leasehold/coordinator"
	"github.com/go-leasehold/leasehold/internal/faults"
	"github.com/go-leasehold/leasehold/internal/redistest"
	"github.com/go-leasehold/leasehold/lease"
	"github.com/go-leasehold/leasehold/rwlock"
)

// downgrades are the two ways in which the hold "w" of a reader becomes its read hold "r"; within is its owner.
var downgrades = map[string]func(t *testing.T, p *reader, key, within string) uint64{
	"Downgrade": func(t *testing.T, p *reader, _, _ string) uint64 {
		p.Send("downgrade w r")
		got := p.got(t, "r")
		require.Equal(t, "ok", got.outcome)
		require.Equal(t, "notheld", p.ask(t, "unlock w", "unlocked w"))
		return got.token
	},
	"a read inside, then the write freed": func(t *testing.T, p *reader, key, within string) uint64 {
		token := p.take(t, "read", "r", key, within)
		p.unlock(t, "w")
		return token
	},
}

// F3: a process that writes goes over to reading, both ways, while another one waits to write; and one reply of each
// command is lost on the way. The waiter stays out for the three leases that the reading lasts, and the lease is
// renewed throughout. Readers that waited when the writing ended join, whether they stood before the waiter or behind
// it; those that come later wait for it.
func TestDowngradeKeepsWaitingWritersOut(t *testing.T) {
	t.Parallel()
	for way, downgrade := range downgrades {
		for name, lose := range map[string]func(*faults.Proxy, func([]string) bool) *faults.Drop{
			"nothing is lost": nil,
			"replies are lost, and the connection with them": (*faults.Proxy).DropReply,
			"replies are lost in silence":                    (*faults.Proxy).DropReplySilently,
		} {
			t.Run(way+"/"+name, func(t *testing.T) {
				t.Parallel()
				downgradeWithLoss(t, downgrade, lose)
			})
		}
	}
}

func downgradeWithLoss(t *testing.T, downgrade func(t *testing.T, p *reader, key, within string) uint64,
	loseBy func(*faults.Proxy, func([]string) bool) *faults.Drop,
) {
	const ttl = 2 * time.Second
	server := redistest.Shared(t)
	key := redistest.Prefix(t) + "k"
	scripts := scriptNames(t, server)
	proxy, waiterProxy := faults.NewProxy(t, server.Addr()), faults.NewProxy(t, server.Addr())
	net := listen(proxy)
	// lose loses the next reply to one script, and what it returns waits until that has happened.
	lose := func(p *faults.Proxy, op lease.Op) (happened func()) {
		if loseBy == nil {
			return func() {}
		}
		drop := loseBy(p, both(about(key), runs(scripts[op])))
		return func() { t.Helper(); await(t, drop.Done(), hangs, "the loss of a reply to "+op.String()) }
	}
	p := startReader(t, readersOf(proxy.Addr(), ttl))
	acquired := lose(proxy, lease.Acquire)
	written := p.take(t, "write", "w", key, "owner:me")
	acquired()
	before, behind, newcomer := rwlock.New(steady(t, server.Addr(), ours(ttl)...), key),
		rwlock.New(steady(t, server.Addr(), ours(ttl)...), key), rwlock.New(steady(t, server.Addr(), ours(ttl)...), key)
	watcher, c := steady(t, server.Addr(), ours(ttl)...), steady(t, waiterProxy.Addr(), ours(ttl)...)
	joins := []<-chan outcome{later(t.Context(), before.RLock)}
	awaitQueue(t, watcher, key, 1)
	waits := later(t.Context(), rwlock.New(c, key).Lock)
	awaitQueue(t, watcher, key, 2)
	joins = append(joins, later(t.Context(), behind.RLock))
	awaitQueue(t, watcher, key, 3)

	lowered := lose(proxy, lease.Downgrade)
	read := downgrade(t, p, key, "owner:me")
	begun := time.Now()
	require.Equal(t, written, read, "nobody can have written in between")
	lowered()
	var joined []*coordinator.Hold
	for _, join := range joins {
		got := await(t, join, hangs, "a reader that waited when the writing ended")
		require.NoError(t, got.err)
		require.Greater(t, got.hold.Token(), written)
		joined = append(joined, got.hold)
	}
	comes := later(t.Context(), newcomer.RLock)
	awaitQueue(t, watcher, key, 2)
	renewed, looked := lose(proxy, lease.Renew), lose(waiterProxy, lease.Acquire)
	reading := 3 * ttl
	if loseBy == nil && !torture {
		reading = ttl
	}
	for time.Since(begun) < reading {
		require.Contains(t, holdersOf(t, watcher, key), shares(p))
		_, ok := deadline(t, server, p.id, key)
		require.True(t, ok, "renewed throughout")
		require.Empty(t, waits, "a writer beside a reader")
		require.Empty(t, comes, "a reader that came when the writer waited already")
		if time.Since(begun) > ttl/2 {
			for _, hold := range joined {
				require.NoError(t, hold.Unlock())
			}
			joined = nil
		}
		time.Sleep(20 * time.Millisecond)
	}
	renewed()
	looked()
	require.Equal(t, "ok", p.ask(t, "err r", "err r"))
	require.Equal(t, "0 1", p.counts(t, "r"))
	require.Zero(t, p.stats(t).Lost)
	if loseBy == nil {
		require.Equal(t, 1, net.count(both(about(key), runs(scripts[lease.Downgrade]))), "one command makes it a read lease")
	}

	released := lose(proxy, lease.Release)
	require.Empty(t, waits)
	p.unlock(t, "r")
	released()
	got := await(t, waits, hangs, "the writer")
	require.NoError(t, got.err)
	require.Greater(t, got.hold.Token(), read)
	require.Equal(t, []string{c.ID() + " exclusive"}, holdersOf(t, watcher, key))
	require.Empty(t, comes)
	require.NoError(t, got.hold.Unlock())
	last := await(t, comes, hangs, "the reader that came after the writer")
	require.NoError(t, last.err)
	require.Greater(t, last.hold.Token(), got.hold.Token())
	require.NoError(t, last.hold.Unlock())
}

// step is one act of an owner, and what must be true after it.
type step struct {
	act, how, name string // "take" (how), "unlock" or "downgrade" (how is the new name)
	live           string // a hold that is left; "" if none is
	counts         string
	reads, writes  bool // another process may
}

// F4: one owner writes, reads inside, and frees both in every order. Another process is kept out of what it must not
// do at each step, and the counts of both modes are right at each step.
func TestInnerReadsAndWritesFreeNothingButThemselves(t *testing.T) {
	t.Parallel()
	for name, steps := range map[string][]step{
		"the read first": {
			{"take", "write", "a", "a", "1 0", false, false},
			{"take", "read", "b", "a", "1 1", false, false},
			{"unlock", "", "b", "a", "1 0", false, false},
			{"take", "read", "c", "c", "1 1", false, false},
			{"unlock", "", "c", "a", "1 0", false, false},
			{"unlock", "", "a", "", "0 0", true, true},
		},
		"the write first": {
			{"take", "write", "a", "a", "1 0", false, false},
			{"take", "read", "b", "a", "1 1", false, false},
			{"take", "read", "c", "a", "1 2", false, false},
			{"unlock", "", "a", "b", "0 2", true, false},
			{"unlock", "", "b", "c", "0 1", true, false},
			{"unlock", "", "c", "", "0 0", true, true},
		},
		"writes inside writes": {
			{"take", "write", "a", "a", "1 0", false, false},
			{"take", "write", "b", "a", "2 0", false, false},
			{"take", "read", "c", "a", "2 1", false, false},
			{"take", "write", "d", "a", "3 1", false, false},
			{"unlock", "", "a", "b", "2 1", false, false},
			{"unlock", "", "b", "d", "1 1", false, false},
			{"unlock", "", "d", "c", "0 1", true, false},
			{"unlock", "", "c", "", "0 0", true, true},
		},
		"downgrades of one of two": {
			{"take", "write", "a", "a", "1 0", false, false},
			{"take", "write", "b", "b", "2 0", false, false},
			{"downgrade", "c", "a", "b", "1 1", false, false},
			{"downgrade", "d", "b", "c", "0 2", true, false},
			{"unlock", "", "d", "c", "0 1", true, false},
			{"unlock", "", "c", "", "0 0", true, true},
		},
	} {
		for _, within := range []string{"the hold's context", "owner:me"} {
			t.Run(name+"/"+within, func(t *testing.T) {
				t.Parallel()
				server := redistest.Shared(t)
				key := redistest.Prefix(t) + "k"
				p := startReader(t, readersOf(server.Addr(), 30*time.Second))
				other := rwlock.New(steady(t, server.Addr(), ours(30*time.Second)...), key)
				c := steady(t, server.Addr(), ours(30*time.Second)...)
				live, token := "-", uint64(0)
				for _, s := range steps {
					switch s.act {
					case "take":
						by := within
						if by != "owner:me" {
							by = live
						}
						got := p.take(t, s.how, s.name, key, by)
						if token == 0 {
							token = got
						}
						require.Equal(t, token, got, "re-entry is the same hold")
					case "downgrade":
						p.Send("downgrade " + s.name + " " + s.how)
						require.Equal(t, "ok", p.got(t, s.how).outcome)
					case "unlock":
						p.unlock(t, s.name)
						require.Equal(t, "notheld", p.ask(t, "unlock "+s.name, "unlocked "+s.name))
						require.Equal(t, "0 0", p.counts(t, s.name))
					}
					live = s.live
					if live != "" {
						require.Equal(t, s.counts, p.counts(t, live), "after %v", s)
						require.Equal(t, "ok", p.ask(t, "err "+live, "err "+live))
					}
					mayOnly(t, other, s)
					if live != "" {
						mode := map[bool]string{true: " shared", false: " exclusive"}[s.reads]
						require.Equal(t, []string{p.id + mode}, holdersOf(t, c, key))
					}
				}
			})
		}
	}
}

// mayOnly requires that another process can do what the step says, and nothing else.
func mayOnly(t *testing.T, other *rwlock.Lock, s step) {
	t.Helper()
	if s.reads {
		goOn(t, other.RLock)
	} else {
		shutOut(t, other.TryRLock, "to read")
	}
	if s.writes {
		goOn(t, other.Lock)
	} else {
		shutOut(t, other.TryLock, "to write")
	}
}
