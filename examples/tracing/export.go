package main

import (
	"context"
	"errors"
	"fmt"
	"os"

	"go.opentelemetry.io/contrib/exporters/autoexport"
	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/exporters/otlp/otlptrace/otlptracehttp"
	"go.opentelemetry.io/otel/propagation"
	sdkmetric "go.opentelemetry.io/otel/sdk/metric"
	"go.opentelemetry.io/otel/sdk/resource"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	semconv "go.opentelemetry.io/otel/semconv/v1.43.0"
)

// export is OpenTelemetry's SDK in this process. Leasehold, like otelhttp, finds it by itself, since it is the global one.
type export struct {
	traces  *sdktrace.TracerProvider
	metrics *sdkmetric.MeterProvider
}

// startExport sets up the SDK. Where spans and metrics go, and how, is what the usual variables of the environment say;
// spans also go to this example's own receiver, which a program of yours has no need of.
func startExport(ctx context.Context, service, receiver string) (*export, error) {
	is, err := resource.New(ctx,
		resource.WithTelemetrySDK(),
		resource.WithAttributes(semconv.ServiceName(service), semconv.ServiceInstanceID(fmt.Sprintf("%s-%d", service, os.Getpid()))),
		resource.WithFromEnv()) // last, so that OTEL_SERVICE_NAME and OTEL_RESOURCE_ATTRIBUTES win
	if err != nil {
		return nil, fmt.Errorf("set up OpenTelemetry: %w", err)
	}
	own, err := otlptracehttp.New(ctx, otlptracehttp.WithEndpointURL(receiver))
	if err != nil {
		return nil, fmt.Errorf("set up OpenTelemetry: %w", err)
	}
	spans := []sdktrace.TracerProviderOption{sdktrace.WithResource(is), sdktrace.WithBatcher(own)}
	metrics := []sdkmetric.Option{sdkmetric.WithResource(is)}
	if exportsTraces() {
		exporter, err := autoexport.NewSpanExporter(ctx) // OTEL_TRACES_EXPORTER, OTEL_EXPORTER_OTLP_PROTOCOL, ..._ENDPOINT
		if err != nil {
			return nil, fmt.Errorf("set up OpenTelemetry: %w", err)
		}
		spans = append(spans, sdktrace.WithBatcher(exporter))
	}
	if exportsMetrics() {
		reader, err := autoexport.NewMetricReader(ctx) // likewise, and OTEL_METRIC_EXPORT_INTERVAL
		if err != nil {
			return nil, fmt.Errorf("set up OpenTelemetry: %w", err)
		}
		metrics = append(metrics, sdkmetric.WithReader(reader))
	}
	e := &export{traces: sdktrace.NewTracerProvider(spans...), metrics: sdkmetric.NewMeterProvider(metrics...)} // OTEL_TRACES_SAMPLER
	otel.SetTracerProvider(e.traces)
	otel.SetMeterProvider(e.metrics)
	otel.SetTextMapPropagator(propagation.TraceContext{}) // from service to service
	return e, nil
}

// flush sends what has not been sent. An error is about who should have taken it.
func (e *export) flush(ctx context.Context) error {
	return errors.Join(e.traces.ForceFlush(ctx), ofMetrics(e.metrics.ForceFlush(ctx)))
}

// close sends what is left, and ends the SDK.
func (e *export) close(ctx context.Context) error {
	return errors.Join(e.traces.Shutdown(ctx), ofMetrics(e.metrics.Shutdown(ctx)))
}

// ofMetrics adds what can be done where there is only somebody to take traces, as Jaeger does.
func ofMetrics(err error) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("%w (with OTEL_METRICS_EXPORTER=none, none are sent)", err)
}

// exportsTraces and exportsMetrics tell whether the environment says where to send these. Without, the SDK's default is a
// collector on this machine, which may not be there.
func exportsTraces() bool {
	return anySet("OTEL_EXPORTER_OTLP_ENDPOINT", "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "OTEL_TRACES_EXPORTER")
}

func exportsMetrics() bool {
	return anySet("OTEL_EXPORTER_OTLP_ENDPOINT", "OTEL_EXPORTER_OTLP_METRICS_ENDPOINT", "OTEL_METRICS_EXPORTER")
}

func exported() bool { return exportsTraces() || exportsMetrics() }

// exportable refuses exporters that the environment asks for and that three processes, whose output is read, can't have.
func exportable() error {
	switch {
	case os.Getenv("OTEL_TRACES_EXPORTER") == "console" || os.Getenv("OTEL_METRICS_EXPORTER") == "console":
		return errors.New("an exporter cannot be console: what the services write is their line to this process")
	case os.Getenv("OTEL_METRICS_EXPORTER") == "prometheus":
		return errors.New("an exporter cannot be prometheus: each of the three services would listen on the same port; " +
			"send metrics by OTLP, which Prometheus receives (compose.yaml has it)")
	}
	return nil
}

func anySet(names ...string) bool {
	for _, name := range names {
		if os.Getenv(name) != "" {
			return true
		}
	}
	return false
}

// sampled tells whether the environment has some of the requests go untraced.
func sampled() bool {
	switch os.Getenv("OTEL_TRACES_SAMPLER") {
	case "", "always_on", "parentbased_always_on":
		return false
	}
	return true
}
