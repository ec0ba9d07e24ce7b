package telemetry_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/sdk/metric"
	"go.opentelemetry.io/otel/sdk/metric/metricdata"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"
	"go.opentelemetry.io/otel/trace/noop"

	"github.com/go-leasehold/leasehold/coordinator"
	"github.com/go-leasehold/leasehold/lease/memlease"
	"github.com/go-leasehold/leasehold/telemetry"
)

// The global providers of the beginning can be told once in a process whom they stand
// for: all runs of the test have the same.
var (
	globalReader = metric.NewManualReader()
	globalMeters = metric.NewMeterProvider(metric.WithReader(globalReader))
	globalTracer = otel.GetTracerProvider()
	firstSpans   = tracetest.NewInMemoryExporter()
	firstTracer  = sdktrace.NewTracerProvider(sdktrace.WithSyncer(firstSpans))
)

// TestGlobalProvidersThatAreSetLaterAreNoticed: those of spans within a second, also
// when they are replaced, or the one of the beginning was given; the one of metrics at once.
func TestGlobalProvidersThatAreSetLaterAreNoticed(t *testing.T) {
	defer otel.SetTracerProvider(noop.NewTracerProvider())
	synctest.Test(t, func(t *testing.T) {
		server := memlease.NewServer()
		defer server.Close()
		c, err := coordinator.NewWithStore(server.Store())
		require.NoError(t, err)
		defer func() { require.NoError(t, c.Close(context.Background())) }()
		of, err := coordinator.NewWithStore(server.Store(), coordinator.WithKeyPrefix("other:"),
			coordinator.WithTelemetry(telemetry.Config{TracerProvider: globalTracer}))
		require.NoError(t, err)
		defer func() { require.NoError(t, of.Close(context.Background())) }()
		firstSpans.Reset()
		before := sum(t, globalReader, telemetry.MetricGrants)
		lock := func(c *coordinator.Coordinator) {
			h, err := c.Mutex("k").Lock(telemetry.Traced(t.Context()))
			require.NoError(t, err)
			require.NoError(t, h.Unlock())
			require.NoError(t, c.FlushTelemetry(t.Context()))
		}
		lock(c)
		time.Sleep(time.Second / 2)
		otel.SetTracerProvider(firstTracer)
		otel.SetMeterProvider(globalMeters)
		time.Sleep(time.Second)
		synctest.Wait()
		lock(c)
		require.Len(t, firstSpans.GetSpans(), 2, "a call and its hold")
		lock(of)
		require.Len(t, firstSpans.GetSpans(), 4)

		second := tracetest.NewInMemoryExporter()
		otel.SetTracerProvider(sdktrace.NewTracerProvider(sdktrace.WithSyncer(second)))
		time.Sleep(time.Second)
		synctest.Wait()
		lock(c)
		require.Len(t, firstSpans.GetSpans(), 4)
		require.Len(t, second.GetSpans(), 2)
		require.Equal(t, before+4, sum(t, globalReader, telemetry.MetricGrants), "also those of before")
	})
}

// sum adds up the series of a counter, or of a histogram's counts.
func sum(t *testing.T, reader metric.Reader, name string) (n int64) {
	t.Helper()
	var rm metricdata.ResourceMetrics
	require.NoError(t, reader.Collect(context.Background(), &rm))
	for _, scope := range rm.ScopeMetrics {
		for _, m := range scope.Metrics {
			if m.Name != name {
				continue
			}
			switch data := m.Data.(type) {
			case metricdata.Sum[int64]:
				for _, p := range data.DataPoints {
					n += p.Value
				}
			case metricdata.Histogram[float64]:
				for _, p := range data.DataPoints {
					n += int64(p.Count)
				}
			}
		}
	}
	return n
}
