package coordinator

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/go-leasehold/leasehold/lease"
)

// Downgrades while others wait, and those that the actor makes because they do.

func TestWantAndDowngrade(t *testing.T) {
	type step = func(s *script, q *sent, ticket lease.Ticket)
	for name, x := range map[string]struct {
		answer step
		wanted bool
	}{
		"its answer says that nobody waits": {func(_ *script, q *sent, _ lease.Ticket) { q.held(0, 0) }, false},
		"its answer says that writers wait": {func(_ *script, q *sent, _ lease.Ticket) {
			q.reply(lease.Reply{Status: lease.Held, Waiters: 2})
		}, true},
		"somebody came after it was sent": {func(s *script, q *sent, ticket lease.Ticket) {
			s.emit(lease.Wanted, "k", ticket)
			q.held(0, 0)
		}, true},
	} {
		t.Run(name, func(t *testing.T) {
			scripted(t, func(t *testing.T, s *script, c *Coordinator) {
				l := c.ReadWrite("k")
				h, ticket := written(t, s, l)
				s.emit(lease.Wanted, "k", ticket)
				s.quiet(time.Millisecond)
				r := lowered(t, h)
				q := s.next(lease.Downgrade)
				time.Sleep(time.Millisecond)
				later := reads(t, l)
				later.waits() // who wants it may be a writer
				x.answer(s, q, ticket)
				require.Equal(t, x.wanted, s.key(c).Wanted)
				if !x.wanted {
					later.holds()
					unlock(t, asks(t, l))
					passes(t, l)
					return
				}
				later.waits()
				s.quiet(0)
				unlock(t, r) // it yields at once
				q = s.next(lease.Release)
				require.Equal(t, ticket, q.Ticket)
				require.Equal(t, lease.Shared, q.Next.Mode)
			})
		})
	}
}

func TestYieldRightAfterADowngrade(t *testing.T) {
	scripted(t, func(t *testing.T, s *script, c *Coordinator) {
		l := c.ReadWrite("k")
		h, ticket := written(t, s, l)
		s.emit(lease.Wanted, "k", ticket)
		unlock(t, lowered(t, h))
		q := s.next(lease.Downgrade)
		s.quiet(10 * time.Millisecond) // one command at a time
		q.reply(lease.Reply{Status: lease.Held, Waiters: 1})
		s.next(lease.Release).end()
		require.Empty(t, c.Snapshot().Keys)
	})
}

// often makes the process one that writes often, under a lease that is here.
func often(t *testing.T, l *ReadWrite) {
	t.Helper()
	for range 2 {
		unlock(t, writes(t, l).holds())
	}
	for range 2 {
		unlock(t, reads(t, l).holds())
	}
	require.True(t, isOpen(l.c))
}

func TestWantUnderReadersWithAnExclusiveLeaseDowngradesIt(t *testing.T) {
	for name, ask := range map[string]bool{"inside the gate": false, "of the actor": true} {
		t.Run(name, func(t *testing.T) {
			scripted(t, func(t *testing.T, s *script, c *Coordinator) {
				l := c.ReadWrite("k")
				ticket := opened(t, s, l, lease.Exclusive)
				h, other := passes(t, l), passes(t, l)
				if ask {
					h.Context()
					unlock(t, other)
				}
				s.emit(lease.Wanted, "k", ticket)
				q := s.next(lease.Downgrade)
				require.Equal(t, ticket, q.Ticket)
				require.Equal(t, lease.Shared, s.key(c).Mode)
				require.False(t, isOpen(c))
				w := begin(t, func() (*Hold, error) { return l.TryLockFor(t.Context(), lease.Exclusive, time.Millisecond) })
				s.quiet(time.Millisecond)
				w.fails(ErrNotAcquired)
				later := reads(t, l)
				later.waits() // who wants it may be a writer
				q.held(0, 0)
				unlock(t, later.holds()) // it was not
				require.NoError(t, h.Err())
				require.True(t, isOpen(c))
				unlock(t, passes(t, l))
				s.quiet(10 * time.Millisecond)
				s.emit(lease.Wanted, "k", ticket) // a writer, this time
				s.quiet(0)                        // there is nothing to lower any more
				unlock(t, h)
				if !ask {
					unlock(t, other)
				}
				r := s.next(lease.Release)
				require.Equal(t, ticket, r.Ticket)
			})
		})
	}
}

func TestWantDoesNotDowngradeWhereAWriterWaitsHere(t *testing.T) {
	for name, slow := range map[string]bool{"that has its turn": false, "whose turn is over": true} {
		t.Run(name, func(t *testing.T) {
			scripted(t, func(t *testing.T, s *script, c *Coordinator) {
				l := c.ReadWrite("k")
				ticket := opened(t, s, l, lease.Exclusive)
				h := passes(t, l)
				s.quiet(200 * time.Millisecond) // it does not write often
				w := writes(t, l)
				later := reads(t, l)
				s.emit(lease.Wanted, "k", ticket)
				s.quiet(time.Millisecond)
				w.waits()
				if slow {
					s.quiet(10 * time.Millisecond) // longer than the slice
				}
				unlock(t, h)
				if slow {
					r := s.next(lease.Release)
					require.Equal(t, lease.Exclusive, r.Next.Mode)
					return
				}
				require.NoError(t, w.holds().Err())
				later.waits()
				s.quiet(0)
				unlock(t, w.holds())
				later.holds() // readers come in after a writer, as long as the turn lasts
				q := s.next(lease.Downgrade)
				q.reply(lease.Reply{Status: lease.Held, Waiters: 1})
				unlock(t, later.holds())
				s.next(lease.Release)
			})
		})
	}
}

func TestWantDoesNotDowngradeUnderAWriter(t *testing.T) {
	scripted(t, func(t *testing.T, s *script, c *Coordinator) {
		l := c.ReadWrite("k")
		h, ticket := written(t, s, l)
		in, err := l.Lock(h.Context(), lease.Shared)
		require.NoError(t, err)
		s.emit(lease.Wanted, "k", ticket)
		s.quiet(500 * time.Millisecond)
		unlock(t, h) // now only a reader is inside
		s.next(lease.Downgrade).held(0, 0)
		require.NoError(t, in.Err())
	})
}

func TestWantDoesNotDowngradeAMutex(t *testing.T) {
	scripted(t, func(t *testing.T, s *script, c *Coordinator) {
		a := lockOf(t, c.Mutex("k"))
		q := s.next(lease.Acquire)
		q.held(1, 100)
		s.emit(lease.Wanted, "k", q.Ticket)
		s.quiet(500 * time.Millisecond)
		unlock(t, a.holds())
		s.next(lease.Release)
	})
}

func TestProcessThatWritesOftenKeepsItsTurnWithReadersInside(t *testing.T) {
	scripted(t, func(t *testing.T, s *script, c *Coordinator) {
		l := c.ReadWrite("k")
		ticket := opened(t, s, l, lease.Exclusive)
		often(t, l)
		h := passes(t, l)
		s.emit(lease.Wanted, "k", ticket)
		require.True(t, isOpen(c))
		for range 4 { // to the end of its slice
			unlock(t, passes(t, l))
			s.quiet(time.Millisecond)
		}
		w := writes(t, l)
		inside := reads(t, l)
		unlock(t, h)
		unlock(t, w.holds()) // of the same turn
		h = inside.holds()
		q := s.after(time.Millisecond, lease.Downgrade) // a reader still inside keeps no others out
		require.Equal(t, ticket, q.Ticket)
		require.False(t, isOpen(c))
		later := reads(t, l)
		later.waits()
		q.reply(lease.Reply{Status: lease.Held, Waiters: 1})
		later.waits()
		unlock(t, h)
		s.next(lease.Release)
	})
}

func TestTurnThatNobodyUsesIsNotKept(t *testing.T) {
	scripted(t, func(t *testing.T, s *script, c *Coordinator) {
		l := c.ReadWrite("k")
		ticket := opened(t, s, l, lease.Exclusive)
		often(t, l)
		s.emit(lease.Wanted, "k", ticket)
		q := s.within(2*time.Millisecond, lease.Release)
		require.Equal(t, ticket, q.Ticket)
	})
}

func TestDowngradeIsFollowedByALookWithTracking(t *testing.T) {
	tracked(t, func(t *testing.T, s *script, c *Coordinator) {
		l := c.ReadWrite("k")
		h, ticket := written(t, s, l)
		s.after(checkHoldAfter, lease.Renew).reply(lease.Reply{Status: lease.Held, Watched: true, Present: true})
		r := lowered(t, h)
		q := s.next(lease.Downgrade)
		require.Empty(t, q.Watch, "it changes the key, which ends the tracking")
		q.held(0, 0)
		q = s.within(checkHoldAfter, lease.Renew)
		require.Equal(t, lease.Owner(c.ID(), ticket), q.Watch)
		q.reply(lease.Reply{Status: lease.Held, Watched: true, Present: true})
		s.quiet(500 * time.Millisecond)
		require.NoError(t, r.Err())
	})
}
