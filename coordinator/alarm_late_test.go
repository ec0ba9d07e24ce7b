package coordinator

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/otel/sdk/metric/metricdata"

	"github.com/go-leasehold/leasehold/lease"
	"github.com/go-leasehold/leasehold/telemetry"
)

// TestLatenessBeginsWhenARenewalIsDue, which is after a third of the TTL: not with the lease.
func TestLatenessBeginsWhenARenewalIsDue(t *testing.T) {
	alarmed(t, lateAlarm, func(t *testing.T, s *script, c *Coordinator, r *listener, _ *alarms, _ *lines) {
		h := lockOf(t, c.Mutex("k")).holdsAfter(s)
		late(t, s, 3*time.Millisecond)
		late(t, s, 300*time.Millisecond)
		late(t, s, 1900*time.Millisecond)
		unlock(t, h)
		require.NoError(t, c.FlushTelemetry(t.Context()))
		all := r.collect()[telemetry.MetricLateness].Data.(metricdata.Histogram[float64]).DataPoints
		require.Len(t, all, 1)
		require.InDelta(t, 0.003+0.3+1.9, all[0].Sum, 1e-9)
		require.Equal(t, []float64{1e-3, 5e-3, 1e-2, 5e-2, 0.1, 0.5, 1, 2.5, 5, 10, 30}, all[0].Bounds, "queries and dashboards name them")
		require.Equal(t, []uint64{0, 1, 0, 0, 0, 1, 0, 1, 0, 0, 0, 0}, all[0].BucketCounts)
	})
}

// TestLateRenewalUnderReadersRaisesAnAlarm: of those that hold, and of those of whom the actor knows only that there
// may be some.
func TestLateRenewalUnderReadersRaisesAnAlarm(t *testing.T) {
	ways := map[string]func(t *testing.T, s *script, l *ReadWrite) *Hold{
		"that asked": func(t *testing.T, s *script, l *ReadWrite) *Hold { return reads(t, l).holdsAfter(s) },
		"that passed the gate": func(t *testing.T, s *script, l *ReadWrite) *Hold {
			opened(t, s, l, lease.Shared)
			return passes(t, l)
		},
	}
	for name, read := range ways {
		t.Run(name, func(t *testing.T) {
			alarmed(t, lateAlarm, func(t *testing.T, s *script, c *Coordinator, r *listener, a *alarms, _ *lines) {
				h := read(t, s, c.ReadWrite("k"))
				late(t, s, 1900*time.Millisecond)
				all := a.raised()
				require.Len(t, all, 1)
				got := all[0]
				got.Since = time.Time{}
				require.Equal(t, telemetry.Alarm{
					Kind: telemetry.LateRenewal, Key: "k", Class: "other", Mode: "shared", Owner: lease.Owner(c.ID(), 1),
					Lasted: 1900 * time.Millisecond, Limit: time.Second,
				}, got)
				unlock(t, h)
				require.NoError(t, c.FlushTelemetry(t.Context()))
				require.Equal(t, map[string]int64{"late_renewal": 1}, r.some(telemetry.MetricAlarms))
			}, WithRetention(time.Minute))
		})
	}
}

// TestAlarmsAreCountedByClass: that of the key, of each kind.
func TestAlarmsAreCountedByClass(t *testing.T) {
	conf := telemetry.Config{HoldAlarm: 2500 * time.Millisecond, WaitAlarm: time.Second, KeyClass: func(key string) string { return key + "s" }}
	alarmed(t, conf, func(t *testing.T, s *script, c *Coordinator, r *listener, a *alarms, log *lines) {
		h := lockOf(t, c.Mutex("k")).holdsAfter(s)
		call := lockOf(t, c.Mutex("k"))
		late(t, s, 1900*time.Millisecond)
		unlock(t, h)
		unlock(t, call.holds())
		for _, x := range a.raised() {
			require.Equal(t, "ks", x.Class)
			require.Contains(t, log.String(), "class=ks")
		}
		require.NoError(t, c.FlushTelemetry(t.Context()))
		require.Equal(t, map[string]int64{"long_hold ks": 1, "long_wait ks": 1, "late_renewal ks": 1}, r.some(telemetry.MetricAlarms))
	}, WithRetention(time.Minute))
}
