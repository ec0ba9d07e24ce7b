package coordinator

import (
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/go-leasehold/leasehold/lease"
)

// Rule 10: a second grant of a ticket already held.

func TestRule10SecondGrantByReplyRenewsValidityAndContention(t *testing.T) {
	scripted(t, func(t *testing.T, s *script, c *Coordinator) {
		a := lockOf(t, c.Mutex("k"))
		q := s.next(lease.Acquire)
		q.waits()
		look := s.after(time.Second, lease.Acquire)
		time.Sleep(10 * time.Millisecond)
		s.grant(q.Ticket, 1, 100)
		require.Equal(t, believed-1010*time.Millisecond, s.key(c).Valid)
		require.False(t, s.key(c).Wanted)
		time.Sleep(10 * time.Millisecond)
		look.reply(lease.Reply{Status: lease.Held, First: 201, Last: 300, Contended: true})
		require.Equal(t, believed-20*time.Millisecond, s.key(c).Valid)
		require.True(t, s.key(c).Wanted)
		endsIn(t, a.holds(), believed-20*time.Millisecond, ErrLeaseLost)
	})
}

func TestRule10SecondGrantByMessageRenewsContentionOnly(t *testing.T) {
	scripted(t, func(t *testing.T, s *script, c *Coordinator) {
		a := lockOf(t, c.Mutex("k"))
		q := s.next(lease.Acquire)
		time.Sleep(500 * time.Millisecond)
		q.reply(lease.Reply{Status: lease.Held, First: 201, Last: 202, Sent: q.at.Add(400 * time.Millisecond), Resent: true})
		s.next(lease.Renew) // a block of two is short
		s.tell(lease.Event{Type: lease.Granted, Key: "k", Ticket: q.Ticket, First: 101, Last: 200, Contended: true})
		require.True(t, s.key(c).Wanted)
		require.Equal(t, believed-100*time.Millisecond, s.key(c).Valid, "an older grant does not shorten it")
		s.grant(q.Ticket, 301, 400)
		require.EqualValues(t, 201, a.holds().Token())
		b, d := lockOf(t, c.Mutex("k")), lockOf(t, c.Mutex("k"))
		unlock(t, a.holds())
		require.EqualValues(t, 202, b.holds().Token())
		unlock(t, b.holds())
		d.waits() // the tokens of a message that came second are not used
	}, WithHandoff(64, time.Hour))
}

func TestRule10TokensGoOnFromTheBlockInUse(t *testing.T) {
	scripted(t, func(t *testing.T, s *script, c *Coordinator) {
		m := c.Mutex("k")
		a := lockOf(t, m)
		q := s.next(lease.Acquire)
		q.waits()
		look := s.after(time.Second, lease.Acquire)
		s.grant(q.Ticket, 1, 12)
		look.held(21, 32)
		var tokens []uint64
		for range 24 {
			tokens = append(tokens, a.holds().Token())
			b := lockOf(t, m)
			unlock(t, a.holds())
			a = b
		}
		a.waits()
		for i, token := range tokens {
			want := i + 1
			if i >= 12 {
				want = i + 9
			}
			require.EqualValues(t, want, token)
		}
		renewal := s.next(lease.Renew)
		require.Positive(t, renewal.Tokens)
		renewal.held(41, 50)
		require.EqualValues(t, 41, a.holds().Token())
	})
}

func TestRule10LateStillWaitingIsIgnored(t *testing.T) {
	scripted(t, func(t *testing.T, s *script, c *Coordinator) {
		a := lockOf(t, c.Mutex("k"))
		q := s.next(lease.Acquire)
		time.Sleep(10 * time.Millisecond)
		s.grant(q.Ticket, 1, 100)
		h := a.holds()
		time.Sleep(10 * time.Millisecond)
		q.waits()
		require.True(t, h.Valid())
		require.Equal(t, "held", s.key(c).Phase)
		s.after(980*time.Millisecond, lease.Renew)
		endsIn(t, h, believed-time.Second, ErrLeaseLost)
	})
}

// Rule 11: looks with tracking.

func TestRule11HoldLooksOnceAfter100msAndRenewsWithTracking(t *testing.T) {
	tracked(t, func(t *testing.T, s *script, c *Coordinator) {
		a := lockOf(t, c.Mutex("k"))
		q := s.next(lease.Acquire)
		require.Empty(t, q.Watch)
		q.held(1, 100)
		look := s.after(100*time.Millisecond, lease.Renew)
		require.Equal(t, lease.Owner(c.ID(), q.Ticket), look.Watch)
		look.reply(lease.Reply{Status: lease.Held, Watched: true, Present: true})
		for range 3 {
			look = s.after(time.Second, lease.Renew)
			require.Equal(t, lease.Owner(c.ID(), q.Ticket), look.Watch)
			look.reply(lease.Reply{Status: lease.Held, Watched: true, Present: true})
		}
		unlock(t, a.holds())
	})
}

func TestRule11WaitLooksOnceAfter100msAndThenAsUsualWithTracking(t *testing.T) {
	tracked(t, func(t *testing.T, s *script, c *Coordinator) {
		lockOf(t, c.Mutex("k"))
		q := s.next(lease.Acquire)
		require.Empty(t, q.Watch)
		q.waits()
		look := s.after(100*time.Millisecond, lease.Acquire)
		for range 3 {
			require.Equal(t, "other:1", look.Watch)
			r := look.waiting()
			r.Watched, r.Present = true, true
			look.reply(r)
			look = s.after(time.Second, lease.Acquire)
		}
	})
}

func TestRule11NothingIsWatchedBefore100msNorWithoutTracking(t *testing.T) {
	tracked(t, func(t *testing.T, s *script, c *Coordinator) {
		a := lockOf(t, c.Mutex("k"))
		q := s.next(lease.Acquire)
		q.waits()
		s.tell(lease.Event{Type: lease.Connected})
		look := s.next(lease.Acquire)
		require.Empty(t, look.Watch)
		look.waits()
		time.Sleep(99 * time.Millisecond)
		s.grant(q.Ticket, 1, 100)
		time.Sleep(99 * time.Millisecond)
		s.tell(lease.Event{Type: lease.Connected})
		renewal := s.next(lease.Renew)
		require.Empty(t, renewal.Watch)
		renewal.reply(lease.Reply{Status: lease.Held})
		unlock(t, a.holds())
		s.after(50*time.Millisecond, lease.Release).end()
		s.quiet(time.Minute) // short holds cost nothing more
	})
	scripted(t, func(t *testing.T, s *script, c *Coordinator) {
		a := lockOf(t, c.Mutex("k"))
		q := s.next(lease.Acquire)
		q.waits()
		look := s.after(time.Second, lease.Acquire)
		require.Empty(t, look.Watch)
		look.held(1, 100)
		a.holds()
		require.Empty(t, s.after(time.Second, lease.Renew).Watch)
	})
}

func TestRule11HolderLooksAtAChangeAtOnce(t *testing.T) {
	tracked(t, func(t *testing.T, s *script, c *Coordinator) {
		a := lockOf(t, c.Mutex("k"))
		s.next(lease.Acquire).held(1, 100)
		s.after(100*time.Millisecond, lease.Renew).reply(lease.Reply{Status: lease.Held, Watched: true, Present: true})
		ctx := a.holds().Context()
		time.Sleep(33 * time.Millisecond)
		s.emit(lease.Changed, "k", 0)
		s.next(lease.Renew).reply(lease.Reply{Status: lease.Held, Watched: true, Present: true})
		require.NoError(t, ctx.Err())
		s.emit(lease.Changed, "k", 0)
		s.next(lease.Renew).reply(lease.Reply{Status: lease.Lost})
		require.ErrorIs(t, a.holds().Err(), ErrLeaseLost)
		require.Error(t, ctx.Err())
	})
}

func TestRule11HolderThatIsNotPresentLooksAgainAtOnce(t *testing.T) {
	tracked(t, func(t *testing.T, s *script, c *Coordinator) {
		a := lockOf(t, c.Mutex("k"))
		s.next(lease.Acquire).held(1, 100)
		s.after(100*time.Millisecond, lease.Renew).reply(lease.Reply{Status: lease.Held, Watched: true})
		s.next(lease.Renew).reply(lease.Reply{Status: lease.Lost})
		require.ErrorIs(t, a.holds().Unlock(), ErrLeaseLost)
	})
}

func TestRule11WaiterLooksAtAChangeTheLaterTheFurtherBackItStands(t *testing.T) {
	for rank := range 3 {
		t.Run(fmt.Sprint(rank), func(t *testing.T) {
			tracked(t, func(t *testing.T, s *script, c *Coordinator) {
				lockOf(t, c.Mutex("k"))
				q := s.next(lease.Acquire)
				r := q.waiting()
				r.Rank = rank
				q.reply(r)
				q = s.after(100*time.Millisecond, lease.Acquire)
				r.Watched, r.Present, r.Sent = true, true, q.at
				q.reply(r)
				time.Sleep(time.Millisecond)
				s.emit(lease.Changed, "k", 0)
				s.after(5*time.Millisecond*time.Duration(rank), lease.Acquire)
			})
		})
	}
}

func TestRule11WaiterWhoseHolderIsNotPresentLooksAgain(t *testing.T) {
	tracked(t, func(t *testing.T, s *script, c *Coordinator) {
		lockOf(t, c.Mutex("k"))
		s.next(lease.Acquire).waits()
		q := s.after(100*time.Millisecond, lease.Acquire)
		r := q.waiting()
		r.Watched = true // it changed hands between the look and the reading
		q.reply(r)
		s.next(lease.Acquire)
	})
}

func TestRule11ChangeThatOvertakesTheGrantIsLookedInto(t *testing.T) {
	tracked(t, func(t *testing.T, s *script, c *Coordinator) {
		a := lockOf(t, c.Mutex("k"))
		s.next(lease.Acquire).waits()
		q := s.after(100*time.Millisecond, lease.Acquire)
		s.emit(lease.Changed, "k", 0) // granted to us, and deleted
		q.held(1, 100)
		h := a.holds()
		s.next(lease.Renew).reply(lease.Reply{Status: lease.Lost})
		require.ErrorIs(t, h.Err(), ErrLeaseLost)
	})
}

func TestRule11SharedModeLooksIntoChangesAtAPace(t *testing.T) {
	t.Run("holder", func(t *testing.T) {
		tracked(t, func(t *testing.T, s *script, c *Coordinator) {
			shared(t, c, call{wait: -1}).holdsAfter(s)
			q := s.after(100*time.Millisecond, lease.Renew)
			q.reply(lease.Reply{Status: lease.Held, Watched: true, Present: true})
			for range 5 {
				time.Sleep(10 * time.Millisecond)
				s.emit(lease.Changed, "k", 0)
			}
			q = s.after(50*time.Millisecond, lease.Renew)
			q.reply(lease.Reply{Status: lease.Held, Watched: true, Present: true})
			s.quiet(200 * time.Millisecond)
			s.emit(lease.Changed, "k", 0)
			s.next(lease.Renew) // the pace is kept: at once
		})
	})
	t.Run("waiter", func(t *testing.T) {
		tracked(t, func(t *testing.T, s *script, c *Coordinator) {
			shared(t, c, call{wait: -1})
			s.next(lease.Acquire).waits()
			q := s.after(100*time.Millisecond, lease.Acquire)
			r := q.waiting()
			r.Watched, r.Present = true, true
			q.reply(r)
			time.Sleep(10 * time.Millisecond)
			s.emit(lease.Changed, "k", 0)
			s.after(90*time.Millisecond, lease.Acquire)
		})
	})
}

func TestRule11EverythingChangedIsLookedIntoHoldersFirst(t *testing.T) {
	tracked(t, func(t *testing.T, s *script, c *Coordinator) {
		lockOf(t, c.Mutex("waits"))
		s.next(lease.Acquire).waits()
		lockOf(t, c.Mutex("holds"))
		s.next(lease.Acquire).held(1, 100)
		s.tell(lease.Event{Type: lease.ChangedAll})
		synctest.Wait()
		require.Equal(t, "holds", s.next(lease.Renew).Key)
		require.Equal(t, "waits", s.next(lease.Acquire).Key)
	})
}

// Rule 12: where receipts can't be trusted, nobody is taken for dead.

func TestRule12UncertainReceiptIsNotTakenForNobody(t *testing.T) {
	for told, wait := range map[int]time.Duration{0: 0, -1: askFor, 1: askFor} {
		t.Run(fmt.Sprint(told), func(t *testing.T) {
			scripted(t, func(t *testing.T, s *script, c *Coordinator) {
				a := tryOf(t, c.Mutex("k"))
				q := s.next(lease.Acquire)
				r := q.waiting()
				r.Told = told
				q.reply(r)
				s.after(wait, lease.Release)
				a.fails(ErrNotAcquired)
				require.Equal(t, wait, a.took)
			})
		})
	}
}
