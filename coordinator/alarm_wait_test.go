package coordinator

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/trace"

	"github.com/go-leasehold/leasehold/lease"
	"github.com/go-leasehold/leasehold/telemetry"
)

var waitAlarm = telemetry.Config{WaitAlarm: time.Second, HoldAlarm: -1, TraceURL: "http://traces/{trace}"}

func TestWaitAlarmTellsForWhomACallWaits(t *testing.T) {
	alarmed(t, waitAlarm, func(t *testing.T, s *script, c *Coordinator, r *listener, a *alarms, log *lines) {
		ctx, _ := r.request(t.Context(), "first")
		h := lockWith(t, ctx, c.Mutex("k")).holdsAfter(s)
		is := trace.SpanContextFromContext(h.Context())
		time.Sleep(time.Millisecond)
		ctx2, span2 := r.request(t.Context(), "second")
		began := time.Now()
		call := lockWith(t, ctx2, c.Mutex("k"))
		s.renewed(time.Second - 1)
		require.Empty(t, a.raised())
		time.Sleep(time.Nanosecond)
		all := a.raised()
		require.Len(t, all, 1)
		got := all[0]
		require.True(t, began.Equal(got.Since))
		got.Since = time.Time{}
		require.Equal(t, telemetry.Alarm{
			Kind: telemetry.LongWait, Key: "k", Class: "other", Mode: "exclusive", Lasted: time.Second, Limit: time.Second,
			Holder: lease.Owner(c.ID(), 1), Waiters: 1, Trace: is, TraceURL: "http://traces/" + is.TraceID().String(),
		}, got)
		require.Contains(t, log.String(), "a lock has been waited for for long")
		require.Contains(t, log.String(), "holder="+lease.Owner(c.ID(), 1))
		s.renewed(time.Minute)
		require.Len(t, a.raised(), 1, "once for a wait")
		unlock(t, h)
		unlock(t, call.holds())
		wait := r.under(c, span2.SpanContext(), telemetry.SpanAcquire)
		require.Equal(t, []string{telemetry.EventQueued, telemetry.EventAlarm}, happened(wait))
		require.True(t, began.Add(time.Second).Equal(wait.Events[1].Time))
		require.Empty(t, r.under(c, span2.SpanContext(), telemetry.SpanHold).Events, "it was of the wait")
		require.Equal(t, map[string]int64{"long_wait": 1}, r.some(telemetry.MetricAlarms))
	}, WithRetention(time.Minute))
}

// TestWaitAlarmTellsOfAHoldElsewhere: by what the store has said of it.
func TestWaitAlarmTellsOfAHoldElsewhere(t *testing.T) {
	alarmed(t, waitAlarm, func(t *testing.T, s *script, c *Coordinator, r *listener, a *alarms, _ *lines) {
		ctx, _ := r.request(t.Context(), "request")
		call := lockWith(t, ctx, c.Mutex("k"))
		q := s.next(lease.Acquire)
		answer := q.waiting()
		answer.Trace = telemetry.FormatTrace(elsewhere(3))
		q.reply(answer)
		s.traced(q.Ticket, 4)
		s.traced(q.Ticket, 5)
		time.Sleep(time.Second)
		all := a.raised()
		require.Len(t, all, 1)
		require.Equal(t, "other:1", all[0].Holder)
		require.Equal(t, elsewhere(5).TraceID(), all[0].Trace.TraceID(), "the one that has the key now")
		s.grant(q.Ticket, 1, 100)
		unlock(t, call.holds())
	})
}

func TestWaitAlarmGoesWithEveryWayToWait(t *testing.T) {
	ways := map[string]func(ctx context.Context, m *Mutex) error{
		"Lock": func(ctx context.Context, m *Mutex) error { return lockAndUnlock(m.Lock(ctx)) },
		"Do": func(ctx context.Context, m *Mutex) error {
			return m.Do(ctx, func(context.Context) error { return nil })
		},
		"LockAll": func(ctx context.Context, m *Mutex) error { return locksAll(ctx, m.c) },
		"TryLockFor": func(ctx context.Context, m *Mutex) error {
			return lockAndUnlock(m.TryLockFor(ctx, time.Hour))
		},
		"a context that can end": func(ctx context.Context, m *Mutex) error {
			ctx, cancel := context.WithCancel(ctx)
			defer cancel()
			return lockAndUnlock(m.Lock(ctx))
		},
		"no end at all": func(_ context.Context, m *Mutex) error { return lockAndUnlock(m.Lock(context.Background())) },
	}
	for name, way := range ways {
		t.Run(name, func(t *testing.T) {
			conf := waitAlarm
			conf.AlarmStack = true
			alarmed(t, conf, func(t *testing.T, s *script, c *Coordinator, _ *listener, a *alarms, _ *lines) {
				h := lockOf(t, c.Mutex("k")).holdsAfter(s)
				done := begin2(func() error { return way(t.Context(), c.Mutex("k")) })
				s.renewed(time.Minute)
				all := a.raised()
				require.Len(t, all, 1)
				require.Equal(t, time.Second, all[0].Lasted)
				first, _, _ := strings.Cut(all[0].Stack, " < ")
				if name != "Do" && name != "LockAll" {
					require.Contains(t, first, "alarm_wait_test.go", "who called")
				}
				require.Contains(t, all[0].Stack, "alarm_wait_test.go")
				unlock(t, h)
				require.NoError(t, <-done)
			}, WithRetention(time.Minute))
		})
	}
}

func lockAndUnlock(h *Hold, err error) error {
	if err != nil {
		return err
	}
	return h.Unlock()
}

func locksAll(ctx context.Context, c *Coordinator) error {
	all, err := c.LockAll(ctx, "k")
	if err != nil {
		return err
	}
	return all.Unlock()
}

func TestShortWaitsRaiseNoAlarm(t *testing.T) {
	alarmed(t, waitAlarm, func(t *testing.T, s *script, c *Coordinator, _ *listener, a *alarms, _ *lines) {
		h := lockOf(t, c.Mutex("k")).holdsAfter(s)
		call := begin(t, func() (*Hold, error) { return c.Mutex("k").TryLockFor(t.Context(), time.Second-1) })
		canceled, cancel := context.WithTimeout(t.Context(), time.Second/2)
		defer cancel()
		other := lockWith(t, canceled, c.Mutex("k"))
		granted := lockOf(t, c.Mutex("k"))
		s.renewed(time.Second - 1)
		call.fails(ErrNotAcquired)
		other.fails(context.DeadlineExceeded)
		unlock(t, h)
		h = granted.holds()
		s.renewed(time.Minute)
		require.Empty(t, a.raised())
		unlock(t, h)
	})
	alarmed(t, telemetry.Config{HoldAlarm: -1}, func(t *testing.T, s *script, c *Coordinator, _ *listener, a *alarms, _ *lines) {
		h := lockOf(t, c.Mutex("k")).holdsAfter(s)
		call := lockOf(t, c.Mutex("k"))
		s.renewed(time.Hour)
		require.Empty(t, a.raised(), "there is none by default")
		unlock(t, h)
		unlock(t, call.holds())
	})
}

var lateAlarm = telemetry.Config{HoldAlarm: -1}

// late brings a lease here whose first renewal is answered after that time.
func late(t *testing.T, s *script, after time.Duration) {
	t.Helper()
	q := s.within(time.Second, lease.Renew)
	time.Sleep(after)
	q.held(0, 0)
}

func TestLateRenewalRaisesAnAlarmOnceForALease(t *testing.T) {
	alarmed(t, lateAlarm, func(t *testing.T, s *script, c *Coordinator, r *listener, a *alarms, log *lines) {
		h := lockOf(t, c.Mutex("k")).holdsAfter(s)
		granted := time.Now()
		late(t, s, believed-2*time.Second+time.Microsecond) // less than a second is left of three
		all := a.raised()
		require.Len(t, all, 1)
		got := all[0]
		require.True(t, granted.Add(time.Second).Equal(got.Since), "when it was due")
		got.Since = time.Time{}
		require.Equal(t, telemetry.Alarm{
			Kind: telemetry.LateRenewal, Key: "k", Class: "other", Mode: "exclusive", Owner: lease.Owner(c.ID(), 1),
			Lasted: believed - 2*time.Second + time.Microsecond, Limit: time.Second,
		}, got)
		require.Contains(t, log.String(), "a lease was renewed late")
		late(t, s, 1900*time.Millisecond)
		require.Len(t, a.raised(), 1, "once for a lease")
		unlock(t, h)
		require.NoError(t, c.FlushTelemetry(t.Context()))
		require.Equal(t, map[string]int64{"late_renewal": 1}, r.some(telemetry.MetricAlarms))
		require.Equal(t, map[string]int64{"": 2}, r.some(telemetry.MetricLateness))
		s.next(lease.Renew).held(0, 0)
		s.within(time.Second, lease.Release).end()

		h = lockOf(t, c.Mutex("k")).holdsAfter(s)
		late(t, s, 1500*time.Millisecond)
		require.Len(t, a.raised(), 2, "it is another lease")
		unlock(t, h)
	}, WithRetention(10*time.Millisecond))
}

func TestRenewalInTimeRaisesNoAlarm(t *testing.T) {
	alarmed(t, lateAlarm, func(t *testing.T, s *script, c *Coordinator, r *listener, a *alarms, _ *lines) {
		h := lockOf(t, c.Mutex("k")).holdsAfter(s)
		late(t, s, believed-2*time.Second)
		s.within(time.Second, lease.Renew).fail(errors.New("gone"))
		s.within(time.Second, lease.Renew).held(0, 0)
		require.Empty(t, a.raised())
		unlock(t, h)
		require.NoError(t, c.FlushTelemetry(t.Context()))
		require.Equal(t, map[string]int64{"": 2}, r.some(telemetry.MetricLateness))
	})
}

// TestLateRenewalOfAnIdleLeaseRaisesNoAlarm: nobody was in danger.
func TestLateRenewalOfAnIdleLeaseRaisesNoAlarm(t *testing.T) {
	alarmed(t, lateAlarm, func(t *testing.T, s *script, c *Coordinator, _ *listener, a *alarms, _ *lines) {
		unlock(t, lockOf(t, c.Mutex("k")).holdsAfter(s))
		late(t, s, 1900*time.Millisecond)
		require.Empty(t, a.raised())
	}, WithRetention(time.Hour))
}

func TestLateRenewalIsAnEventOfTheHold(t *testing.T) {
	alarmed(t, lateAlarm, func(t *testing.T, s *script, c *Coordinator, r *listener, a *alarms, _ *lines) {
		ctx, span := r.request(t.Context(), "request")
		h := lockWith(t, ctx, c.Mutex("k")).holdsAfter(s)
		s.after(checkHoldAfter, lease.Annotate).end()
		late(t, s, 1900*time.Millisecond)
		is := trace.SpanContextFromContext(h.Context())
		all := a.raised()
		require.Len(t, all, 1)
		require.Equal(t, is, all[0].Trace)
		unlock(t, h)
		hold := r.under(c, span.SpanContext(), telemetry.SpanHold)
		require.Equal(t, []string{telemetry.EventRenewalLate}, happened(hold))
		require.Equal(t, []attribute.KeyValue{telemetry.AttrAlarm.String("late_renewal")}, hold.Events[0].Attributes)
	})
}
