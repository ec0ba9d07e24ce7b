package leasetest

import (
	"github.com/stretchr/testify/require"

	"github.com/go-leasehold/leasehold/lease"
)

var adminCases = []testCase{
	{"InspectOfAFreeKey", testInspectFree},
	{"InspectTellsHoldersAndWaiters", testInspect},
	{"ForceHandsTheKeyOn", testForce},
	{"ForceIsToldToTheHolders", testForceTold},
	{"CheckFindsNothingFatal", testCheck},
}

func testInspectFree(s *suite) {
	a, k := s.open("a"), s.mutex()
	info := s.inspect(a, k)
	require.Equal(s, lease.Info{Key: k.key}, info)
	held := a.get(lease.Held, k.acquire(1))
	a.get(lease.Done, k.release(1))
	require.Equal(s, lease.Info{Key: k.key, Token: held.Last}, s.inspect(a, k))
}

func testInspect(s *suite) {
	all, k := s.openAll("a", "b", "c", "d"), s.readWrite()
	a, b, c, d := all[0], all[1], all[2], all[3]
	a.get(lease.Held, k.acquire(1, shared))
	held := b.get(lease.Held, k.acquire(2, shared, lasting(4*long)))
	c.get(lease.Waiting, k.acquire(3, lasting(2*long)))
	d.get(lease.Waiting, k.acquire(4, shared, lasting(3*long)))
	info := s.inspect(d, k)
	require.Equal(s, lease.ReadWrite, info.Kind)
	require.Equal(s, held.Last, info.Token)
	s.requireHolders(d, k, a.owner(1), b.owner(2))
	s.requireTTL(d, k, a.owner(1), long)
	s.requireTTL(d, k, b.owner(2), 4*long)

	require.Len(s, info.Waiters, 2)
	require.Equal(s, c.owner(3), info.Waiters[0].Owner)
	require.Equal(s, lease.Exclusive, info.Waiters[0].Mode)
	require.Equal(s, 2*long, info.Waiters[0].TTL)
	require.Equal(s, d.owner(4), info.Waiters[1].Owner)
	require.Equal(s, lease.Shared, info.Waiters[1].Mode)
	require.Equal(s, 3*long, info.Waiters[1].TTL)
	require.False(s, info.Waiters[1].Since.Before(info.Waiters[0].Since))

	m := s.mutex()
	a.get(lease.Held, m.acquire(1))
	info = s.inspect(a, m)
	require.Equal(s, lease.Mutex, info.Kind)
	require.Equal(s, lease.Exclusive, info.Holders[0].Mode)
}

func testForce(s *suite) {
	all := s.openAll("a", "b", "c")
	a, b, c := all[0], all[1], all[2]
	for _, of := range renewable(s) {
		k := of.k
		newest := a.get(lease.Held, k.acquire(1, of.changes...)).Last
		b.get(lease.Waiting, k.acquire(1))
		require.NoError(s, c.store.Force(s.Context(), k.key))
		s.requireHolders(c, k, b.owner(1))
		s.requireWaiters(c, k)
		if b.can.Notices {
			require.Greater(s, b.granted(k, 1).First, newest)
		}
		a.get(lease.Lost, k.renew(1))
		b.get(lease.Held, k.renew(1))
		require.NoError(s, c.store.Force(s.Context(), k.key))
		s.requireHolders(c, k)
	}
	require.NoError(s, c.store.Force(s.Context(), s.mutex().key))
}

func testForceTold(s *suite) {
	all := s.openAll("a", "b", "c")
	a, b, c := all[0], all[1], all[2]
	s.skipUnless(a.can.Notices, "notices")
	k := s.mutex()
	a.get(lease.Held, k.acquire(1))
	require.NoError(s, c.store.Force(s.Context(), k.key))
	a.changed(k)

	rw := s.readWrite()
	a.get(lease.Held, rw.acquire(1, shared))
	b.get(lease.Held, rw.acquire(1, shared))
	require.NoError(s, c.store.Force(s.Context(), rw.key))
	a.changed(rw)
	b.changed(rw)

	if a.can.Tracking {
		k := s.mutex()
		a.get(lease.Held, k.acquire(1, watching(a.owner(1))))
		require.NoError(s, a.store.Force(s.Context(), k.key)) // by itself, even
		a.changed(k)
	}
}

func testCheck(s *suite) {
	a := s.open("a")
	problems, err := a.store.Check(s.Context())
	require.NoError(s, err)
	for _, p := range problems {
		require.NotEmpty(s, p.Code)
		require.NotEmpty(s, p.Text)
		require.False(s, p.Fatal, p.Text)
	}
}
