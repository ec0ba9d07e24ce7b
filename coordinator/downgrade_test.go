package coordinator

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/go-leasehold/leasehold/lease"
)

// Downgrade, by a call, by the last Unlock of a write, and by the actor itself.

// written returns a write hold of a new lease with tokens from 1 to 1000.
func written(t *testing.T, s *script, l *ReadWrite) (*Hold, lease.Ticket) {
	t.Helper()
	a := writes(t, l)
	q := s.next(lease.Acquire)
	q.held(1, 1000)
	return a.holds(), q.Ticket
}

// lowered downgrades a hold that can be.
func lowered(t *testing.T, h *Hold) *Hold {
	t.Helper()
	r, err := h.Downgrade()
	require.NoError(t, err)
	return r
}

// counts makes sure of how many times the owner is inside.
func counts(t *testing.T, h *Hold, writes, reads int) {
	t.Helper()
	w, r := h.Counts()
	require.Equal(t, [2]int{writes, reads}, [2]int{w, r}, "writes and reads")
	require.Equal(t, w+r, h.Count())
}

func TestDowngradeLetsReadersInAtOnceAndTellsTheStore(t *testing.T) {
	scripted(t, func(t *testing.T, s *script, c *Coordinator) {
		l := c.ReadWrite("k")
		h, ticket := written(t, s, l)
		ctx := h.Context()
		a, w, b := reads(t, l), writes(t, l), reads(t, l)
		r := lowered(t, h)
		require.ErrorIs(t, context.Cause(ctx), ErrReleased)
		require.ErrorIs(t, h.Unlock(), ErrNotHeld)
		require.ErrorIs(t, h.Err(), ErrNotHeld)
		counts(t, h, 0, 0)
		require.NoError(t, r.Err())
		require.Equal(t, h.Token(), r.Token())
		counts(t, r, 0, 1)
		require.Same(t, h.actor, r.actor)
		q := s.next(lease.Downgrade)
		require.Equal(t, ticket, q.Ticket)
		require.Equal(t, lease.ReadWrite, q.Kind)
		require.Equal(t, 3*time.Second, q.TTL)
		require.Equal(t, lease.Shared, s.key(c).Mode, "here it is shared already")
		a.holds() // before the store has answered
		b.holds() // also behind a writer: they wait for one only
		unlock(t, r)
		unlock(t, a.holds())
		unlock(t, b.holds())
		w.waits() // the lease may still be exclusive there, and may be others' as well by now
		tryRW(t, l, lease.Exclusive).fails(ErrNotAcquired)
		s.quiet(0)
		q.held(0, 0)
		q = s.next(lease.Release)
		require.Equal(t, ticket, q.Ticket)
		require.Equal(t, lease.Exclusive, q.Next.Mode)
		q.held(2001, 3000)
		require.EqualValues(t, 2001, w.holds().Token())
	})
}

func TestNoLocalWriterIsGrantedAfterADowngrade(t *testing.T) {
	for name, answer := range map[string]func(q *sent){
		"in flight": func(*sent) {},
		"answered":  func(q *sent) { q.held(0, 0) },
		"failed":    func(q *sent) { q.fail(errStore) },
	} {
		t.Run(name, func(t *testing.T) {
			scripted(t, func(t *testing.T, s *script, c *Coordinator) {
				l := c.ReadWrite("k")
				h, _ := written(t, s, l)
				r := lowered(t, h)
				q := s.next(lease.Downgrade)
				answer(q)
				unlock(t, r)
				w := writes(t, l)
				try := tryRW(t, l, lease.Exclusive)
				try.fails(ErrNotAcquired)
				w.waits()
				if name == "in flight" {
					q.held(0, 0)
				}
				q = s.within(50*time.Millisecond, lease.Release) // nothing needs to be downgraded any more
				require.Equal(t, lease.Exclusive, q.Next.Mode)
				q.held(2001, 3000)
				w.holds()
				require.Equal(t, lease.Exclusive, s.key(c).Mode)
			})
		})
	}
}

func TestDowngradeThatFailedIsRepeated(t *testing.T) {
	scripted(t, func(t *testing.T, s *script, c *Coordinator) {
		l := c.ReadWrite("k")
		h, ticket := written(t, s, l)
		r := lowered(t, h)
		for range 3 {
			q := s.within(300*time.Millisecond, lease.Downgrade)
			require.Equal(t, ticket, q.Ticket)
			q.fail(errStore)
			unlock(t, reads(t, l).holds())
		}
		s.within(300*time.Millisecond, lease.Downgrade).reply(lease.Reply{Status: lease.Held, Resent: true})
		s.after(time.Second, lease.Renew).held(0, 0) // it is one as well
		require.NoError(t, r.Err())
		unlock(t, r)
		s.within(100*time.Millisecond, lease.Release).end()
		s.quiet(time.Minute) // a late copy of it can't make a lease, so it is released once
	})
}

func TestDowngradeExtendsLikeARenewal(t *testing.T) {
	scripted(t, func(t *testing.T, s *script, c *Coordinator) {
		l := c.ReadWrite("k")
		h, _ := written(t, s, l)
		time.Sleep(900 * time.Millisecond)
		r := lowered(t, h)
		q := s.next(lease.Downgrade)
		time.Sleep(300 * time.Millisecond)
		q.held(0, 0)
		s.after(700*time.Millisecond, lease.Renew)
		endsIn(t, r, believed-time.Second, ErrLeaseLost)
		isOver(t, r, ErrLeaseLost)
	})
}

func TestLeaseThatIsLostInADowngrade(t *testing.T) {
	for name, lose := range map[string]func(q *sent){
		"answered lost":         func(q *sent) { q.reply(lease.Reply{Status: lease.Lost}) },
		"became something else": func(q *sent) { q.fail(lease.ErrKind) },
		"by time":               func(q *sent) { time.Sleep(believed) },
		"answered too late":     func(q *sent) { time.Sleep(believed); q.held(0, 0) },
	} {
		t.Run(name, func(t *testing.T) {
			scripted(t, func(t *testing.T, s *script, c *Coordinator) {
				l := c.ReadWrite("k")
				h, ticket := written(t, s, l)
				r := lowered(t, h)
				ctx := r.Context()
				q := s.next(lease.Downgrade)
				unlock(t, asks(t, l))
				unlock(t, asks(t, l))
				in := passes(t, l)
				lose(q)
				synctest.Wait()
				require.ErrorIs(t, context.Cause(ctx), ErrLeaseLost)
				isOver(t, r, ErrLeaseLost)
				isOver(t, in, ErrLeaseLost)
				require.ErrorIs(t, h.Unlock(), ErrNotHeld)
				w := writes(t, l)
				if name == "by time" {
					q.held(0, 0)
				}
				q = s.take()
				require.NotNil(t, q)
				if q.Op == lease.Release { // a lease that was lost by time is released
					require.Equal(t, ticket, q.Ticket)
					if q.Next == nil {
						q.end()
						q = s.next(lease.Acquire)
					}
				}
				q.held(2001, 3000)
				require.Equal(t, lease.Exclusive, s.key(c).Mode)
				w.holds()
			})
		})
	}
}
