package leasetest

import (
	"time"

	"github.com/stretchr/testify/require"

	"github.com/go-leasehold/leasehold/lease"
)

var queueCases = []testCase{
	{"GrantsGoInTheOrderOfArrival", testFIFO},
	{"GrantCarriesItsOwnTTL", testGrantTTL},
	{"GrantCarriesItsOwnTokens", testGrantTokens},
	{"LookShowsTheGrantWithoutMessages", testLookShowsGrant},
	{"RejoinStandsWhereItsAgeSays", testRejoinAge},
	{"RejoinDoesNotOvertakeTheOlder", testRejoinYounger},
	{"DeadWaiterIsPassedOver", testDeadWaiter},
	{"DeadWaiterLeavesNothing", testDeadLeavesNothing},
	{"QueueOfTheDeadIsForgotten", testQueueForgotten},
}

func testFIFO(s *suite) {
	all := s.openAll("a", "b", "c", "d", "e")
	s.skipUnless(all[0].can.Notices, "notices")
	k := s.mutex()
	newest := all[0].get(lease.Held, k.acquire(1)).Last
	for _, waiter := range all[1:] {
		waiter.get(lease.Waiting, k.acquire(1))
	}
	for i, waiter := range all[1:] {
		all[i].get(lease.Done, k.release(1))
		e := waiter.granted(k, 1)
		require.Greater(s, e.First, newest)
		require.Equal(s, i+1 < len(all)-1, e.Contended)
		newest = e.Last
		s.requireHolders(waiter, k, waiter.owner(1))
	}
	for _, c := range all {
		for _, e := range c.messages(k) {
			require.Equal(s, lease.Wanted, e.Type, "nobody is granted twice")
		}
	}
}

func testGrantTTL(s *suite) {
	all, k := s.openAll("a", "b", "c"), s.mutex()
	a, b, c := all[0], all[1], all[2]
	a.get(lease.Held, k.acquire(1, lasting(long)))
	b.get(lease.Waiting, k.acquire(1, lasting(16*long)))
	c.get(lease.Waiting, k.acquire(1, lasting(4*long)))
	a.get(lease.Done, k.release(1))
	s.requireTTL(a, k, b.owner(1), 16*long)
	b.get(lease.Done, k.release(1))
	s.requireTTL(a, k, c.owner(1), 4*long)
}

func testGrantTokens(s *suite) {
	all, k := s.openAll("a", "b"), s.mutex()
	a, b := all[0], all[1]
	s.skipUnless(a.can.Notices, "notices")
	a.get(lease.Held, k.acquire(1))
	b.get(lease.Waiting, k.acquire(1, numbered(321)))
	a.get(lease.Done, k.release(1))
	e := b.granted(k, 1)
	require.Equal(s, uint64(320), e.Last-e.First)
}

func testLookShowsGrant(s *suite) {
	all, k := s.openAll("a", "b"), s.mutex()
	a, b := all[0], all[1]
	a.get(lease.Held, k.acquire(1))
	b.get(lease.Waiting, k.acquire(1))
	a.get(lease.Done, k.release(1))
	b.get(lease.Held, k.acquire(1))
	b.get(lease.Held, k.renew(1))
}

func testRejoinAge(s *suite) {
	all, k := s.openAll("a", "b", "c", "d"), s.mutex()
	a, b, c, d := all[0], all[1], all[2], all[3]
	a.get(lease.Held, k.acquire(1))
	b.get(lease.Waiting, k.acquire(1))
	require.Equal(s, 0, c.get(lease.Waiting, k.acquire(1, aged(2*time.Hour))).Rank)
	require.Equal(s, 1, d.get(lease.Waiting, k.acquire(1, aged(time.Hour))).Rank)
	s.requireWaiters(a, k, c.owner(1), d.owner(1), b.owner(1))

	// Behind all others is behind all others, and so is the yield of a.
	waiting := a.get(lease.Waiting, k.release(1, next(2), nextAged(90*time.Minute)))
	require.Equal(s, 0, waiting.Rank)
	require.Equal(s, c.owner(1), waiting.Holder)
	s.requireWaiters(a, k, a.owner(2), d.owner(1), b.owner(1))
}

func testRejoinYounger(s *suite) {
	all, k := s.openAll("a", "b", "c", "d"), s.mutex()
	a, b, c, d := all[0], all[1], all[2], all[3]
	a.get(lease.Held, k.acquire(1))
	b.get(lease.Waiting, k.acquire(1, aged(time.Hour)))
	require.Equal(s, 1, c.get(lease.Waiting, k.acquire(1, aged(0))).Rank)
	require.Equal(s, 2, d.get(lease.Waiting, k.acquire(1)).Rank)
	since := s.inspect(a, k).Waiters
	require.True(s, since[0].Since.Before(since[1].Since.Add(-time.Hour/2)))
}

func testDeadWaiter(s *suite) {
	all, name := s.openAll("a", "b", "c", "d", "e"), s.mutex()
	a, b, c, d, e := all[0], all[1], all[2], all[3], all[4]
	s.skipUnless(a.can.Receipts, "receipts")
	// In one slot, so that all goes over the same connections.
	in := func(what string) subject { return subject{kind: name.kind, key: "{" + name.key + "}" + what} }
	k := in("k")
	a.get(lease.Held, k.acquire(1))
	for _, waiter := range []*client{b, c, d} {
		waiter.get(lease.Waiting, k.acquire(1))
	}
	b.get(lease.Held, in("b").acquire(2))
	c.get(lease.Held, in("c").acquire(2))
	b.close()
	c.close()
	// The server finds out that they are gone when it comes to it: a want for what they hold reaches nobody then.
	s.eventually(func() bool {
		return e.get(lease.Waiting, in("b").acquire(1)).Told+e.get(lease.Waiting, in("c").acquire(1)).Told == 0
	}, "the server notices that they are gone")
	a.get(lease.Done, k.release(1))
	d.granted(k, 1)
	s.requireHolders(d, k, d.owner(1))
	s.requireWaiters(d, k)
}

// testDeadLeavesNothing: it was passed over as if it had never waited, in whatever way the key went on.
func testDeadLeavesNothing(s *suite) {
	all, name := s.openAll("a", "b", "c"), s.mutex()
	a, b, c := all[0], all[1], all[2]
	s.skipUnless(a.can.Receipts, "receipts")
	in := func(kind lease.Kind, what string) subject {
		return subject{kind: kind, key: "{" + name.key + "}" + what}
	}
	modes := renewable(s)
	for mode, of := range modes {
		for _, what := range []string{"alone", "before next", "before another", "behind another"} {
			k := in(of.k.kind, mode+what)
			a.get(lease.Held, k.acquire(1))
			if what == "behind another" {
				c.get(lease.Waiting, k.acquire(1, of.changes...))
			}
			b.get(lease.Waiting, k.acquire(1, of.changes...))
			if what == "before another" {
				c.get(lease.Waiting, k.acquire(1, of.changes...))
			}
		}
	}
	b.get(lease.Held, in(lease.Mutex, "b").acquire(2))
	b.close()
	s.eventually(func() bool {
		return c.get(lease.Waiting, in(lease.Mutex, "b").acquire(2)).Told == 0
	}, "the server notices that it is gone")
	for mode, of := range modes {
		k := in(of.k.kind, mode+"alone")
		a.get(lease.Done, k.release(1))
		s.requireHolders(a, k)
		s.requireWaiters(a, k)
		c.get(lease.Held, k.acquire(2, atOnce))

		k = in(of.k.kind, mode+"before next")
		a.get(lease.Held, k.release(1, next(2)))
		s.requireHolders(a, k, a.owner(2))
		s.requireWaiters(a, k)

		for _, what := range []string{"before another", "behind another"} {
			k = in(of.k.kind, mode+what)
			a.get(lease.Done, k.release(1))
			c.granted(k, 1)
			s.requireHolders(a, k, c.owner(1))
			if what == "behind another" {
				c.get(lease.Done, k.release(1))
				s.requireHolders(a, k)
			}
			s.requireWaiters(a, k)
		}
	}
}

func testQueueForgotten(s *suite) {
	all, k := s.openAll("a", "b"), s.mutex()
	a, b := all[0], all[1]
	a.get(lease.Held, k.acquire(1))
	b.get(lease.Waiting, k.acquire(1, lasting(short)))
	s.eventually(func() bool { return len(s.inspect(a, k).Waiters) == 0 },
		"nobody has looked for longer than a TTL")
}
