package coordinator

import (
	"context"
	"errors"
	"runtime"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/go-leasehold/leasehold/lease"
)

// How holds that passed the gate end.

func TestPassedHoldsEndWithTheirLease(t *testing.T) {
	stillWatched := lease.Reply{Status: lease.Held, Watched: true, Present: true}
	for name, lose := range map[string]func(s *script, c *Coordinator){
		"answered lost": func(s *script, _ *Coordinator) {
			s.after(time.Second, lease.Renew).reply(lease.Reply{Status: lease.Lost})
		},
		"changed": func(s *script, _ *Coordinator) {
			s.emit(lease.Changed, "k", 0)
			s.within(checkHoldAfter, lease.Renew).reply(lease.Reply{Status: lease.Lost})
		},
		"everything changed": func(s *script, _ *Coordinator) {
			s.tell(lease.Event{Type: lease.ChangedAll})
			s.next(lease.Renew).reply(lease.Reply{Status: lease.Lost})
		},
		"became something else": func(s *script, _ *Coordinator) {
			s.after(time.Second, lease.Renew).fail(lease.ErrKind)
			synctest.Wait() // contexts end beside the handler
		},
		"answered too late": func(s *script, _ *Coordinator) {
			q := s.after(time.Second, lease.Renew)
			time.Sleep(believed - time.Second)
			q.held(0, 0)
		},
	} {
		for _, mode := range []lease.Mode{lease.Exclusive, lease.Shared} {
			t.Run(name+", "+mode.String(), func(t *testing.T) {
				tracked(t, func(t *testing.T, s *script, c *Coordinator) {
					l := c.ReadWrite("k")
					opened(t, s, l, mode)
					h, promoted, ended := passes(t, l), passes(t, l), passes(t, l)
					asked := asks(t, c.ReadWrite("k", MaxHold(time.Hour)))
					ctx := promoted.Context()
					unlock(t, ended)
					s.after(100*time.Millisecond, lease.Renew).reply(stillWatched)
					w := writes(t, l)
					lose(s, c)
					require.ErrorIs(t, context.Cause(ctx), ErrLeaseLost)
					for _, h := range []*Hold{h, promoted, asked} {
						isOver(t, h, ErrLeaseLost)
					}
					require.ErrorIs(t, ended.Unlock(), ErrNotHeld)
					require.ErrorIs(t, ended.Err(), ErrNotHeld)
					stats := c.Snapshot().Stats
					require.EqualValues(t, 1, stats.Lost)
					require.EqualValues(t, 2+mode, stats.Passed, "three here, and one that opened it where all are reads")
					require.EqualValues(t, 7, stats.Grants)
					w.waits()
					require.False(t, isOpen(c))
					q := s.take()
					if q == nil {
						q = s.next(lease.Acquire)
					}
					q.held(2001, 3000)
					require.EqualValues(t, 2001, w.holds().Token())
					unlock(t, w.holds())
				}, WithRetention(time.Minute))
			})
		}
	}
}

func TestGateIsWatchedWithTrackingOnceItIsOld(t *testing.T) {
	tracked(t, func(t *testing.T, s *script, c *Coordinator) {
		l := c.ReadWrite("k")
		ticket := opened(t, s, l, lease.Shared)
		for range 9 {
			s.quiet(10 * time.Millisecond)
			unlock(t, passes(t, l))
		}
		q := s.after(10*time.Millisecond, lease.Renew)
		require.Equal(t, lease.Owner(c.ID(), ticket), q.Watch)
		q.reply(lease.Reply{Status: lease.Held, Watched: true, Present: true})
		s.quiet(500 * time.Millisecond)
		q = s.after(500*time.Millisecond, lease.Renew)
		require.NotEmpty(t, q.Watch, "usual renewals look as well")
	}, WithRetention(time.Minute))
}

func TestPassedHoldIsWatchedAfterItHasBecomeAnOrdinaryOne(t *testing.T) {
	tracked(t, func(t *testing.T, s *script, c *Coordinator) {
		l := c.ReadWrite("k")
		opened(t, s, l, lease.Shared)
		h := passes(t, l)
		s.after(checkHoldAfter, lease.Renew).reply(lease.Reply{Status: lease.Held, Watched: true, Present: true})
		s.quiet(checkHoldAfter / 2)
		h.Context()
		q := s.after(checkHoldAfter, lease.Renew)
		require.NotEmpty(t, q.Watch)
		q.reply(lease.Reply{Status: lease.Held, Watched: true, Present: true})
		unlock(t, h)
	}, WithRetention(time.Minute))
}

func TestLossWithNobodyInsideIsNone(t *testing.T) {
	scripted(t, func(t *testing.T, s *script, c *Coordinator) {
		l := c.ReadWrite("k")
		opened(t, s, l, lease.Shared)
		s.after(time.Second, lease.Renew).reply(lease.Reply{Status: lease.Lost})
		require.Zero(t, c.Snapshot().Stats.Lost)
		require.Empty(t, c.Snapshot().Keys)
		a := reads(t, l)
		s.next(lease.Acquire).held(2001, 3000)
		require.EqualValues(t, 2001, a.holds().Token())
	}, WithRetention(time.Minute))
}

func TestCloseLetsPassedHoldsFinishUntilItsContextEnds(t *testing.T) {
	scripted(t, func(t *testing.T, s *script, c *Coordinator) {
		l := c.ReadWrite("k")
		ticket := opened(t, s, l, lease.Shared)
		h, other, promoted := passes(t, l), passes(t, l), passes(t, l)
		ctx := promoted.Context()
		z := closing(t, c, 1900*time.Millisecond)
		unlock(t, other)
		require.NoError(t, h.Err())
		s.after(time.Second, lease.Renew).held(0, 0)
		time.Sleep(900*time.Millisecond - 1)
		require.NoError(t, h.Err())
		require.NoError(t, ctx.Err())
		time.Sleep(time.Nanosecond)
		r := s.next(lease.Release)
		require.Equal(t, ticket, r.Ticket)
		r.end()
		isOver(t, h, ErrClosed)
		isOver(t, promoted, ErrClosed)
		require.ErrorIs(t, context.Cause(ctx), ErrClosed)
		require.ErrorIs(t, other.Unlock(), ErrNotHeld)
		z.waitOver()
		reads(t, l).fails(ErrClosed)
	})
}

func TestStoreThatClosesEndsPassedHolds(t *testing.T) {
	scripted(t, func(t *testing.T, s *script, c *Coordinator) {
		l := c.ReadWrite("k")
		opened(t, s, l, lease.Shared)
		h := passes(t, l)
		s.after(time.Second, lease.Renew).fail(lease.ErrStoreClosed)
		synctest.Wait()
		isOver(t, h, ErrClosed)
	})
}

// TestHoldOutlivesItsGateAndItsActor looks at holds of which nothing is left but
// themselves, beside a new lease with a gate of its own.
func TestHoldOutlivesItsGateAndItsActor(t *testing.T) {
	for name, waits := range map[string]bool{"the actor has gone": false, "the actor goes on": true} {
		t.Run(name, func(t *testing.T) {
			scripted(t, func(t *testing.T, s *script, c *Coordinator) {
				l := c.ReadWrite("k")
				opened(t, s, l, lease.Shared)
				var old [3]*Hold
				for i := range old {
					old[i] = passes(t, l)
				}
				var a *attempt
				if waits {
					a = writes(t, l)
				}
				s.after(time.Second, lease.Renew).reply(lease.Reply{Status: lease.Lost})
				if !waits {
					require.Zero(t, c.live.Load())
					a = writes(t, l)
				}
				s.next(lease.Acquire).held(2001, 3000)
				isOver(t, old[0], ErrLeaseLost) // beside a writer
				require.NoError(t, a.holds().Err())
				require.Len(t, s.key(c).Holds, 1)
				unlock(t, a.holds())
				unlock(t, asks(t, l))
				unlock(t, asks(t, l))
				h := passes(t, l)
				require.Equal(t, !waits, old[1].actor != h.actor)
				require.NotSame(t, old[1].passed.gate, h.passed.gate, "a gate that was lost is not used again")
				require.ErrorIs(t, old[1].Unlock(), ErrLeaseLost)
				require.ErrorIs(t, context.Cause(old[2].Context()), ErrLeaseLost)
				require.NoError(t, h.Err())
				require.Equal(t, 1, s.key(c).Readers)
				b := writes(t, l)
				b.waits() // old ones are not inside, h is
				unlock(t, h)
				require.NoError(t, b.holds().Err())
			})
		})
	}
}

// Two at once.

func TestPassedHoldIsUnlockedOnce(t *testing.T) {
	scripted(t, func(t *testing.T, s *script, c *Coordinator) {
		l := c.ReadWrite("k")
		opened(t, s, l, lease.Shared)
		for i := range 300 {
			h := passes(t, l)
			var wg sync.WaitGroup
			var errs [4]error
			for j := range errs {
				wg.Go(func() {
					if j == 3 && i%2 == 0 {
						h.Context()
					}
					errs[j] = h.Unlock()
				})
			}
			wg.Wait()
			content := 0
			for _, err := range errs {
				if err == nil {
					content++
				} else {
					require.ErrorIs(t, err, ErrNotHeld)
				}
			}
			require.Equal(t, 1, content)
			require.Zero(t, s.key(c).Readers)
			require.Empty(t, s.key(c).Holds)
			isOverReleased(t, h)
		}
		require.Equal(t, 1, s.commands())
	})
}

// isOverReleased is isOver for a hold that was unlocked.
func isOverReleased(t *testing.T, h *Hold) {
	t.Helper()
	require.ErrorIs(t, h.Err(), ErrNotHeld)
	require.ErrorIs(t, context.Cause(h.Context()), ErrReleased)
	require.ErrorIs(t, h.Unlock(), ErrNotHeld)
	require.ErrorIs(t, h.Extend(time.Second), ErrNotHeld)
	_, err := h.Downgrade()
	require.ErrorIs(t, err, ErrNotHeld)
	require.Zero(t, h.Count())
}

func TestContextOfAPassedHoldRacesWithItsUnlock(t *testing.T) {
	scripted(t, func(t *testing.T, s *script, c *Coordinator) {
		l := c.ReadWrite("k")
		opened(t, s, l, lease.Shared)
		for range 300 {
			h := passes(t, l)
			var wg sync.WaitGroup
			var contexts [2]context.Context
			for i := range contexts {
				wg.Go(func() { contexts[i] = h.Context() })
			}
			wg.Go(func() {
				if err := h.Unlock(); err != nil {
					t.Errorf("Unlock: %v", err)
				}
			})
			wg.Go(func() {
				if err := h.Err(); err != nil && !errors.Is(err, ErrNotHeld) {
					t.Errorf("Err: %v", err)
				}
				h.Count()
			})
			wg.Wait()
			require.Same(t, contexts[0], contexts[1], "there is one context")
			require.ErrorIs(t, context.Cause(contexts[0]), ErrReleased)
			require.Empty(t, s.key(c).Holds)
			require.Zero(t, s.key(c).Readers)
		}
	})
}

func TestUnlockRacesWithTheLossOfItsLease(t *testing.T) {
	for range 100 {
		scripted(t, func(t *testing.T, s *script, c *Coordinator) {
			l := c.ReadWrite("k")
			opened(t, s, l, lease.Shared)
			h := passes(t, l)
			q := s.after(time.Second, lease.Renew)
			var wg sync.WaitGroup
			var errs [3]error
			for i := range errs {
				wg.Go(func() {
					if i == 2 {
						h.Context()
					}
					errs[i] = h.Unlock()
				})
			}
			wg.Go(func() { q.answer(lease.Reply{Status: lease.Lost}, nil) })
			wg.Wait()
			synctest.Wait()
			first := error(nil)
			for _, err := range errs {
				if errors.Is(err, ErrLeaseLost) {
					first = err
				}
			}
			for i, err := range errs {
				switch {
				case first != nil:
					require.ErrorIs(t, err, ErrLeaseLost, "%d: %v", i, errs)
				case err != nil:
					require.ErrorIs(t, err, ErrNotHeld, "%d: %v", i, errs)
				}
			}
			require.Empty(t, c.Snapshot().Keys)
		}, WithRetention(time.Minute))
	}
}

// TestSecondUnlockOfAPassedHold has a second Unlock, which knows of the loss, meet
// the end of the first one, which looked before it.
func TestSecondUnlockOfAPassedHold(t *testing.T) {
	onABed(t, func(t *testing.T, s *script, c *Coordinator, b *bed) {
		l := c.ReadWrite("k")
		opened(t, s, l, lease.Shared)
		h := passes(t, l)
		s.after(time.Second, lease.Renew).reply(lease.Reply{Status: lease.Lost})
		k, looks := c.clock, 0
		k.slept = func() (time.Duration, bool) {
			if looks++; looks == 2 { // the second Unlock has the actor's mutex, and has seen that h is not unlocked
				if h.passed.way.CompareAndSwap(passing, gone) { // as the first one does it, which looked before the loss
					h.passed.leave()
				}
			}
			return b.ask()
		}
		stepWall(k, time.Second)
		h.actor.mu.Lock()
		second := begin2(func() error { return h.Unlock() })
		for k.looked.Load() == 0 { // until it has looked for the first time
			runtime.Gosched()
		}
		stepWall(k, time.Second)
		h.actor.mu.Unlock()
		require.ErrorIs(t, <-second, ErrNotHeld)
		require.Equal(t, 2, looks)
		isOverReleased(t, h)
	}, WithRetention(time.Minute))
}

// begin2 runs f in a goroutine of its own.
func begin2(f func() error) <-chan error {
	done := make(chan error, 1)
	go func() { done <- f() }()
	return done
}
