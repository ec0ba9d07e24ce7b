package coordinator

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"

	"github.com/go-leasehold/leasehold/lease"
	"github.com/go-leasehold/leasehold/telemetry"
)

// What is told of calls that fail, by each of the ways to do so.

// failed makes sure that the one call below the request was told as that.
func (r *listener) failed(c *Coordinator, o telemetry.Outcome, more wanted) tracetest.SpanStub {
	r.t.Helper()
	wait := r.only(c, telemetry.SpanAcquire)
	want := wanted{telemetry.AttrOutcome: string(o), telemetry.AttrAhead: int64(0)}
	for k, v := range more {
		want[k] = v
	}
	r.has(wait, want)
	mode := want[telemetry.AttrMode]
	if mode == nil {
		mode = "exclusive"
	}
	require.Equal(r.t, int64(1), r.series(telemetry.MetricWait)[mode.(string)+" "+string(o)])
	require.Equal(r.t, int64(1), r.series(telemetry.MetricWaits)[string(o)])
	return wait
}

// holder has the key under an untraced hold.
func holder(t *testing.T, s *script, c *Coordinator) *Hold {
	t.Helper()
	return lockOf(t, c.Mutex("k")).holdsAfter(s)
}

// quietly is what most of these tests are told: traced calls only.
var quietly = telemetry.Config{Roots: -1}

func TestBusyTryLockIsTold(t *testing.T) {
	heard(t, quietly, func(t *testing.T, s *script, c *Coordinator, r *listener) {
		ctx, span := r.request(t.Context(), "first")
		first := lockWith(t, ctx, c.Mutex("k")).holdsAfter(s)
		r.reset(c)
		ctx2, span2 := r.request(t.Context(), "second")
		_, err := c.Mutex("k").TryLock(ctx2)
		require.ErrorIs(t, err, ErrNotAcquired)
		wait := r.failed(c, telemetry.Busy, wanted{telemetry.AttrHolder: lease.Owner(c.ID(), 1)})
		require.Equal(t, span2.SpanContext().SpanID(), wait.Parent.SpanID())
		unlock(t, first)
		hold := r.under(c, span.SpanContext(), telemetry.SpanHold)
		require.Equal(t, []string{lead(telemetry.LinkHolder, hold.SpanContext)}, leads(wait))
	})
}

func TestBusyElsewhereIsTold(t *testing.T) {
	heard(t, quietly, func(t *testing.T, s *script, c *Coordinator, r *listener) {
		ctx, _ := r.request(t.Context(), "request")
		call := begin(t, func() (*Hold, error) { return c.Mutex("k").TryLock(ctx) })
		answer := s.next(lease.Acquire).waiting()
		answer.Trace = telemetry.FormatTrace(elsewhere(7))
		answer.Told = 0
		q := s.flyingNow("k")
		q.reply(answer)
		call.fails(ErrNotAcquired)
		wait := r.failed(c, telemetry.Busy, wanted{telemetry.AttrHolder: "other:1"})
		require.Equal(t, []string{lead(telemetry.LinkHolder, elsewhere(7))}, leads(wait))
		require.Equal(t, []string{telemetry.EventLeaseAsked, telemetry.EventDenied}, happened(wait))
	})
}

// flyingNow returns the command of a key that is on its way.
func (s *script) flyingNow(key string) *sent {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.flying[key]
}

func TestTimeoutsAreTold(t *testing.T) {
	ways := map[string]func(ctx context.Context, m *Mutex) (*Hold, error){
		"TryLockFor": func(ctx context.Context, m *Mutex) (*Hold, error) { return m.TryLockFor(ctx, 30*time.Millisecond) },
		"deadline": func(ctx context.Context, m *Mutex) (*Hold, error) {
			ctx, cancel := context.WithTimeout(ctx, 30*time.Millisecond)
			defer cancel()
			return m.Lock(ctx)
		},
		"deadline before that of TryLockFor": func(ctx context.Context, m *Mutex) (*Hold, error) {
			ctx, cancel := context.WithTimeout(ctx, 30*time.Millisecond)
			defer cancel()
			return m.TryLockFor(ctx, time.Second)
		},
	}
	for name, lock := range ways {
		t.Run(name, func(t *testing.T) {
			heard(t, quietly, func(t *testing.T, s *script, c *Coordinator, r *listener) {
				h := holder(t, s, c)
				ctx, span := r.request(t.Context(), "request")
				call := begin(t, func() (*Hold, error) { return lock(ctx, c.Mutex("k")) })
				time.Sleep(30 * time.Millisecond)
				call.fails(ErrNotAcquired)
				wait := r.failed(c, telemetry.Timeout, wanted{telemetry.AttrHolder: lease.Owner(c.ID(), 1)})
				require.Equal(t, 30*time.Millisecond, wait.EndTime.Sub(wait.StartTime))
				require.Equal(t, span.SpanContext().SpanID(), wait.Parent.SpanID())
				require.Empty(t, wait.Links, "the hold in its way is not traced")
				unlock(t, h)
			})
		})
	}
}

func TestCanceledWaitIsToldAndIsNoError(t *testing.T) {
	heard(t, quietly, func(t *testing.T, s *script, c *Coordinator, r *listener) {
		h := holder(t, s, c)
		ctx, span := r.request(t.Context(), "request")
		ctx, cancel := context.WithCancel(ctx)
		call := lockWith(t, ctx, c.Mutex("k"))
		time.Sleep(time.Second)
		cancel()
		call.fails(context.Canceled)
		wait := r.failed(c, telemetry.Canceled, wanted{telemetry.AttrHolder: lease.Owner(c.ID(), 1)})
		require.Equal(t, span.SpanContext().SpanID(), wait.Parent.SpanID())
		require.Equal(t, time.Second, wait.EndTime.Sub(wait.StartTime))
		unlock(t, h)
	})
}

func TestRefusedCallsAreTold(t *testing.T) {
	heard(t, quietly, func(t *testing.T, s *script, c *Coordinator, r *listener) {
		h := holder(t, s, c)
		queued := lockOf(t, c.Mutex("k"))
		ctx, _ := r.request(t.Context(), "request")
		lockWith(t, ctx, c.Mutex("k")).fails(ErrTooManyWaiters)
		r.failed(c, telemetry.Refused, wanted{telemetry.AttrHolder: lease.Owner(c.ID(), 1)})
		unlock(t, h)
		unlock(t, queued.holds())
	}, WithMaxWaiters(1))
	heard(t, quietly, func(t *testing.T, s *script, c *Coordinator, r *listener) {
		h := holder(t, s, c)
		ctx, _ := r.request(t.Context(), "request")
		_, err := c.ReadWrite("k").Lock(ctx, lease.Shared)
		require.ErrorIs(t, err, ErrKind)
		r.failed(c, telemetry.Refused, wanted{telemetry.AttrHolder: lease.Owner(c.ID(), 1), telemetry.AttrMode: "shared"})
		unlock(t, h)
	})
	heard(t, quietly, func(t *testing.T, s *script, c *Coordinator, r *listener) {
		ctx, span := r.request(t.Context(), "request")
		l := c.ReadWrite("k")
		reader := begin(t, func() (*Hold, error) { return l.Lock(ctx, lease.Shared) })
		s.next(lease.Acquire).held(1, 100)
		r.reset(c)
		_, err := l.Lock(reader.holds().Context(), lease.Exclusive)
		require.ErrorIs(t, err, ErrUpgrade)
		wait := r.failed(c, telemetry.Refused, wanted{telemetry.AttrHolder: lease.Owner(c.ID(), 1)})
		unlock(t, reader.holds())
		hold := r.under(c, span.SpanContext(), telemetry.SpanHold)
		require.Equal(t, hold.SpanContext.SpanID(), wait.Parent.SpanID())
	})
	heard(t, quietly, func(t *testing.T, s *script, c *Coordinator, r *listener) {
		ctx, _ := r.request(t.Context(), "request")
		call := lockWith(t, ctx, c.Mutex("k"))
		s.next(lease.Acquire).answer(lease.Reply{}, lease.ErrKind)
		call.fails(ErrKind)
		r.failed(c, telemetry.Refused, nil)
	})
}

func TestUnavailableStoreIsTold(t *testing.T) {
	heard(t, quietly, func(t *testing.T, s *script, c *Coordinator, r *listener) {
		ctx, _ := r.request(t.Context(), "request")
		call := lockWith(t, ctx, c.Mutex("k"))
		s.next(lease.Acquire).fail(errors.New("gone"))
		time.Sleep(time.Second)
		call.fails(ErrUnavailable)
		wait := r.failed(c, telemetry.Unavailable, nil)
		require.Equal(t, []string{telemetry.EventLeaseAsked, telemetry.EventStoreFailed}, happened(wait))
		require.Equal(t, time.Second, wait.EndTime.Sub(wait.StartTime))
		require.Equal(t, map[string]int64{"": 1}, r.some(telemetry.MetricFailures))
	}, WithUnavailableAfter(time.Second))
	heard(t, quietly, func(t *testing.T, s *script, c *Coordinator, r *listener) {
		ctx, _ := r.request(t.Context(), "request")
		call := begin(t, func() (*Hold, error) { return c.Mutex("k").TryLock(ctx) })
		s.next(lease.Acquire).fail(errors.New("gone"))
		call.fails(ErrUnavailable)
		r.failed(c, telemetry.Unavailable, nil)
	})
}

func TestWaitsAtTheEndOfTheCoordinatorAreTold(t *testing.T) {
	heard(t, quietly, func(t *testing.T, s *script, c *Coordinator, r *listener) {
		ctx, _ := r.request(t.Context(), "first")
		first := lockWith(t, ctx, c.Mutex("k")).holdsAfter(s)
		r.reset(c)
		ctx2, _ := r.request(t.Context(), "second")
		call := lockWith(t, ctx2, c.Mutex("k"))
		closing, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		closed := begin2(func() error { return c.Close(closing) })
		call.fails(ErrClosed)
		wait := r.failed(c, telemetry.Closed, wanted{telemetry.AttrHolder: lease.Owner(c.ID(), 1)})
		s.obey()
		<-closed
		hold := r.only(c, telemetry.SpanHold)
		r.has(hold, wanted{telemetry.AttrPath: "redis", telemetry.AttrOutcome: "closed"})
		require.Equal(t, []string{lead(telemetry.LinkHolder, hold.SpanContext)}, leads(wait))
		require.Equal(t, time.Second, hold.EndTime.Sub(hold.StartTime))
		require.ErrorIs(t, first.Unlock(), ErrClosed)
		require.Equal(t, int64(1), r.holdDurations(c)["exclusive closed"])
	})
}

// holdDurations are the counts of the histogram of holds when all was recorded.
func (r *listener) holdDurations(c *Coordinator) map[string]int64 {
	r.t.Helper()
	require.NoError(r.t, c.FlushTelemetry(context.Background()))
	return r.some(telemetry.MetricHold)
}
