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

// Close, in every phase of a key.

// closing calls Close, which may take as long as it is given.
func closing(t *testing.T, c *Coordinator, limit time.Duration) *attempt {
	t.Helper()
	return begin(t, func() (*Hold, error) {
		ctx, cancel := context.WithTimeout(context.Background(), limit)
		defer cancel()
		return nil, c.Close(ctx)
	})
}

// closed makes sure that Close is through, with no error and nothing left.
func (a *attempt) closed(c *Coordinator) {
	a.t.Helper()
	synctest.Wait()
	require.True(a.t, a.done.Load(), "it goes on")
	require.NoError(a.t, a.err)
	require.Empty(a.t, c.Snapshot().Keys)
	require.Zero(a.t, c.live.Load())
}

func TestCloseOfAnUnusedCoordinator(t *testing.T) {
	scripted(t, func(t *testing.T, s *script, c *Coordinator) {
		closing(t, c, time.Second).closed(c)
		closing(t, c, time.Second).closed(c)
		lockOf(t, c.Mutex("k")).fails(ErrClosed)
		tryOf(t, c.Mutex("k")).fails(ErrClosed)
		require.ErrorIs(t, c.Close(nil), ErrInvalid) //nolint:staticcheck // it is what is tested
		require.Zero(t, c.live.Load())
	})
}

func TestCloseRefusesWaitersAtOnceAndWithdraws(t *testing.T) {
	for _, phase := range []string{"acquiring", "queued"} {
		t.Run(phase, func(t *testing.T) {
			scripted(t, func(t *testing.T, s *script, c *Coordinator) {
				a, b := lockOf(t, c.Mutex("k")), tryOf(t, c.Mutex("l"))
				q, p := s.next(lease.Acquire), s.next(lease.Acquire)
				if phase == "queued" {
					q.waits()
				}
				z := closing(t, c, time.Minute)
				a.fails(ErrClosed)
				b.fails(ErrClosed)
				if phase != "queued" {
					q.waits()
				}
				r := s.next(lease.Release)
				require.Equal(t, q.Ticket, r.Ticket)
				require.Nil(t, r.Next)
				r.end()
				p.held(1, 100) // comes too late: it is handed over, not retained
				s.next(lease.Release).end()
				z.closed(c)
			})
		})
	}
}

func TestCloseHandsARetainedLeaseOverAtOnce(t *testing.T) {
	scripted(t, func(t *testing.T, s *script, c *Coordinator) {
		unlock(t, lockOf(t, c.Mutex("k")).holdsAfter(s))
		z := closing(t, c, time.Minute)
		s.next(lease.Release).end()
		z.closed(c)
	})
}

func TestCloseLetsHoldsFinish(t *testing.T) {
	scripted(t, func(t *testing.T, s *script, c *Coordinator) {
		h := lockOf(t, c.Mutex("k")).holdsAfter(s)
		z := closing(t, c, time.Minute)
		z.waits()
		begin := time.Now()
		for range 3 { // it is renewed meanwhile
			s.after(time.Second, lease.Renew).reply(lease.Reply{Status: lease.Held})
		}
		require.True(t, h.Valid())
		lockOf(t, c.Mutex("k")).fails(ErrClosed)
		unlock(t, h)
		s.next(lease.Release).end()
		z.closed(c)
		require.Equal(t, 3*time.Second, time.Since(begin))
	})
}

func TestCloseEndsTheHoldsThatAreLeftAtTheEndOfItsContext(t *testing.T) {
	scripted(t, func(t *testing.T, s *script, c *Coordinator) {
		h := lockOf(t, c.Mutex("k")).holdsAfter(s)
		ctx := h.Context()
		z := closing(t, c, 500*time.Millisecond)
		time.Sleep(500 * time.Millisecond)
		synctest.Wait()
		require.ErrorIs(t, context.Cause(ctx), ErrClosed)
		r := s.next(lease.Release)
		time.Sleep(200 * time.Millisecond)
		r.end() // within the grace
		z.closed(c)
		require.ErrorIs(t, h.Unlock(), ErrClosed)
		require.ErrorIs(t, h.Err(), ErrClosed)
	})
}

func TestCloseRefusesNewKeysAtOnce(t *testing.T) {
	scripted(t, func(t *testing.T, s *script, c *Coordinator) {
		h := lockOf(t, c.Mutex("k")).holdsAfter(s)
		closing(t, c, time.Minute)
		for _, key := range []string{"k", "new"} {
			w := lockOf(t, c.Mutex(key)).fails(ErrClosed)
			require.Zero(t, w.Waited)
			tryOf(t, c.Mutex(key)).fails(ErrClosed)
		}
		s.quiet(0)
		require.EqualValues(t, 1, c.live.Load())
		unlock(t, h)
	})
}

func TestCloseWithTheStoreDown(t *testing.T) {
	for _, silent := range []bool{true, false} {
		t.Run(fmt.Sprintf("silent=%v", silent), func(t *testing.T) {
			scripted(t, func(t *testing.T, s *script, c *Coordinator) {
				lockOf(t, c.Mutex("k")).holdsAfter(s)
				lockOf(t, c.Mutex("l"))
				s.next(lease.Acquire).waits()
				begin := time.Now()
				z := closing(t, c, time.Second/2)
				for !z.done.Load() {
					if q := s.take(); q != nil && !silent {
						q.fail(errStore)
					}
					time.Sleep(time.Millisecond)
					synctest.Wait()
				}
				require.LessOrEqual(t, time.Since(begin), time.Second/2+closeGrace+time.Millisecond)
				require.ErrorIs(t, z.err, ErrUnavailable)
				require.ErrorContains(t, z.err, "2 keys could not be handed over")
				require.Zero(t, c.live.Load())
				require.Empty(t, c.Snapshot().Keys)
				again := closing(t, c, time.Second)
				require.Equal(t, z.err, again.err)
				n := s.commands()
				time.Sleep(time.Minute)
				require.Equal(t, n, s.commands(), "nothing is sent after Close")
			})
		})
	}
}

func TestCloseWithRenewalInFlightLeavesNothing(t *testing.T) {
	scripted(t, func(t *testing.T, s *script, c *Coordinator) {
		h := lockOf(t, c.Mutex("k")).holdsAfter(s)
		s.after(time.Second, lease.Renew) // never answered
		z := closing(t, c, time.Second/2)
		time.Sleep(time.Second/2 + closeGrace)
		synctest.Wait()
		require.True(t, z.done.Load())
		require.ErrorIs(t, z.err, ErrUnavailable)
		require.ErrorIs(t, h.Unlock(), ErrClosed)
		require.Zero(t, c.live.Load())
	})
}

func TestAnswerAfterCloseDoesNoHarm(t *testing.T) {
	answers := map[string]func(q *sent){
		"done":   func(q *sent) { q.end() },
		"held":   func(q *sent) { q.held(1, 100) },
		"wait":   func(q *sent) { q.waits() },
		"failed": func(q *sent) { q.fail(errStore) },
		"closed": func(q *sent) { q.fail(lease.ErrStoreClosed) },
		"kind":   func(q *sent) { q.fail(lease.ErrKind) },
	}
	for name, answer := range answers {
		for _, op := range []lease.Op{lease.Acquire, lease.Renew, lease.Release} {
			t.Run(fmt.Sprintf("%s to %v", name, op), func(t *testing.T) {
				scripted(t, func(t *testing.T, s *script, c *Coordinator) {
					s.mute = true
					a := lockOf(t, c.Mutex("k"))
					q := s.next(lease.Acquire)
					switch op {
					case lease.Renew:
						q.held(1, 100)
						q = s.after(time.Second, lease.Renew)
					case lease.Release:
						q.held(1, 100)
						unlock(t, a.holds())
						q = s.after(50*time.Millisecond, lease.Release)
					}
					z := closing(t, c, time.Second)
					time.Sleep(time.Second + closeGrace)
					synctest.Wait()
					require.True(t, z.done.Load())
					require.Error(t, z.err)
					answer(q)
					s.tell(lease.Event{Type: lease.Granted, Key: "k", Ticket: q.Ticket, First: 1, Last: 9})
					s.quiet(time.Minute)
					require.Zero(t, c.live.Load())
				})
			})
		}
	}
}

func TestStoreThatWasClosedEndsEverything(t *testing.T) {
	for _, op := range []lease.Op{lease.Acquire, lease.Renew, lease.Release} {
		t.Run(op.String(), func(t *testing.T) {
			scripted(t, func(t *testing.T, s *script, c *Coordinator) {
				a := lockOf(t, c.Mutex("k"))
				q := s.next(lease.Acquire)
				if op == lease.Acquire {
					q.fail(lease.ErrStoreClosed)
					a.fails(ErrClosed)
				} else {
					q.held(1, 100)
				}
				switch op {
				case lease.Renew:
					s.after(time.Second, lease.Renew).fail(lease.ErrStoreClosed)
					require.ErrorIs(t, a.holds().Unlock(), ErrClosed)
				case lease.Release:
					unlock(t, a.holds())
					s.after(50*time.Millisecond, lease.Release).fail(lease.ErrStoreClosed)
				}
				s.quiet(time.Minute)
				require.Empty(t, c.Snapshot().Keys)
			})
		})
	}
}

func TestSecondCloseWaitsForTheFirstNoLongerThanItsContext(t *testing.T) {
	scripted(t, func(t *testing.T, s *script, c *Coordinator) {
		h := lockOf(t, c.Mutex("k")).holdsAfter(s)
		z := closing(t, c, time.Hour)
		y := closing(t, c, 100*time.Millisecond)
		time.Sleep(100*time.Millisecond + 2*closeGrace)
		synctest.Wait()
		require.True(t, y.done.Load())
		require.ErrorIs(t, y.err, context.DeadlineExceeded)
		require.False(t, z.done.Load())
		require.True(t, h.Valid())
		unlock(t, h)
		s.next(lease.Release).end()
		z.closed(c)
		closing(t, c, time.Second).closed(c)
	})
}

func TestUnlockLossAndCloseAtOneMoment(t *testing.T) {
	for range 50 {
		scripted(t, func(t *testing.T, s *script, c *Coordinator) {
			h := lockOf(t, c.Mutex("k")).holdsAfter(s)
			ctx := h.Context()
			q := s.after(time.Second, lease.Renew)
			errs := make(chan error, 2)
			for range 2 {
				go func() { errs <- h.Unlock() }()
			}
			go q.answer(lease.Reply{Status: lease.Lost}, nil)
			z := closing(t, c, time.Second)
			var nils int
			for range 2 {
				if err := <-errs; err == nil {
					nils++
				}
			}
			require.LessOrEqual(t, nils, 1)
			require.Error(t, ctx.Err())
			s.obey()
			time.Sleep(time.Second)
			z.closed(c)
		})
	}
}

func TestCloseOfALoggerThatHangs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &script{t: t, flying: make(map[string]*sent), arrived: make(chan struct{}, 1)}
		hang := make(chan struct{})
		c, err := NewWithStore(s, WithLogger(hangingLogger(hang)))
		require.NoError(t, err)
		for range 1000 { // more than the journal has room for
			s.tell(lease.Event{Type: lease.Disconnected, Err: errStore})
		}
		require.Positive(t, c.Snapshot().LogDropped)
		z := closing(t, c, time.Second)
		time.Sleep(time.Second)
		z.closed(c)
		close(hang)
	})
}
