package leasetest

import (
	"time"

	"github.com/stretchr/testify/require"

	"github.com/go-leasehold/leasehold/lease"
)

var modeCases = []testCase{
	{"ReadersShare", testReadersShare},
	{"WriterStandsAlone", testWriterAlone},
	{"ReaderWaitsBehindAWaitingWriter", testReaderBehindWriter},
	{"ReadersOfATurnComeInTogether", testTurns},
	{"WithdrawnWriterLetsReadersIn", testWithdrawnWriter},
	{"ReaderOlderThanTheWriterGoesFirst", testOlderReader},
	{"ReaderDoesNotBecomeAWriter", testNoUpgrade},
}

var downgradeCases = []testCase{
	{"DowngradeLetsReadersIn", testDowngrade},
	{"DowngradeMayBeRepeated", testDowngradeRepeated},
	{"DowngradeOfWhatIsNotMineIsLost", testDowngradeLost},
}

func testReadersShare(s *suite) {
	all, k := s.openAll("a", "b", "c"), s.readWrite()
	for _, c := range all {
		c.get(lease.Held, k.acquire(1, shared))
		c.get(lease.Held, k.acquire(2, shared, atOnce))
	}
	info := s.inspect(all[0], k)
	require.Equal(s, lease.ReadWrite, info.Kind)
	require.Len(s, info.Holders, 6)
	for _, h := range info.Holders {
		require.Equal(s, lease.Shared, h.Mode)
	}
	all[0].get(lease.Done, k.release(1))
	require.Len(s, s.inspect(all[0], k).Holders, 5)
}

func testWriterAlone(s *suite) {
	all, k := s.openAll("a", "b"), s.readWrite()
	a, b := all[0], all[1]
	a.get(lease.Held, k.acquire(1))
	b.get(lease.Denied, k.acquire(1, shared, atOnce))
	b.get(lease.Denied, k.acquire(1, atOnce))
	a.get(lease.Denied, k.acquire(2, shared, atOnce))
	a.get(lease.Done, k.release(1))
	b.get(lease.Held, k.acquire(1, shared))
	a.get(lease.Denied, k.acquire(3, atOnce))
}

func testReaderBehindWriter(s *suite) {
	all, k := s.openAll("a", "b", "w"), s.readWrite()
	a, b, w := all[0], all[1], all[2]
	a.get(lease.Held, k.acquire(1, shared))
	w.get(lease.Waiting, k.acquire(1))
	b.get(lease.Denied, k.acquire(1, shared, atOnce))
	waiting := b.get(lease.Waiting, k.acquire(1, shared))
	require.Equal(s, 1, waiting.Rank)
	a.get(lease.Held, k.acquire(1, shared)) // mine stays mine
	a.get(lease.Done, k.release(1))
	s.requireHolders(a, k, w.owner(1))
	s.requireWaiters(a, k, b.owner(1))
	w.get(lease.Done, k.release(1))
	s.requireHolders(a, k, b.owner(1))
}

func testTurns(s *suite) {
	all, k := s.openAll("w0", "r1", "r2", "w3", "r4", "r5", "r6"), s.readWrite()
	w0, r1, r2, w3, r4, r5, r6 := all[0], all[1], all[2], all[3], all[4], all[5], all[6]
	newest := w0.get(lease.Held, k.acquire(1)).Last
	for _, c := range []*client{r1, r2} {
		c.get(lease.Waiting, k.acquire(1, shared))
	}
	w3.get(lease.Waiting, k.acquire(1))
	for _, c := range []*client{r4, r5} {
		c.get(lease.Waiting, k.acquire(1, shared))
	}
	turn := func(who ...*client) {
		s.Helper()
		var owners []string
		for _, c := range who {
			owners = append(owners, c.owner(1))
			if !c.can.Notices {
				continue
			}
			e := c.granted(k, 1)
			require.Greater(s, e.First, newest)
			newest = e.Last
		}
		if len(owners) > 1 || owners[0] == w3.owner(1) {
			s.requireHolders(w0, k, owners...)
		}
	}
	// All who read, also those behind a writer: each waits for one writer only.
	w0.get(lease.Done, k.release(1))
	turn(r1, r2, r4, r5)
	s.requireWaiters(w0, k, w3.owner(1))
	// Who comes now waits for that one, too.
	w0.get(lease.Waiting, k.acquire(2))
	r6.get(lease.Waiting, k.acquire(1, shared))
	for _, c := range []*client{r1, r2, r4} {
		c.get(lease.Done, k.release(1))
	}
	s.requireHolders(w0, k, r5.owner(1))
	r5.get(lease.Done, k.release(1))
	turn(w3)
	// The writer's own process reads next, and brings the others in.
	w3.get(lease.Held, k.release(1, next(2), nextShared))
	turn(r6)
	s.requireHolders(w0, k, w3.owner(2), r6.owner(1))
	s.requireWaiters(w0, k, w0.owner(2))
}

func testWithdrawnWriter(s *suite) {
	all, k := s.openAll("a", "b", "w"), s.readWrite()
	a, b, w := all[0], all[1], all[2]
	a.get(lease.Held, k.acquire(1, shared))
	w.get(lease.Waiting, k.acquire(1))
	b.get(lease.Waiting, k.acquire(1, shared))
	w.get(lease.Done, k.release(1))
	s.requireHolders(a, k, a.owner(1), b.owner(1))
	if b.can.Notices {
		b.granted(k, 1)
	}
}

func testOlderReader(s *suite) {
	all, k := s.openAll("a", "b", "c", "w"), s.readWrite()
	a, b, c, w := all[0], all[1], all[2], all[3]
	a.get(lease.Held, k.acquire(1, shared))
	b.get(lease.Held, k.acquire(1, shared))
	w.get(lease.Waiting, k.acquire(1))
	// It came before the writer, so it shares with those who read now.
	c.get(lease.Held, k.acquire(1, shared, aged(time.Hour)))
	a.get(lease.Held, k.release(1, next(2), nextShared, nextAged(time.Hour)))
	b.get(lease.Waiting, k.release(1, next(2), nextShared))
	s.requireHolders(a, k, a.owner(2), c.owner(1))
	s.requireWaiters(a, k, w.owner(1), b.owner(2))
}

func testNoUpgrade(s *suite) {
	a, k := s.open("a"), s.readWrite()
	a.get(lease.Held, k.acquire(1, shared))
	a.get(lease.Denied, k.acquire(1, atOnce))
	a.get(lease.Waiting, k.acquire(2))
	require.Equal(s, lease.Shared, s.inspect(a, k).Holders[0].Mode)
	s.requireHolders(a, k, a.owner(1))
}

func testDowngrade(s *suite) {
	all, k := s.openAll("a", "r1", "r2", "w"), s.readWrite()
	a, r1, r2, w := all[0], all[1], all[2], all[3]
	newest := a.get(lease.Held, k.acquire(1)).Last
	r1.get(lease.Waiting, k.acquire(1, shared))
	r2.get(lease.Waiting, k.acquire(1, shared))
	w.get(lease.Waiting, k.acquire(1))
	reply := a.get(lease.Held, k.downgrade(1, numbered(4), lasting(4*long)))
	require.Greater(s, reply.First, newest)
	require.True(s, reply.Contended)
	require.Equal(s, 1, reply.Waiters)
	s.requireHolders(a, k, a.owner(1), r1.owner(1), r2.owner(1))
	s.requireTTL(a, k, a.owner(1), 4*long)
	s.requireWaiters(a, k, w.owner(1))
	for _, h := range s.inspect(a, k).Holders {
		require.Equal(s, lease.Shared, h.Mode)
	}
	if r1.can.Notices {
		r1.granted(k, 1)
		r2.granted(k, 1)
	}
	for _, c := range []*client{a, r1, r2} {
		c.get(lease.Held, k.renew(1))
		c.get(lease.Done, k.release(1))
	}
	s.requireHolders(a, k, w.owner(1))
}

func testDowngradeRepeated(s *suite) {
	a, k := s.open("a"), s.readWrite()
	a.get(lease.Held, k.acquire(1, lasting(4*long)))
	for range 3 {
		reply := a.get(lease.Held, k.downgrade(1))
		require.False(s, reply.Contended)
		s.requireHolders(a, k, a.owner(1))
		s.requireTTL(a, k, a.owner(1), 4*long)
	}
	// A late copy of the acquire doesn't make a writer of it again.
	a.get(lease.Denied, k.acquire(1))
	s.requireWaiters(a, k)
	require.Equal(s, lease.Shared, s.inspect(a, k).Holders[0].Mode)
}

func testDowngradeLost(s *suite) {
	all, k := s.openAll("a", "b"), s.readWrite()
	a, b := all[0], all[1]
	a.get(lease.Lost, k.downgrade(1))
	a.get(lease.Held, k.acquire(1))
	a.get(lease.Lost, k.downgrade(2))
	b.get(lease.Lost, k.downgrade(1))
	a.get(lease.Done, k.release(1))
	a.get(lease.Lost, k.downgrade(1))
	s.requireHolders(a, k)
}
