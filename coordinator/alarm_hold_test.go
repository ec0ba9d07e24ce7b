package coordinator

import (
	"context"
	"log/slog"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/trace"

	"github.com/go-leasehold/leasehold/lease"
	"github.com/go-leasehold/leasehold/telemetry"
)

// alarms are those that were raised.
type alarms struct {
	mu  sync.Mutex
	all []telemetry.Alarm
}

func (a *alarms) take(x telemetry.Alarm) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.all = append(a.all, x)
}

// raised are those so far.
func (a *alarms) raised() []telemetry.Alarm {
	synctest.Wait()
	a.mu.Lock()
	defer a.mu.Unlock()
	return append([]telemetry.Alarm(nil), a.all...)
}

// alarmed is heard with what was raised and what was logged.
func alarmed(t *testing.T, conf telemetry.Config,
	test func(t *testing.T, s *script, c *Coordinator, r *listener, a *alarms, log *lines), opts ...Option,
) {
	t.Helper()
	a, log := &alarms{}, &lines{}
	conf.OnAlarm = a.take
	if conf.Roots == 0 {
		conf.Roots = -1
	}
	opts = append(opts, WithLogger(slog.New(slog.NewTextHandler(log, nil))))
	heard(t, conf, func(t *testing.T, s *script, c *Coordinator, r *listener) { test(t, s, c, r, a, log) }, opts...)
}

// renewed answers the renewals of a time.
func (s *script) renewed(d time.Duration) {
	s.t.Helper()
	for end := time.Now().Add(d); time.Now().Before(end); {
		select {
		case <-s.arrived:
		case <-time.After(time.Until(end)):
		}
		for q := s.take(); q != nil; q = s.take() {
			q.obey()
		}
	}
	synctest.Wait()
}

func TestHoldAlarmTellsWhoWhereAndSinceWhen(t *testing.T) {
	conf := telemetry.Config{TraceURL: "http://traces/{trace}#{span}", AlarmStack: true}
	alarmed(t, conf, func(t *testing.T, s *script, c *Coordinator, r *listener, a *alarms, log *lines) {
		ctx, span := r.request(t.Context(), "request")
		h := lockWith(t, ctx, c.Mutex("k")).holdsAfter(s)
		granted := time.Now()
		is := trace.SpanContextFromContext(h.Context())
		waiting := lockOf(t, c.Mutex("k"))
		s.renewed(10*time.Second - 1)
		s.emit(lease.Wanted, "k", 1)
		require.Empty(t, a.raised())
		time.Sleep(time.Nanosecond)
		all := a.raised()
		require.Len(t, all, 1)
		got := all[0]
		require.Regexp(t, `^\S+coordinator\.lockWith\.func1 \(\S+told_harness_test\.go:\d+\) < `, got.Stack, "where it was locked")
		require.True(t, granted.Equal(got.Since))
		got.Stack, got.Since = "", time.Time{}
		require.Equal(t, telemetry.Alarm{
			Kind: telemetry.LongHold, Key: "k", Class: "other", Mode: "exclusive", Lasted: 10 * time.Second, Limit: 10 * time.Second,
			Owner: lease.Owner(c.ID(), 1), Token: 1, Waiters: 1, Wanted: true, Trace: is,
			TraceURL: "http://traces/" + is.TraceID().String() + "#" + is.SpanID().String(),
		}, got)
		for _, part := range []string{
			`msg="leasehold: a lock has been held for long"`, "level=WARN", "alarm=long_hold", `key="\"k\""`, "class=other", "lasted=10s", "limit=10s",
			"owner=" + lease.Owner(c.ID(), 1), "token=1", "waiters=1", "wanted=true", "trace_id=" + is.TraceID().String(),
			"span_id=" + is.SpanID().String(), "trace_url=", "locked_at=",
		} {
			require.Contains(t, log.String(), part)
		}
		require.NoError(t, c.FlushTelemetry(t.Context()))
		require.Equal(t, map[string]int64{"long_hold": 1, "long_wait": 0, "late_renewal": 0}, r.series(telemetry.MetricAlarms))

		s.renewed(time.Minute)
		require.Len(t, a.raised(), 1, "once for a hold")
		require.NoError(t, h.Unlock())
		s.obey()
		unlock(t, waiting.holds())
		hold := r.under(c, span.SpanContext(), telemetry.SpanHold)
		require.Equal(t, []string{telemetry.EventWanted, telemetry.EventAlarm}, happened(hold))
		require.True(t, granted.Add(10*time.Second).Equal(hold.Events[1].Time))
		require.Equal(t, map[attribute.Key]any{telemetry.AttrAlarm: "long_hold"}, attrs(hold.Events[1].Attributes))
	})
}

// TestHoldAlarmComesAtItsTime: at the default, at others, before anything else looks
// at the hold, and not at all.
func TestHoldAlarmComesAtItsTime(t *testing.T) {
	for given, limit := range map[time.Duration]time.Duration{
		0: 10 * time.Second, -1: 0, time.Minute: time.Minute, 7 * time.Millisecond: 7 * time.Millisecond, 100 * time.Millisecond: 100 * time.Millisecond, 1: 1,
	} {
		t.Run(given.String(), func(t *testing.T) {
			alarmed(t, telemetry.Config{HoldAlarm: given}, func(t *testing.T, s *script, c *Coordinator, _ *listener, a *alarms, log *lines) {
				h := lockOf(t, c.Mutex("k")).holdsAfter(s)
				if limit == 0 {
					s.renewed(time.Hour)
					require.Empty(t, a.raised())
					unlock(t, h)
					return
				}
				if limit > 1 {
					s.renewed(limit - 1)
					require.Empty(t, a.raised())
				}
				time.Sleep(time.Nanosecond)
				all := a.raised()
				require.Len(t, all, 1)
				require.Equal(t, limit, all[0].Lasted)
				require.Equal(t, limit, all[0].Limit)
				require.False(t, all[0].Trace.IsValid())
				require.Empty(t, all[0].TraceURL)
				require.Empty(t, all[0].Stack)
				require.NotContains(t, log.String(), "locked_at")
				s.renewed(3 * limit)
				unlock(t, h)
				require.Len(t, a.raised(), 1)

				h = lockOf(t, c.Mutex("k")).holds() // which used the same claim
				s.renewed(limit)
				require.Len(t, a.raised(), 2, "the next hold has its own")
				unlock(t, h)
			}, WithRetention(time.Minute))
		})
	}
}

func TestHoldThatEndsBeforeItsAlarmRaisesNone(t *testing.T) {
	alarmed(t, telemetry.Config{HoldAlarm: time.Second}, func(t *testing.T, s *script, c *Coordinator, _ *listener, a *alarms, _ *lines) {
		h := lockOf(t, c.Mutex("k", MaxHold(time.Second))).holdsAfter(s)
		s.renewed(2 * time.Second)
		require.ErrorIs(t, h.Unlock(), ErrHoldExpired)
		require.Empty(t, a.raised(), "it ended at that moment")

		h = lockOf(t, c.Mutex("k", MaxHold(time.Second/2))).holds()
		s.renewed(time.Second / 4)
		require.NoError(t, h.Extend(2*time.Second))
		s.renewed(time.Second)
		require.Len(t, a.raised(), 1, "it was extended beyond it")
		require.NoError(t, h.Unlock())
	}, WithRetention(time.Minute))
}

func TestHoldAlarmIsOneForAllHandlesOfAHold(t *testing.T) {
	alarmed(t, telemetry.Config{HoldAlarm: time.Second}, func(t *testing.T, s *script, c *Coordinator, _ *listener, a *alarms, _ *lines) {
		h := lockOf(t, c.Mutex("k")).holdsAfter(s)
		s.renewed(time.Second / 2)
		again := lockWith(t, h.Context(), c.Mutex("k")).holds()
		s.renewed(time.Second / 2)
		require.Len(t, a.raised(), 1)
		unlock(t, h)
		s.renewed(time.Minute)
		require.Len(t, a.raised(), 1)
		unlock(t, again)
	})
}

func TestEachReaderHasItsAlarm(t *testing.T) {
	alarmed(t, telemetry.Config{HoldAlarm: time.Second}, func(t *testing.T, s *script, c *Coordinator, r *listener, a *alarms, _ *lines) {
		s.obey()
		l := c.ReadWrite("k")
		var holds []*Hold
		var spans []trace.SpanContext
		for range 3 {
			ctx, _ := r.request(t.Context(), "request")
			h, err := l.Lock(ctx, lease.Shared)
			require.NoError(t, err)
			holds = append(holds, h)
			spans = append(spans, trace.SpanContextFromContext(h.Context()))
			time.Sleep(time.Second / 4)
		}
		time.Sleep(time.Minute)
		all := a.raised()
		require.Len(t, all, 3)
		for i, x := range all {
			require.Equal(t, "shared", x.Mode)
			require.Equal(t, spans[i], x.Trace)
			require.NoError(t, holds[i].Unlock())
		}
		for _, h := range r.of(c, telemetry.SpanHold) {
			require.Equal(t, []string{telemetry.EventAlarm}, happened(h), "its own alarm, and nobody else's")
		}
	})
}

// TestReadersInsideAGateThatIsShutRaiseOneAlarm: since when each is inside, nobody
// knows; they are told of when somebody waits for them.
func TestReadersInsideAGateThatIsShutRaiseOneAlarm(t *testing.T) {
	alarmed(t, telemetry.Config{HoldAlarm: time.Second}, func(t *testing.T, s *script, c *Coordinator, _ *listener, a *alarms, _ *lines) {
		l := c.ReadWrite("k")
		opened(t, s, l, lease.Exclusive)
		s.obey()
		first, second := passes(t, l), passes(t, l)
		time.Sleep(time.Minute)
		require.Empty(t, a.raised(), "nobody waits")
		w := writes(t, l)
		time.Sleep(time.Second - 1)
		require.Empty(t, a.raised())
		time.Sleep(time.Nanosecond)
		all := a.raised()
		require.Len(t, all, 1)
		require.Equal(t, telemetry.LongHold, all[0].Kind)
		require.Equal(t, "shared", all[0].Mode)
		require.Equal(t, 1, all[0].Waiters)
		time.Sleep(time.Minute)
		require.Len(t, a.raised(), 1)
		unlock(t, first)
		unlock(t, second)
		unlock(t, w.holds())
	}, WithRetention(10*time.Minute))
}

// TestAlarmMayUseTheCoordinator: lock, look, flush, and close it.
func TestAlarmMayUseTheCoordinator(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := listen(t)
		var c *Coordinator
		done := make(chan error, 1)
		conf := telemetry.Config{HoldAlarm: time.Second, OnAlarm: func(telemetry.Alarm) {
			h, err := c.Mutex("other").Lock(context.Background())
			if err == nil {
				err = h.Unlock()
			}
			if n := len(c.Snapshot().Keys); err == nil && n != 2 {
				err = context.Canceled
			}
			if err == nil {
				ctx, cancel := context.WithTimeout(context.Background(), time.Second)
				defer cancel()
				err = c.Close(ctx) // which waits for alarms, but not for ever
			}
			done <- err
		}}
		s, made := scriptOf(t, r.config(conf))
		c = made
		s.obey()
		h, err := c.Mutex("k").Lock(t.Context())
		require.NoError(t, err)
		begun := time.Now()
		require.NoError(t, <-done)
		require.Less(t, time.Since(begun), 2*time.Second+4*closeGrace)
		require.ErrorIs(t, h.Unlock(), ErrClosed)
	})
}

// TestAlarmsThatPanicOrHang: the next ones are raised, and those that can't be told are counted.
func TestAlarmsThatPanicOrHang(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := listen(t)
		hang, n := make(chan struct{}), 0
		conf := telemetry.Config{HoldAlarm: time.Second, OnAlarm: func(telemetry.Alarm) {
			if n++; n == 1 {
				panic("an alarm")
			}
			<-hang
		}}
		s, c := scriptOf(t, r.config(conf))
		s.obey()
		var holds []*Hold
		for i := range 3 {
			h, err := c.Mutex(string(rune('a' + i))).Lock(t.Context())
			require.NoError(t, err)
			holds = append(holds, h)
		}
		time.Sleep(time.Second)
		synctest.Wait()
		require.Equal(t, 2, n)
		require.Equal(t, int64(1), r.series(telemetry.MetricDropped)[""])
		require.Equal(t, int64(3), r.series(telemetry.MetricAlarms)["long_hold"], "the count does not wait for it")
		for _, h := range holds {
			require.NoError(t, h.Unlock())
		}
		begun := time.Now()
		require.NoError(t, c.Close(t.Context()))
		require.LessOrEqual(t, time.Since(begun), 50*time.Millisecond+3*closeGrace)
		close(hang)
	})
}
