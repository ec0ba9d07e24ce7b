package coordinator

import (
	"context"
	"errors"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/go-leasehold/leasehold/lease"
)

// Handles of one owner.

func TestDowngradeOfOneOfSeveralWrites(t *testing.T) {
	scripted(t, func(t *testing.T, s *script, c *Coordinator) {
		l := c.ReadWrite("k")
		h, _ := written(t, s, l)
		in, err := l.Lock(h.Context(), lease.Exclusive)
		require.NoError(t, err)
		counts(t, h, 2, 0)
		r := lowered(t, h)
		counts(t, in, 1, 1)
		counts(t, r, 1, 1)
		other := reads(t, l)
		other.waits()
		s.quiet(200 * time.Millisecond) // it stays exclusive
		_, err = h.Downgrade()
		require.ErrorIs(t, err, ErrNotHeld)
		_, err = r.Downgrade()
		require.ErrorIs(t, err, ErrNotExclusive)
		again, err := l.Lock(r.Context(), lease.Exclusive)
		require.NoError(t, err, "the owner writes still")
		unlock(t, again)
		unlock(t, in) // the last write
		counts(t, r, 0, 1)
		other.holds()
		s.next(lease.Downgrade).held(0, 0)
		begin(t, func() (*Hold, error) { return l.Lock(r.Context(), lease.Exclusive) }).fails(ErrUpgrade)
		unlock(t, r)
		unlock(t, other.holds())
		s.after(50*time.Millisecond, lease.Release)
	})
}

func TestUnlockOfTheLastWriteIsADowngrade(t *testing.T) {
	scripted(t, func(t *testing.T, s *script, c *Coordinator) {
		l := c.ReadWrite("k")
		h, ticket := written(t, s, l)
		ctx := h.Context()
		in, err := l.Lock(context.WithoutCancel(ctx), lease.Shared)
		require.NoError(t, err)
		counts(t, in, 1, 1)
		held := in.Context()
		other := reads(t, l)
		other.waits()
		unlock(t, h)
		other.holds()
		q := s.next(lease.Downgrade)
		require.Equal(t, ticket, q.Ticket)
		q.held(0, 0)
		require.ErrorIs(t, context.Cause(ctx), ErrReleased)
		require.NoError(t, held.Err())
		counts(t, in, 0, 1)
		begin(t, func() (*Hold, error) { return l.Lock(held, lease.Exclusive) }).fails(ErrUpgrade)
		more, err := l.Lock(held, lease.Shared)
		require.NoError(t, err, "its owner is found among the readers")
		require.Equal(t, h.Token(), more.Token())
		unlock(t, in)
		require.NoError(t, more.Err())
		unlock(t, other.holds())
		unlock(t, more)
		s.after(50*time.Millisecond, lease.Release)
	})
}

func TestUnlockOfTheLastReadOfAWriterIsNone(t *testing.T) {
	scripted(t, func(t *testing.T, s *script, c *Coordinator) {
		l := c.ReadWrite("k")
		h, _ := written(t, s, l)
		in, err := l.Lock(h.Context(), lease.Shared)
		require.NoError(t, err)
		unlock(t, in)
		counts(t, h, 1, 0)
		reads(t, l).waits()
		s.quiet(0)
	})
}

func TestHandlesThatAreOverAreNotWatched(t *testing.T) {
	scripted(t, func(t *testing.T, s *script, c *Coordinator) {
		l := c.ReadWrite("k")
		h, _ := written(t, s, l)
		in, err := l.Lock(h.Context(), lease.Shared)
		require.NoError(t, err)
		unlock(t, h)
		s.next(lease.Downgrade).held(0, 0)
		s.quiet(2 * checkHoldAfter)
		require.NoError(t, in.Err())
		unlock(t, in)
		s.after(50*time.Millisecond, lease.Release).end()

		h, _ = written(t, s, l)
		r := lowered(t, h)
		s.next(lease.Downgrade).held(0, 0)
		s.quiet(2 * checkHoldAfter)
		require.NoError(t, r.Err())
		require.Zero(t, c.Snapshot().Stats.Abandoned)
	})
}

func TestDowngradeCarriesMaxHoldOver(t *testing.T) {
	scripted(t, func(t *testing.T, s *script, c *Coordinator) {
		l := c.ReadWrite("k", MaxHold(400*time.Millisecond))
		h, _ := written(t, s, l)
		time.Sleep(100 * time.Millisecond)
		r := lowered(t, h)
		s.next(lease.Downgrade).held(0, 0)
		require.ErrorIs(t, h.Extend(time.Second), ErrNotHeld)
		time.Sleep(200 * time.Millisecond)
		require.NoError(t, r.Extend(300*time.Millisecond))
		endsIn(t, r, 300*time.Millisecond, ErrHoldExpired)
		isOver(t, r, ErrHoldExpired)
		require.EqualValues(t, 1, c.Snapshot().Stats.Expired)
		s.after(50*time.Millisecond, lease.Release)
	})
}

func TestDowngradeCarriesEndWithOver(t *testing.T) {
	scripted(t, func(t *testing.T, s *script, c *Coordinator) {
		gone := errors.New("the client has gone")
		for _, ends := range []bool{true, false} {
			ctx, cancel := context.WithCancelCause(t.Context())
			l := c.ReadWrite("k", EndWith(ctx))
			h, _ := written(t, s, l)
			r := lowered(t, h)
			s.next(lease.Downgrade).held(0, 0)
			held := r.Context()
			if !ends {
				unlock(t, r)
			}
			cancel(gone)
			synctest.Wait()
			if ends {
				require.ErrorIs(t, context.Cause(held), gone)
				isOver(t, r, ErrHoldExpired)
				require.ErrorIs(t, r.Err(), gone)
			} else {
				isOverReleased(t, r)
			}
			require.ErrorIs(t, h.Err(), ErrNotHeld)
			s.after(50*time.Millisecond, lease.Release).end()
		}
	})
}

func TestUnlockAfterADowngradeTakesEndWithBack(t *testing.T) {
	scripted(t, func(t *testing.T, s *script, c *Coordinator) {
		ctx := &countingContext{Context: t.Context(), done: make(chan struct{})}
		h, _ := written(t, s, c.ReadWrite("k", EndWith(ctx)))
		r := lowered(t, h)
		require.Equal(t, 1, ctx.funcs, "it goes on")
		unlock(t, r)
		require.Zero(t, ctx.funcs)
	})
}

func TestWhatCannotBeDowngraded(t *testing.T) {
	scripted(t, func(t *testing.T, s *script, c *Coordinator) {
		l := c.ReadWrite("k")
		_, err := (*Hold)(nil).Downgrade()
		require.ErrorIs(t, err, ErrNotHeld)
		h, _ := written(t, s, l)
		unlock(t, h)
		isOverReleased(t, h)
		r := asks(t, l)
		_, err = r.Downgrade()
		require.ErrorIs(t, err, ErrNotExclusive)
		require.NoError(t, r.Err())
		m := begin(t, func() (*Hold, error) { return c.Mutex("m").Lock(t.Context()) })
		s.next(lease.Acquire).held(1, 100)
		_, err = m.holds().Downgrade()
		require.ErrorIs(t, err, ErrNotExclusive)
		require.NoError(t, m.holds().Err())
		s.quiet(0)
	})
}

func TestDowngradeHappensOnce(t *testing.T) {
	scripted(t, func(t *testing.T, s *script, c *Coordinator) {
		l := c.ReadWrite("k")
		for range 100 {
			h := writes(t, l)
			q := s.take()
			require.NotNil(t, q)
			q.held(s.fresh())
			var wg sync.WaitGroup
			var next [3]*Hold
			var errs [3]error
			for i := range next {
				wg.Go(func() {
					if i == 2 {
						errs[i] = h.hold.Unlock()
						return
					}
					next[i], errs[i] = h.hold.Downgrade()
				})
			}
			h.holds()
			wg.Wait()
			content := 0
			for i, err := range errs {
				if err == nil {
					content++
					continue
				}
				require.ErrorIs(t, err, ErrNotHeld)
				require.Nil(t, next[i])
			}
			require.Equal(t, 1, content)
			synctest.Wait()
			for _, r := range next {
				if r != nil {
					s.next(lease.Downgrade).held(0, 0)
					unlock(t, r)
				}
			}
			s.after(50*time.Millisecond, lease.Release).end()
		}
	})
}

// fresh returns a block of tokens that was not given out.
func (s *script) fresh() (first, last uint64) {
	s.token += 100
	return s.token - 99, s.token
}
