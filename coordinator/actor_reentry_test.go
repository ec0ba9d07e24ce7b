package coordinator

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/go-leasehold/leasehold/lease"
)

// Re-entry: the identity is in the context.

func TestReentryKeepsTheTokenAndTheLockUntilTheLastUnlock(t *testing.T) {
	scripted(t, func(t *testing.T, s *script, c *Coordinator) {
		a := lockOf(t, c.Mutex("k"))
		s.next(lease.Acquire).held(1, 100)
		h := a.holds()
		b := lockOf(t, c.Mutex("k"))
		var all []*Hold
		ctx := h.Context()
		for i := range 3 {
			in, err := c.Mutex("k").TryLock(ctx)
			require.NoError(t, err)
			require.Equal(t, h.Token(), in.Token())
			require.Equal(t, i+2, in.Count())
			all = append(all, in)
			ctx = in.Context()
		}
		unlock(t, h) // in any order
		require.ErrorIs(t, h.Unlock(), ErrNotHeld)
		require.Zero(t, h.Count())
		require.NoError(t, all[0].Err())
		for i, in := range all {
			b.waits()
			require.Equal(t, 3-i, in.Count())
			unlock(t, in)
		}
		require.EqualValues(t, 2, b.holds().Token())
		require.Equal(t, 1, s.commands())
	})
}

func TestLossEndsEveryHandle(t *testing.T) {
	scripted(t, func(t *testing.T, s *script, c *Coordinator) {
		a := lockOf(t, c.Mutex("k"))
		s.next(lease.Acquire).held(1, 100)
		h := a.holds()
		in, err := c.Mutex("k").Lock(h.Context())
		require.NoError(t, err)
		outer, inner := h.Context(), in.Context()
		s.after(time.Second, lease.Renew).reply(lease.Reply{Status: lease.Lost})
		require.ErrorIs(t, context.Cause(outer), ErrLeaseLost)
		require.ErrorIs(t, context.Cause(inner), ErrLeaseLost)
		require.ErrorIs(t, in.Unlock(), ErrLeaseLost)
		require.ErrorIs(t, h.Unlock(), ErrLeaseLost)
		again := begin(t, func() (*Hold, error) { return c.Mutex("k").Lock(context.WithoutCancel(inner)) })
		again.waits() // it is not inside any more
		s.next(lease.Acquire).held(101, 200)
		require.EqualValues(t, 101, again.holds().Token())
	})
}

func TestWithOwnerFixesTheIdentity(t *testing.T) {
	scripted(t, func(t *testing.T, s *script, c *Coordinator) {
		ctx := WithOwner(t.Context())
		a := begin(t, func() (*Hold, error) { return c.Mutex("k").Lock(ctx) })
		s.next(lease.Acquire).held(1, 100)
		h := a.holds()
		for range 2 {
			in, err := c.Mutex("k").Lock(ctx)
			require.NoError(t, err)
			require.Equal(t, h.Token(), in.Token())
		}
		require.Equal(t, 3, h.Count())
		other := begin(t, func() (*Hold, error) { return c.Mutex("k").TryLock(WithOwner(t.Context())) })
		other.fails(ErrNotAcquired)
	})
}

func TestHoldsOfOneContextAreNotOneOwner(t *testing.T) {
	scripted(t, func(t *testing.T, s *script, c *Coordinator) {
		a := lockOf(t, c.Mutex("k"))
		s.next(lease.Acquire).held(1, 100)
		a.holds()
		tryOf(t, c.Mutex("k")).fails(ErrNotAcquired)
	})
}

func TestOwnersOfSeveralKeysEnterAllOfThem(t *testing.T) {
	scripted(t, func(t *testing.T, s *script, c *Coordinator) {
		h := lockOf(t, c.Mutex("k")).holdsAfter(s)
		b := begin(t, func() (*Hold, error) { return c.Mutex("l").Lock(h.Context()) })
		s.next(lease.Acquire).held(1, 100)
		for _, key := range []string{"k", "l"} {
			in, err := c.Mutex(key).Lock(b.holds().Context())
			require.NoError(t, err)
			require.Equal(t, 2, in.Count())
		}
		_, err := c.Mutex("l").TryLock(h.Context()) // the outer one is not inside the inner
		require.ErrorIs(t, err, ErrNotAcquired)
	})
}

func TestWriterMayRead(t *testing.T) {
	scripted(t, func(t *testing.T, s *script, c *Coordinator) {
		w := rwOf(t, c, lease.Exclusive, call{wait: -1})
		s.next(lease.Acquire).held(1, 100)
		h := w.holds()
		r, err := acquire(h.Context(), c, "k", lease.ReadWrite, lease.Shared, &mutexConfig{ttl: c.conf.ttl}, call{wait: -1})
		require.NoError(t, err)
		require.Equal(t, h.Token(), r.Token())
		other := shared(t, c, call{wait: -1})
		unlock(t, r)
		other.waits()
		unlock(t, h)
		other.holds()
	})
}

func TestReaderThatAsksToWriteIsRefusedAtOnce(t *testing.T) {
	for name, how := range map[string]call{"wait": {wait: -1}, "try": {try: true, wait: -1}, "for": {wait: time.Hour}} {
		t.Run(name, func(t *testing.T) {
			scripted(t, func(t *testing.T, s *script, c *Coordinator) {
				r := shared(t, c, call{wait: -1}).holdsAfter(s)
				conf := &mutexConfig{ttl: c.conf.ttl}
				w := begin(t, func() (*Hold, error) {
					return acquire(r.Context(), c, "k", lease.ReadWrite, lease.Exclusive, conf, how)
				})
				require.Zero(t, w.fails(ErrUpgrade).Waited)
				require.True(t, r.Valid())
				require.Equal(t, 1, r.Count())
				s.quiet(0)
			})
		})
	}
}

// A key has one kind at a time.

func TestKindsExcludeEachOther(t *testing.T) {
	scripted(t, func(t *testing.T, s *script, c *Coordinator) {
		a := lockOf(t, c.Mutex("k"))
		shared(t, c, call{wait: -1}).fails(ErrKind) // one waits
		s.next(lease.Acquire).held(1, 100)
		shared(t, c, call{wait: -1}).fails(ErrKind) // one holds
		unlock(t, a.holds())
	})
}

func TestReentryOfAnotherKindIsRefused(t *testing.T) {
	scripted(t, func(t *testing.T, s *script, c *Coordinator) {
		h := lockOf(t, c.Mutex("k")).holdsAfter(s)
		r := begin(t, func() (*Hold, error) {
			return acquire(h.Context(), c, "k", lease.ReadWrite, lease.Shared, &mutexConfig{ttl: c.conf.ttl}, call{wait: -1})
		})
		r.fails(ErrKind)
		require.Equal(t, 1, h.Count())
	})
}

func TestKindOfTheStoreIsRefused(t *testing.T) {
	scripted(t, func(t *testing.T, s *script, c *Coordinator) {
		a, b := lockOf(t, c.Mutex("k")), lockOf(t, c.Mutex("k"))
		s.next(lease.Acquire).fail(lease.ErrKind)
		a.fails(ErrKind)
		b.fails(ErrKind)
		s.quiet(time.Minute)
		require.Empty(t, c.Snapshot().Keys)
	})
}

func TestKeyThatBecameSomethingElseIsLost(t *testing.T) {
	scripted(t, func(t *testing.T, s *script, c *Coordinator) {
		h := lockOf(t, c.Mutex("k")).holdsAfter(s)
		s.after(time.Second, lease.Renew).fail(lease.ErrKind)
		require.ErrorIs(t, h.Unlock(), ErrLeaseLost)
		require.ErrorIs(t, h.Unlock(), ErrKind)
	})
}

func TestKindChangeAcquiresAsTheNewKind(t *testing.T) {
	scripted(t, func(t *testing.T, s *script, c *Coordinator) {
		unlock(t, lockOf(t, c.Mutex("k")).holdsAfter(s))
		r := shared(t, c, call{wait: -1}) // the mutex is merely retained
		q := s.next(lease.Release)
		require.Equal(t, lease.Mutex, q.Kind)
		require.Nil(t, q.Next, "it would be acquired as a mutex")
		q.end()
		q = s.next(lease.Acquire)
		require.Equal(t, lease.ReadWrite, q.Kind)
		require.Equal(t, lease.Shared, q.Mode)
		q.held(101, 200)
		r.holds()
	})
}

func TestKindChangeWhileAnAcquireIsOnItsWay(t *testing.T) {
	for _, status := range []lease.Status{lease.Waiting, lease.Held} {
		t.Run(status.String(), func(t *testing.T) {
			scripted(t, func(t *testing.T, s *script, c *Coordinator) {
				ctx, cancel := context.WithCancel(t.Context())
				a := begin(t, func() (*Hold, error) { return c.Mutex("k").Lock(ctx) })
				old := s.next(lease.Acquire)
				cancel()
				a.fails(context.Canceled)
				r := shared(t, c, call{wait: -1})
				if status == lease.Held {
					old.held(1, 100)
				} else {
					old.waits()
				}
				r.waits()
				q := s.next(lease.Release)
				require.Equal(t, old.Ticket, q.Ticket)
				require.Equal(t, lease.Mutex, q.Kind)
				q.end()
				q = s.next(lease.Acquire)
				require.Equal(t, lease.ReadWrite, q.Kind)
				require.NotEqual(t, old.Ticket, q.Ticket)
				q.held(101, 200)
				r.holds()
			})
		})
	}
}

func TestKindChangeOfAReSentAcquireReleasesItOnceMore(t *testing.T) {
	answers := map[string]func(q *sent){
		"by the actor": func(q *sent) { q.fail(errStore) },
		"by the store": func(q *sent) { r := q.waiting(); r.Resent = true; q.reply(r) },
		"never":        func(q *sent) { q.waits() },
	}
	for how, answer := range answers {
		t.Run(how, func(t *testing.T) {
			scripted(t, func(t *testing.T, s *script, c *Coordinator) {
				ctx, cancel := context.WithCancel(t.Context())
				a := begin(t, func() (*Hold, error) { return c.Mutex("k").Lock(ctx) })
				old := s.next(lease.Acquire)
				cancel()
				a.fails(context.Canceled)
				r := shared(t, c, call{wait: -1})
				answer(old)
				q := s.within(time.Second, lease.Release)
				require.Equal(t, old.Ticket, q.Ticket)
				s.grant(old.Ticket, 1, 100) // of the late copy, perhaps
				q.end()
				if how != "never" {
					q = s.next(lease.Release)
					require.Equal(t, old.Ticket, q.Ticket)
					q.end()
				}
				s.next(lease.Acquire).held(101, 200)
				require.EqualValues(t, 101, r.holds().Token())
			})
		})
	}
}

func TestOrphanOfUnknownKindIsReleasedAsEither(t *testing.T) {
	scripted(t, func(t *testing.T, s *script, c *Coordinator) {
		s.emit(lease.Wanted, "k", 77)
		q := s.next(lease.Release)
		q.fail(lease.ErrKind)
		other := s.next(lease.Release)
		require.Equal(t, lease.Ticket(77), other.Ticket)
		require.NotEqual(t, q.Kind, other.Kind)
		other.fail(lease.ErrKind)
		s.quiet(time.Minute)
		require.Empty(t, c.Snapshot().Keys)
	})
}
