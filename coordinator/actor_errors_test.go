package coordinator

import (
	"context"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/go-leasehold/leasehold/lease"
)

// What happens while the store fails.

func TestLockRetriesWithGrowingPauses(t *testing.T) {
	scripted(t, func(t *testing.T, s *script, c *Coordinator) {
		a := lockOf(t, c.Mutex("k"))
		q := s.next(lease.Acquire)
		ticket := q.Ticket
		for i := range 10 {
			longest := min(time.Second, 20*time.Millisecond<<i)
			failed := time.Now()
			q.fail(errStore)
			s.quiet(longest/2 - 1)
			q = s.within(longest, lease.Acquire)
			require.LessOrEqual(t, q.at.Sub(failed), longest)
			require.Equal(t, ticket, q.Ticket)
			require.ErrorIs(t, s.key(c).Failure, errStore)
		}
		q.held(1, 100)
		a.holds()
		require.NoError(t, s.key(c).Failure)
		require.EqualValues(t, 10, c.Snapshot().Stats.Failures)
	}, WithUnavailableAfter(0))
}

func TestBackOffIsJittered(t *testing.T) {
	seen := make(map[time.Duration]bool)
	for range 100 {
		d := backOff(3)
		require.GreaterOrEqual(t, d, 80*time.Millisecond)
		require.LessOrEqual(t, d, 160*time.Millisecond)
		seen[d] = true
	}
	require.Greater(t, len(seen), 50)
	for n := range 100 {
		require.LessOrEqual(t, backOff(n), time.Second)
		require.GreaterOrEqual(t, backOff(n), 10*time.Millisecond)
	}
}

func TestTryLockIsToldOfAFailureAtOnce(t *testing.T) {
	scripted(t, func(t *testing.T, s *script, c *Coordinator) {
		a := tryOf(t, c.Mutex("k"))
		q := s.next(lease.Acquire)
		time.Sleep(time.Millisecond)
		q.fail(errStore)
		w := a.fails(ErrUnavailable)
		require.ErrorIs(t, w, errStore)
		require.Equal(t, time.Millisecond, w.Waited)
		// The place in the queue may have been taken: it is given up.
		r := s.within(time.Second, lease.Release)
		require.Equal(t, q.Ticket, r.Ticket)
		// The next one does not wait for the pace of retrying.
		r.fail(errStore)
		b := tryOf(t, c.Mutex("k"))
		r = s.next(lease.Release)
		r.fail(errStore)
		require.ErrorIs(t, b.fails(ErrUnavailable), errStore)
		require.Zero(t, b.took)
	})
}

func TestTryLockWithoutTokensIsToldOfTheFailureAtOnce(t *testing.T) {
	scripted(t, func(t *testing.T, s *script, c *Coordinator) {
		a := lockOf(t, c.Mutex("k"))
		s.next(lease.Acquire).held(1, 1)
		s.next(lease.Renew).fail(errStore)
		unlock(t, a.holds())
		b := tryOf(t, c.Mutex("k"))
		s.next(lease.Renew).fail(errStore)
		require.ErrorIs(t, b.fails(ErrUnavailable), errStore)
	})
}

func TestLockGivesUpWhenTheStoreIsAwayForLong(t *testing.T) {
	t.Run("failing", func(t *testing.T) {
		scripted(t, func(t *testing.T, s *script, c *Coordinator) {
			first := time.Now()
			a := lockOf(t, c.Mutex("k"))
			for {
				q := s.take()
				if q != nil {
					q.fail(errStore)
				}
				if synctest.Wait(); a.done.Load() {
					break
				}
				time.Sleep(time.Millisecond)
			}
			require.ErrorIs(t, a.fails(ErrUnavailable), errStore)
			require.NotErrorIs(t, a.err, ErrNotAcquired)
			require.Equal(t, 2*time.Second, time.Since(first))
		}, WithUnavailableAfter(2*time.Second))
	})
	t.Run("silent", func(t *testing.T) {
		scripted(t, func(t *testing.T, s *script, c *Coordinator) {
			a := lockOf(t, c.Mutex("k"))
			s.next(lease.Acquire)
			s.quiet(2 * time.Second)
			require.Equal(t, 2*time.Second, a.fails(ErrUnavailable).Waited)
		}, WithUnavailableAfter(2*time.Second))
	})
	t.Run("not without limit", func(t *testing.T) {
		scripted(t, func(t *testing.T, s *script, c *Coordinator) {
			ctx, cancel := context.WithTimeout(t.Context(), time.Hour)
			defer cancel()
			a := begin(t, func() (*Hold, error) { return c.Mutex("k").Lock(ctx) })
			s.next(lease.Acquire)
			s.quiet(time.Hour)
			require.ErrorIs(t, a.fails(ErrUnavailable), context.DeadlineExceeded)
		}, WithUnavailableAfter(0))
	})
	t.Run("not behind a holder here", func(t *testing.T) {
		scripted(t, func(t *testing.T, s *script, c *Coordinator) {
			a := lockOf(t, c.Mutex("k"))
			s.next(lease.Acquire).held(1, 100)
			b := lockOf(t, c.Mutex("k"))
			s.after(time.Second, lease.Renew).fail(errStore)
			time.Sleep(time.Second)
			unlock(t, a.holds())
			b.holds() // the lease is still good
		}, WithUnavailableAfter(500*time.Millisecond))
	})
}

func TestTryLockForSaysWhatItMet(t *testing.T) {
	lockFor := func(t *testing.T, c *Coordinator) *attempt {
		return begin(t, func() (*Hold, error) { return c.Mutex("k").TryLockFor(t.Context(), 100*time.Millisecond) })
	}
	t.Run("only failures", func(t *testing.T) {
		scripted(t, func(t *testing.T, s *script, c *Coordinator) {
			a := lockFor(t, c)
			s.next(lease.Acquire).fail(errStore)
			time.Sleep(100 * time.Millisecond)
			require.ErrorIs(t, a.fails(ErrUnavailable), errStore)
			require.NotErrorIs(t, a.err, ErrNotAcquired)
		})
	})
	t.Run("no answer", func(t *testing.T) {
		scripted(t, func(t *testing.T, s *script, c *Coordinator) {
			a := lockFor(t, c)
			s.next(lease.Acquire)
			time.Sleep(100 * time.Millisecond)
			require.Equal(t, 100*time.Millisecond, a.fails(ErrUnavailable).Waited)
		})
	})
	t.Run("an answer, then failures", func(t *testing.T) {
		scripted(t, func(t *testing.T, s *script, c *Coordinator) {
			a := lockFor(t, c)
			q := s.next(lease.Acquire)
			r := q.waiting()
			r.Remaining = 10 * time.Millisecond
			q.reply(r)
			s.after(11*time.Millisecond, lease.Acquire).fail(errStore)
			time.Sleep(89 * time.Millisecond)
			a.fails(ErrNotAcquired)
		})
	})
	t.Run("a holder here", func(t *testing.T) {
		scripted(t, func(t *testing.T, s *script, c *Coordinator) {
			lockOf(t, c.Mutex("k")).holdsAfter(s)
			a := lockFor(t, c)
			time.Sleep(100 * time.Millisecond)
			a.fails(ErrNotAcquired)
		})
	})
	t.Run("a holder here, whose renewal fails", func(t *testing.T) {
		scripted(t, func(t *testing.T, s *script, c *Coordinator) {
			lockOf(t, c.Mutex("k")).holdsAfter(s)
			q := s.after(time.Second, lease.Renew)
			a := lockFor(t, c)
			q.fail(errStore)
			time.Sleep(100 * time.Millisecond)
			a.fails(ErrNotAcquired) // it waited for the hold, not for the store
		})
	})
}

func TestRenewalIsRetriedWithinTheLease(t *testing.T) {
	scripted(t, func(t *testing.T, s *script, c *Coordinator) {
		h := lockOf(t, c.Mutex("k")).holdsAfter(s)
		q := s.after(time.Second, lease.Renew)
		for range 8 { // each sooner than a twelfth of the TTL after the last
			q.fail(errStore)
			q = s.within(250*time.Millisecond, lease.Renew)
		}
		q.reply(lease.Reply{Status: lease.Held})
		s.after(time.Second, lease.Renew) // and as usual from then on
		endsIn(t, h, believed-time.Second, ErrLeaseLost)
	})
}

func TestRenewalThatGoesOnFailingLosesTheLeaseAtItsEnd(t *testing.T) {
	scripted(t, func(t *testing.T, s *script, c *Coordinator) {
		h := lockOf(t, c.Mutex("k")).holdsAfter(s)
		ended := make(chan time.Time, 1)
		context.AfterFunc(h.Context(), func() { ended <- time.Now() })
		begin := time.Now()
		var tries int
		for h.Valid() {
			if q := s.take(); q != nil {
				require.Equal(t, lease.Renew, q.Op)
				tries++
				q.fail(errStore)
			}
			time.Sleep(time.Millisecond)
		}
		require.Equal(t, believed, (<-ended).Sub(begin))
		require.GreaterOrEqual(t, tries, 8)
		require.ErrorIs(t, h.Unlock(), ErrLeaseLost)
		require.EqualValues(t, 1, c.Snapshot().Stats.Lost)
		s.within(time.Second, lease.Release) // rule 9
	})
}

func TestRenewalOfALeaseThatIsNotOursEndsTheHoldAtOnce(t *testing.T) {
	scripted(t, func(t *testing.T, s *script, c *Coordinator) {
		h := lockOf(t, c.Mutex("k")).holdsAfter(s)
		b := lockOf(t, c.Mutex("k"))
		ctx := h.Context()
		q := s.after(time.Second, lease.Renew)
		q.reply(lease.Reply{Status: lease.Lost})
		require.ErrorIs(t, context.Cause(ctx), ErrLeaseLost)
		next := s.next(lease.Acquire) // for who waits; nothing of the old one
		require.NotEqual(t, q.Ticket, next.Ticket)
		require.ErrorIs(t, h.Unlock(), ErrLeaseLost)
		next.held(101, 200)
		b.holds()
	})
}

func TestNothingIsRenewedAfterUnlock(t *testing.T) {
	scripted(t, func(t *testing.T, s *script, c *Coordinator) {
		h := lockOf(t, c.Mutex("k")).holdsAfter(s)
		q := s.after(time.Second, lease.Renew)
		unlock(t, h)
		q.fail(errStore) // the renewal is not tried again for a hold that is over
		r := s.within(time.Second, lease.Release)
		for range 3 {
			r.fail(errStore)
			r = s.within(time.Second, lease.Release)
		}
		r.end()
		s.quiet(time.Minute)
	})
}

func TestReleaseIsRetriedUntilEverythingHasExpired(t *testing.T) {
	scripted(t, func(t *testing.T, s *script, c *Coordinator) {
		h := lockOf(t, c.Mutex("k")).holdsAfter(s)
		unlock(t, h)
		begin := time.Now()
		for c.live.Load() > 0 {
			if q := s.take(); q != nil {
				require.Equal(t, lease.Release, q.Op)
				q.fail(errStore)
			}
			time.Sleep(time.Millisecond)
			synctest.Wait()
		}
		require.Less(t, time.Since(begin), 3*time.Second+time.Second)
		require.GreaterOrEqual(t, time.Since(begin), 3*time.Second)
		require.EqualValues(t, 1, c.Snapshot().Stats.FailedReleases)
	}, WithRetention(0))
}

func TestLateErrorAfterAGrantByMessageDoesNoHarm(t *testing.T) {
	scripted(t, func(t *testing.T, s *script, c *Coordinator) {
		a := lockOf(t, c.Mutex("k"))
		q := s.next(lease.Acquire)
		s.grant(q.Ticket, 1, 100)
		h := a.holds()
		q.fail(errStore)
		require.True(t, h.Valid())
		unlock(t, h)
		b := lockOf(t, c.Mutex("k"))
		b.holds()
	})
}

func TestNonsenseFromTheStoreIsAFailure(t *testing.T) {
	for _, status := range []lease.Status{0, lease.Denied, lease.Done, lease.Lost} {
		t.Run(fmt.Sprint(status), func(t *testing.T) {
			scripted(t, func(t *testing.T, s *script, c *Coordinator) {
				a := lockOf(t, c.Mutex("k"))
				s.next(lease.Acquire).reply(lease.Reply{Status: status})
				s.quiet(9 * time.Millisecond) // not again and again
				q := s.within(time.Second, lease.Acquire)
				q.reply(lease.Reply{Status: lease.Held, First: 1, Last: 100, Contended: true})
				b := lockOf(t, c.Mutex("k"))
				unlock(t, a.holds())
				s.next(lease.Release).reply(lease.Reply{Status: status})
				s.quiet(9 * time.Millisecond)
				s.within(time.Second, lease.Acquire).held(101, 200)
				b.holds()
			}, WithHandoff(1, time.Second))
		})
	}
}
