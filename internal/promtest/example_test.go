package promtest

import (
	"context"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	client "github.com/prometheus/client_golang/prometheus"
	"github.com/redis/rueidis"
	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/exporters/otlp/otlptrace/otlptracehttp"
	"go.opentelemetry.io/otel/exporters/prometheus"
	"go.opentelemetry.io/otel/sdk/metric"
	"go.opentelemetry.io/otel/sdk/trace"

	"github.com/go-leasehold/leasehold/coordinator"
	"github.com/go-leasehold/leasehold/internal/redistest"
	"github.com/go-leasehold/leasehold/telemetry"
)

// What follows is in docs/observability.md, word for word.

func watched(ctx context.Context, redis string) (*coordinator.Coordinator, error) {
	spans, err := otlptracehttp.New(ctx) // OTEL_EXPORTER_OTLP_ENDPOINT says where to
	if err != nil {
		return nil, err
	}
	metrics, err := prometheus.New() // promhttp.Handler() shows them
	if err != nil {
		return nil, err
	}
	otel.SetTracerProvider(trace.NewTracerProvider(trace.WithBatcher(spans)))
	otel.SetMeterProvider(metric.NewMeterProvider(metric.WithReader(metrics)))
	return coordinator.New(rueidis.ClientOption{InitAddress: []string{redis}},
		coordinator.WithTelemetry(telemetry.Config{KeyClass: func(key string) string {
			class, _, _ := strings.Cut(key, ":") // "order:42" is of the class "order"
			return class
		}}))
}

// TestTheExampleRuns: what it tells arrives, spans and metrics.
func TestTheExampleRuns(t *testing.T) {
	spans := make(chan string, 100)
	receiver := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { spans <- r.URL.Path }))
	defer receiver.Close()
	t.Setenv("OTEL_EXPORTER_OTLP_ENDPOINT", receiver.URL)
	locks, err := watched(t.Context(), redistest.Shared(t).Addr())
	require.NoError(t, err)
	require.NoError(t, locks.Mutex("order:42").Do(t.Context(), func(context.Context) error { return nil }))
	families, err := client.DefaultGatherer.Gather()
	require.NoError(t, err)
	var classes []string
	for _, family := range families {
		if family.GetName() == "leasehold_grants_total" {
			for _, metric := range family.Metric {
				for _, label := range metric.Label {
					classes = append(classes, label.GetValue())
				}
			}
		}
	}
	require.Contains(t, classes, "order")
	require.NoError(t, locks.Close(t.Context()))
	require.NoError(t, otel.GetTracerProvider().(*trace.TracerProvider).Shutdown(t.Context()))
	require.NoError(t, otel.GetMeterProvider().(*metric.MeterProvider).Shutdown(t.Context()))
	require.Equal(t, "/v1/traces", <-spans)
}
