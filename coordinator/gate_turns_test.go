package coordinator

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/go-leasehold/leasehold/lease"
	"github.com/go-leasehold/leasehold/telemetry"
)

// Who has the gate shut, and who comes in then.

func TestLocalWriterWaitsForReadersAndLaterReadersForIt(t *testing.T) {
	for _, mode := range []lease.Mode{lease.Exclusive, lease.Shared} {
		t.Run(mode.String(), func(t *testing.T) {
			scripted(t, func(t *testing.T, s *script, c *Coordinator) {
				l := c.ReadWrite("k")
				ticket := opened(t, s, l, mode)
				a, b, in := passes(t, l), passes(t, l), asks(t, c.ReadWrite("k", MaxHold(time.Hour)))
				w := writes(t, l)
				require.False(t, isOpen(c))
				tryRW(t, l, lease.Shared).fails(ErrNotAcquired)
				tryRW(t, l, lease.Exclusive).fails(ErrNotAcquired)
				later := []*attempt{reads(t, l), reads(t, l)}
				require.Equal(t, 2, s.key(c).Readers)
				unlock(t, a)
				unlock(t, in)
				w.waits()
				s.quiet(0)
				unlock(t, b) // the last one out
				if mode == lease.Shared {
					r := s.next(lease.Release)
					require.Equal(t, ticket, r.Ticket)
					require.Equal(t, lease.Exclusive, r.Next.Mode)
					r.held(2001, 3000)
				}
				h := w.holds()
				require.Greater(t, h.Token(), b.Token())
				for _, a := range later {
					a.waits()
				}
				second := writes(t, l)
				unlock(t, h)
				for _, a := range later {
					require.Equal(t, h.Token(), a.holds().Token(), "nobody has written since")
				}
				second.waits()
				require.False(t, isOpen(c))
				unlock(t, later[0].holds())
				unlock(t, later[1].holds())
				require.Greater(t, second.holds().Token(), h.Token())
				unlock(t, second.holds())
			})
		})
	}
}

func TestGateOpensAgainWhenTheWriterGoesAway(t *testing.T) {
	scripted(t, func(t *testing.T, s *script, c *Coordinator) {
		l := c.ReadWrite("k")
		opened(t, s, l, lease.Shared)
		h := passes(t, l)
		w := begin(t, func() (*Hold, error) { return l.TryLockFor(t.Context(), lease.Exclusive, 20*time.Millisecond) })
		behind := reads(t, l)
		s.quiet(20*time.Millisecond - 1)
		require.False(t, behind.done.Load())
		s.quiet(1)
		w.fails(ErrNotAcquired)
		require.Equal(t, h.Token(), behind.holds().Token())
		require.True(t, isOpen(c))
		unlock(t, passes(t, l))
		unlock(t, behind.holds())
		require.Equal(t, 1, s.key(c).Readers)
		w = writes(t, l) // and it is shut once more
		unlock(t, h)
		s.next(lease.Release).held(2001, 3000)
		w.holds()
	})
}

func TestTryLockOfAWriterUnderTheGate(t *testing.T) {
	t.Run("with a reader inside", func(t *testing.T) {
		for _, mode := range []lease.Mode{lease.Exclusive, lease.Shared} {
			scripted(t, func(t *testing.T, s *script, c *Coordinator) {
				l := c.ReadWrite("k")
				opened(t, s, l, mode)
				h := passes(t, l)
				for range 3 {
					tryRW(t, l, lease.Exclusive).fails(ErrNotAcquired)
					require.True(t, isOpen(c), "nobody waits")
					unlock(t, passes(t, l))
				}
				unlock(t, h)
				require.Equal(t, 1, s.commands())
			})
		}
	})
	t.Run("with nobody inside, exclusive", func(t *testing.T) {
		scripted(t, func(t *testing.T, s *script, c *Coordinator) {
			l := c.ReadWrite("k")
			opened(t, s, l, lease.Exclusive)
			h := tryRW(t, l, lease.Exclusive).holds()
			tryRW(t, l, lease.Shared).fails(ErrNotAcquired)
			reads(t, l).waits()
			unlock(t, h)
			require.Equal(t, 1, s.commands())
		})
	})
	t.Run("with nobody inside, shared", func(t *testing.T) {
		scripted(t, func(t *testing.T, s *script, c *Coordinator) {
			l := c.ReadWrite("k")
			opened(t, s, l, lease.Shared)
			a := tryRW(t, l, lease.Exclusive)
			r := s.next(lease.Release)
			require.Equal(t, lease.Exclusive, r.Next.Mode)
			require.True(t, r.Next.Ask)
			r.held(2001, 3000)
			a.holds()
		})
	})
	t.Run("with nobody inside, shared by others as well", func(t *testing.T) {
		scripted(t, func(t *testing.T, s *script, c *Coordinator) {
			l := c.ReadWrite("k")
			opened(t, s, l, lease.Shared)
			a := tryRW(t, l, lease.Exclusive)
			r := s.next(lease.Release)
			r.waits()
			a.waits()
			s.emit(lease.InUse, "k", r.Next.Ticket)
			a.fails(ErrNotAcquired)
		})
	})
}

func TestWantShutsTheGateAndTheLastOneOutReleases(t *testing.T) {
	for name, behind := range map[string]bool{"nobody waits here": false, "a reader waits here": true} {
		t.Run(name, func(t *testing.T) {
			scripted(t, func(t *testing.T, s *script, c *Coordinator) {
				l := c.ReadWrite("k")
				ticket := opened(t, s, l, lease.Shared)
				a, b := passes(t, l), passes(t, l)
				s.emit(lease.Wanted, "k", ticket)
				require.False(t, isOpen(c))
				require.True(t, s.key(c).Wanted)
				time.Sleep(time.Millisecond) // after the want
				var later *attempt
				if behind {
					later = reads(t, l)
					later.waits()
				}
				tryRW(t, l, lease.Shared).fails(ErrNotAcquired)
				unlock(t, b)
				s.quiet(30 * time.Millisecond)
				require.NoError(t, a.Err())
				unlock(t, a)
				r := s.next(lease.Release)
				require.Equal(t, ticket, r.Ticket)
				if !behind {
					require.Nil(t, r.Next)
					return
				}
				require.Equal(t, lease.Shared, r.Next.Mode)
				require.Equal(t, 30*time.Millisecond, r.Next.Age)
				r.waits()
				later.waits()
				s.grant(r.Next.Ticket, 2001, 3000)
				require.EqualValues(t, 2001, later.holds().Token())
				unlock(t, later.holds())
			})
		})
	}
}

func TestWantUnderAnIdleGateReleasesAtOnce(t *testing.T) {
	for _, mode := range []lease.Mode{lease.Exclusive, lease.Shared} {
		for _, asker := range []string{"", "other:1"} {
			scripted(t, func(t *testing.T, s *script, c *Coordinator) {
				l := c.ReadWrite("k")
				ticket := opened(t, s, l, mode)
				s.tell(lease.Event{Type: lease.Wanted, Key: "k", Ticket: ticket, Asker: asker})
				s.next(lease.Release).end()
				s.quiet(0) // it is not busy
				require.Empty(t, c.Snapshot().Keys)
			}, WithSharedRetention(time.Hour))
		}
	}
}

func TestWantIsAnsweredBusyWithAReaderInside(t *testing.T) {
	scripted(t, func(t *testing.T, s *script, c *Coordinator) {
		l := c.ReadWrite("k")
		ticket := opened(t, s, l, lease.Shared)
		h := passes(t, l)
		s.tell(lease.Event{Type: lease.Wanted, Key: "k", Ticket: ticket, Asker: "other:1"})
		q := s.next(lease.Busy)
		require.Equal(t, "other:1", q.Asker)
		s.quiet(0)
		unlock(t, h)
		s.next(lease.Release)
	})
}

func TestGateOpensAgainWhenTheWantIsWithdrawn(t *testing.T) {
	scripted(t, func(t *testing.T, s *script, c *Coordinator) {
		l := c.ReadWrite("k")
		ticket := opened(t, s, l, lease.Shared)
		h := passes(t, l)
		s.emit(lease.Wanted, "k", ticket)
		time.Sleep(time.Millisecond)
		later := reads(t, l)
		// It asks whether it is still wanted, at growing distances.
		s.after(checkHoldAfter-time.Millisecond, lease.Renew).reply(lease.Reply{Status: lease.Held, Waiters: 1})
		s.after(2*checkHoldAfter, lease.Renew).reply(lease.Reply{Status: lease.Held, Waiters: 1})
		later.waits()
		require.False(t, isOpen(c))
		s.after(4*checkHoldAfter, lease.Renew).held(0, 0)
		unlock(t, later.holds())
		require.True(t, isOpen(c))
		unlock(t, passes(t, l))
		q := s.after(time.Second, lease.Renew)
		s.emit(lease.Wanted, "k", ticket) // after the renewal was sent: it may not know
		q.held(0, 0)
		require.False(t, isOpen(c))
		unlock(t, h)
		s.next(lease.Release)
	})
}

func TestReadersBeforeTheWantGoFirst(t *testing.T) {
	scripted(t, func(t *testing.T, s *script, c *Coordinator) {
		l := c.ReadWrite("k", MaxHold(time.Hour)) // all of them ask
		a := reads(t, l)
		q := s.next(lease.Acquire)
		before := reads(t, l)
		time.Sleep(time.Millisecond)
		s.emit(lease.Wanted, "k", q.Ticket) // before the grant
		q.held(1, 100)
		a.holds()
		before.holds()
		time.Sleep(time.Millisecond)
		after := reads(t, l)
		after.waits()
		unlock(t, a.holds())
		after.waits()
		s.quiet(0)
		unlock(t, before.holds())
		require.Equal(t, lease.Shared, s.next(lease.Release).Next.Mode)
	})
}

// Kinds.

func TestMutexOfAKeyThatIsRead(t *testing.T) {
	t.Run("with a reader inside", func(t *testing.T) {
		scripted(t, func(t *testing.T, s *script, c *Coordinator) {
			l := c.ReadWrite("k")
			opened(t, s, l, lease.Shared)
			h := passes(t, l)
			lockOf(t, c.Mutex("k")).fails(ErrKind)
			tryOf(t, c.Mutex("k")).fails(ErrKind)
			require.NoError(t, h.Err())
			require.True(t, isOpen(c))
			unlock(t, passes(t, l))
			unlock(t, h)
			require.Equal(t, 1, s.commands())
		})
	})
	t.Run("with nobody inside", func(t *testing.T) {
		scripted(t, func(t *testing.T, s *script, c *Coordinator) {
			l := c.ReadWrite("k")
			ticket := opened(t, s, l, lease.Shared)
			m := lockOf(t, c.Mutex("k"))
			r := s.next(lease.Release)
			require.Equal(t, ticket, r.Ticket)
			require.Equal(t, lease.ReadWrite, r.Kind)
			r.end()
			q := s.next(lease.Acquire)
			require.Equal(t, lease.Mutex, q.Kind)
			q.held(2001, 3000)
			reads(t, l).fails(ErrKind)
			unlock(t, m.holds())
			for range 4 { // many in a row: they are no readers
				unlock(t, lockOf(t, c.Mutex("k")).holds())
			}
			require.False(t, isOpen(c))
			a := reads(t, l)
			s.next(lease.Release).end()
			s.next(lease.Acquire).held(3001, 4000)
			unlock(t, a.holds())
			unlock(t, asks(t, l))
			h := passes(t, l)
			require.EqualValues(t, 3001, h.Token())
		})
	})
	t.Run("that is lost then", func(t *testing.T) {
		scripted(t, func(t *testing.T, s *script, c *Coordinator) {
			l := c.ReadWrite("k")
			opened(t, s, l, lease.Shared)
			h := passes(t, l)
			s.after(time.Second, lease.Renew).reply(lease.Reply{Status: lease.Lost})
			m := lockOf(t, c.Mutex("k")) // h is over, so it is in nobody's way
			s.next(lease.Acquire).held(2001, 3000)
			isOver(t, h, ErrLeaseLost)
			require.NoError(t, m.holds().Err())
		})
	})
}

// Promotion: something is asked of a hold that needs the actor.

func TestPassedHoldBecomesAnOrdinaryOne(t *testing.T) {
	for name, ask := range map[string]func(t *testing.T, h *Hold){
		"Context": func(_ *testing.T, h *Hold) { h.Context() },
		"Extend":  func(t *testing.T, h *Hold) { require.ErrorIs(t, h.Extend(time.Hour), ErrNoMaxHold) },
		"Downgrade": func(t *testing.T, h *Hold) {
			_, err := h.Downgrade()
			require.ErrorIs(t, err, ErrNotExclusive)
		},
	} {
		t.Run(name, func(t *testing.T) {
			scripted(t, func(t *testing.T, s *script, c *Coordinator) {
				l := c.ReadWrite("k")
				opened(t, s, l, lease.Exclusive)
				h, other := passes(t, l), passes(t, l)
				token, grants := h.Token(), c.Snapshot().Stats.Grants
				ask(t, h)
				require.Equal(t, ordinary, h.way())
				require.Equal(t, token, h.Token())
				require.Equal(t, 1, h.Count())
				k := s.key(c)
				require.Equal(t, 1, k.Readers)
				require.Len(t, k.Holds, 1)
				require.Equal(t, HoldSnapshot{
					Mode: lease.Shared, Token: token, Count: 1, Reads: 1, Path: telemetry.PathPassed, Owner: k.Holds[0].Owner,
				}, k.Holds[0])
				require.Equal(t, grants, c.Snapshot().Stats.Grants, "it is counted once")
				require.EqualValues(t, 2, c.Snapshot().Stats.Passed)
				unlock(t, passes(t, l)) // the gate stays open
				w := writes(t, l)
				unlock(t, other)
				w.waits()
				require.NoError(t, h.Err())
				unlock(t, h)
				isOverReleased(t, h)
				w.holds()
				require.Equal(t, 1, s.commands())
			})
		})
	}
}

func TestPromotionWhileTheGateIsShut(t *testing.T) {
	for name, writer := range map[string]bool{"by a writer": true, "by a want": false} {
		t.Run(name, func(t *testing.T) {
			scripted(t, func(t *testing.T, s *script, c *Coordinator) {
				l := c.ReadWrite("k")
				ticket := opened(t, s, l, lease.Shared)
				h, other := passes(t, l), passes(t, l)
				var w *attempt
				if writer {
					w = writes(t, l)
				} else {
					s.emit(lease.Wanted, "k", ticket)
				}
				ctx := h.Context() // the gate is other's alone now
				unlock(t, other)   // and empty
				s.quiet(0)
				require.Zero(t, s.key(c).Readers)
				in := begin(t, func() (*Hold, error) { return l.Lock(ctx, lease.Shared) }).holds()
				require.Equal(t, 2, in.Count(), "an owner is not kept waiting")
				unlock(t, h)
				s.quiet(0)
				require.ErrorIs(t, context.Cause(ctx), ErrReleased)
				unlock(t, in)
				r := s.next(lease.Release)
				require.Equal(t, ticket, r.Ticket)
				require.Equal(t, writer, r.Next != nil)
				if writer {
					r.held(2001, 3000)
					w.holds()
				}
			})
		})
	}
}

// TestReaderThatIsSentBackAndGoesAwayIsNotWaitedFor has a reader sent back by the
// gate, after the actor has taken it for one that is inside, and its context ended
// before it gets to the actor.
func TestReaderThatIsSentBackAndGoesAwayIsNotWaitedFor(t *testing.T) {
	onABed(t, func(t *testing.T, s *script, c *Coordinator, b *bed) {
		l := c.ReadWrite("k")
		ticket := opened(t, s, l, lease.Exclusive)
		often(t, l)
		s.emit(lease.Wanted, "k", ticket) // the gate is open to the end of the turn, in 5 ms
		k := c.clock
		k.slept = func() (time.Duration, bool) { // the reader is inside, and looks at the clock
			k.slept = b.ask
			k.offset.Add(int64(time.Second))
			time.Sleep(10 * time.Millisecond)
			b.slept += 10 * time.Millisecond
			return b.ask()
		}
		stepWall(k, time.Second)
		a := begin(t, func() (*Hold, error) { return l.Lock(&fleeting{Context: t.Context()}, lease.Shared) })
		s.after(5*time.Millisecond, lease.Downgrade).reply(lease.Reply{Status: lease.Held, Waiters: 1})
		require.False(t, isOpen(c))
		r := s.after(5*time.Millisecond, lease.Release)
		require.Equal(t, ticket, r.Ticket)
		a.fails(context.Canceled)
	})
}
