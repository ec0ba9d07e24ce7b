package coordinator

import (
	"log/slog"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	metricnoop "go.opentelemetry.io/otel/metric/noop"
	"go.opentelemetry.io/otel/trace/noop"

	"github.com/go-leasehold/leasehold/telemetry"
)

// TestAlarmsAreRaisedWithoutAnSDK: in the log, and by a call; but for who wants none.
func TestAlarmsAreRaisedWithoutAnSDK(t *testing.T) {
	for _, limit := range []time.Duration{0, -1} {
		synctest.Test(t, func(t *testing.T) {
			a, log := &alarms{}, &lines{}
			s, c := scriptOf(t, telemetry.Config{
				TracerProvider: noop.NewTracerProvider(), MeterProvider: metricnoop.NewMeterProvider(), HoldAlarm: limit, OnAlarm: a.take,
			}, WithLogger(slog.New(slog.NewTextHandler(log, nil))))
			s.obey()
			h, err := c.Mutex("k").Lock(t.Context())
			require.NoError(t, err)
			time.Sleep(telemetry.DefaultHoldAlarm)
			all := a.raised()
			require.NoError(t, h.Unlock())
			require.NoError(t, c.Close(t.Context()))
			if limit < 0 {
				require.Empty(t, all)
				require.NotContains(t, log.String(), "held for long")
				return
			}
			require.Len(t, all, 1)
			require.False(t, all[0].Trace.IsValid())
			require.Contains(t, log.String(), "held for long")
		})
	}
}
