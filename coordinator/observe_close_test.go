package coordinator

import (
	"context"
	"runtime"
	"testing"
	"testing/synctest"
	"time"
	"weak"

	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/otel/sdk/metric"
	"go.opentelemetry.io/otel/sdk/metric/metricdata"

	"github.com/go-leasehold/leasehold/lease"
	"github.com/go-leasehold/leasehold/telemetry"
)

// sums keeps the sums that were exported last.
type sums map[string]int64

func (sums) Temporality(k metric.InstrumentKind) metricdata.Temporality {
	return metric.DefaultTemporalitySelector(k)
}

func (sums) Aggregation(k metric.InstrumentKind) metric.Aggregation {
	return metric.DefaultAggregationSelector(k)
}

func (s sums) Export(_ context.Context, all *metricdata.ResourceMetrics) error {
	clear(s)
	for _, scope := range all.ScopeMetrics {
		for _, m := range scope.Metrics {
			if sum, ok := m.Data.(metricdata.Sum[int64]); ok {
				for _, p := range sum.DataPoints {
					s[m.Name] += p.Value
				}
			}
		}
	}
	return nil
}

func (sums) ForceFlush(context.Context) error { return nil }
func (sums) Shutdown(context.Context) error   { return nil }

// TestCountersAreExportedAtTheEndOfAProgram, which closes the coordinator before the
// provider, and may be over before the first export is due.
func TestCountersAreExportedAtTheEndOfAProgram(t *testing.T) {
	exported := sums{}
	provider := metric.NewMeterProvider(metric.WithReader(metric.NewPeriodicReader(exported, metric.WithInterval(time.Hour))))
	c := obeying(t, listen(t), telemetry.Config{MeterProvider: provider})
	for range 5 {
		once(t, c.Mutex("k"))
	}
	held, err := c.Mutex("k").Lock(t.Context())
	require.NoError(t, err)
	over, cancel := context.WithCancel(t.Context())
	cancel()
	require.NoError(t, c.Close(over))
	require.ErrorIs(t, held.Unlock(), ErrClosed)
	require.NoError(t, provider.Shutdown(t.Context()))
	require.Equal(t, int64(6), exported[telemetry.MetricGrants])
	require.Positive(t, exported[telemetry.MetricCommands])
	for _, now := range []string{telemetry.MetricHolds, telemetry.MetricLeases, telemetry.MetricKeys, telemetry.MetricWaiters} {
		require.NotContains(t, exported, now, "there are none")
	}
}

// TestCountersDoNotGoBackWhenOneOfSeveralCloses: a provider adds up what the coordinators of a program
// count. It keeps nothing of one that is closed but its last counts.
func TestCountersDoNotGoBackWhenOneOfSeveralCloses(t *testing.T) {
	r := listen(t)
	open := func(locks int) *Coordinator {
		c := obeying(t, r, telemetry.Config{})
		for range locks {
			once(t, c.Mutex("k"))
		}
		return c
	}
	grants := func() (n int64) {
		for _, of := range r.series(telemetry.MetricGrants) {
			n += of
		}
		return n
	}
	left := open(7)
	gone := func() weak.Pointer[Coordinator] {
		c := open(5)
		require.Equal(t, int64(12), grants())
		require.NoError(t, c.Close(t.Context()))
		return weak.Make(c)
	}()
	require.Equal(t, int64(12), grants())
	once(t, left.Mutex("k"))
	require.Equal(t, int64(13), grants())
	require.Eventually(t, func() bool {
		runtime.GC()
		return gone.Value() == nil
	}, time.Minute, 10*time.Millisecond, "it is kept")
	require.NoError(t, left.Close(t.Context()))
	require.Equal(t, int64(13), grants())
}

func once(t *testing.T, m *Mutex) {
	t.Helper()
	h, err := m.Lock(t.Context())
	require.NoError(t, err)
	require.NoError(t, h.Unlock())
}

// TestLogLinesThatAreDroppedAreCounted among all that a slow receiver made us drop, also at the end.
func TestLogLinesThatAreDroppedAreCounted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r, hang := listen(t), make(chan struct{})
		s, c := scriptOf(t, r.config(quietly), WithLogger(hangingLogger(hang)))
		for range 1000 { // more than the journal has room for
			s.tell(lease.Event{Type: lease.Disconnected, Err: errStore})
		}
		dropped := c.Snapshot().LogDropped
		require.Positive(t, dropped)
		require.EqualValues(t, dropped, r.series(telemetry.MetricDropped)[""])
		require.NoError(t, c.Close(t.Context()))
		require.EqualValues(t, dropped, r.series(telemetry.MetricDropped)[""])
		close(hang)
	})
}
