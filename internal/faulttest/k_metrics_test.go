package faulttest

import (
	"context"
	"testing"

	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/otel/attribute"
	sdkmetric "go.opentelemetry.io/otel/sdk/metric"
	"go.opentelemetry.io/otel/sdk/metric/metricdata"

	"github.com/go-leasehold/leasehold/coordinator"
	"github.com/go-leasehold/leasehold/lease/memlease"
	"github.com/go-leasehold/leasehold/telemetry"
)

// point is one data point of one series.
type point struct {
	Name       string
	Attributes map[string]string
	Value      int64   // of a count
	Count      uint64  // of a histogram: how many were recorded
	Sum        float64 // of a histogram
	Bounds     []float64
}

// meter is a provider whose metrics a test reads when it likes.
type meter struct {
	reader   *sdkmetric.ManualReader
	provider *sdkmetric.MeterProvider
}

func newMeter() *meter {
	reader := sdkmetric.NewManualReader()
	return &meter{reader, sdkmetric.NewMeterProvider(sdkmetric.WithReader(reader))}
}

// collect has everything that was told so far measured, and returns it.
func (m *meter) collect(t testing.TB, c *coordinator.Coordinator) points {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), hangs)
	defer cancel()
	require.NoError(t, c.FlushTelemetry(ctx))
	var all metricdata.ResourceMetrics
	require.NoError(t, m.reader.Collect(ctx, &all))
	var found points
	for _, scope := range all.ScopeMetrics {
		require.Equal(t, telemetry.ScopeName, scope.Scope.Name)
		for _, one := range scope.Metrics {
			found = append(found, pointsOf(t, one)...)
		}
	}
	return found
}

func pointsOf(t testing.TB, m metricdata.Metrics) (all points) {
	t.Helper()
	switch data := m.Data.(type) {
	case metricdata.Sum[int64]:
		for _, p := range data.DataPoints {
			all = append(all, point{Name: m.Name, Attributes: texts(p.Attributes.ToSlice()), Value: p.Value})
		}
	case metricdata.Histogram[float64]:
		for _, p := range data.DataPoints {
			all = append(all, point{Name: m.Name, Attributes: texts(p.Attributes.ToSlice()), Count: p.Count, Sum: p.Sum, Bounds: p.Bounds})
		}
	default:
		require.Failf(t, "a kind of metric that nobody knows", "%s: %T", m.Name, data)
	}
	return all
}

type points []point

// of are those of a metric that have these attributes, each a name and a value.
func (all points) of(name string, with ...string) (some points) {
	for _, p := range all {
		fits := p.Name == name
		for i := 0; i+1 < len(with); i += 2 {
			fits = fits && p.Attributes[with[i]] == with[i+1]
		}
		if fits {
			some = append(some, p)
		}
	}
	return some
}

// total adds up what was counted, and recorded, of a metric that has an attribute of that value; "" stands for all.
func (all points) total(name string, key attribute.Key, value string) int64 {
	some := all.of(name)
	if key != "" {
		some = all.of(name, string(key), value)
	}
	n := int64(0)
	for _, p := range some {
		n += p.Value + int64(p.Count)
	}
	return n
}

// series is how many there are of each metric.
func (all points) series() map[string]int {
	n := map[string]int{}
	for _, p := range all {
		n[p.Name]++
	}
	return n
}

// inMemory returns a coordinator on a server in memory.
func inMemory(t testing.TB, server *memlease.Server, opts ...coordinator.Option) *coordinator.Coordinator {
	t.Helper()
	_, quiet := logTo()
	c, err := coordinator.NewWithStore(server.Store(), append([]coordinator.Option{quiet}, opts...)...)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, shut(c)) })
	return c
}
