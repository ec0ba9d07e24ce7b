package leasetest

import (
	"time"

	"github.com/stretchr/testify/require"

	"github.com/go-leasehold/leasehold/lease"
)

var acquireCases = []testCase{
	{"AcquireTakesFreeKey", testAcquireFree},
	{"AcquireOfMineGrantsItAgain", testAcquireAgain},
	{"AcquireOfMineNeverShortens", testAcquireNeverShortens},
	{"AcquireWithoutQueueIsDenied", testAcquireDenied},
	{"AcquireWithQueueWaits", testAcquireWaits},
	{"QueueIsJoinedOnce", testQueueJoinedOnce},
	{"AcquireWithoutTokens", testAcquireWithoutTokens},
	{"TokensGrowByWhateverWay", testTokensGrow},
}

func testAcquireFree(s *suite) {
	a := s.open("a")
	for _, k := range []subject{s.mutex(), s.readWrite()} {
		reply := a.get(lease.Held, k.acquire(1, numbered(7)))
		require.Equal(s, uint64(6), reply.Last-reply.First)
		require.False(s, reply.Contended)
		s.requireHolders(a, k, a.owner(1))
		s.requireTTL(a, k, a.owner(1), long)
	}
}

func testAcquireAgain(s *suite) {
	a, k := s.open("a"), s.mutex()
	first := a.get(lease.Held, k.acquire(1, lasting(long)))
	again := a.get(lease.Held, k.acquire(1, lasting(3*long)))
	require.Greater(s, again.First, first.Last)
	s.requireHolders(a, k, a.owner(1))
	s.requireTTL(a, k, a.owner(1), 3*long)

	b := s.open("b")
	b.get(lease.Waiting, k.acquire(1))
	require.True(s, a.get(lease.Held, k.acquire(1)).Contended)
	s.requireWaiters(a, k, b.owner(1))
}

func testAcquireNeverShortens(s *suite) {
	a := s.open("a")
	for _, k := range []subject{s.mutex(), s.readWrite()} {
		a.get(lease.Held, k.acquire(1, lasting(4*long)))
		a.get(lease.Held, k.acquire(1, lasting(long)))
		s.requireTTL(a, k, a.owner(1), 4*long)
	}
	k := s.readWrite()
	a.get(lease.Held, k.acquire(1, shared, lasting(4*long)))
	a.get(lease.Held, k.acquire(1, shared, lasting(long)))
	s.requireTTL(a, k, a.owner(1), 4*long)
}

func testAcquireDenied(s *suite) {
	all, k := s.openAll("a", "b"), s.mutex()
	a, b := all[0], all[1]
	held := a.get(lease.Held, k.acquire(1))
	denied := b.get(lease.Denied, k.acquire(1, atOnce))
	require.Greater(s, denied.Remaining, long/2)
	require.LessOrEqual(s, denied.Remaining, long+time.Millisecond)
	require.Zero(s, denied.Rank)
	require.Equal(s, held.Last, denied.Token)
	require.Equal(s, a.owner(1), denied.Holder)
	s.requireWaiters(a, k)
	a.requireNoMessage(k)

	a.get(lease.Done, k.release(1))
	b.requireNoMessage(k)
	b.get(lease.Held, k.acquire(1, atOnce))
}

func testAcquireWaits(s *suite) {
	all, k := s.openAll("a", "b", "c"), s.mutex()
	a, b, c := all[0], all[1], all[2]
	held := a.get(lease.Held, k.acquire(1))
	for rank, waiter := range []*client{b, c} {
		waiting := waiter.get(lease.Waiting, k.acquire(1))
		require.Greater(s, waiting.Remaining, long/2)
		require.LessOrEqual(s, waiting.Remaining, long+time.Millisecond)
		require.Equal(s, rank, waiting.Rank)
		require.Equal(s, held.Last, waiting.Token)
		require.Equal(s, a.owner(1), waiting.Holder)
	}
	s.requireWaiters(a, k, b.owner(1), c.owner(1))
}

func testQueueJoinedOnce(s *suite) {
	all, k := s.openAll("a", "b", "c"), s.mutex()
	a, b, c := all[0], all[1], all[2]
	a.get(lease.Held, k.acquire(1))
	b.get(lease.Waiting, k.acquire(1))
	c.get(lease.Waiting, k.acquire(1))
	for range 3 {
		require.Equal(s, 0, b.get(lease.Waiting, k.acquire(1)).Rank)
		require.Equal(s, 1, c.get(lease.Waiting, k.acquire(1, aged(0))).Rank)
	}
	s.requireWaiters(a, k, b.owner(1), c.owner(1))

	a.get(lease.Done, k.release(1))
	s.requireHolders(a, k, b.owner(1))
	b.get(lease.Done, k.release(1))
	s.requireHolders(a, k, c.owner(1))
	c.get(lease.Done, k.release(1))
	s.requireHolders(a, k)
	s.requireWaiters(a, k)
	if b.can.Notices {
		b.granted(k, 1)
	}
	for _, e := range b.messages(k) {
		require.Equal(s, lease.Wanted, e.Type, "granted once")
	}
}

func testAcquireWithoutTokens(s *suite) {
	a, k := s.open("a"), s.mutex()
	a.get(lease.Held, k.acquire(1, unnumbered))
	a.get(lease.Held, k.acquire(1, unnumbered))
	a.get(lease.Done, k.release(1))
	a.get(lease.Held, k.acquire(2))
}

func testTokensGrow(s *suite) {
	all, k := s.openAll("a", "b"), s.readWrite()
	a, b := all[0], all[1]
	newest := uint64(0)
	grows := func(first, last uint64) {
		s.Helper()
		require.Greater(s, first, newest)
		newest = last
	}
	held := func(reply lease.Reply) { s.Helper(); grows(reply.First, reply.Last) }

	held(a.get(lease.Held, k.acquire(1)))
	held(a.get(lease.Held, k.acquire(1, numbered(1000))))
	held(a.get(lease.Held, k.renew(1, numbered(3))))
	held(a.get(lease.Held, k.downgrade(1, numbered(2))))
	held(b.get(lease.Held, k.acquire(1, shared)))
	b.get(lease.Done, k.release(1))
	held(a.get(lease.Held, k.release(1, next(2))))
	require.Equal(s, newest, b.get(lease.Waiting, k.acquire(2)).Token)

	a.get(lease.Waiting, k.release(2, next(3)))
	if b.can.Notices {
		e := b.granted(k, 2)
		grows(e.First, e.Last)
	}
	require.NoError(s, a.store.Force(s.Context(), k.key))
	if a.can.Notices {
		e := a.granted(k, 3)
		grows(e.First, e.Last)
	}
	require.GreaterOrEqual(s, s.inspect(a, k).Token, newest)
	held(a.get(lease.Held, k.acquire(3)))
	a.get(lease.Done, k.release(3))
	held(b.get(lease.Held, k.acquire(4, atOnce)))
}
