package leasetest

import (
	"github.com/stretchr/testify/require"

	"github.com/go-leasehold/leasehold/lease"
)

var kindCases = []testCase{
	{"KindsRefuseEachOther", testKinds},
	{"FreedKeyMayChangeItsKind", testKindChanges},
	{"ForeignValueIsRefused", testForeign},
}

func testKinds(s *suite) {
	all := s.openAll("a", "b")
	a, b := all[0], all[1]
	for _, of := range renewable(s) {
		k := of.k
		other := subject{key: k.key, kind: lease.Mutex + lease.ReadWrite - k.kind}
		a.get(lease.Held, k.acquire(1, of.changes...))
		before := s.inspect(a, k)
		for _, r := range []lease.Request{
			other.acquire(1), other.acquire(1, atOnce), other.release(1, next(2)),
		} {
			_, err := b.try(r)
			require.ErrorIs(s, err, lease.ErrKind, "%v of a %v at a %v", r.Op, other.kind, k.kind)
		}
		_, err := a.try(other.acquire(1)) // though the ticket is the holder's
		require.ErrorIs(s, err, lease.ErrKind)
		s.requireLostOrKind(a, other.renew(1))

		after := s.inspect(a, k)
		require.Equal(s, before.Token, after.Token)
		require.LessOrEqual(s, after.Holders[0].TTL, before.Holders[0].TTL)
		s.requireHolders(a, k, a.owner(1))
		s.requireWaiters(a, k)
		a.get(lease.Held, k.renew(1))
		a.requireNoMessage(k)
	}
}

// requireLostOrKind takes either answer: both say that the lease is not there.
func (s *suite) requireLostOrKind(c *client, r lease.Request) {
	s.Helper()
	reply, err := c.try(r)
	if err != nil {
		require.ErrorIs(s, err, lease.ErrKind)
		return
	}
	require.Equal(s, lease.Lost, reply.Status)
}

func testKindChanges(s *suite) {
	a, k := s.open("a"), s.mutex()
	other := subject{key: k.key, kind: lease.ReadWrite}
	a.get(lease.Held, k.acquire(1))
	a.get(lease.Done, k.release(1))
	a.get(lease.Held, other.acquire(2, shared))
	require.Equal(s, lease.ReadWrite, s.inspect(a, k).Kind)
	a.get(lease.Done, other.release(2))
	a.get(lease.Held, k.acquire(3))
	require.Equal(s, lease.Mutex, s.inspect(a, k).Kind)
}

func testForeign(s *suite) {
	s.skipUnless(s.env.Put != nil && s.env.Intact != nil, "foreign values")
	a := s.open("a")
	for _, k := range []subject{s.mutex(), s.readWrite()} {
		s.env.Put(k.key)
		for _, r := range []lease.Request{
			k.acquire(1), k.acquire(1, atOnce), k.release(1, next(2)),
		} {
			_, err := a.try(r)
			require.ErrorIs(s, err, lease.ErrKind, "%v", r.Op)
			require.True(s, s.env.Intact(k.key), "%v", r.Op)
		}
		s.requireLostOrKind(a, k.renew(1))
		if reply, err := a.try(k.release(1)); err != nil {
			require.ErrorIs(s, err, lease.ErrKind)
		} else {
			require.Equal(s, lease.Done, reply.Status)
		}
		if k.kind == lease.ReadWrite {
			s.requireLostOrKind(a, k.downgrade(1))
		}
		_, err := a.store.Inspect(s.Context(), k.key)
		require.ErrorIs(s, err, lease.ErrKind)
		require.ErrorIs(s, a.store.Force(s.Context(), k.key), lease.ErrKind)
		require.True(s, s.env.Intact(k.key))
		if s.env.Delete != nil {
			s.env.Delete(k.key)
			a.get(lease.Held, k.acquire(1))
			s.requireWaiters(a, k)
		}
	}
}
