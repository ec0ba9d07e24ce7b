package coordinator

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/go-leasehold/leasehold/lease"
)

// What the tests of read/write locks have in common.

// lockRW asks for a hold of either mode.
func lockRW(t *testing.T, l *ReadWrite, mode lease.Mode) *attempt {
	t.Helper()
	return begin(t, func() (*Hold, error) { return l.Lock(t.Context(), mode) })
}

func reads(t *testing.T, l *ReadWrite) *attempt {
	t.Helper()
	return lockRW(t, l, lease.Shared)
}

func writes(t *testing.T, l *ReadWrite) *attempt {
	t.Helper()
	return lockRW(t, l, lease.Exclusive)
}

func tryRW(t *testing.T, l *ReadWrite, mode lease.Mode) *attempt {
	t.Helper()
	return begin(t, func() (*Hold, error) { return l.TryLock(t.Context(), mode) })
}

// opened brings a lease of the mode here, with tokens from 1 to 1000, opens its
// gate, and returns the ticket.
func opened(t *testing.T, s *script, l *ReadWrite, mode lease.Mode) lease.Ticket {
	t.Helper()
	a := lockRW(t, l, mode)
	q := s.next(lease.Acquire)
	require.Equal(t, mode, q.Mode)
	q.held(1, 1000)
	unlock(t, a.holds())
	for range 2 {
		unlock(t, reads(t, l).holds())
	}
	require.True(t, isOpen(l.c), "reads in a row open the gate")
	return q.Ticket
}

// isOpen says whether the gate of the tests' key is open.
func isOpen(c *Coordinator) bool {
	a, ok := c.actors.Load("k")
	if !ok {
		return false
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.gate != nil && a.gate.open.Load()
}

// passes returns a hold that came in without asking.
func passes(t *testing.T, l *ReadWrite) *Hold {
	t.Helper()
	h := reads(t, l).holds()
	require.Equal(t, passing, h.way(), "it asked the actor")
	return h
}

// asks returns a read hold that the actor gave.
func asks(t *testing.T, l *ReadWrite) *Hold {
	t.Helper()
	h := reads(t, l).holds()
	require.Equal(t, ordinary, h.way(), "it did not ask the actor")
	return h
}

// Who passes the gate, and when.

func TestGateOpensAtTheSecondReadInARow(t *testing.T) {
	for _, mode := range []lease.Mode{lease.Exclusive, lease.Shared} {
		t.Run(mode.String(), func(t *testing.T) {
			scripted(t, func(t *testing.T, s *script, c *Coordinator) {
				l := c.ReadWrite("k")
				a := lockRW(t, l, mode)
				s.next(lease.Acquire).held(1, 100)
				unlock(t, a.holds())
				if mode == lease.Exclusive {
					unlock(t, asks(t, l))
				}
				require.False(t, isOpen(c), "one read is no sign of another")
				h := asks(t, l)
				require.True(t, isOpen(c), "also while the second is inside")
				in := passes(t, l)
				require.EqualValues(t, 1, in.Token(), "nobody has written since")
				unlock(t, h)
				unlock(t, in)
				stats := c.Snapshot().Stats
				require.EqualValues(t, 1, stats.Passed)
				require.Equal(t, 1, s.commands())
				if mode == lease.Shared {
					return
				}
				unlock(t, writes(t, l).holds())
				require.False(t, isOpen(c))
				unlock(t, asks(t, l)) // one after the write
				require.False(t, isOpen(c), "reads before a write do not count")
				unlock(t, asks(t, l))
				in = passes(t, l)
				require.EqualValues(t, 2, in.Token())
				unlock(t, in)
				require.Equal(t, 1, s.commands())
			})
		})
	}
}

func TestEveryWayToReadPasses(t *testing.T) {
	scripted(t, func(t *testing.T, s *script, c *Coordinator) {
		l := c.ReadWrite("k")
		opened(t, s, l, lease.Shared)
		other := c.ReadWrite("k", TTL(time.Second), Fair())
		ctx := t.Context()
		for _, l := range []*ReadWrite{l, other} {
			for name, lock := range map[string]func() (*Hold, error){
				"Lock":          func() (*Hold, error) { return l.Lock(ctx, lease.Shared) },
				"TryLock":       func() (*Hold, error) { return l.TryLock(ctx, lease.Shared) },
				"TryLockFor 0":  func() (*Hold, error) { return l.TryLockFor(ctx, lease.Shared, 0) },
				"TryLockFor 1s": func() (*Hold, error) { return l.TryLockFor(ctx, lease.Shared, time.Second) },
			} {
				h, err := lock()
				require.NoError(t, err, name)
				require.Equal(t, passing, h.way(), name)
				require.Equal(t, "k", h.Key())
				unlock(t, h)
			}
		}
		require.Equal(t, 1, s.commands())
	})
}

func TestWhatTheGateDoesNotLetPass(t *testing.T) {
	scripted(t, func(t *testing.T, s *script, c *Coordinator) {
		l := c.ReadWrite("k")
		opened(t, s, l, lease.Shared)
		use, cancel := context.WithCancel(t.Context())
		inner := passes(t, l).Context() // of a hold that is an ordinary one by that
		for name, lock := range map[string]func() (*Hold, error){
			"a limit":         func() (*Hold, error) { return c.ReadWrite("k", MaxHold(time.Second)).Lock(t.Context(), lease.Shared) },
			"EndWith":         func() (*Hold, error) { return c.ReadWrite("k", EndWith(use)).Lock(t.Context(), lease.Shared) },
			"an owner":        func() (*Hold, error) { return l.Lock(WithOwner(t.Context()), lease.Shared) },
			"a hold's owner":  func() (*Hold, error) { return l.Lock(inner, lease.Shared) },
			"tried, an owner": func() (*Hold, error) { return l.TryLock(inner, lease.Shared) },
		} {
			h := begin(t, lock).holds()
			require.Equal(t, ordinary, h.way(), name)
			unlock(t, h)
			require.True(t, isOpen(c), name)
		}
		_, err := l.TryLockFor(t.Context(), lease.Shared, -1)
		require.ErrorIs(t, err, ErrInvalid)
		cancel()
		begin(t, func() (*Hold, error) { return l.Lock(use, lease.Shared) }).fails(context.Canceled)
		begin(t, func() (*Hold, error) { return l.TryLock(use, lease.Shared) }).fails(ErrNotAcquired)
		_, err = l.Lock(nil, lease.Shared) //nolint:staticcheck // it is what is tested
		require.ErrorIs(t, err, ErrInvalid)
		require.Equal(t, 1, s.commands())
	}, WithRetention(time.Second))
}

func TestGateStaysShut(t *testing.T) {
	for name, opt := range map[string]Option{
		"in debug mode":               WithDebug(),
		"without retention":           WithRetention(0),
		"with too little of it":       WithRetention(minGateRetention - 1),
		"without a shared retention":  WithSharedRetention(0),
		"with too little of that one": WithSharedRetention(minGateRetention - 1),
	} {
		t.Run(name, func(t *testing.T) {
			scripted(t, func(t *testing.T, s *script, c *Coordinator) {
				l := c.ReadWrite("k")
				a := reads(t, l)
				s.next(lease.Acquire).held(1, 100)
				for range 5 {
					asks(t, l)
					require.False(t, isOpen(c))
				}
				a.holds()
				require.Len(t, s.key(c).Holds, 6)
				require.Zero(t, s.key(c).Readers)
				require.Zero(t, c.Snapshot().Stats.Passed)
			}, opt)
		})
	}
	t.Run("while it is wanted", func(t *testing.T) {
		scripted(t, func(t *testing.T, s *script, c *Coordinator) {
			l := c.ReadWrite("k")
			a, b, d := reads(t, l), reads(t, l), reads(t, l)
			s.next(lease.Acquire).reply(lease.Reply{Status: lease.Held, First: 1, Last: 100, Contended: true})
			a.holds()
			b.holds()
			d.holds()
			require.False(t, isOpen(c))
		})
	})
	t.Run("while its coordinator closes", func(t *testing.T) {
		scripted(t, func(t *testing.T, s *script, c *Coordinator) {
			l := c.ReadWrite("k")
			q := opened(t, s, l, lease.Shared)
			h, in := asks(t, c.ReadWrite("k", MaxHold(time.Hour))), passes(t, l)
			z := closing(t, c, time.Minute)
			require.False(t, isOpen(c))
			reads(t, l).fails(ErrClosed)
			tryRW(t, l, lease.Shared).fails(ErrClosed)
			require.NoError(t, h.Err())
			unlock(t, h)
			s.quiet(0)
			require.NoError(t, in.Err())
			unlock(t, in) // the last one out
			r := s.next(lease.Release)
			require.Equal(t, q, r.Ticket)
			r.end()
			z.closed(c)
		})
	})
}

// How long a hold that passed is believed in.

// stopTimer makes the timer of the tests' key late for ever.
func stopTimer(c *Coordinator) {
	a, _ := c.actors.Load("k")
	a.mu.Lock()
	defer a.mu.Unlock()
	a.timer.Stop()
}

// isOver makes sure that a hold says of itself, in every way, that it is over.
func isOver(t *testing.T, h *Hold, target error) {
	t.Helper()
	require.ErrorIs(t, h.Err(), target)
	require.False(t, h.Valid())
	require.Zero(t, h.Count())
	require.ErrorIs(t, h.Extend(time.Second), target)
	_, err := h.Downgrade()
	require.ErrorIs(t, err, target)
	ctx := h.Context()
	require.ErrorIs(t, context.Cause(ctx), target)
	require.ErrorIs(t, h.Unlock(), target)
	require.ErrorIs(t, h.Unlock(), target, "again")
	require.ErrorIs(t, h.Err(), target)
	require.ErrorIs(t, context.Cause(ctx), target)
}

func TestPassedHoldIsNotBelievedInAfterTheLeasesEnd(t *testing.T) {
	said := map[string]func(h *Hold) error{
		"Err":     func(h *Hold) error { return h.Err() },
		"Unlock":  func(h *Hold) error { return h.Unlock() },
		"Context": func(h *Hold) error { return context.Cause(h.Context()) },
		"Extend": func(h *Hold) error {
			if err := h.Extend(time.Second); !errors.Is(err, ErrNoMaxHold) {
				return err
			}
			return nil
		},
		"Downgrade": func(h *Hold) error {
			if _, err := h.Downgrade(); !errors.Is(err, ErrNotExclusive) {
				return err
			}
			return nil
		},
		"Count": func(h *Hold) error {
			if h.Count() == 1 {
				return nil
			}
			return ErrLeaseLost
		},
	}
	for name, say := range said {
		for _, late := range []bool{false, true} {
			scripted(t, func(t *testing.T, s *script, c *Coordinator) {
				l := c.ReadWrite("k")
				opened(t, s, l, lease.Shared) // at the instant of its sending
				before, at, after := passes(t, l), passes(t, l), passes(t, l)
				if s.after(time.Second, lease.Renew); late {
					stopTimer(c)
				}
				time.Sleep(believed - time.Second - 1)
				require.NoError(t, say(before), name)
				require.NoError(t, at.Err())
				time.Sleep(time.Nanosecond)
				if !late {
					synctest.Wait()
				}
				require.ErrorIs(t, say(at), ErrLeaseLost, name)
				isOver(t, at, ErrLeaseLost)
				isOver(t, after, ErrLeaseLost)
				reads(t, l).waits()
				require.EqualValues(t, 1, c.Snapshot().Stats.Lost)
			}, WithRetention(time.Minute))
		}
	}
}

func TestNobodyPassesAfterTheLeasesEnd(t *testing.T) {
	scripted(t, func(t *testing.T, s *script, c *Coordinator) {
		l := c.ReadWrite("k")
		q := opened(t, s, l, lease.Shared)
		s.after(time.Second, lease.Renew).fail(errStore)
		stopTimer(c)
		time.Sleep(believed - time.Second)
		a := reads(t, l) // it is the first to notice
		a.waits()
		r := s.next(lease.Release)
		require.Equal(t, q, r.Ticket)
		r.held(2001, 3000)
		require.EqualValues(t, 2001, a.holds().Token())
		require.Zero(t, c.Snapshot().Stats.Lost, "nobody was inside")
	}, WithRetention(time.Minute))
}

func TestRenewalExtendsPassedHolds(t *testing.T) {
	scripted(t, func(t *testing.T, s *script, c *Coordinator) {
		l := c.ReadWrite("k")
		opened(t, s, l, lease.Shared)
		h := passes(t, l)
		for range 150 { // so many that the gate is worth keeping as it is
			unlock(t, passes(t, l))
		}
		q := s.after(time.Second, lease.Renew)
		time.Sleep(time.Second)
		q.held(0, 0) // counts from its sending
		s.after(0, lease.Renew).fail(errStore)
		s.obeyNothing(believed - time.Second - 1)
		require.NoError(t, h.Err())
		require.Equal(t, 1, h.Count())
		require.Equal(t, passing, h.way(), "it need not ask the actor for that")
		in := passes(t, l)
		require.Equal(t, 1, in.Count())
		s.obeyNothing(1)
		isOver(t, in, ErrLeaseLost)
		isOver(t, h, ErrLeaseLost)
	}, WithRetention(time.Minute))
}

// obeyNothing lets d pass, in which every command fails.
func (s *script) obeyNothing(d time.Duration) {
	s.t.Helper()
	limit := time.After(d)
	for {
		if q := s.take(); q != nil {
			q.fail(errStore)
			continue
		}
		select {
		case <-s.arrived:
		case <-limit:
			synctest.Wait()
			return
		}
	}
}
