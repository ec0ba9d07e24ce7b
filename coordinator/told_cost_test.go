package coordinator

import (
	"context"
	"fmt"
	"runtime"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	metricnoop "go.opentelemetry.io/otel/metric/noop"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/trace/noop"

	"github.com/go-leasehold/leasehold/lease"
	"github.com/go-leasehold/leasehold/telemetry"
)

// untold is a coordinator in real time of which nobody wants to be told.
func untold(t *testing.T, conf telemetry.Config, opts ...Option) *Coordinator {
	t.Helper()
	s := &script{
		t: t, caps: lease.Capabilities{Server: "script", Notices: true, Receipts: true},
		flying: make(map[string]*sent), arrived: make(chan struct{}, 1), obeying: true,
	}
	c, err := NewWithStore(s, append([]Option{WithTelemetry(conf), WithTTL(time.Hour), WithRetention(time.Minute)}, opts...)...)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, c.Close(context.Background())) })
	return c
}

// silences are the ways in which nobody wants to be told.
func silences() map[string]telemetry.Config {
	return map[string]telemetry.Config{
		"no SDK":         {},
		"no-op SDK":      {TracerProvider: noop.NewTracerProvider(), MeterProvider: metricnoop.NewMeterProvider()},
		"with KeyClass":  {KeyClass: func(string) string { return "mine" }},
		"without alarms": {HoldAlarm: -1},
	}
}

// TestNothingIsAllocatedWhereNobodyIsTold: a hold is one allocation, as it was before
// there was anything to tell; a read that passes the gate has its hold and badge.
func TestNothingIsAllocatedWhereNobodyIsTold(t *testing.T) {
	for name, conf := range silences() {
		t.Run(name, func(t *testing.T) {
			c := untold(t, conf)
			m, l := c.Mutex("k"), c.ReadWrite("r")
			ctx := context.Background()
			lock := func() {
				h, err := m.Lock(ctx)
				if err != nil || h.Unlock() != nil {
					t.Error(err)
				}
			}
			read := func() {
				h, err := l.Lock(ctx, lease.Shared)
				if err != nil || h.Unlock() != nil {
					t.Error(err)
				}
			}
			for range 100 {
				lock()
				read()
			}
			require.InDelta(t, 1, testing.AllocsPerRun(2000, lock), 0.1)
			require.InDelta(t, 1, testing.AllocsPerRun(2000, read), pooled)
			require.NotZero(t, c.Snapshot().Stats.Passed)
			require.InDelta(t, 1, contended(t, c), 0.1)
		})
	}
}

// contended returns how much a lock allocates that several goroutines want.
func contended(t *testing.T, c *Coordinator) float64 {
	t.Helper()
	const callers, locks = 8, 3000
	m := c.Mutex("contended")
	run := func() {
		done := make(chan error, callers)
		for range callers {
			go func() {
				for range locks {
					h, err := m.Lock(context.Background())
					if err != nil {
						done <- err
						return
					}
					runtime.Gosched()
					if err := h.Unlock(); err != nil {
						done <- err
						return
					}
				}
				done <- nil
			}()
		}
		for range callers {
			require.NoError(t, <-done)
		}
	}
	run()
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	run()
	runtime.ReadMemStats(&after)
	return float64(after.Mallocs-before.Mallocs) / (callers * locks)
}

// heap is how much there is after a collection.
func heap() uint64 {
	runtime.GC()
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return m.HeapAlloc
}

// keptNothing is an exporter that keeps nothing.
type keptNothing struct{}

func (keptNothing) ExportSpans(context.Context, []sdktrace.ReadOnlySpan) error { return nil }
func (keptNothing) Shutdown(context.Context) error                             { return nil }

// TestNothingIsKeptOfWhatWasTold: of many traced calls for one key, and for many
// keys.
func TestNothingIsKeptOfWhatWasTold(t *testing.T) {
	for name, key := range map[string]func(n int) string{
		"one key":   func(int) string { return "k" },
		"many keys": func(n int) string { return fmt.Sprintf("k%d", n) },
	} {
		t.Run(name, func(t *testing.T) {
			provider := sdktrace.NewTracerProvider(sdktrace.WithSyncer(keptNothing{}))
			conf := telemetry.Config{TracerProvider: provider, AllAcquires: true, LeaseSpans: true, KeyAttribute: true}
			retention := WithRetention(0)
			if name == "one key" {
				retention = WithRetention(time.Minute)
			}
			c := untold(t, conf, retention)
			tracer := provider.Tracer("test")
			calls := func(from, to int) {
				for n := from; n < to; n++ {
					ctx, span := tracer.Start(context.Background(), "request")
					h, err := c.Mutex(key(n)).Lock(ctx)
					require.NoError(t, err)
					ctx = h.Context()
					again, err := c.Mutex(key(n)).Lock(ctx)
					require.NoError(t, err)
					require.NoError(t, again.Unlock())
					require.NoError(t, h.Unlock())
					span.End()
					if n%500 == 0 {
						require.NoError(t, c.FlushTelemetry(context.Background())) // so that none is dropped
					}
				}
				require.NoError(t, c.FlushTelemetry(context.Background()))
			}
			all := manyCalls
			if name == "many keys" {
				all /= 5
			}
			calls(0, 2_000)
			before := heap()
			calls(2_000, all)
			require.Less(t, heap(), before+uint64(1<<20+50*all), "it grows by more than fifty bytes a call")
			a, ok := c.actors.Load("k")
			if name == "one key" {
				require.True(t, ok)
				a.mu.Lock()
				defer a.mu.Unlock()
				require.Zero(t, a.told.following)
				require.LessOrEqual(t, len(a.told.events), maxEvents)
			}
		})
	}
}

// TestEventsAreFreedWhereNothingIsTraced.
func TestEventsAreFreedWhereNothingIsTraced(t *testing.T) {
	heard(t, telemetry.Config{Roots: -1, HoldAlarm: -1}, func(t *testing.T, s *script, c *Coordinator, r *listener) {
		ctx, _ := r.request(t.Context(), "request")
		h := lockWith(t, ctx, c.Mutex("k")).holdsAfter(s)
		a, ok := c.actors.Load("k")
		require.True(t, ok)
		s.after(checkHoldAfter, lease.Annotate).end()
		for range 3 * maxEvents {
			s.within(time.Second, lease.Renew).fail(context.DeadlineExceeded)
			s.within(time.Second, lease.Renew).held(0, 0)
			time.Sleep(time.Millisecond)
		}
		require.Len(t, a.told.events, maxEvents)
		begun, ended := time.Now(), time.Now()
		unlock(t, h)
		require.Zero(t, a.told.following)
		require.Empty(t, a.told.events)
		unlock(t, lockOf(t, c.Mutex("k")).holds())
		require.Empty(t, a.told.events)

		hold := r.only(c, telemetry.SpanHold)
		require.Len(t, hold.Events, maxEvents)
		last := hold.StartTime
		for _, e := range hold.Events {
			require.Equal(t, telemetry.EventRenewalFailed, e.Name)
			require.False(t, e.Time.Before(last), "in their order")
			require.False(t, e.Time.After(ended))
			last = e.Time
		}
		require.Less(t, begun.Sub(last), 2*time.Second, "the newest are kept")
	}, WithRetention(time.Minute))
}
