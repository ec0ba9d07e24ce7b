package jaegertest

import (
	"context"
	"fmt"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/exporters/otlp/otlptrace"
	"go.opentelemetry.io/otel/exporters/otlp/otlptrace/otlptracegrpc"
	"go.opentelemetry.io/otel/exporters/otlp/otlptrace/otlptracehttp"
	"go.opentelemetry.io/otel/sdk/resource"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
)

// The protocols of OTLP.
const (
	overGRPC = "grpc"
	overHTTP = "http"
)

// newProvider returns what sends a service's spans to Jaeger, made as a program makes it.
func newProvider(ctx context.Context, service, protocol, endpoint string) (*sdktrace.TracerProvider, error) {
	var exporter *otlptrace.Exporter
	var err error
	switch protocol {
	case overGRPC:
		exporter, err = otlptracegrpc.New(ctx, otlptracegrpc.WithEndpoint(endpoint), otlptracegrpc.WithInsecure())
	case overHTTP:
		exporter, err = otlptracehttp.New(ctx, otlptracehttp.WithEndpoint(endpoint), otlptracehttp.WithInsecure())
	default:
		err = fmt.Errorf("no exporter for %q", protocol)
	}
	if err != nil {
		return nil, err
	}
	is := resource.NewSchemaless(attribute.String("service.name", service))
	return sdktrace.NewTracerProvider(sdktrace.WithBatcher(exporter), sdktrace.WithResource(is)), nil
}
