package leasetest

import (
	"time"

	"github.com/stretchr/testify/require"

	"github.com/go-leasehold/leasehold/lease"
)

var releaseCases = []testCase{
	{"ReleaseFreesTheKey", testReleaseFrees},
	{"ReleaseMayBeRepeated", testReleaseRepeated},
	{"ReleaseOfNotMineChangesNothing", testReleaseNotMine},
	{"ReleaseWithdrawsFromTheQueue", testReleaseWithdraws},
}

var nextCases = []testCase{
	{"NextHasTheFreeKey", testNextHeld},
	{"NextWaitsBehindTheQueue", testNextWaiting},
	{"NextThoughTheFirstHadNothing", testNextNotMine},
	{"NextInPlaceOfAWait", testNextOfWait},
	{"NextMayBeRepeated", testNextRepeated},
	{"NextOfTheOtherMode", testNextOtherMode},
}

func testReleaseFrees(s *suite) {
	all := s.openAll("a", "b")
	a, b := all[0], all[1]
	for _, k := range []subject{s.mutex(), s.readWrite()} {
		a.get(lease.Held, k.acquire(1))
		a.get(lease.Done, k.release(1))
		s.requireHolders(a, k)
		require.Zero(s, s.inspect(a, k).Kind)
		b.get(lease.Held, k.acquire(1, atOnce))
	}
}

func testReleaseRepeated(s *suite) {
	all, k := s.openAll("a", "b", "c"), s.mutex()
	a, b, c := all[0], all[1], all[2]
	a.get(lease.Held, k.acquire(1))
	b.get(lease.Waiting, k.acquire(1))
	c.get(lease.Waiting, k.acquire(1))
	for range 3 {
		a.get(lease.Done, k.release(1))
		s.requireHolders(a, k, b.owner(1))
		s.requireWaiters(a, k, c.owner(1))
	}
	c.requireNoMessage(k)
}

func testReleaseNotMine(s *suite) {
	all, k := s.openAll("a", "b"), s.mutex()
	a, b := all[0], all[1]
	a.get(lease.Held, k.acquire(1))
	before := s.inspect(a, k)
	b.get(lease.Done, k.release(1)) // the same ticket, of another
	a.get(lease.Done, k.release(2)) // another ticket, of the same
	after := s.inspect(a, k)
	s.requireHolders(a, k, a.owner(1))
	require.LessOrEqual(s, after.Holders[0].TTL, before.Holders[0].TTL)
	require.Greater(s, after.Holders[0].TTL, long/2)
	require.Equal(s, before.Token, after.Token)

	free := s.mutex()
	a.get(lease.Done, free.release(1))
	s.requireHolders(a, free)
}

func testReleaseWithdraws(s *suite) {
	all, k := s.openAll("a", "b", "c"), s.mutex()
	a, b, c := all[0], all[1], all[2]
	a.get(lease.Held, k.acquire(1))
	b.get(lease.Waiting, k.acquire(1))
	c.get(lease.Waiting, k.acquire(1))
	b.get(lease.Done, k.release(1))
	s.requireHolders(a, k, a.owner(1))
	s.requireWaiters(a, k, c.owner(1))
	require.Equal(s, 0, c.get(lease.Waiting, k.acquire(1)).Rank)
	a.get(lease.Done, k.release(1))
	s.requireHolders(a, k, c.owner(1))
	b.requireNoMessage(k)
}

func testNextHeld(s *suite) {
	a := s.open("a")
	for _, k := range []subject{s.mutex(), s.readWrite()} {
		first := a.get(lease.Held, k.acquire(1))
		then := a.get(lease.Held, k.release(1, next(2)))
		require.Greater(s, then.First, first.Last)
		require.False(s, then.Contended)
		s.requireHolders(a, k, a.owner(2))
		s.requireTTL(a, k, a.owner(2), long)
	}
	a.requireNoMessage(s.mutex())
}

func testNextWaiting(s *suite) {
	all, k := s.openAll("a", "b"), s.mutex()
	a, b := all[0], all[1]
	a.get(lease.Held, k.acquire(1))
	b.get(lease.Waiting, k.acquire(1))
	waiting := a.get(lease.Waiting, k.release(1, next(2)))
	require.Equal(s, b.owner(1), waiting.Holder)
	require.Equal(s, 0, waiting.Rank)
	require.Greater(s, waiting.Remaining, long/2)
	require.Equal(s, s.inspect(b, k).Token, waiting.Token)
	s.requireHolders(a, k, b.owner(1))
	s.requireWaiters(a, k, a.owner(2))
	if !a.can.Notices {
		return
	}
	// That somebody waits is told by the grant itself, or by a want behind it.
	e := b.granted(k, 1)
	if !e.Contended {
		b.wanted(k, 1)
	}
	b.get(lease.Done, k.release(1))
	a.granted(k, 2)
}

func testNextNotMine(s *suite) {
	all, k := s.openAll("a", "b"), s.mutex()
	a, b := all[0], all[1]
	a.get(lease.Held, k.release(1, next(2)))
	s.requireHolders(a, k, a.owner(2))
	b.get(lease.Waiting, k.release(1, next(2)))
	s.requireHolders(a, k, a.owner(2))
	s.requireWaiters(a, k, b.owner(2))
	a.get(lease.Done, k.release(2))
	s.requireHolders(a, k, b.owner(2))
}

func testNextOfWait(s *suite) {
	all, k := s.openAll("a", "b"), s.mutex()
	a, b := all[0], all[1]
	a.get(lease.Held, k.acquire(1))
	b.get(lease.Waiting, k.acquire(1))
	b.get(lease.Waiting, k.release(1, next(2)))
	s.requireHolders(a, k, a.owner(1))
	s.requireWaiters(a, k, b.owner(2))
}

func testNextRepeated(s *suite) {
	all, k := s.openAll("a", "b"), s.mutex()
	a, b := all[0], all[1]
	a.get(lease.Held, k.acquire(1))
	b.get(lease.Waiting, k.acquire(1))
	for range 3 {
		a.get(lease.Waiting, k.release(1, next(2), nextAged(time.Hour)))
		s.requireHolders(a, k, b.owner(1))
		s.requireWaiters(a, k, a.owner(2))
	}
	b.get(lease.Done, k.release(1))
	first := a.get(lease.Held, k.release(1, next(2)))
	second := a.get(lease.Held, k.release(1, next(2)))
	require.Greater(s, second.First, first.Last)
	s.requireHolders(a, k, a.owner(2))
	s.requireWaiters(a, k)
}

func testNextOtherMode(s *suite) {
	all, k := s.openAll("a", "b"), s.readWrite()
	a, b := all[0], all[1]
	a.get(lease.Held, k.acquire(1))
	b.get(lease.Waiting, k.acquire(1, shared))
	a.get(lease.Held, k.release(1, next(2), nextShared))
	s.requireHolders(a, k, a.owner(2), b.owner(1))
	a.get(lease.Waiting, k.release(2, next(3)))
	s.requireHolders(a, k, b.owner(1))
	b.get(lease.Done, k.release(1))
	s.requireHolders(a, k, a.owner(3))
	require.Equal(s, lease.Exclusive, s.inspect(a, k).Holders[0].Mode)
}
