package telemetry_test

import (
	"context"
	"fmt"
	"time"

	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"

	"github.com/go-leasehold/leasehold/coordinator"
	"github.com/go-leasehold/leasehold/lease/memlease"
	"github.com/go-leasehold/leasehold/telemetry"
)

// A call that waited leads to the hold that it waited for.
func Example() {
	spans := tracetest.NewInMemoryExporter()
	provider := sdktrace.NewTracerProvider(sdktrace.WithSyncer(spans))
	server := memlease.NewServer()
	defer server.Close()
	c, err := coordinator.NewWithStore(server.Store(), coordinator.WithTelemetry(telemetry.Config{
		TracerProvider: provider,
		KeyClass:       func(string) string { return "orders" },
	}))
	if err != nil {
		fmt.Println(err)
		return
	}
	tracer := provider.Tracer("shop")
	ctx, checkout := tracer.Start(context.Background(), "checkout")
	hold, err := c.Mutex("order:42").Lock(ctx)
	if err != nil {
		fmt.Println(err)
		return
	}
	time.AfterFunc(50*time.Millisecond, func() { _ = hold.Unlock() })

	ctx, refund := tracer.Start(context.Background(), "refund")
	if err := c.Mutex("order:42").Do(ctx, func(context.Context) error { return nil }); err != nil {
		fmt.Println(err)
	}
	refund.End()
	checkout.End()
	_ = c.Close(context.Background())

	names := map[string]string{}
	for _, s := range spans.GetSpans() {
		names[s.SpanContext.SpanID().String()] = s.Name
	}
	for _, s := range spans.GetSpans() {
		for _, l := range s.Links {
			fmt.Printf("%s of %s waited for %s of %s\n", s.Name, names[s.Parent.SpanID().String()],
				names[l.SpanContext.SpanID().String()], parentName(spans, l.SpanContext.SpanID().String(), names))
		}
	}
	// Output: lock.acquire of refund waited for lock.hold of checkout
}

// parentName is the name of the span above one.
func parentName(spans *tracetest.InMemoryExporter, id string, names map[string]string) string {
	for _, s := range spans.GetSpans() {
		if s.SpanContext.SpanID().String() == id {
			return names[s.Parent.SpanID().String()]
		}
	}
	return ""
}
