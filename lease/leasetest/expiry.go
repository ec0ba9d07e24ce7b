package leasetest

import (
	"time"

	"github.com/stretchr/testify/require"

	"github.com/go-leasehold/leasehold/lease"
)

var expiryCases = []testCase{
	{"ExpiredLeaseIsLost", testExpiredIsLost},
	{"LookOfTheHeadTakesTheExpired", testExpiryByHead},
	{"LookOfAnyoneHandsOnTheExpired", testExpiryByOther},
	{"ReleaseHandsOnTheExpired", testExpiryByRelease},
	{"CrashedReaderEndsAtItsOwnDeadline", testReaderDeadline},
	{"RemainingIsTheSoonestEnd", testRemainingSoonest},
}

func testExpiredIsLost(s *suite) {
	a := s.open("a")
	for _, of := range renewable(s) {
		sent := time.Now()
		a.get(lease.Held, of.k.acquire(1, append(of.changes, lasting(short))...))
		s.eventually(func() bool { return len(s.inspect(a, of.k).Holders) == 0 }, "the lease has ended")
		s.requireNotBefore(sent.Add(short))
		a.get(lease.Lost, of.k.renew(1))
		s.requireHolders(a, of.k)
	}
}

// requireNotBefore allows for the millisecond that a server may round to.
func (s *suite) requireNotBefore(t time.Time) {
	s.Helper()
	require.False(s, time.Now().Before(t.Add(-2*time.Millisecond)), "too early: %v before", time.Until(t))
}

// crashed has a hold the key for a short time while b and c wait for it. It says
// whether they came in time to wait.
func crashed(a, b, c *client, k subject, ttl time.Duration) (token uint64, inTime bool) {
	a.s.Helper()
	held := a.get(lease.Held, k.acquire(1, lasting(ttl)))
	if b.do(k.acquire(1)).Status != lease.Waiting || c.do(k.acquire(1)).Status != lease.Waiting {
		return 0, false
	}
	return held.Last, len(a.s.inspect(a, k).Holders) > 0
}

func testExpiryByHead(s *suite) {
	all := s.openAll("a", "b", "c")
	a, b, c := all[0], all[1], all[2]
	s.withShortLease(func(ttl time.Duration) bool {
		k := s.mutex()
		sent := time.Now()
		newest, inTime := crashed(a, b, c, k, ttl)
		if !inTime {
			return false
		}
		reply := b.do(k.acquire(1))
		for reply.Status == lease.Waiting { // at the soonest end, as a coordinator does
			require.LessOrEqual(s, reply.Remaining, ttl+time.Millisecond)
			s.env.Sleep(reply.Remaining + time.Millisecond)
			reply = b.do(k.acquire(1))
		}
		s.requireNotBefore(sent.Add(ttl))
		require.Equal(s, lease.Held, reply.Status)
		require.Greater(s, reply.First, newest)
		require.True(s, reply.Contended)
		b.requireNoMessage(k)
		s.requireTTL(b, k, b.owner(1), long)
		s.requireWaiters(b, k, c.owner(1))
		return true
	})
}

func testExpiryByOther(s *suite) {
	all := s.openAll("a", "b", "c")
	a, b, c := all[0], all[1], all[2]
	s.withShortLease(func(ttl time.Duration) bool {
		k := s.mutex()
		newest, inTime := crashed(a, b, c, k, ttl)
		if !inTime {
			return false
		}
		reply := c.get(lease.Waiting, k.acquire(1))
		for reply.Holder == a.owner(1) {
			s.env.Sleep(reply.Remaining + time.Millisecond)
			reply = c.get(lease.Waiting, k.acquire(1))
		}
		require.Equal(s, b.owner(1), reply.Holder)
		require.Equal(s, 0, reply.Rank)
		require.Greater(s, reply.Token, newest)
		if b.can.Notices {
			require.Greater(s, b.granted(k, 1).First, newest)
		}
		s.requireTTL(b, k, b.owner(1), long)
		return true
	})
}

func testExpiryByRelease(s *suite) {
	all := s.openAll("a", "b", "c")
	a, b, c := all[0], all[1], all[2]
	s.withShortLease(func(ttl time.Duration) bool {
		k := s.mutex()
		if _, inTime := crashed(a, b, c, k, ttl); !inTime {
			return false
		}
		s.eventually(func() bool { return len(s.inspect(a, k).Holders) == 0 }, "the lease has ended")
		a.get(lease.Done, k.release(1)) // lost by time, and released all the same
		s.requireHolders(a, k, b.owner(1))
		s.requireWaiters(a, k, c.owner(1))
		return true
	})
}

func testReaderDeadline(s *suite) {
	all := s.openAll("a", "b", "w")
	a, b, w := all[0], all[1], all[2]
	s.withShortLease(func(ttl time.Duration) bool {
		k := s.readWrite()
		sent := time.Now()
		a.get(lease.Held, k.acquire(1, shared, lasting(ttl)))
		b.get(lease.Held, k.acquire(1, shared))
		w.get(lease.Waiting, k.acquire(1))
		if len(s.inspect(w, k).Holders) != 2 {
			return false
		}
		s.eventually(func() bool {
			b.get(lease.Held, k.renew(1))
			return len(s.inspect(w, k).Holders) == 1
		}, "the reader's lease has ended")
		s.requireNotBefore(sent.Add(ttl))
		a.get(lease.Lost, k.renew(1))
		require.Greater(s, w.get(lease.Waiting, k.acquire(1)).Remaining, long/2)
		b.get(lease.Done, k.release(1))
		s.requireHolders(w, k, w.owner(1))
		return true
	})
}

func testRemainingSoonest(s *suite) {
	all, k := s.openAll("a", "b", "c", "w"), s.readWrite()
	a, b, c, w := all[0], all[1], all[2], all[3]
	a.get(lease.Held, k.acquire(1, shared, lasting(16*long)))
	b.get(lease.Held, k.acquire(1, shared, lasting(long)))
	c.get(lease.Held, k.acquire(1, shared, lasting(4*long)))
	remaining := w.get(lease.Waiting, k.acquire(1)).Remaining
	require.LessOrEqual(s, remaining, long+time.Millisecond)
	require.Greater(s, remaining, long/2)
	b.get(lease.Done, k.release(1))
	require.Greater(s, w.get(lease.Waiting, k.acquire(1)).Remaining, 2*long)
}
