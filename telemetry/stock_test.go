package telemetry

import (
	"context"
	"fmt"
	"log/slog"
	"strings"
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

// TestBucketsOfBatches: one for each doubling, up to as many orders as one command may carry.
func TestBucketsOfBatches(t *testing.T) {
	reader := metric.NewManualReader()
	tel, err := New(Config{MeterProvider: metric.NewMeterProvider(metric.WithReader(reader))}, slog.Default())
	require.NoError(t, err)
	defer tel.Close(0)
	bounds, counts := []float64{}, []uint64{}
	for n := int64(1); n <= 1024; n *= 2 {
		tel.Other().Stocks().Batched(n)
		bounds, counts = append(bounds, float64(n)), append(counts, 1)
	}
	require.NoError(t, tel.Flush(t.Context()))
	var all metricdata.ResourceMetrics
	require.NoError(t, reader.Collect(t.Context(), &all))
	for _, m := range all.ScopeMetrics[0].Metrics {
		if m.Name != MetricStockBatch {
			continue
		}
		p := m.Data.(metricdata.Histogram[int64]).DataPoints[0]
		require.Equal(t, bounds, p.Bounds, "queries and dashboards name them")
		require.Equal(t, append(counts, 0), p.BucketCounts)
		return
	}
	require.Fail(t, "there is no such metric")
}

// TestSeriesOfStockDoNotGrowWithKeys: a hundred thousand stocks, each of which would be a class, are of as many classes
// as there may be.
func TestSeriesOfStockDoNotGrowWithKeys(t *testing.T) {
	reader := metric.NewManualReader()
	tel, err := New(Config{
		MeterProvider: metric.NewMeterProvider(metric.WithReader(reader)),
		KeyClass:      func(key string) string { return key },
	}, slog.Default())
	require.NoError(t, err)
	defer tel.Close(0)
	require.NoError(t, tel.Observe(func() []Totals { return nil }, func() int64 { return 0 }))
	const stocks = 100_000
	for i := range stocks {
		s := tel.Class(fmt.Sprint("sku:", i)).Stocks()
		s.Answered(OperationDeduct, Done, 1, 1)
		s.Sent(1, 0)
	}
	var all metricdata.ResourceMetrics
	require.NoError(t, reader.Collect(t.Context(), &all))
	commands := int64(0)
	for _, m := range all.ScopeMetrics[0].Metrics {
		sum, ok := m.Data.(metricdata.Sum[int64])
		if !ok || !strings.HasPrefix(m.Name, "leasehold.stock.") {
			continue
		}
		require.LessOrEqual(t, len(sum.DataPoints), (MaxClasses+1)*len(always), m.Name)
		for _, p := range sum.DataPoints {
			if m.Name == MetricStockCommands {
				commands += p.Value
			}
		}
	}
	require.EqualValues(t, stocks, commands, "every one was counted")
}
