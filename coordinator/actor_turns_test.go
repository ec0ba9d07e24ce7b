package coordinator

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/go-leasehold/leasehold/lease"
	"github.com/go-leasehold/leasehold/telemetry"
)

// Whose turn it is: between the callers here, and between processes.

func TestCallersAreServedInTheirOrder(t *testing.T) {
	scripted(t, func(t *testing.T, s *script, c *Coordinator) {
		var all []*attempt
		for range 20 {
			all = append(all, lockOf(t, c.Mutex("k")))
		}
		s.next(lease.Acquire).held(1, 100)
		for i, a := range all {
			require.EqualValues(t, i+1, a.holds().Token())
			if i+1 < len(all) {
				all[i+1].waits()
			}
			unlock(t, a.hold)
		}
		require.Equal(t, 1, s.commands())
	})
}

func TestUnwantedLeaseIsHandedOnWithoutLimit(t *testing.T) {
	scripted(t, func(t *testing.T, s *script, c *Coordinator) {
		a := lockOf(t, c.Mutex("k", Fair()))
		s.next(lease.Acquire).held(1, 1<<20)
		for range 500 {
			b := lockOf(t, c.Mutex("k", Fair()))
			unlock(t, a.holds())
			a = b
		}
		a.holds()
		require.Equal(t, 1, s.commands())
	}, WithHandoff(1, 0))
}

func TestFairWaiterMakesTheBudgetOne(t *testing.T) {
	for _, fair := range []bool{false, true} {
		t.Run(fmt.Sprintf("fair=%v", fair), func(t *testing.T) {
			scripted(t, func(t *testing.T, s *script, c *Coordinator) {
				var opts []MutexOption
				if fair {
					opts = append(opts, Fair())
				}
				a, b, d := lockOf(t, c.Mutex("k")), lockOf(t, c.Mutex("k")), lockOf(t, c.Mutex("k", opts...))
				q := s.next(lease.Acquire)
				q.reply(lease.Reply{Status: lease.Held, First: 1, Last: 100, Contended: true})
				unlock(t, a.holds())
				if fair {
					b.waits() // though it does not ask for it itself
					s.next(lease.Release)
					return
				}
				unlock(t, b.holds())
				d.holds()
			})
		})
	}
	t.Run("until it has gone", func(t *testing.T) {
		scripted(t, func(t *testing.T, s *script, c *Coordinator) {
			a, b := lockOf(t, c.Mutex("k")), lockOf(t, c.Mutex("k"))
			ctx, cancel := context.WithCancel(t.Context())
			f := begin(t, func() (*Hold, error) { return c.Mutex("k", Fair()).Lock(ctx) })
			s.next(lease.Acquire).reply(lease.Reply{Status: lease.Held, First: 1, Last: 100, Contended: true})
			cancel()
			f.fails(context.Canceled)
			unlock(t, a.holds())
			b.holds()
		})
	})
}

func TestYieldRejoinsWithTheAgeOfTheOldestWaiter(t *testing.T) {
	scripted(t, func(t *testing.T, s *script, c *Coordinator) {
		a := lockOf(t, c.Mutex("k"))
		q := s.next(lease.Acquire)
		require.Negative(t, q.Age, "a new caller is behind all others")
		q.held(1, 100)
		lockOf(t, c.Mutex("k", TTL(6*time.Second)))
		time.Sleep(30 * time.Millisecond)
		lockOf(t, c.Mutex("k"))
		time.Sleep(40 * time.Millisecond)
		s.emit(lease.Wanted, "k", q.Ticket)
		time.Sleep(5 * time.Millisecond)
		unlock(t, a.holds())
		r := s.next(lease.Release)
		require.Equal(t, q.Ticket, r.Ticket)
		require.Equal(t, 75*time.Millisecond, r.Next.Age)
		require.Equal(t, 6*time.Second, r.Next.TTL, "the lease is as its first waiter wants it")
		require.NotEqual(t, q.Ticket, r.Next.Ticket)
		require.False(t, r.Next.Ask)
	})
}

func TestRetention(t *testing.T) {
	for _, keep := range []time.Duration{0, 50 * time.Millisecond, time.Second} {
		t.Run(keep.String(), func(t *testing.T) {
			scripted(t, func(t *testing.T, s *script, c *Coordinator) {
				a := lockOf(t, c.Mutex("k"))
				q := s.next(lease.Acquire)
				q.held(1, 100)
				unlock(t, a.holds())
				r := s.after(keep, lease.Release)
				require.Equal(t, q.Ticket, r.Ticket)
				r.end()
				s.quiet(time.Minute)
				require.Empty(t, c.Snapshot().Keys)
			}, WithRetention(keep))
		})
	}
	t.Run("begins anew with each hold", func(t *testing.T) {
		scripted(t, func(t *testing.T, s *script, c *Coordinator) {
			a := lockOf(t, c.Mutex("k"))
			s.next(lease.Acquire).held(1, 100)
			unlock(t, a.holds())
			for range 5 {
				s.quiet(49 * time.Millisecond)
				unlock(t, lockOf(t, c.Mutex("k")).holds())
			}
			s.after(50*time.Millisecond, lease.Release)
		})
	})
	t.Run("longer than a third of the TTL is kept alive", func(t *testing.T) {
		scripted(t, func(t *testing.T, s *script, c *Coordinator) {
			a := lockOf(t, c.Mutex("k"))
			s.next(lease.Acquire).held(1, 100)
			unlock(t, a.holds())
			for range 4 {
				s.after(time.Second, lease.Renew).reply(lease.Reply{Status: lease.Held})
			}
			s.after(500*time.Millisecond, lease.Release)
		}, WithRetention(4500*time.Millisecond))
	})
	t.Run("no longer than a third of the TTL ends where a renewal would be due", func(t *testing.T) {
		scripted(t, func(t *testing.T, s *script, c *Coordinator) {
			a := lockOf(t, c.Mutex("k"))
			s.next(lease.Acquire).held(1, 100)
			time.Sleep(900 * time.Millisecond)
			unlock(t, a.holds())
			s.after(100*time.Millisecond, lease.Release)
		}, WithRetention(time.Second))
	})
	t.Run("ends at once with a want", func(t *testing.T) {
		scripted(t, func(t *testing.T, s *script, c *Coordinator) {
			a := lockOf(t, c.Mutex("k"))
			q := s.next(lease.Acquire)
			q.held(1, 100)
			unlock(t, a.holds())
			s.quiet(time.Millisecond)
			s.emit(lease.Wanted, "k", q.Ticket)
			s.next(lease.Release)
		})
	})
	t.Run("does not begin when it is wanted", func(t *testing.T) {
		scripted(t, func(t *testing.T, s *script, c *Coordinator) {
			a := lockOf(t, c.Mutex("k"))
			q := s.next(lease.Acquire)
			q.held(1, 100)
			s.emit(lease.Wanted, "k", q.Ticket)
			s.quiet(500 * time.Millisecond)
			unlock(t, a.holds())
			s.next(lease.Release)
		})
	})
}

func TestWantEndsWhenARenewalSaysThatNobodyWaits(t *testing.T) {
	scripted(t, func(t *testing.T, s *script, c *Coordinator) {
		a := lockOf(t, c.Mutex("k"))
		q := s.next(lease.Acquire)
		q.held(1, 100)
		s.emit(lease.Wanted, "k", q.Ticket)
		r := s.after(time.Second, lease.Renew)
		r.reply(lease.Reply{Status: lease.Held, Waiters: 1})
		require.True(t, s.key(c).Wanted)
		s.after(time.Second, lease.Renew).reply(lease.Reply{Status: lease.Held})
		require.False(t, s.key(c).Wanted)
		r = s.after(time.Second, lease.Renew)
		s.emit(lease.Wanted, "k", q.Ticket) // after the renewal was sent: it may not know
		r.reply(lease.Reply{Status: lease.Held})
		require.True(t, s.key(c).Wanted)
		unlock(t, a.holds())
		s.next(lease.Release)
	})
}

func TestRenewalTellsOfWaitersWhenTheWantWasLost(t *testing.T) {
	scripted(t, func(t *testing.T, s *script, c *Coordinator) {
		a := lockOf(t, c.Mutex("k"))
		s.next(lease.Acquire).held(1, 100)
		s.after(time.Second, lease.Renew).reply(lease.Reply{Status: lease.Held, Waiters: 2})
		unlock(t, a.holds())
		s.next(lease.Release)
	})
}

// Waiters that go away.

func TestLastCancelledWaiterWithdraws(t *testing.T) {
	scripted(t, func(t *testing.T, s *script, c *Coordinator) {
		cause := errors.New("enough")
		ctx, cancel := context.WithCancelCause(t.Context())
		a := begin(t, func() (*Hold, error) { return c.Mutex("k").Lock(ctx) })
		b := begin(t, func() (*Hold, error) { return c.Mutex("k").TryLockFor(t.Context(), 700*time.Millisecond) })
		q := s.next(lease.Acquire)
		q.waits()
		time.Sleep(100 * time.Millisecond)
		cancel(cause)
		w := a.fails(ErrNotAcquired)
		require.ErrorIs(t, w, context.Canceled)
		require.ErrorIs(t, w, cause)
		require.Equal(t, WaitError{Key: "k", Holder: "other:1", Waited: 100 * time.Millisecond, Err: w.Err}, *w)
		require.Contains(t, w.Error(), `"k", held by other:1, after 100ms`)
		s.quiet(0) // b still waits
		r := s.after(600*time.Millisecond, lease.Release)
		w = b.fails(ErrNotAcquired)
		require.NotErrorIs(t, w, context.DeadlineExceeded)
		require.Equal(t, 700*time.Millisecond, w.Waited)
		require.Equal(t, q.Ticket, r.Ticket)
		require.Nil(t, r.Next)
		r.end()
		require.Empty(t, c.Snapshot().Keys)
	})
}

func TestWaiterCancelledDuringGrantPassesItOn(t *testing.T) {
	for name, others := range map[string]bool{"to the next": true, "to nobody": false} {
		t.Run(name, func(t *testing.T) {
			scripted(t, func(t *testing.T, s *script, c *Coordinator) {
				h := &Hold{parent: t.Context(), actor: c.actorOf("k")}
				require.Equal(t, mustWait, h.actor.lock(h, lease.Mutex, lease.Exclusive, &c.Mutex("k").conf, &call{}, nil))
				a := h.claim
				var b *attempt
				if others {
					b = lockOf(t, c.Mutex("k"))
				}
				s.next(lease.Acquire).held(1, 100)
				require.Equal(t, granted, a.state) // and its caller does not know yet
				err, _ := h.actor.cancel(a, telemetry.Timeout)
				require.ErrorIs(t, err, ErrNotAcquired)
				if others {
					require.EqualValues(t, 2, b.holds().Token())
				} else {
					s.after(50*time.Millisecond, lease.Release)
				}
			})
		})
	}
}

func TestRefusalStandsThoughTheCallerIsCancelledInTheSameInstant(t *testing.T) {
	scripted(t, func(t *testing.T, s *script, c *Coordinator) {
		h := &Hold{parent: t.Context(), actor: c.actorOf("k")}
		require.Equal(t, mustWait, h.actor.lock(h, lease.Mutex, lease.Exclusive, &c.Mutex("k").conf, &call{}, nil))
		a := h.claim
		s.next(lease.Acquire).fail(lease.ErrKind)
		err, _ := h.actor.cancel(a, telemetry.Timeout)
		require.ErrorIs(t, err, ErrKind)
	})
}

func TestCancelAndGrantAtOneMomentEndInAHoldOrAnError(t *testing.T) {
	for range 50 {
		scripted(t, func(t *testing.T, s *script, c *Coordinator) {
			ctx, cancel := context.WithTimeout(t.Context(), 10*time.Millisecond)
			defer cancel()
			a := begin(t, func() (*Hold, error) { return c.Mutex("k").Lock(ctx) })
			b := lockOf(t, c.Mutex("k"))
			q := s.next(lease.Acquire)
			time.AfterFunc(10*time.Millisecond, func() { q.answer(lease.Reply{Status: lease.Held, First: 1, Last: 50}, nil) })
			time.Sleep(10 * time.Millisecond)
			synctest.Wait()
			require.True(t, a.done.Load())
			require.NotEqual(t, a.hold == nil, a.err == nil, "both or neither")
			if a.err == nil {
				b.waits()
				unlock(t, a.hold)
			}
			b.holds()
		})
	}
}

func TestWaitersOfACancelledTicketShareIt(t *testing.T) {
	scripted(t, func(t *testing.T, s *script, c *Coordinator) {
		ctx, cancel := context.WithCancel(t.Context())
		a := begin(t, func() (*Hold, error) { return c.Mutex("k").Lock(ctx) })
		q := s.next(lease.Acquire)
		cancel()
		a.fails(context.Canceled)
		b := lockOf(t, c.Mutex("k"))
		q.waits()
		s.quiet(0)
		s.grant(q.Ticket, 1, 100)
		b.holds()
	})
}

func TestEndedContextSendsNothing(t *testing.T) {
	scripted(t, func(t *testing.T, s *script, c *Coordinator) {
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		for _, m := range []*Mutex{c.Mutex("k"), c.Mutex("k", EndWith(ctx))} {
			use := ctx
			if m.conf.endWith != nil {
				use = t.Context()
			}
			a := begin(t, func() (*Hold, error) { return m.Lock(use) })
			require.ErrorIs(t, a.fails(ErrNotAcquired), context.Canceled)
		}
		s.quiet(0)
		require.Zero(t, c.live.Load())
	})
}

func TestMaxWaiters(t *testing.T) {
	scripted(t, func(t *testing.T, s *script, c *Coordinator) {
		a := lockOf(t, c.Mutex("k"))
		s.next(lease.Acquire).held(1, 100)
		b, d := lockOf(t, c.Mutex("k")), lockOf(t, c.Mutex("k"))
		e := lockOf(t, c.Mutex("k"))
		require.Zero(t, e.fails(ErrTooManyWaiters).Waited)
		tryOf(t, c.Mutex("k")).fails(ErrNotAcquired) // it would not wait
		lockOf(t, c.Mutex("another"))
		s.next(lease.Acquire).held(1, 100)
		unlock(t, a.holds())
		b.holds()
		e = lockOf(t, c.Mutex("k"))
		e.waits()
		d.waits()
	}, WithMaxWaiters(2))
}
