package coordinator

import (
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/go-leasehold/leasehold/lease"
)

// Rule 7: every lease makes at least one local grant; for a want older than the
// grant, budget and slice start at the grant.

func TestRule7EveryLeaseMakesOneGrant(t *testing.T) {
	scripted(t, func(t *testing.T, s *script, c *Coordinator) {
		a, b := lockOf(t, c.Mutex("k")), lockOf(t, c.Mutex("k"))
		q := s.next(lease.Acquire)
		s.emit(lease.Wanted, "k", q.Ticket)
		time.Sleep(time.Second / 2)
		q.reply(lease.Reply{Status: lease.Held, First: 1, Last: 100, Contended: true})
		unlock(t, a.holds()) // though a slice of 0 is over at once
		b.waits()
		r := s.next(lease.Release)
		r.reply(lease.Reply{Status: lease.Held, First: 101, Last: 200, Contended: true})
		unlock(t, b.holds())
		s.next(lease.Release)
	}, WithHandoff(64, 0))
}

func TestRule7BudgetStartsAtTheGrant(t *testing.T) {
	scripted(t, func(t *testing.T, s *script, c *Coordinator) {
		var all []*attempt
		for range 4 {
			all = append(all, lockOf(t, c.Mutex("k")))
		}
		q := s.next(lease.Acquire)
		s.emit(lease.Wanted, "k", q.Ticket)
		q.held(1, 100)
		for _, a := range all[:3] {
			s.quiet(0)
			unlock(t, a.holds())
		}
		all[3].waits()
		s.next(lease.Release)
	}, WithHandoff(3, time.Hour))
}

func TestRule7SliceStartsAtTheGrant(t *testing.T) {
	scripted(t, func(t *testing.T, s *script, c *Coordinator) {
		a, b, d := lockOf(t, c.Mutex("k")), lockOf(t, c.Mutex("k")), lockOf(t, c.Mutex("k"))
		q := s.next(lease.Acquire)
		s.emit(lease.Wanted, "k", q.Ticket)
		time.Sleep(time.Second / 2)
		q.held(1, 100)
		time.Sleep(4 * time.Millisecond)
		unlock(t, a.holds())
		b.holds()
		time.Sleep(time.Millisecond)
		unlock(t, b.holds())
		d.waits() // the slice of 5 ms is over
		s.next(lease.Release)
	})
}

func TestRule7WantDuringTheLeaseCountsFromItself(t *testing.T) {
	scripted(t, func(t *testing.T, s *script, c *Coordinator) {
		a, b, d := lockOf(t, c.Mutex("k")), lockOf(t, c.Mutex("k")), lockOf(t, c.Mutex("k"))
		q := s.next(lease.Acquire)
		q.held(1, 100)
		time.Sleep(time.Second / 2)
		s.emit(lease.Wanted, "k", q.Ticket)
		time.Sleep(4 * time.Millisecond)
		s.emit(lease.Wanted, "k", q.Ticket) // another want does not begin it anew
		unlock(t, a.holds())
		b.holds()
		time.Sleep(time.Millisecond)
		unlock(t, b.holds())
		d.waits()
		s.next(lease.Release)
	})
}

// Rule 8: whom a ticket serves.

func TestRule8TicketHasTheModeOfItsFirstWaiter(t *testing.T) {
	for _, mode := range []lease.Mode{lease.Shared, lease.Exclusive} {
		t.Run(mode.String(), func(t *testing.T) {
			scripted(t, func(t *testing.T, s *script, c *Coordinator) {
				rwOf(t, c, mode, call{wait: -1})
				rwOf(t, c, lease.Shared+lease.Exclusive-mode, call{wait: -1})
				require.Equal(t, mode, s.next(lease.Acquire).Mode)
			})
		})
	}
	t.Run("rejoin", func(t *testing.T) {
		scripted(t, func(t *testing.T, s *script, c *Coordinator) {
			w := rwOf(t, c, lease.Exclusive, call{wait: -1})
			q := s.next(lease.Acquire)
			q.held(1, 100)
			s.emit(lease.Wanted, "k", q.Ticket)
			time.Sleep(10 * time.Millisecond)
			shared(t, c, call{wait: -1})
			rwOf(t, c, lease.Exclusive, call{wait: -1})
			unlock(t, w.holds())
			require.Equal(t, lease.Shared, s.next(lease.Release).Next.Mode)
		})
	})
}

func TestRule8ReadersBehindAWriterAreServedUnderItsLease(t *testing.T) {
	scripted(t, func(t *testing.T, s *script, c *Coordinator) {
		w := rwOf(t, c, lease.Exclusive, call{wait: -1})
		r1, r2 := shared(t, c, call{wait: -1}), shared(t, c, call{wait: -1})
		s.next(lease.Acquire).held(1, 100)
		r1.waits()
		unlock(t, w.holds())
		r1.holds()
		r2.holds() // beside each other
		r3 := shared(t, c, call{wait: -1})
		r3.holds()
		w = rwOf(t, c, lease.Exclusive, call{wait: -1})
		w.waits()
		r4 := shared(t, c, call{wait: -1})
		r4.waits() // behind the writer
		unlock(t, r1.holds())
		unlock(t, r2.holds())
		w.waits()
		unlock(t, r3.holds())
		w.holds()
		r4.waits()
		unlock(t, w.holds())
		r4.holds()
		s.quiet(0)
		require.Equal(t, 1, s.commands())
	})
}

func TestRule8SharedLeaseWhoseFirstWaiterWritesIsExchangedAtOnce(t *testing.T) {
	t.Run("when the last reader leaves", func(t *testing.T) {
		scripted(t, func(t *testing.T, s *script, c *Coordinator) {
			r := shared(t, c, call{wait: -1})
			s.next(lease.Acquire).held(1, 100)
			w := rwOf(t, c, lease.Exclusive, call{wait: -1})
			w.waits()
			s.quiet(time.Millisecond)
			unlock(t, r.holds())
			q := s.next(lease.Release)
			require.Equal(t, lease.Exclusive, q.Next.Mode)
			q.held(101, 200)
			w.holds()
		})
	})
	t.Run("while the lease is idle", func(t *testing.T) {
		scripted(t, func(t *testing.T, s *script, c *Coordinator) {
			r := shared(t, c, call{wait: -1})
			s.next(lease.Acquire).held(1, 100)
			unlock(t, r.holds())
			w := rwOf(t, c, lease.Exclusive, call{wait: -1})
			q := s.next(lease.Release)
			require.Equal(t, lease.Exclusive, q.Next.Mode)
			q.held(101, 200)
			w.holds()
		})
	})
	t.Run("when the readers have gone before the grant", func(t *testing.T) {
		scripted(t, func(t *testing.T, s *script, c *Coordinator) {
			r := shared(t, c, call{wait: time.Second})
			q := s.next(lease.Acquire)
			w := rwOf(t, c, lease.Exclusive, call{wait: -1})
			time.Sleep(time.Second)
			r.fails(ErrUnavailable)
			q.held(1, 100)
			w.waits()
			require.Equal(t, lease.Exclusive, s.next(lease.Release).Next.Mode)
		})
	})
}

func TestRule8ReadersThatCameBeforeTheWantGoFirst(t *testing.T) {
	scripted(t, func(t *testing.T, s *script, c *Coordinator) {
		r1 := shared(t, c, call{wait: -1})
		q := s.next(lease.Acquire)
		q.held(1, 100)
		r2 := shared(t, c, call{wait: -1})
		r2.holds()
		time.Sleep(time.Millisecond)
		s.emit(lease.Wanted, "k", q.Ticket)
		time.Sleep(time.Millisecond)
		r3 := shared(t, c, call{wait: -1})
		r3.waits()
		unlock(t, r1.holds())
		s.quiet(time.Millisecond)
		unlock(t, r2.holds())
		require.Equal(t, lease.Shared, s.next(lease.Release).Next.Mode)
	})
}

// Rule 9: a lease that is lost by time, or granted too late, is still released.

func TestRule9LeaseLostByTimeIsReleased(t *testing.T) {
	for _, others := range []bool{false, true} {
		t.Run(fmt.Sprintf("waiters=%v", others), func(t *testing.T) {
			scripted(t, func(t *testing.T, s *script, c *Coordinator) {
				a := lockOf(t, c.Mutex("k"))
				q := s.next(lease.Acquire)
				q.held(1, 100)
				renewal := s.after(time.Second, lease.Renew)
				var b *attempt
				if others {
					b = lockOf(t, c.Mutex("k"))
				}
				endsIn(t, a.holds(), believed-time.Second, ErrLeaseLost)
				require.ErrorIs(t, a.holds().Unlock(), ErrLeaseLost)
				s.quiet(10 * time.Millisecond)
				renewal.reply(lease.Reply{Status: lease.Held}) // in vain
				r := s.next(lease.Release)
				require.Equal(t, q.Ticket, r.Ticket)
				require.Equal(t, others, r.Next != nil)
				if others {
					b.waits()
					r.held(101, 200)
					b.holds()
				}
			})
		})
	}
}

func TestRule9LeaseGrantedTooLateIsReleased(t *testing.T) {
	t.Run("by reply", func(t *testing.T) {
		scripted(t, func(t *testing.T, s *script, c *Coordinator) {
			a := lockOf(t, c.Mutex("k"))
			q := s.next(lease.Acquire)
			time.Sleep(believed)
			q.held(1, 100)
			a.waits()
			r := s.next(lease.Release)
			require.Equal(t, q.Ticket, r.Ticket)
			r.held(101, 200)
			a.holds()
		})
	})
	t.Run("by message", func(t *testing.T) {
		scripted(t, func(t *testing.T, s *script, c *Coordinator) {
			a := lockOf(t, c.Mutex("k"))
			q := s.next(lease.Acquire)
			q.waits()
			look := s.after(time.Second, lease.Acquire)
			time.Sleep(believed - time.Second)
			s.grant(q.Ticket, 1, 100)
			a.waits()
			look.held(101, 200) // of the same life: it comes too late as well
			a.waits()
			r := s.next(lease.Release)
			require.Equal(t, q.Ticket, r.Ticket)
			require.NotNil(t, r.Next)
		}, WithUnavailableAfter(0))
	})
	t.Run("when nobody waits any more", func(t *testing.T) {
		scripted(t, func(t *testing.T, s *script, c *Coordinator) {
			a := begin(t, func() (*Hold, error) { return c.Mutex("k").TryLockFor(t.Context(), time.Second) })
			q := s.next(lease.Acquire)
			time.Sleep(believed)
			a.fails(ErrUnavailable)
			q.held(1, 100)
			r := s.next(lease.Release)
			require.Equal(t, q.Ticket, r.Ticket)
			require.Nil(t, r.Next)
		})
	})
}

func TestRule9GrantAtTheLastMomentIsUsed(t *testing.T) {
	scripted(t, func(t *testing.T, s *script, c *Coordinator) {
		a := lockOf(t, c.Mutex("k"))
		q := s.next(lease.Acquire)
		time.Sleep(believed - time.Millisecond)
		q.held(1, 100)
		synctest.Wait()
		s.next(lease.Renew) // it is high time
		endsIn(t, a.holds(), time.Millisecond, ErrLeaseLost)
	})
}
