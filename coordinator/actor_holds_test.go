package coordinator

import (
	"context"
	"errors"
	"math"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/go-leasehold/leasehold/lease"
)

// MaxHold, Extend, EndWith, Do: what ends a hold beside Unlock.

func TestMaxHoldEndsTheHoldAndPassesTheLockOn(t *testing.T) {
	scripted(t, func(t *testing.T, s *script, c *Coordinator) {
		a := lockOf(t, c.Mutex("k", MaxHold(400*time.Millisecond)))
		s.next(lease.Acquire).held(1, 100)
		b := lockOf(t, c.Mutex("k"))
		h := a.holds()
		endsIn(t, h, 400*time.Millisecond, ErrHoldExpired)
		require.EqualValues(t, 2, b.holds().Token())
		require.ErrorIs(t, h.Unlock(), ErrHoldExpired)
		require.ErrorIs(t, h.Err(), ErrHoldExpired)
		require.Zero(t, h.Count())
		require.ErrorIs(t, h.Extend(time.Second), ErrHoldExpired)
		require.True(t, b.holds().Valid())
		require.ErrorIs(t, b.holds().Extend(time.Second), ErrNoMaxHold)
		require.EqualValues(t, 1, c.Snapshot().Stats.Expired)
	})
}

func TestMaxHoldEndsAnAbandonedLease(t *testing.T) {
	scripted(t, func(t *testing.T, s *script, c *Coordinator) {
		a := lockOf(t, c.Mutex("k", MaxHold(400*time.Millisecond)))
		s.next(lease.Acquire).held(1, 100)
		s.after(450*time.Millisecond, lease.Release).end() // the retention comes on top
		s.quiet(time.Minute)                               // and no renewal after it
		require.ErrorIs(t, a.holds().Err(), ErrHoldExpired)
	})
}

func TestExtendPutsTheEndOffFromNow(t *testing.T) {
	scripted(t, func(t *testing.T, s *script, c *Coordinator) {
		a := lockOf(t, c.Mutex("k", MaxHold(400*time.Millisecond)))
		s.next(lease.Acquire).held(1, 100)
		h := a.holds()
		time.Sleep(300 * time.Millisecond)
		require.NoError(t, h.Extend(500*time.Millisecond))
		time.Sleep(400 * time.Millisecond)
		require.True(t, h.Valid())
		require.NoError(t, h.Extend(50*time.Millisecond)) // also nearer
		endsIn(t, h, 50*time.Millisecond, ErrHoldExpired)
		require.ErrorIs(t, h.Extend(0), ErrInvalid)
		require.ErrorIs(t, h.Extend(-1), ErrInvalid)
		require.ErrorIs(t, (*Hold)(nil).Extend(1), ErrNotHeld)
	})
}

func TestMaxHoldOfAReentryEndsWithIt(t *testing.T) {
	scripted(t, func(t *testing.T, s *script, c *Coordinator) {
		a := lockOf(t, c.Mutex("k"))
		s.next(lease.Acquire).held(1, 100)
		h := a.holds()
		in, err := c.Mutex("k", MaxHold(200*time.Millisecond)).Lock(h.Context())
		require.NoError(t, err)
		require.ErrorIs(t, h.Extend(time.Second), ErrNoMaxHold)
		require.NoError(t, in.Extend(300*time.Millisecond))
		unlock(t, in) // takes its limit along
		time.Sleep(800 * time.Millisecond)
		require.True(t, h.Valid())
		_, err = c.Mutex("k", MaxHold(100*time.Millisecond)).Lock(h.Context())
		require.NoError(t, err)
		endsIn(t, h, 100*time.Millisecond, ErrHoldExpired)
	})
}

func TestEndWithEndsTheHold(t *testing.T) {
	scripted(t, func(t *testing.T, s *script, c *Coordinator) {
		gone := errors.New("the client has gone")
		ctx, cancel := context.WithCancelCause(t.Context())
		a := lockOf(t, c.Mutex("k", EndWith(ctx)))
		s.next(lease.Acquire).held(1, 100)
		b := lockOf(t, c.Mutex("k"))
		h := a.holds()
		held := h.Context()
		require.NoError(t, held.Err())
		cancel(gone)
		b.holds()
		require.ErrorIs(t, context.Cause(held), ErrHoldExpired)
		require.ErrorIs(t, context.Cause(held), gone)
		require.ErrorIs(t, h.Unlock(), gone)
	})
}

func TestEndWithThatEndedDuringTheWaitEndsTheHold(t *testing.T) {
	scripted(t, func(t *testing.T, s *script, c *Coordinator) {
		ctx, cancel := context.WithCancel(t.Context())
		a := lockOf(t, c.Mutex("k", EndWith(ctx)))
		q := s.next(lease.Acquire)
		cancel()
		synctest.Wait()
		q.held(1, 100)
		if a.waitOver(); a.err == nil {
			synctest.Wait()
			require.ErrorIs(t, a.hold.Err(), context.Canceled)
		}
		s.after(50*time.Millisecond, lease.Release)
	})
}

func TestUnlockOfALostHoldTakesEndWithBack(t *testing.T) {
	scripted(t, func(t *testing.T, s *script, c *Coordinator) {
		ctx := &countingContext{Context: t.Context(), done: make(chan struct{})}
		a := lockOf(t, c.Mutex("k", EndWith(ctx), MaxHold(time.Millisecond)))
		s.next(lease.Acquire).held(1, 100)
		h := a.holds()
		require.Equal(t, 1, ctx.funcs)
		time.Sleep(time.Millisecond)
		require.ErrorIs(t, h.Unlock(), ErrHoldExpired)
		require.Zero(t, ctx.funcs)
	})
}

// countingContext counts what is to be called at its end.
type countingContext struct {
	context.Context
	done  chan struct{}
	funcs int
}

func (c *countingContext) Done() <-chan struct{} { return c.done }

// AfterFunc is what package context looks for.
func (c *countingContext) AfterFunc(func()) func() bool {
	c.funcs++
	return func() bool { c.funcs--; return true }
}

func TestDoEndsWithItsContextAndWithEndWith(t *testing.T) {
	for _, own := range []bool{true, false} {
		scripted(t, func(t *testing.T, s *script, c *Coordinator) {
			ctx, cancel := context.WithCancel(t.Context())
			end, endIt := context.WithCancel(t.Context())
			defer cancel()
			defer endIt()
			a := begin(t, func() (*Hold, error) {
				return nil, c.Mutex("k", EndWith(end)).Do(ctx, func(ctx context.Context) error {
					<-ctx.Done()
					time.Sleep(time.Second) // it does not notice
					return context.Cause(ctx)
				})
			})
			s.next(lease.Acquire).held(1, 100)
			b := lockOf(t, c.Mutex("k"))
			b.waits()
			if own {
				cancel()
			} else {
				endIt()
			}
			b.holds()
			time.Sleep(time.Second)
			a.waitOver()
			require.ErrorIs(t, a.err, ErrHoldExpired)
			require.ErrorIs(t, a.err, context.Canceled)
		})
	}
}

func TestDoTellsOfALossThatItsWorkDidNotSee(t *testing.T) {
	scripted(t, func(t *testing.T, s *script, c *Coordinator) {
		mine := errors.New("mine")
		for _, err := range []error{nil, mine} {
			a := begin(t, func() (*Hold, error) {
				return nil, c.Mutex("k", MaxHold(time.Millisecond)).Do(t.Context(), func(context.Context) error {
					time.Sleep(5 * time.Millisecond)
					return err
				})
			})
			if err == nil {
				s.next(lease.Acquire).held(1, 100)
			}
			time.Sleep(5 * time.Millisecond)
			a.waitOver()
			require.ErrorIs(t, a.err, ErrHoldExpired)
			if err != nil {
				require.ErrorIs(t, a.err, mine)
			}
		}
	})
}

func TestDoUnlocksWhenItsWorkPanics(t *testing.T) {
	scripted(t, func(t *testing.T, s *script, c *Coordinator) {
		go func() {
			defer func() { _ = recover() }()
			_ = c.Mutex("k").Do(t.Context(), func(context.Context) error { panic("oh") })
		}()
		s.next(lease.Acquire).held(1, 100)
		lockOf(t, c.Mutex("k")).holds()
	})
}

func TestEndOfLocksContextDoesNotFreeTheLock(t *testing.T) {
	scripted(t, func(t *testing.T, s *script, c *Coordinator) {
		type key struct{}
		ctx, cancel := context.WithTimeout(context.WithValue(t.Context(), key{}, 7), time.Second/2)
		defer cancel()
		a := begin(t, func() (*Hold, error) { return c.Mutex("k").Lock(ctx) })
		s.next(lease.Acquire).held(1, 100)
		h := a.holds()
		require.Equal(t, 7, h.Context().Value(key{}))
		first := h.Context()
		require.Same(t, first, h.Context())
		time.Sleep(time.Second / 2)
		synctest.Wait()
		require.ErrorIs(t, h.Context().Err(), context.DeadlineExceeded)
		require.True(t, h.Valid())
		unlock(t, h)
		require.ErrorIs(t, h.Err(), ErrNotHeld)
		require.ErrorIs(t, h.Unlock(), ErrNotHeld)
	})
}

func TestLimitOfTryLockForIsNoPartOfTheHold(t *testing.T) {
	scripted(t, func(t *testing.T, s *script, c *Coordinator) {
		a := begin(t, func() (*Hold, error) { return c.Mutex("k").TryLockFor(t.Context(), 100*time.Millisecond) })
		s.next(lease.Acquire).held(1, 100)
		h := a.holds()
		ctx := h.Context()
		time.Sleep(500 * time.Millisecond)
		require.NoError(t, ctx.Err())
		unlock(t, h)
		require.ErrorIs(t, context.Cause(ctx), ErrReleased)
		require.ErrorIs(t, context.Cause(h.Context()), ErrReleased)
	})
}

func TestHugeDurationsMeanForEver(t *testing.T) {
	scripted(t, func(t *testing.T, s *script, c *Coordinator) {
		m := c.Mutex("k", MaxHold(math.MaxInt64))
		a := begin(t, func() (*Hold, error) { return m.TryLockFor(t.Context(), math.MaxInt64) })
		s.next(lease.Acquire).fail(errStore)
		q := s.within(time.Second, lease.Acquire)
		q.reply(lease.Reply{Status: lease.Held, First: 1, Last: 100, Contended: true})
		b := lockOf(t, m)
		require.True(t, a.holds().Valid())
		require.NoError(t, a.hold.Extend(math.MaxInt64))
		unlock(t, a.hold) // within the slice
		unlock(t, b.holds())
		s.next(lease.Release).end()
		a = lockOf(t, m)
		s.next(lease.Acquire).held(101, 200)
		unlock(t, a.holds())
		s.after(time.Second, lease.Renew) // it is retained
	}, WithRetention(math.MaxInt64), WithHandoff(64, math.MaxInt64), WithUnavailableAfter(math.MaxInt64))
}
