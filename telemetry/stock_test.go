package telemetry

import (
	"context"
	"fmt"
	"log/slog"
	"testing"

	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/otel/sdk/metric"
	"go.opentelemetry.io/otel/sdk/metric/metricdata"
)

// sdkSeries is how many series an SDK takes of a metric, unless it is told otherwise.
const sdkSeries = 2000

// TestSeriesOfStockAreFewerThanAnSDKTakes, also with as many classes as there may be, of which each sees what is usual.
func TestSeriesOfStockAreFewerThanAnSDKTakes(t *testing.T) {
	reader := metric.NewManualReader()
	tel, err := New(Config{
		MeterProvider: metric.NewMeterProvider(metric.WithReader(reader)),
		KeyClass:      func(key string) string { return key },
	}, slog.Default())
	require.NoError(t, err)
	defer tel.Close(0)
	require.NoError(t, tel.Observe(func() []Totals { return nil }, func() int64 { return 0 }))
	orders := int64(0)
	for i := range MaxClasses {
		s := tel.Class(fmt.Sprint("class", i)).Stocks()
		for _, op := range []Operation{OperationDeduct, OperationReserve, OperationConfirm, OperationCancel} {
			for _, o := range []Outcome{Done, Repeated, Refused} {
				s.Answered(op, o, 1, 1)
				orders++
			}
		}
	}
	var all metricdata.ResourceMetrics
	require.NoError(t, reader.Collect(context.Background(), &all))
	for _, m := range all.ScopeMetrics[0].Metrics {
		if m.Name != MetricStockOrders {
			continue
		}
		series := m.Data.(metricdata.Sum[int64]).DataPoints
		require.Less(t, len(series), sdkSeries)
		for _, p := range series {
			orders -= p.Value
		}
	}
	require.Zero(t, orders)
}
