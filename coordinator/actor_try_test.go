package coordinator

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/go-leasehold/leasehold/lease"
)

// TryLock and retention: a key that another process merely retains is not held.

func TestTryLockAsksAndGetsWhatIsMerelyRetained(t *testing.T) {
	scripted(t, func(t *testing.T, s *script, c *Coordinator) {
		a := tryOf(t, c.Mutex("k"))
		q := s.next(lease.Acquire)
		require.True(t, q.Queue)
		require.True(t, q.Ask)
		q.waits()
		time.Sleep(49 * time.Millisecond)
		s.grant(q.Ticket, 1, 100)
		unlock(t, a.holds())
	})
}

func TestTryLockGrantMayComeBeforeTheAnswer(t *testing.T) {
	scripted(t, func(t *testing.T, s *script, c *Coordinator) {
		a := tryOf(t, c.Mutex("k"))
		q := s.next(lease.Acquire)
		s.grant(q.Ticket, 1, 100)
		h := a.holds()
		q.waits()
		require.True(t, h.Valid())
	})
}

func TestTryLockIsRefusedWhenTheHolderIsBusyAndWithdraws(t *testing.T) {
	scripted(t, func(t *testing.T, s *script, c *Coordinator) {
		a := tryOf(t, c.Mutex("k"))
		q := s.next(lease.Acquire)
		q.waits()
		time.Sleep(3 * time.Millisecond)
		s.emit(lease.InUse, "k", q.Ticket)
		w := a.fails(ErrNotAcquired)
		require.Equal(t, "other:1", w.Holder)
		require.Equal(t, 3*time.Millisecond, w.Waited)
		r := s.next(lease.Release)
		require.Equal(t, q.Ticket, r.Ticket)
		require.Nil(t, r.Next)
		r.end()
		s.quiet(time.Minute)
	})
}

func TestTryLockBusyAnswerMayOvertakeTheReply(t *testing.T) {
	scripted(t, func(t *testing.T, s *script, c *Coordinator) {
		a := tryOf(t, c.Mutex("k"))
		q := s.next(lease.Acquire)
		s.emit(lease.InUse, "k", q.Ticket)
		a.fails(ErrNotAcquired)
		q.waits()
		require.Equal(t, q.Ticket, s.next(lease.Release).Ticket)
	})
}

// A holder answers once. Who comes behind its answer, and ahead of the reply to the command that asked, must not wait for another one.
func TestTryLockBehindABusyAnswerAsksAnew(t *testing.T) {
	scripted(t, func(t *testing.T, s *script, c *Coordinator) {
		a := tryOf(t, c.Mutex("k"))
		q := s.next(lease.Acquire)
		s.emit(lease.InUse, "k", q.Ticket)
		a.fails(ErrNotAcquired)
		b, d := tryOf(t, c.Mutex("k")), tryOf(t, c.Mutex("k"))
		q.waits()
		again := s.next(lease.Release)
		require.Equal(t, q.Ticket, again.Ticket)
		require.NotNil(t, again.Next)
		require.True(t, again.Next.Ask)
		again.waits()
		s.emit(lease.InUse, "k", again.Next.Ticket)
		require.Zero(t, b.fails(ErrNotAcquired).Waited)
		require.Zero(t, d.fails(ErrNotAcquired).Waited)
		s.next(lease.Release).end()
		s.quiet(time.Minute)
	})
}

func TestTryLockBusyAnswerForAnotherTicketMeansNothing(t *testing.T) {
	scripted(t, func(t *testing.T, s *script, c *Coordinator) {
		a := tryOf(t, c.Mutex("k"))
		q := s.next(lease.Acquire)
		q.waits()
		s.emit(lease.InUse, "k", q.Ticket+1)
		a.waits()
		s.quiet(0)
	})
}

func TestTryLockDoesNotUseAGrantAfterItsWithdrawal(t *testing.T) {
	for _, resent := range []bool{false, true} {
		t.Run(fmt.Sprintf("resent=%v", resent), func(t *testing.T) {
			scripted(t, func(t *testing.T, s *script, c *Coordinator) {
				a := tryOf(t, c.Mutex("k"))
				q := s.next(lease.Acquire)
				r := q.waiting()
				r.Resent = resent
				q.reply(r)
				withdrawal := s.after(askFor, lease.Release)
				a.fails(ErrNotAcquired)
				b := tryOf(t, c.Mutex("k"))
				s.grant(q.Ticket, 1, 100)
				b.waits()
				withdrawal.end()
				if resent {
					again := s.next(lease.Release)
					require.Equal(t, q.Ticket, again.Ticket)
					require.NotNil(t, again.Next)
					again.held(101, 200)
				} else {
					s.next(lease.Acquire).held(101, 200)
				}
				require.EqualValues(t, 101, b.holds().Token())
			})
		})
	}
}

func TestTryLocksOfOneMomentShareARoundTrip(t *testing.T) {
	t.Run("granted", func(t *testing.T) {
		scripted(t, func(t *testing.T, s *script, c *Coordinator) {
			all := make([]*attempt, 10)
			for i := range all {
				all[i] = tryOf(t, c.Mutex("k"))
			}
			s.next(lease.Acquire).held(1, 100)
			all[0].holds()
			for _, a := range all[1:] {
				a.fails(ErrNotAcquired)
			}
			s.quiet(10 * time.Millisecond)
		})
	})
	t.Run("busy", func(t *testing.T) {
		scripted(t, func(t *testing.T, s *script, c *Coordinator) {
			all := make([]*attempt, 10)
			for i := range all {
				all[i] = tryOf(t, c.Mutex("k"))
			}
			q := s.next(lease.Acquire)
			q.waits()
			s.emit(lease.InUse, "k", q.Ticket)
			for _, a := range all {
				a.fails(ErrNotAcquired)
			}
			s.next(lease.Release).end()
			require.Equal(t, 2, s.commands())
		})
	})
}

func TestTryLockIsRefusedWithNoCommandWhenSomebodyHereHasTheKeyOrWaits(t *testing.T) {
	scripted(t, func(t *testing.T, s *script, c *Coordinator) {
		a := lockOf(t, c.Mutex("k"))
		tryOf(t, c.Mutex("k")).fails(ErrNotAcquired) // a waits
		q := s.next(lease.Acquire)
		q.waits()
		tryOf(t, c.Mutex("k")).fails(ErrNotAcquired)
		s.grant(q.Ticket, 1, 100)
		w := tryOf(t, c.Mutex("k")).fails(ErrNotAcquired) // a holds
		require.Equal(t, lease.Owner(c.ID(), q.Ticket), w.Holder)
		require.Zero(t, w.Waited)
		unlock(t, a.holds())
		tryOf(t, c.Mutex("k")).holds() // retained here
		require.Equal(t, 1, s.commands())
	})
}

func TestLockThatJoinsATryLockGoesOnWaiting(t *testing.T) {
	scripted(t, func(t *testing.T, s *script, c *Coordinator) {
		a := tryOf(t, c.Mutex("k"))
		q := s.next(lease.Acquire)
		b := lockOf(t, c.Mutex("k"))
		q.waits()
		s.emit(lease.InUse, "k", q.Ticket)
		a.fails(ErrNotAcquired)
		b.waits()
		s.grant(q.Ticket, 1, 100)
		b.holds()
	})
}

func TestTryLockIsNotKeptWaitingByATicketThatDidNotAsk(t *testing.T) {
	scripted(t, func(t *testing.T, s *script, c *Coordinator) {
		a := begin(t, func() (*Hold, error) { return c.Mutex("k").TryLockFor(t.Context(), time.Second) })
		q := s.next(lease.Acquire)
		require.False(t, q.Ask)
		time.Sleep(time.Second)
		a.fails(ErrUnavailable)
		b := tryOf(t, c.Mutex("k"))
		q.waits()
		b.fails(ErrNotAcquired)
	})
}

func TestHolderAnswersTheQuestion(t *testing.T) {
	want := func(q lease.Ticket) lease.Event {
		return lease.Event{Type: lease.Wanted, Key: "k", Ticket: q, Asker: "other:9"}
	}
	t.Run("busy", func(t *testing.T) {
		scripted(t, func(t *testing.T, s *script, c *Coordinator) {
			a := lockOf(t, c.Mutex("k"))
			q := s.next(lease.Acquire)
			q.held(1, 100)
			s.tell(want(q.Ticket))
			b := s.next(lease.Busy)
			require.Equal(t, "other:9", b.Asker)
			require.Equal(t, "k", b.Key)
			require.True(t, s.key(c).Wanted, "it counts as a want in all else")
			unlock(t, a.holds())
			s.next(lease.Release)
		})
	})
	t.Run("idle", func(t *testing.T) {
		scripted(t, func(t *testing.T, s *script, c *Coordinator) {
			a := lockOf(t, c.Mutex("k"))
			q := s.next(lease.Acquire)
			q.held(1, 100)
			unlock(t, a.holds())
			s.tell(want(q.Ticket))
			s.next(lease.Release).end() // which is the answer
			s.quiet(time.Minute)
		})
	})
	t.Run("waiting itself", func(t *testing.T) {
		scripted(t, func(t *testing.T, s *script, c *Coordinator) {
			lockOf(t, c.Mutex("k"))
			q := s.next(lease.Acquire)
			s.tell(want(q.Ticket)) // it has the lease, and does not know it yet
			require.Equal(t, "other:9", s.next(lease.Busy).Asker)
		})
	})
	t.Run("not asked", func(t *testing.T) {
		scripted(t, func(t *testing.T, s *script, c *Coordinator) {
			lockOf(t, c.Mutex("k"))
			q := s.next(lease.Acquire)
			q.held(1, 100)
			s.emit(lease.Wanted, "k", q.Ticket)
			s.quiet(time.Millisecond)
		})
	})
}

func TestSharedTryLockIsNotKeptBehindReaders(t *testing.T) {
	scripted(t, func(t *testing.T, s *script, c *Coordinator) {
		a := shared(t, c, call{wait: -1})
		q := s.next(lease.Acquire)
		q.held(1, 100)
		shared(t, c, call{try: true, wait: -1}).holds() // beside the other
		s.emit(lease.Wanted, "k", q.Ticket)
		time.Sleep(time.Millisecond)
		b := shared(t, c, call{try: true, wait: -1})
		b.fails(ErrNotAcquired) // a writer waits
		require.Zero(t, b.took)
		a.holds()
	})
}

// learn has a Cached TryLock find out that other:1 has the key, for 2 s.
func learn(t *testing.T, s *script, m *Mutex, answerFirst bool) {
	t.Helper()
	a := tryOf(t, m)
	q := s.next(lease.Acquire)
	q.waits()
	look := s.next(lease.Acquire)
	require.Equal(t, "other:1", look.Watch)
	r := look.waiting()
	r.Watched, r.Present, r.Remaining = true, true, 2*time.Second
	if answerFirst {
		s.emit(lease.InUse, "k", q.Ticket)
		look.reply(r)
	} else {
		look.reply(r)
		s.emit(lease.InUse, "k", q.Ticket)
	}
	a.fails(ErrNotAcquired)
	s.next(lease.Release).end()
}

func TestCachedTryLockIsAnsweredWithNoCommand(t *testing.T) {
	tracked(t, func(t *testing.T, s *script, c *Coordinator) {
		m := c.Mutex("k", Cached())
		learn(t, s, m, false)
		for range 3 {
			time.Sleep(500 * time.Millisecond)
			w := tryOf(t, m).fails(ErrNotAcquired)
			require.Equal(t, "other:1", w.Holder)
			require.Zero(t, w.Waited)
		}
		s.quiet(0)
		a := tryOf(t, c.Mutex("k")) // plain TryLock asks
		q := s.next(lease.Ask)
		require.Equal(t, "other:1", q.Holder)
		s.emit(lease.Changed, "k", q.Ticket)
		s.next(lease.Acquire).held(1, 100)
		a.holds()
	})
}

func TestCachedLearnsThoughTheHolderAnsweredFirst(t *testing.T) {
	tracked(t, func(t *testing.T, s *script, c *Coordinator) {
		m := c.Mutex("k", Cached())
		learn(t, s, m, true)
		tryOf(t, m).fails(ErrNotAcquired)
		s.quiet(0)
	})
}

func TestCachedKnowledgeEnds(t *testing.T) {
	ends := map[string]func(s *script){
		"with the holder's TTL":  func(*script) { time.Sleep(2 * time.Second) },
		"with a change":          func(s *script) { s.emit(lease.Changed, "k", 0) },
		"with any change":        func(s *script) { s.tell(lease.Event{Type: lease.ChangedAll}) },
		"with a lost connection": func(s *script) { s.tell(lease.Event{Type: lease.Disconnected}) },
		"with a new connection":  func(s *script) { s.tell(lease.Event{Type: lease.Connected}) },
	}
	for how, end := range ends {
		t.Run(how, func(t *testing.T) {
			tracked(t, func(t *testing.T, s *script, c *Coordinator) {
				m := c.Mutex("k", Cached())
				learn(t, s, m, false)
				require.EqualValues(t, 1, c.knowing.Load())
				tryOf(t, m).fails(ErrNotAcquired)
				end(s)
				a := tryOf(t, m)
				s.next(lease.Acquire).held(1, 100)
				unlock(t, a.holds())
				s.within(time.Second, lease.Release).end()
				s.quiet(time.Minute)
				require.Zero(t, c.knowing.Load())
				require.Zero(t, c.live.Load())
			})
		})
	}
}

func TestCachedKnowledgeIsBounded(t *testing.T) {
	tracked(t, func(t *testing.T, s *script, c *Coordinator) {
		c.knowing.Store(maxKnown)
		m := c.Mutex("k", Cached())
		learn(t, s, m, false)
		require.EqualValues(t, maxKnown, c.knowing.Load())
		require.Zero(t, c.live.Load(), "the actor was not kept")
		c.knowing.Store(0)
	})
}

func TestCachedHolderLeavesTheTableWhenItsTTLEnds(t *testing.T) {
	tracked(t, func(t *testing.T, s *script, c *Coordinator) {
		learn(t, s, c.Mutex("k", Cached()), false)
		require.EqualValues(t, 1, c.live.Load())
		s.quiet(2 * time.Second)
		require.Zero(t, c.live.Load())
	})
}
