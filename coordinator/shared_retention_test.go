package coordinator

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/go-leasehold/leasehold/lease"
)

// How long a lease is kept that is read under.

// openedLate is opened, with the gate opening a while after the grant.
func openedLate(t *testing.T, s *script, l *ReadWrite) lease.Ticket {
	t.Helper()
	a := reads(t, l)
	q := s.next(lease.Acquire)
	q.held(1, 1000)
	unlock(t, a.holds())
	s.quiet(700 * time.Microsecond)
	unlock(t, reads(t, l).holds())
	require.True(t, isOpen(l.c))
	return q.Ticket
}

func TestGateThatNobodyUsesIsGivenUpAfterARetention(t *testing.T) {
	for _, keep := range []time.Duration{minGateRetention, 50 * time.Millisecond, 900 * time.Millisecond} {
		scripted(t, func(t *testing.T, s *script, c *Coordinator) {
			ticket := openedLate(t, s, c.ReadWrite("k"))
			r := s.after(keep, lease.Release)
			require.Equal(t, ticket, r.Ticket)
			r.end()
			s.quiet(time.Minute)
			require.Empty(t, c.Snapshot().Keys)
		}, WithRetention(keep))
	}
}

func TestGateIsGivenUpWithinTwoRetentionsAfterTheLastRead(t *testing.T) {
	const keep = 50 * time.Millisecond
	for _, last := range []time.Duration{0, 1, keep / 2, keep - 1, keep + 1, 3*keep - 1, 10*keep + keep/3} {
		t.Run(last.String(), func(t *testing.T) {
			scripted(t, func(t *testing.T, s *script, c *Coordinator) {
				l := c.ReadWrite("k")
				openedLate(t, s, l)
				opened := time.Now()
				for time.Since(opened)+keep/2 < last {
					s.quiet(keep / 2)
					unlock(t, passes(t, l))
				}
				s.quiet(time.Until(opened.Add(last)))
				unlock(t, passes(t, l))
				at := time.Now()
				s.within(2*keep, lease.Release).end()
				require.GreaterOrEqual(t, time.Since(at), keep, "it is kept for a retention after the last read")
				require.LessOrEqual(t, time.Since(at), 2*keep)
				s.quiet(time.Minute)
				require.Empty(t, c.Snapshot().Keys)
			}, WithRetention(keep))
		})
	}
}

func TestGateIsNotGivenUpWhileReadsGoOn(t *testing.T) {
	scripted(t, func(t *testing.T, s *script, c *Coordinator) {
		l := c.ReadWrite("k")
		opened(t, s, l, lease.Shared)
		begin := time.Now()
		renewals := 0
		for time.Since(begin) < 10*time.Second {
			time.Sleep(9 * time.Millisecond)
			if q := s.take(); q != nil {
				require.Equal(t, lease.Renew, q.Op)
				q.held(0, 0)
				renewals++
			}
			unlock(t, passes(t, l))
		}
		require.InDelta(t, 10, renewals, 1, "one each third of the TTL")
		s.within(100*time.Millisecond, lease.Release)
	})
}

func TestGateIsNotGivenUpWithAReaderInside(t *testing.T) {
	for name, keep := range map[string]time.Duration{"short": minGateRetention, "usual": 50 * time.Millisecond, "long": time.Minute} {
		t.Run(name, func(t *testing.T) {
			scripted(t, func(t *testing.T, s *script, c *Coordinator) {
				l := c.ReadWrite("k")
				opened(t, s, l, lease.Shared)
				h := passes(t, l)
				for range 5 {
					s.after(time.Second, lease.Renew).held(0, 0)
					require.True(t, isOpen(c))
				}
				require.NoError(t, h.Err())
				unlock(t, h)
				if keep < time.Second {
					s.within(2*keep, lease.Release)
				}
			}, WithRetention(keep))
		})
	}
}

func TestReadsOfTheActorKeepTheLeaseToo(t *testing.T) {
	scripted(t, func(t *testing.T, s *script, c *Coordinator) {
		l := c.ReadWrite("k")
		opened(t, s, l, lease.Shared)
		asking := c.ReadWrite("k", MaxHold(time.Hour))
		for range 10 { // nobody passes the gate
			s.quiet(49 * time.Millisecond)
			unlock(t, asks(t, asking))
		}
		s.within(100*time.Millisecond, lease.Release)
	})
}

func TestEachModeHasItsRetention(t *testing.T) {
	const short, long = 20 * time.Millisecond, 10 * time.Second
	t.Run("shared", func(t *testing.T) {
		scripted(t, func(t *testing.T, s *script, c *Coordinator) {
			l := c.ReadWrite("k")
			ticket := opened(t, s, l, lease.Shared)
			for range 9 {
				s.after(time.Second, lease.Renew).held(0, 0)
			}
			s.quiet(time.Second - 1)
			require.Equal(t, ticket, s.after(1, lease.Release).Ticket)
		}, WithRetention(short), WithSharedRetention(long))
	})
	t.Run("shared, one read", func(t *testing.T) {
		scripted(t, func(t *testing.T, s *script, c *Coordinator) {
			a := reads(t, c.ReadWrite("k"))
			s.next(lease.Acquire).held(1, 100)
			unlock(t, a.holds())
			for range 9 {
				s.after(time.Second, lease.Renew).held(0, 0)
			}
			s.after(time.Second, lease.Release)
		}, WithRetention(short), WithSharedRetention(long))
	})
	t.Run("exclusive", func(t *testing.T) {
		scripted(t, func(t *testing.T, s *script, c *Coordinator) {
			opened(t, s, c.ReadWrite("k"), lease.Exclusive)
			s.after(short, lease.Release)
		}, WithRetention(short), WithSharedRetention(long))
	})
	t.Run("a mutex", func(t *testing.T) {
		scripted(t, func(t *testing.T, s *script, c *Coordinator) {
			a := lockOf(t, c.Mutex("k"))
			s.next(lease.Acquire).held(1, 100)
			unlock(t, a.holds())
			s.after(short, lease.Release)
		}, WithRetention(short), WithSharedRetention(long))
	})
	t.Run("after a downgrade", func(t *testing.T) {
		scripted(t, func(t *testing.T, s *script, c *Coordinator) {
			l := c.ReadWrite("k")
			h, _ := written(t, s, l)
			r := lowered(t, h)
			s.next(lease.Downgrade).held(0, 0)
			unlock(t, r)
			s.after(time.Second, lease.Renew)
		}, WithRetention(short), WithSharedRetention(long))
	})
	t.Run("shorter when shared", func(t *testing.T) {
		scripted(t, func(t *testing.T, s *script, c *Coordinator) {
			l := c.ReadWrite("k")
			opened(t, s, l, lease.Exclusive)
			s.after(time.Second, lease.Renew).held(0, 0)
			h := writes(t, l).holds()
			r := lowered(t, h)
			s.next(lease.Downgrade).held(0, 0)
			unlock(t, r)
			s.after(short, lease.Release)
		}, WithRetention(long), WithSharedRetention(short))
	})
}

func TestWithoutSharedRetentionTheLastUnlockReleases(t *testing.T) {
	scripted(t, func(t *testing.T, s *script, c *Coordinator) {
		l := c.ReadWrite("k")
		a, b := reads(t, l), reads(t, l)
		q := s.next(lease.Acquire)
		q.held(1, 100)
		unlock(t, a.holds())
		d := asks(t, l)
		unlock(t, b.holds())
		s.quiet(100 * time.Millisecond)
		unlock(t, d)
		s.next(lease.Release).end()
		require.Empty(t, c.Snapshot().Keys)

		h, _ := written(t, s, l)
		unlock(t, h) // an exclusive one is retained
		s.after(50*time.Millisecond, lease.Release).end()

		h, _ = written(t, s, l)
		unlock(t, lowered(t, h))
		s.next(lease.Downgrade).held(0, 0)
		s.next(lease.Release)
	}, WithSharedRetention(0))
}

// TestGateThatMayNotOpenAgain has readers inside the gate of an exclusive lease,
// which becomes a shared one that is not retained.
func TestGateThatMayNotOpenAgain(t *testing.T) {
	scripted(t, func(t *testing.T, s *script, c *Coordinator) {
		l := c.ReadWrite("k")
		ticket := opened(t, s, l, lease.Exclusive)
		h, other := passes(t, l), passes(t, l)
		s.emit(lease.Wanted, "k", ticket)
		s.next(lease.Downgrade).held(0, 0)
		require.False(t, isOpen(c))
		asked := asks(t, l)
		unlock(t, h)
		unlock(t, asked)
		s.quiet(500 * time.Millisecond)
		require.NoError(t, other.Err())
		unlock(t, other)
		s.next(lease.Release)
	}, WithSharedRetention(0))
}

func TestKeptLeaseIsGivenUpAtOnce(t *testing.T) {
	for name, ask := range map[string]func(t *testing.T, s *script, l *ReadWrite, ticket lease.Ticket){
		"with a want":      func(_ *testing.T, s *script, _ *ReadWrite, q lease.Ticket) { s.emit(lease.Wanted, "k", q) },
		"with a writer":    func(t *testing.T, _ *script, l *ReadWrite, _ lease.Ticket) { writes(t, l) },
		"with Close":       func(t *testing.T, _ *script, l *ReadWrite, _ lease.Ticket) { closing(t, l.c, time.Minute) },
		"with another use": func(t *testing.T, _ *script, l *ReadWrite, _ lease.Ticket) { lockOf(t, l.c.Mutex("k")) },
	} {
		t.Run(name, func(t *testing.T) {
			scripted(t, func(t *testing.T, s *script, c *Coordinator) {
				l := c.ReadWrite("k")
				ticket := opened(t, s, l, lease.Shared)
				s.after(time.Second, lease.Renew).held(0, 0)
				s.quiet(100 * time.Millisecond)
				ask(t, s, l, ticket)
				require.Equal(t, ticket, s.next(lease.Release).Ticket)
			}, WithSharedRetention(time.Hour))
		})
	}
}

func TestSharedRetentionThatIsNegativeIsRefused(t *testing.T) {
	_, err := NewWithStore(&script{t: t}, WithSharedRetention(-1))
	require.ErrorIs(t, err, ErrInvalid)
	require.ErrorContains(t, err, "WithSharedRetention(-1ns)")
}
