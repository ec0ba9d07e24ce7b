package leasetest

import (
	"github.com/stretchr/testify/require"

	"github.com/go-leasehold/leasehold/lease"
)

var renewCases = []testCase{
	{"RenewExtends", testRenewExtends},
	{"RenewNeverShortens", testRenewNeverShortens},
	{"RenewCountsTheWaiters", testRenewWaiters},
	{"RenewBringsTokensIfAsked", testRenewTokens},
	{"RenewOfWhatIsNotMineIsLost", testRenewLost},
	{"RenewIsEachReadersOwn", testRenewReaders},
}

// renewable is a lease of each make.
func renewable(s *suite) map[string]struct {
	k       subject
	changes []func(*lease.Request)
} {
	return map[string]struct {
		k       subject
		changes []func(*lease.Request)
	}{
		"mutex": {k: s.mutex()},
		"write": {k: s.readWrite()},
		"read":  {k: s.readWrite(), changes: []func(*lease.Request){shared}},
	}
}

func testRenewExtends(s *suite) {
	a := s.open("a")
	for name, of := range renewable(s) {
		a.get(lease.Held, of.k.acquire(1, of.changes...))
		reply := a.get(lease.Held, of.k.renew(1, lasting(4*long)))
		require.False(s, reply.Contended, name)
		require.Zero(s, reply.Waiters, name)
		s.requireTTL(a, of.k, a.owner(1), 4*long)
		s.requireHolders(a, of.k, a.owner(1))
	}
}

func testRenewNeverShortens(s *suite) {
	a := s.open("a")
	for _, of := range renewable(s) {
		a.get(lease.Held, of.k.acquire(1, append(of.changes, lasting(4*long))...))
		a.get(lease.Held, of.k.renew(1, lasting(long)))
		s.requireTTL(a, of.k, a.owner(1), 4*long)
	}
}

func testRenewWaiters(s *suite) {
	all, k := s.openAll("a", "b", "c"), s.mutex()
	a, b, c := all[0], all[1], all[2]
	a.get(lease.Held, k.acquire(1))
	b.get(lease.Waiting, k.acquire(1))
	c.get(lease.Waiting, k.acquire(1))
	reply := a.get(lease.Held, k.renew(1))
	require.True(s, reply.Contended)
	require.Equal(s, 2, reply.Waiters)
	b.get(lease.Done, k.release(1))
	require.Equal(s, 1, a.get(lease.Held, k.renew(1)).Waiters)
}

func testRenewTokens(s *suite) {
	a := s.open("a")
	for _, of := range renewable(s) {
		newest := a.get(lease.Held, of.k.acquire(1, of.changes...)).Last
		a.get(lease.Held, of.k.renew(1)) // none
		for range 3 {
			reply := a.get(lease.Held, of.k.renew(1, numbered(5)))
			require.Greater(s, reply.First, newest)
			newest = reply.Last
		}
		require.Equal(s, newest, s.inspect(a, of.k).Token)
	}
}

func testRenewLost(s *suite) {
	all := s.openAll("a", "b")
	a, b := all[0], all[1]
	for _, of := range renewable(s) {
		k := of.k
		a.get(lease.Lost, k.renew(1))
		s.requireHolders(a, k)
		a.get(lease.Held, k.acquire(1, of.changes...))
		a.get(lease.Lost, k.renew(2))
		b.get(lease.Lost, k.renew(1))
		b.get(lease.Waiting, k.acquire(1)) // exclusive, so it waits
		b.get(lease.Lost, k.renew(1, numbered(3)))
		a.get(lease.Done, k.release(1))
		a.get(lease.Lost, k.renew(1))
		s.requireHolders(a, k, b.owner(1))
		b.get(lease.Done, k.release(1))
		b.get(lease.Lost, k.renew(1))
		s.requireHolders(a, k)
	}
}

func testRenewReaders(s *suite) {
	all, k := s.openAll("a", "b"), s.readWrite()
	a, b := all[0], all[1]
	a.get(lease.Held, k.acquire(1, shared, lasting(long)))
	b.get(lease.Held, k.acquire(1, shared, lasting(16*long)))
	a.get(lease.Held, k.renew(1, lasting(4*long)))
	s.requireTTL(a, k, a.owner(1), 4*long)
	s.requireTTL(a, k, b.owner(1), 16*long)
	a.get(lease.Done, k.release(1))
	a.get(lease.Lost, k.renew(1))
	s.requireTTL(a, k, b.owner(1), 16*long)
}
