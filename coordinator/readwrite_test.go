package coordinator

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/go-leasehold/leasehold/lease"
	"github.com/go-leasehold/leasehold/telemetry"
)

// Owners, limits and tokens of read/write locks.

// as asks for a hold with a context that may carry an owner.
func as(t *testing.T, ctx context.Context, l *ReadWrite, mode lease.Mode) *attempt {
	t.Helper()
	return begin(t, func() (*Hold, error) { return l.Lock(ctx, mode) })
}

func TestWhoeverReadsIsRefusedWhereItWantsToWrite(t *testing.T) {
	for name, read := range map[string]func(t *testing.T, s *script, l *ReadWrite) (*Hold, context.Context){
		"it passed the gate": func(t *testing.T, s *script, l *ReadWrite) (*Hold, context.Context) {
			opened(t, s, l, lease.Shared)
			h := passes(t, l)
			return h, h.Context()
		},
		"under an exclusive lease": func(t *testing.T, s *script, l *ReadWrite) (*Hold, context.Context) {
			opened(t, s, l, lease.Exclusive)
			h := passes(t, l)
			return h, h.Context()
		},
		"it asked": func(t *testing.T, s *script, l *ReadWrite) (*Hold, context.Context) {
			a := reads(t, l)
			s.next(lease.Acquire).held(1, 1000)
			return a.holds(), a.holds().Context()
		},
		"it is limited": func(t *testing.T, s *script, l *ReadWrite) (*Hold, context.Context) {
			a := reads(t, l.c.ReadWrite("k", MaxHold(time.Hour), EndWith(t.Context())))
			s.next(lease.Acquire).held(1, 1000)
			return a.holds(), a.holds().Context()
		},
		"its owner is fixed": func(t *testing.T, s *script, l *ReadWrite) (*Hold, context.Context) {
			ctx := WithOwner(t.Context())
			a := as(t, ctx, l, lease.Shared)
			s.next(lease.Acquire).held(1, 1000)
			return a.holds(), ctx
		},
		"an inner owner of another key": func(t *testing.T, s *script, l *ReadWrite) (*Hold, context.Context) {
			a := reads(t, l)
			s.next(lease.Acquire).held(1, 1000)
			h := a.holds()
			m := begin(t, func() (*Hold, error) { return l.c.Mutex("m").Lock(h.Context()) })
			s.next(lease.Acquire).held(1, 1000)
			return a.holds(), m.holds().Context()
		},
		"it was downgraded": func(t *testing.T, s *script, l *ReadWrite) (*Hold, context.Context) {
			h, _ := written(t, s, l)
			h = lowered(t, h)
			s.next(lease.Downgrade).held(0, 0)
			return h, h.Context()
		},
		"it was downgraded, its owner is fixed": func(t *testing.T, s *script, l *ReadWrite) (*Hold, context.Context) {
			ctx := WithOwner(t.Context())
			a := as(t, ctx, l, lease.Exclusive)
			s.next(lease.Acquire).held(1, 1000)
			h := lowered(t, a.holds())
			s.next(lease.Downgrade).held(0, 0)
			return h, ctx
		},
		"its write is over": func(t *testing.T, s *script, l *ReadWrite) (*Hold, context.Context) {
			h, _ := written(t, s, l)
			in := as(t, h.Context(), l, lease.Shared).holds()
			ctx := context.WithoutCancel(in.Context())
			unlock(t, h)
			s.next(lease.Downgrade).held(0, 0)
			return in, ctx
		},
		"it entered again": func(t *testing.T, s *script, l *ReadWrite) (*Hold, context.Context) {
			a := reads(t, l)
			s.next(lease.Acquire).held(1, 1000)
			in := as(t, context.WithoutCancel(a.holds().Context()), l, lease.Shared).holds()
			ctx := in.Context()
			unlock(t, a.holds())
			return in, ctx
		},
	} {
		t.Run(name, func(t *testing.T) {
			scripted(t, func(t *testing.T, s *script, c *Coordinator) {
				l := c.ReadWrite("k")
				h, ctx := read(t, s, l)
				n := h.Count()
				unlock(t, reads(t, l).holds()) // others come and go
				for range 2 {
					require.Zero(t, as(t, ctx, l, lease.Exclusive).fails(ErrUpgrade).Waited)
					begin(t, func() (*Hold, error) { return l.TryLock(ctx, lease.Exclusive) }).fails(ErrUpgrade)
					begin(t, func() (*Hold, error) { return l.TryLockFor(ctx, lease.Exclusive, time.Hour) }).fails(ErrUpgrade)
				}
				w := writes(t, l)
				in := as(t, ctx, l, lease.Shared) // a writer waits, but it is inside already
				require.Equal(t, n+1, in.holds().Count())
				require.Equal(t, h.Token(), in.holds().Token())
				as(t, ctx, l, lease.Exclusive).fails(ErrUpgrade)
				unlock(t, in.holds())
				require.NoError(t, h.Err())
				unlock(t, h)
				q := s.take()
				if w.done.Load() {
					require.Nil(t, q)
					unlock(t, w.holds())
				} else {
					q.held(2001, 3000)
					unlock(t, w.holds())
				}
				if ctx.Err() == nil { // a fixed owner has nothing any more
					again := as(t, ctx, l, lease.Exclusive).holds()
					require.Equal(t, 1, again.Count())
					unlock(t, again)
				}
			}, WithRetention(500*time.Millisecond))
		})
	}
}

func TestWriterReadsAndWritesAgain(t *testing.T) {
	scripted(t, func(t *testing.T, s *script, c *Coordinator) {
		l := c.ReadWrite("k")
		ctx := WithOwner(t.Context())
		a := as(t, ctx, l, lease.Exclusive)
		s.next(lease.Acquire).held(1, 1000)
		h := a.holds()
		r := as(t, ctx, l, lease.Shared).holds()
		w := as(t, h.Context(), l, lease.Exclusive).holds()
		counts(t, h, 2, 1)
		k := s.key(c)
		require.Equal(t, []HoldSnapshot{{
			Mode: lease.Exclusive, Token: h.Token(), Count: 3, Reads: 1, Path: telemetry.PathRedis, Owner: 1,
		}}, k.Holds)
		require.Equal(t, lease.Exclusive, k.Mode)
		tryRW(t, l, lease.Shared).fails(ErrNotAcquired)
		as(t, WithOwner(t.Context()), l, lease.Shared).waits()
		unlock(t, h)
		counts(t, r, 1, 1)
		unlock(t, r)
		counts(t, w, 1, 0)
		require.Equal(t, 1, s.commands())
	})
}

// Twins: several holds of one fixed owner, that were asked for before it had any.
func TestHoldsOfOneOwnerThatWereGrantedTogether(t *testing.T) {
	for _, order := range [][]int{{0, 1, 2}, {2, 1, 0}, {1, 0, 2}, {1, 2, 0}} {
		scripted(t, func(t *testing.T, s *script, c *Coordinator) {
			l := c.ReadWrite("k")
			ctx, foreign := WithOwner(t.Context()), WithOwner(t.Context())
			all := []*attempt{as(t, ctx, l, lease.Shared), as(t, ctx, l, lease.Shared), as(t, ctx, l, lease.Shared)}
			other := as(t, foreign, l, lease.Shared)
			s.next(lease.Acquire).held(1, 1000)
			require.Len(t, s.key(c).Holds, 4)
			for i, n := range order {
				require.Equal(t, 1, all[n].holds().Count())
				as(t, ctx, l, lease.Exclusive).fails(ErrUpgrade)
				in := as(t, ctx, l, lease.Shared).holds()
				require.Equal(t, 2, in.Count())
				unlock(t, in)
				unlock(t, all[n].holds())
				require.Len(t, s.key(c).Holds, 3-i)
			}
			in := as(t, ctx, l, lease.Shared).holds() // a hold of its own again
			require.Equal(t, 1, in.Count())
			unlock(t, in)
			as(t, foreign, l, lease.Exclusive).fails(ErrUpgrade)
			w := as(t, ctx, l, lease.Exclusive)
			w.waits() // it reads no more, so it may wait
			a, _ := c.actors.Load("k")
			require.Len(t, a.owners, 1)
			unlock(t, other.holds())
			s.next(lease.Release).held(2001, 3000)
			unlock(t, w.holds())
			require.Empty(t, a.owners)
		}, WithRetention(time.Minute))
	}
}

func TestLossForgetsTheOwners(t *testing.T) {
	scripted(t, func(t *testing.T, s *script, c *Coordinator) {
		l := c.ReadWrite("k")
		ctx := WithOwner(t.Context())
		a, b := as(t, ctx, l, lease.Shared), as(t, ctx, l, lease.Shared)
		s.next(lease.Acquire).held(1, 1000)
		w := as(t, WithOwner(t.Context()), l, lease.Exclusive)
		s.after(time.Second, lease.Renew).reply(lease.Reply{Status: lease.Lost})
		isOver(t, a.holds(), ErrLeaseLost)
		isOver(t, b.holds(), ErrLeaseLost)
		s.next(lease.Acquire).held(2001, 3000)
		actor, _ := c.actors.Load("k")
		require.Empty(t, actor.owners)
		unlock(t, w.holds())
		unlock(t, as(t, ctx, l, lease.Exclusive).holds())
	})
}

// Limits.

func TestMaxHoldOfReadsEndsThemOneByOne(t *testing.T) {
	scripted(t, func(t *testing.T, s *script, c *Coordinator) {
		l := c.ReadWrite("k")
		opened(t, s, l, lease.Shared)
		free := passes(t, l)
		a := asks(t, c.ReadWrite("k", MaxHold(300*time.Millisecond)))
		b := asks(t, c.ReadWrite("k", MaxHold(700*time.Millisecond)))
		require.NoError(t, a.Extend(400*time.Millisecond))
		w := writes(t, l)
		endsIn(t, a, 400*time.Millisecond, ErrHoldExpired)
		isOver(t, a, ErrHoldExpired)
		require.NoError(t, b.Err())
		endsIn(t, b, 300*time.Millisecond, ErrHoldExpired)
		require.NoError(t, free.Err())
		w.waits()
		unlock(t, free)
		s.next(lease.Release).held(2001, 3000)
		w.holds()
		require.EqualValues(t, 2, c.Snapshot().Stats.Expired)
	})
}

func TestEndWithOfAReadEndsIt(t *testing.T) {
	scripted(t, func(t *testing.T, s *script, c *Coordinator) {
		l := c.ReadWrite("k")
		opened(t, s, l, lease.Shared)
		gone := errors.New("the client has gone")
		ctx, cancel := context.WithCancelCause(t.Context())
		h, other := asks(t, c.ReadWrite("k", EndWith(ctx))), passes(t, l)
		held := h.Context()
		cancel(gone)
		synctest.Wait()
		require.ErrorIs(t, context.Cause(held), gone)
		isOver(t, h, ErrHoldExpired)
		require.NoError(t, other.Err())
		unlock(t, passes(t, l))
		require.Equal(t, 1, s.commands())
	})
}

func TestFirstReaderDecidesTheTTL(t *testing.T) {
	scripted(t, func(t *testing.T, s *script, c *Coordinator) {
		long, short := c.ReadWrite("k", TTL(30*time.Second)), c.ReadWrite("k", TTL(time.Second))
		a, b := reads(t, long), reads(t, short)
		q := s.next(lease.Acquire)
		require.Equal(t, 30*time.Second, q.TTL)
		q.held(1, 100)
		b.holds()
		h := passes(t, short)
		s.after(10*time.Second, lease.Renew)
		endsIn(t, h, safe(30*time.Second)-10*time.Second, ErrLeaseLost)
		isOver(t, a.holds(), ErrLeaseLost)
	})
}

// Tokens: a read's is no less than that of the write before it, and less than that
// of the write after it; reads of one process share one as long as nobody writes.
func TestTokensOfReadsTellWhetherAnybodyHasWritten(t *testing.T) {
	scripted(t, func(t *testing.T, s *script, c *Coordinator) {
		l := c.ReadWrite("k")
		opened(t, s, l, lease.Exclusive)
		var last uint64
		for range 5 {
			w := writes(t, l).holds()
			require.Greater(t, w.Token(), last)
			last = w.Token()
			unlock(t, w)
			for range 3 {
				h := reads(t, l).holds()
				require.Equal(t, last, h.Token())
				unlock(t, h)
			}
			h := passes(t, l)
			require.Equal(t, last, h.Token())
			h.Context()
			require.Equal(t, last, h.Token())
			unlock(t, h)
		}
		w := writes(t, l).holds()
		r := lowered(t, w)
		require.Equal(t, w.Token(), r.Token())
		s.next(lease.Downgrade).reply(lease.Reply{Status: lease.Held, First: 5001, Last: 6000})
		h := reads(t, l).holds()
		require.Equal(t, w.Token(), h.Token())
		unlock(t, h)
		unlock(t, r)
		s.within(100*time.Millisecond, lease.Release).end()
		a := reads(t, l) // another lease: somebody else may have written
		s.next(lease.Acquire).held(7001, 8000)
		require.EqualValues(t, 7001, a.holds().Token())
	})
}

func TestReadAfterAWriteThatEndedByItselfHasATokenOfItsOwn(t *testing.T) {
	scripted(t, func(t *testing.T, s *script, c *Coordinator) {
		l := c.ReadWrite("k")
		a := writes(t, c.ReadWrite("k", MaxHold(10*time.Millisecond)))
		s.next(lease.Acquire).held(1, 1000)
		r := reads(t, l)
		endsIn(t, a.holds(), 10*time.Millisecond, ErrHoldExpired)
		require.Greater(t, r.holds().Token(), a.holds().Token(), "the work of the write may go on, and is refused")
	})
}

func TestManyReadsUseUpNoTokens(t *testing.T) {
	scripted(t, func(t *testing.T, s *script, c *Coordinator) {
		l := c.ReadWrite("k", MaxHold(time.Hour)) // all of them ask
		a := reads(t, l)
		s.next(lease.Acquire).held(1, 4)
		for range 50 {
			unlock(t, reads(t, l).holds())
		}
		require.EqualValues(t, 1, a.holds().Token())
	}, WithHandoff(1, 0))
}

// What it looks like from outside.

func TestSnapshotOfReaders(t *testing.T) {
	scripted(t, func(t *testing.T, s *script, c *Coordinator) {
		l := c.ReadWrite("k")
		ticket := opened(t, s, l, lease.Shared)
		a, b, in := passes(t, l), passes(t, l), asks(t, c.ReadWrite("k", MaxHold(time.Hour)))
		w := writes(t, l)
		time.Sleep(30 * time.Millisecond)
		k := s.key(c)
		require.Equal(t, KeySnapshot{
			Key: "k", Kind: lease.ReadWrite, Phase: "held", Mode: lease.Shared, Owner: lease.Owner(c.ID(), ticket),
			Valid: believed - 30*time.Millisecond, Readers: 2,
			Holds: []HoldSnapshot{{
				Mode: lease.Shared, Token: in.Token(), Count: 1, Reads: 1, Age: 30 * time.Millisecond, Path: telemetry.PathRetained,
			}},
			Waiters: []WaiterSnapshot{{Mode: lease.Exclusive, Waited: 30 * time.Millisecond}},
		}, k)
		stats := c.Snapshot().Stats
		require.EqualValues(t, 6, stats.Grants)
		require.EqualValues(t, 3, stats.Passed)
		require.EqualValues(t, 1, stats.Leases)
		unlock(t, a)
		require.Equal(t, 1, s.key(c).Readers)
		unlock(t, in)
		unlock(t, b)
		s.next(lease.Release).held(2001, 3000)
		unlock(t, w.holds())
		k = s.key(c)
		require.Zero(t, k.Readers)
		require.Empty(t, k.Holds)
		for range 3 {
			unlock(t, reads(t, l).holds())
		}
		s.within(100*time.Millisecond, lease.Release).end()
		require.Empty(t, c.Snapshot().Keys)
		stats = c.Snapshot().Stats // of an actor that has gone
		require.EqualValues(t, 10, stats.Grants)
		require.EqualValues(t, 4, stats.Passed)
		require.EqualValues(t, 1, stats.Yields)
		require.EqualValues(t, 4, stats.Commands+1)
	})
}
