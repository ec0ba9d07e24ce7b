package coordinator

import (
	"errors"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/go-leasehold/leasehold/lease"
)

var errStore = errors.New("the store is away")

// Rule 1: what a grant's validity counts from.

func TestRule1MessageGrantCountsFromAnsweredLook(t *testing.T) {
	scripted(t, func(t *testing.T, s *script, c *Coordinator) {
		a := lockOf(t, c.Mutex("k"))
		q := s.next(lease.Acquire)
		time.Sleep(10 * time.Millisecond)
		q.waits()
		look := s.after(990*time.Millisecond, lease.Acquire) // TTL/3 after the first was sent
		time.Sleep(20 * time.Millisecond)
		look.waits()
		time.Sleep(480 * time.Millisecond)
		s.grant(q.Ticket, 1, 100) // 500 ms after the look was sent
		endsIn(t, a.holds(), believed-500*time.Millisecond, ErrLeaseLost)
	})
}

func TestRule1MessageGrantBeforeAnyAnswerCountsFromFirstSending(t *testing.T) {
	scripted(t, func(t *testing.T, s *script, c *Coordinator) {
		begin := time.Now()
		a := lockOf(t, c.Mutex("k"))
		q := s.next(lease.Acquire)
		time.Sleep(100 * time.Millisecond)
		q.fail(errStore)
		q = s.within(time.Second, lease.Acquire)
		time.Sleep(300 * time.Millisecond)
		s.grant(q.Ticket, 1, 100)
		endsIn(t, a.holds(), believed-time.Since(begin), ErrLeaseLost)
	})
}

func TestRule1MessageGrantOfNextCountsFromSendingOfTheRelease(t *testing.T) {
	scripted(t, func(t *testing.T, s *script, c *Coordinator) {
		a := lockOf(t, c.Mutex("k"))
		q := s.next(lease.Acquire)
		q.held(1, 100)
		b := lockOf(t, c.Mutex("k"))
		time.Sleep(200 * time.Millisecond)
		s.emit(lease.Wanted, "k", q.Ticket)
		time.Sleep(200 * time.Millisecond) // more than the slice
		unlock(t, a.holds())
		r := s.next(lease.Release)
		require.NotNil(t, r.Next)
		time.Sleep(400 * time.Millisecond)
		s.grant(r.Next.Ticket, 201, 300)
		endsIn(t, b.holds(), believed-400*time.Millisecond, ErrLeaseLost)
	})
}

func TestRule1MessageGrantNeverCountsFromAnUnansweredLook(t *testing.T) {
	scripted(t, func(t *testing.T, s *script, c *Coordinator) {
		a := lockOf(t, c.Mutex("k"))
		q := s.next(lease.Acquire)
		q.waits()
		s.after(time.Second, lease.Acquire) // is never answered
		time.Sleep(200 * time.Millisecond)
		s.grant(q.Ticket, 1, 100)
		endsIn(t, a.holds(), believed-1200*time.Millisecond, ErrLeaseLost)
	})
}

func TestRule1MessageGrantThatIsNotNewerThanTheAnswerIsIgnored(t *testing.T) {
	scripted(t, func(t *testing.T, s *script, c *Coordinator) {
		a := lockOf(t, c.Mutex("k"))
		q := s.next(lease.Acquire)
		r := q.waiting()
		r.Token = 500
		q.reply(r)
		s.grant(q.Ticket, 400, 499)
		a.waits()
		s.grant(q.Ticket, 500, 599)
		a.waits()
		s.quiet(0) // it is not answered either: it may be the lease that is to come
		s.grant(q.Ticket, 501, 600)
		require.EqualValues(t, 501, a.holds().Token())
	})
}

func TestRule1ReplyGrantCountsFromTheCopyThatWasAnswered(t *testing.T) {
	t.Run("the first", func(t *testing.T) {
		scripted(t, func(t *testing.T, s *script, c *Coordinator) {
			a := lockOf(t, c.Mutex("k"))
			q := s.next(lease.Acquire)
			time.Sleep(900 * time.Millisecond)
			q.held(1, 100)
			endsIn(t, a.holds(), believed-900*time.Millisecond, ErrLeaseLost)
		})
	})
	t.Run("a later one", func(t *testing.T) {
		scripted(t, func(t *testing.T, s *script, c *Coordinator) {
			a := lockOf(t, c.Mutex("k"))
			q := s.next(lease.Acquire)
			time.Sleep(900 * time.Millisecond)
			q.reply(lease.Reply{
				Status: lease.Held, First: 1, Last: 100, Sent: q.at.Add(600 * time.Millisecond), Resent: true,
			})
			endsIn(t, a.holds(), believed-300*time.Millisecond, ErrLeaseLost)
		})
	})
	t.Run("of a renewal", func(t *testing.T) {
		scripted(t, func(t *testing.T, s *script, c *Coordinator) {
			a := lockOf(t, c.Mutex("k"))
			s.next(lease.Acquire).held(1, 100)
			q := s.after(time.Second, lease.Renew)
			time.Sleep(700 * time.Millisecond)
			q.reply(lease.Reply{Status: lease.Held, Sent: q.at.Add(200 * time.Millisecond), Resent: true})
			s.after(500*time.Millisecond, lease.Renew) // TTL/3 after that copy
			endsIn(t, a.holds(), believed-time.Second, ErrLeaseLost)
		})
	})
}

func TestRule1MessageGrantCountsFromTheAnsweredCopyOfTheLook(t *testing.T) {
	scripted(t, func(t *testing.T, s *script, c *Coordinator) {
		a := lockOf(t, c.Mutex("k"))
		q := s.next(lease.Acquire)
		time.Sleep(900 * time.Millisecond)
		r := q.waiting()
		r.Sent, r.Resent = q.at.Add(600*time.Millisecond), true
		q.reply(r)
		time.Sleep(100 * time.Millisecond)
		s.grant(q.Ticket, 1, 100)
		endsIn(t, a.holds(), believed-400*time.Millisecond, ErrLeaseLost)
	})
}

// Rule 2: a ticket is retired the moment its release or withdrawal is sent.

func TestRule2GrantAfterTheReleaseWasSentIsNotUsed(t *testing.T) {
	scripted(t, func(t *testing.T, s *script, c *Coordinator) {
		a := lockOf(t, c.Mutex("k"))
		q := s.next(lease.Acquire)
		q.held(1, 100)
		b := lockOf(t, c.Mutex("k"))
		s.emit(lease.Wanted, "k", q.Ticket)
		time.Sleep(10 * time.Millisecond)
		unlock(t, a.holds())
		r := s.next(lease.Release)
		s.grant(q.Ticket, 101, 200)
		b.waits()
		r.waits()
		s.grant(q.Ticket, 101, 200) // also when the release is answered
		b.waits()
		require.Equal(t, q.Ticket, s.next(lease.Release).Ticket)
		s.grant(r.Next.Ticket, 201, 300)
		require.EqualValues(t, 201, b.holds().Token())
	})
}

func TestRule2GrantAfterTheWithdrawalWasSentIsNotUsed(t *testing.T) {
	scripted(t, func(t *testing.T, s *script, c *Coordinator) {
		a := begin(t, func() (*Hold, error) { return c.Mutex("k").TryLockFor(t.Context(), 100*time.Millisecond) })
		q := s.next(lease.Acquire)
		q.waits()
		r := s.after(100*time.Millisecond, lease.Release)
		a.fails(ErrNotAcquired)
		require.Equal(t, q.Ticket, r.Ticket)
		require.Nil(t, r.Next)
		b := lockOf(t, c.Mutex("k"))
		s.grant(q.Ticket, 1, 100)
		b.waits()
		r.end()
		again := s.next(lease.Acquire)
		require.NotEqual(t, q.Ticket, again.Ticket)
		again.held(101, 200)
		b.holds()
	})
}

// Rule 3: a want may overtake the reply that it belongs to.

func TestRule3WantBeforeTheGrantIsRemembered(t *testing.T) {
	for name, early := range map[string]bool{"while acquiring": true, "while queued": false} {
		t.Run(name, func(t *testing.T) {
			scripted(t, func(t *testing.T, s *script, c *Coordinator) {
				a, b := lockOf(t, c.Mutex("k")), lockOf(t, c.Mutex("k"))
				q := s.next(lease.Acquire)
				if early {
					s.emit(lease.Wanted, "k", q.Ticket)
				}
				q.waits()
				if !early {
					s.emit(lease.Wanted, "k", q.Ticket)
				}
				s.grant(q.Ticket, 1, 100)
				unlock(t, a.holds())
				require.Equal(t, q.Ticket, s.next(lease.Release).Ticket, "the budget of 1 is used up")
				b.waits()
			}, WithHandoff(1, time.Second))
		})
	}
	t.Run("while next of a release", func(t *testing.T) {
		scripted(t, func(t *testing.T, s *script, c *Coordinator) {
			a, b := lockOf(t, c.Mutex("k")), lockOf(t, c.Mutex("k"))
			q := s.next(lease.Acquire)
			q.reply(lease.Reply{Status: lease.Held, First: 1, Last: 100, Contended: true})
			unlock(t, a.holds())
			r := s.next(lease.Release)
			s.emit(lease.Wanted, "k", r.Next.Ticket)
			r.held(201, 300)
			unlock(t, b.holds())
			require.Equal(t, r.Next.Ticket, s.next(lease.Release).Ticket, "it is given up at once")
		}, WithHandoff(1, time.Second))
	})
}
