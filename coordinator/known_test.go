package coordinator

import (
	"context"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"

	"github.com/go-leasehold/leasehold/lease"
	"github.com/go-leasehold/leasehold/telemetry"
)

// denied asks, and returns the answer of one that is told that another process has the key.
func denied(ctx context.Context, t *testing.T, m *Mutex) *WaitError {
	t.Helper()
	h, err := m.TryLock(ctx)
	require.Nil(t, h)
	require.ErrorIs(t, err, ErrNotAcquired)
	var w *WaitError
	require.ErrorAs(t, err, &w)
	require.Equal(t, "other:1", w.Holder)
	require.Equal(t, "k", w.Key)
	return w
}

func TestCachedAnswerNeedsNotTheActor(t *testing.T) {
	tracked(t, func(t *testing.T, s *script, c *Coordinator) {
		m := c.Mutex("k", Cached())
		learn(t, s, m, false)
		a, ok := c.actors.Load("k")
		require.True(t, ok)
		a.mu.Lock()
		w := denied(t.Context(), t, m)
		require.Same(t, w, denied(t.Context(), t, m))
		ctx := t.Context()
		require.Zero(t, testing.AllocsPerRun(100, func() { _, _ = m.TryLock(ctx) }))
		a.mu.Unlock()
		require.Zero(t, w.Waited)
		s.quiet(0)
	})
}

func TestCachedAnswersAreCounted(t *testing.T) {
	tracked(t, func(t *testing.T, s *script, c *Coordinator) {
		m := c.Mutex("k", Cached())
		learn(t, s, m, false)
		before := c.Snapshot().Stats.Busy
		var wg sync.WaitGroup
		for range 8 {
			wg.Go(func() {
				for range 100 {
					_, err := m.TryLock(t.Context())
					if err == nil {
						panic("it is another's")
					}
				}
			})
		}
		wg.Wait()
		require.EqualValues(t, 800, c.Snapshot().Stats.Busy-before)
		busy := func() (n uint64) {
			for _, x := range c.totals() {
				n += x.Busy
			}
			return n
		}
		require.EqualValues(t, 800, busy()-before)
		s.quiet(2 * time.Second) // the knowledge ends, and with it the actor
		require.Zero(t, c.live.Load())
		require.EqualValues(t, 800, c.Snapshot().Stats.Busy-before)
		require.EqualValues(t, 800, busy()-before)
	})
}

// TestCachedAsksTheActorForWhatOnlyItKnows: an owner may be inside already, and spans are the actor's to tell.
func TestCachedAsksTheActorForWhatOnlyItKnows(t *testing.T) {
	tracked(t, func(t *testing.T, s *script, c *Coordinator) {
		m := c.Mutex("k", Cached())
		learn(t, s, m, false)
		known := denied(t.Context(), t, m)
		require.NotSame(t, known, denied(WithOwner(t.Context()), t, m))

		q := lockOf(t, c.Mutex("k")) // waits for the other process
		sent := s.next(lease.Acquire)
		sent.waits()
		_, err := c.ReadWrite("k", Cached()).TryLock(t.Context(), lease.Exclusive)
		require.ErrorIs(t, err, ErrKind)
		require.Same(t, known, denied(t.Context(), t, m))
		_, err = c.Mutex("k", Cached(), EndWith(canceled())).TryLock(t.Context())
		require.ErrorIs(t, err, context.Canceled)

		s.tell(lease.Event{Type: lease.Granted, Key: "k", Ticket: sent.Ticket, First: 1001, Last: 1100})
		unlock(t, q.holds())
	})
	provider := sdktrace.NewTracerProvider()
	tracked(t, func(t *testing.T, s *script, c *Coordinator) {
		m := c.Mutex("k", Cached())
		learn(t, s, m, false)
		first := denied(t.Context(), t, m)
		require.NotSame(t, first, denied(t.Context(), t, m))
	}, WithTelemetry(telemetry.Config{TracerProvider: provider}))
}

func canceled() context.Context {
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	return ctx
}

// TestCachedIsOverWithAGrantHere: the grant may be here before the notice that the other one has gone.
func TestCachedIsOverWithAGrantHere(t *testing.T) {
	tracked(t, func(t *testing.T, s *script, c *Coordinator) {
		m := c.Mutex("k", Cached())
		learn(t, s, m, false)
		q := lockOf(t, c.Mutex("k"))
		s.next(lease.Acquire).held(1, 100)
		unlock(t, q.holds())
		unlock(t, tryOf(t, m).holds())
	})
}

func TestCachedSaysSoOfWritersOnly(t *testing.T) {
	tracked(t, func(t *testing.T, s *script, c *Coordinator) {
		l := c.ReadWrite("k", Cached())
		try := func(mode lease.Mode) *attempt {
			return begin(t, func() (*Hold, error) { return l.TryLock(t.Context(), mode) })
		}
		a := try(lease.Exclusive)
		q := s.next(lease.Acquire)
		q.waits()
		look := s.next(lease.Acquire)
		r := look.waiting()
		r.Watched, r.Present, r.Remaining = true, true, 2*time.Second
		look.reply(r)
		s.emit(lease.InUse, "k", q.Ticket)
		a.fails(ErrNotAcquired)
		s.next(lease.Release).end()

		w := try(lease.Exclusive).fails(ErrNotAcquired)
		require.Same(t, w, try(lease.Exclusive).fails(ErrNotAcquired))
		s.quiet(0)
		reader := try(lease.Shared) // may come in beside others
		s.next(lease.Acquire).held(1, 100)
		unlock(t, reader.holds())
		synctest.Wait()
	})
}
