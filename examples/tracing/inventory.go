package main

import (
	"context"
	"errors"
	"net/http"
	"time"

	"go.opentelemetry.io/otel"

	"github.com/go-leasehold/leasehold/coordinator"
)

// reserve takes from the stock. Whoever is in a hurry says how long to wait.
func (s *service) reserve(r *http.Request) (err error) {
	var hold *coordinator.Hold
	if text := r.FormValue("patience"); text != "" {
		patience, err := time.ParseDuration(text)
		if err != nil {
			return err
		}
		hold, err = s.stock.TryLockFor(r.Context(), patience)
		if err != nil {
			return err
		}
	} else if hold, err = s.stock.Lock(r.Context()); err != nil {
		return err
	}
	defer func() { err = errors.Join(err, hold.Unlock()) }()
	return work(hold.Context(), "take", briefly)
}

// reprice changes the catalog.
func (s *service) reprice(r *http.Request) error {
	return s.catalog.Write(r.Context(), func(ctx context.Context) error { return work(ctx, "store", briefly) })
}

const (
	// scope is the instrumentation scope of this program's own spans.
	scope = "github.com/go-leasehold/leasehold/examples/tracing"
	// briefly is how long reading or writing takes.
	briefly = 10 * time.Millisecond
)

// work is what takes a while under a lock, with a span below that of the hold.
func work(ctx context.Context, name string, d time.Duration) error {
	ctx, span := otel.Tracer(scope).Start(ctx, name)
	defer span.End()
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}
