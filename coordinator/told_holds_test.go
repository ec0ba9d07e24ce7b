package coordinator

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/trace"

	"github.com/go-leasehold/leasehold/lease"
	"github.com/go-leasehold/leasehold/telemetry"
)

// What is told of the end of holds.

func TestHoldWhoseLeaseIsNotRenewedIsToldAsLost(t *testing.T) {
	heard(t, quietly, func(t *testing.T, s *script, c *Coordinator, r *listener) {
		ctx, span := r.request(t.Context(), "request")
		h := lockWith(t, ctx, c.Mutex("k")).holdsAfter(s)
		s.after(checkHoldAfter, lease.Annotate).end()
		s.after(time.Second-checkHoldAfter, lease.Renew) // is never answered
		time.Sleep(believed - time.Second)
		synctest.Wait()
		hold := r.under(c, span.SpanContext(), telemetry.SpanHold)
		r.has(hold, wanted{telemetry.AttrPath: "redis", telemetry.AttrOutcome: "lost", telemetry.AttrCause: "not_renewed"})
		require.Equal(t, []string{telemetry.EventLost}, happened(hold))
		require.Equal(t, map[attribute.Key]any{telemetry.AttrCause: "not_renewed"}, attrs(hold.Events[0].Attributes))
		require.Equal(t, believed, hold.EndTime.Sub(hold.StartTime))
		require.ErrorIs(t, h.Unlock(), ErrLeaseLost)
		require.Equal(t, map[string]int64{"exclusive lost": 1}, r.holdDurations(c), "once")
		require.Len(t, r.of(c, telemetry.SpanHold), 1)
		require.Equal(t, map[string]int64{"not_renewed": 1}, r.some(telemetry.MetricLosses))
	})
}

func TestHoldWhoseLeaseIsTakenAwayIsToldAsLost(t *testing.T) {
	heard(t, quietly, func(t *testing.T, s *script, c *Coordinator, r *listener) {
		ctx, span := r.request(t.Context(), "request")
		h := lockWith(t, ctx, c.Mutex("k")).holdsAfter(s)
		told := s.after(checkHoldAfter, lease.Annotate) // for who may come
		annotatedBy(t, told, trace.SpanContextFromContext(h.Context()))
		told.end()
		q := s.after(time.Second-checkHoldAfter, lease.Renew)
		require.True(t, q.Annotated)
		time.Sleep(time.Millisecond)
		q.reply(lease.Reply{Status: lease.Lost})
		hold := r.under(c, span.SpanContext(), telemetry.SpanHold)
		r.has(hold, wanted{telemetry.AttrPath: "redis", telemetry.AttrOutcome: "lost", telemetry.AttrCause: "taken_away"})
		require.Equal(t, []string{telemetry.EventLost}, happened(hold))
		require.Equal(t, time.Second+time.Millisecond, hold.EndTime.Sub(hold.StartTime))
		require.ErrorIs(t, h.Unlock(), ErrLeaseLost)
		require.Equal(t, map[string]int64{"taken_away": 1}, r.some(telemetry.MetricLosses))
		require.Equal(t, map[string]int64{"exclusive lost": 1}, r.holdDurations(c))
	})
}

func TestHoldsThatOutlastTheirTimeAreToldAsExpired(t *testing.T) {
	heard(t, quietly, func(t *testing.T, s *script, c *Coordinator, r *listener) {
		ctx, span := r.request(t.Context(), "request")
		h := lockWith(t, ctx, c.Mutex("k", MaxHold(40*time.Millisecond))).holdsAfter(s)
		time.Sleep(40 * time.Millisecond)
		synctest.Wait()
		hold := r.under(c, span.SpanContext(), telemetry.SpanHold)
		r.has(hold, wanted{telemetry.AttrPath: "redis", telemetry.AttrOutcome: "expired"})
		require.Equal(t, 40*time.Millisecond, hold.EndTime.Sub(hold.StartTime))
		require.ErrorIs(t, h.Unlock(), ErrHoldExpired)
		require.Equal(t, map[string]int64{"": 1}, r.some(telemetry.MetricExpired))
		require.Equal(t, map[string]int64{"exclusive expired": 1}, r.holdDurations(c))
	})
	heard(t, quietly, func(t *testing.T, s *script, c *Coordinator, r *listener) {
		ctx, span := r.request(t.Context(), "request")
		ends, cancel := context.WithCancel(t.Context())
		h := lockWith(t, ctx, c.Mutex("k", EndWith(ends))).holdsAfter(s)
		time.Sleep(time.Second / 2)
		cancel()
		synctest.Wait()
		hold := r.under(c, span.SpanContext(), telemetry.SpanHold)
		r.has(hold, wanted{telemetry.AttrPath: "redis", telemetry.AttrOutcome: "expired"})
		require.Equal(t, time.Second/2, hold.EndTime.Sub(hold.StartTime))
		require.ErrorIs(t, h.Unlock(), ErrHoldExpired)
		require.Equal(t, map[string]int64{"exclusive expired": 1}, r.holdDurations(c))
	})
}

func TestExtendedHoldIsToldToItsEnd(t *testing.T) {
	heard(t, quietly, func(t *testing.T, s *script, c *Coordinator, r *listener) {
		ctx, _ := r.request(t.Context(), "request")
		h := lockWith(t, ctx, c.Mutex("k", MaxHold(40*time.Millisecond))).holdsAfter(s)
		time.Sleep(30 * time.Millisecond)
		require.NoError(t, h.Extend(100*time.Millisecond))
		time.Sleep(60 * time.Millisecond)
		require.Empty(t, r.of(c, telemetry.SpanHold))
		unlock(t, h)
		hold := r.only(c, telemetry.SpanHold)
		r.has(hold, wanted{telemetry.AttrPath: "redis", telemetry.AttrOutcome: "released"})
		require.Equal(t, 90*time.Millisecond, hold.EndTime.Sub(hold.StartTime))
	})
}

func TestHoldThatDropsToReadingIsOneSpan(t *testing.T) {
	heard(t, quietly, func(t *testing.T, s *script, c *Coordinator, r *listener) {
		ctx, span := r.request(t.Context(), "request")
		l := c.ReadWrite("k")
		w := begin(t, func() (*Hold, error) { return l.Lock(ctx, lease.Exclusive) }).holdsAfter(s)
		before := trace.SpanContextFromContext(w.Context())
		s.after(checkHoldAfter, lease.Annotate).end()
		time.Sleep(time.Second/2 - checkHoldAfter)
		h, err := w.Downgrade()
		require.NoError(t, err)
		s.next(lease.Downgrade).held(0, 0)
		require.Equal(t, before, trace.SpanContextFromContext(h.Context()), "its work goes on under the same span")
		time.Sleep(time.Second / 4)
		unlock(t, h)
		hold := r.under(c, span.SpanContext(), telemetry.SpanHold)
		r.has(hold, wanted{telemetry.AttrPath: "redis", telemetry.AttrOutcome: "released"})
		require.Equal(t, 750*time.Millisecond, hold.EndTime.Sub(hold.StartTime))
		require.Equal(t, map[string]int64{"shared released": 1}, r.holdDurations(c))
	})
}

func TestWantAndTroubleAreEventsOfTheHold(t *testing.T) {
	heard(t, quietly, func(t *testing.T, s *script, c *Coordinator, r *listener) {
		ctx, span := r.request(t.Context(), "request")
		call := lockWith(t, ctx, c.Mutex("k"))
		q := s.next(lease.Acquire)
		q.held(1, 100)
		begun := time.Now()
		time.Sleep(10 * time.Millisecond)
		s.emit(lease.Wanted, "k", q.Ticket)
		told := s.next(lease.Annotate)
		require.Equal(t, q.Ticket, told.Ticket)
		annotatedBy(t, told, trace.SpanContextFromContext(call.holds().Context()))
		told.end()
		s.after(990*time.Millisecond, lease.Renew).fail(context.DeadlineExceeded)
		s.within(time.Second, lease.Renew).reply(lease.Reply{Status: lease.Held, Waiters: 1})
		unlock(t, call.holds())
		release := s.next(lease.Release)
		require.Equal(t, told.Trace, release.Trace, "the next one is told whom it waited for")
		require.True(t, release.Annotated)
		release.end()

		hold := r.under(c, span.SpanContext(), telemetry.SpanHold)
		require.Equal(t, []string{telemetry.EventWanted, telemetry.EventRenewalFailed}, happened(hold))
		require.True(t, begun.Add(10*time.Millisecond).Equal(hold.Events[0].Time))
		require.True(t, begun.Add(time.Second).Equal(hold.Events[1].Time))
	})
}

// TestHoldThatNobodyUnlocksEndsWithTheCoordinator: it was garbage-collected, and the
// key is held on.
func TestHoldThatNobodyUnlocksEndsWithTheCoordinator(t *testing.T) {
	r := listen(t)
	s := &script{
		t: t, caps: lease.Capabilities{Server: "script", Notices: true, Receipts: true},
		flying: make(map[string]*sent), arrived: make(chan struct{}, 1), obeying: true,
	}
	c, err := NewWithStore(s, WithTelemetry(r.config(telemetry.Config{})))
	require.NoError(t, err)
	ctx, span := r.request(context.Background(), "request")
	func() {
		_, err := c.Mutex("dropped").Lock(ctx)
		require.NoError(t, err)
	}()
	collect(t, func() bool { return c.Snapshot().Stats.Abandoned == 1 })
	require.Empty(t, r.of(c, telemetry.SpanHold))
	over, cancel := context.WithCancel(context.Background())
	cancel()
	_ = c.Close(over) // it says that a hold was left, or not
	hold := r.under(c, span.SpanContext(), telemetry.SpanHold)
	r.has(hold, wanted{telemetry.AttrPath: "redis", telemetry.AttrOutcome: "closed"})
}

func TestSeveralLocksAreSeveralHolds(t *testing.T) {
	heard(t, quietly, func(t *testing.T, s *script, c *Coordinator, r *listener) {
		s.obey()
		ctx, span := r.request(t.Context(), "request")
		all, err := c.LockAll(ctx, "b", "a", "b")
		require.NoError(t, err)
		time.Sleep(time.Second)
		require.NoError(t, all.Unlock())
		first := r.under(c, span.SpanContext(), telemetry.SpanHold)
		second := r.under(c, first.SpanContext, telemetry.SpanHold)
		r.under(c, first.SpanContext, telemetry.SpanAcquire)
		require.Len(t, r.all(c), 4)
		require.False(t, second.StartTime.Before(first.StartTime))
		require.False(t, second.EndTime.After(first.EndTime))
	})
}

func TestReadAndWriteFunctionsAreTold(t *testing.T) {
	heard(t, quietly, func(t *testing.T, s *script, c *Coordinator, r *listener) {
		s.obey()
		l := c.ReadWrite("k")
		var inside []trace.SpanContext
		work := func(ctx context.Context) error {
			inside = append(inside, trace.SpanContextFromContext(ctx))
			require.NotNil(t, HoldFrom(ctx))
			time.Sleep(time.Millisecond)
			return nil
		}
		modes := []lease.Mode{lease.Exclusive, lease.Shared, lease.Shared, lease.Shared}
		for _, mode := range modes {
			ctx, _ := r.request(t.Context(), "request")
			require.NoError(t, l.Do(ctx, mode, work))
		}
		holds := r.of(c, telemetry.SpanHold)
		require.Len(t, holds, len(modes))
		for i, h := range holds {
			require.Equal(t, inside[i].SpanID(), h.SpanContext.SpanID(), "the work is not below its hold")
			require.Equal(t, modes[i].String(), attrs(h.Attributes)[telemetry.AttrMode])
			require.Equal(t, time.Millisecond, h.EndTime.Sub(h.StartTime))
		}
		// Those that are not traced have nothing of it in their contexts.
		require.NoError(t, l.Do(t.Context(), lease.Shared, func(ctx context.Context) error {
			require.False(t, trace.SpanContextFromContext(ctx).IsValid())
			return nil
		}))
	}, WithRetention(time.Minute))
}
