package main

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"strings"

	"go.opentelemetry.io/contrib/instrumentation/net/http/otelhttp"

	"github.com/go-leasehold/leasehold/coordinator"
)

// order reads the catalog, and has the inventory reserve. The catalog must not change in between, so the hold lasts until
// the inventory has answered: whatever the inventory waits for, a writer of the catalog waits for, too.
func (s *service) order(r *http.Request) error {
	return s.catalog.Read(r.Context(), func(ctx context.Context) error {
		return s.callInventory(ctx, r.FormValue("patience"))
	})
}

// browse reads the catalog.
func (s *service) browse(r *http.Request) error {
	return s.catalog.Read(r.Context(), func(ctx context.Context) error { return work(ctx, "list", briefly) })
}

// callInventory asks another service. The context has the span of the hold, so the wait over there is known to be below it.
func (s *service) callInventory(ctx context.Context, patience string) error {
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, s.peer+"/reservations?patience="+patience, nil)
	if err != nil {
		return err
	}
	client := http.Client{Transport: otelhttp.NewTransport(s.transport)} // tells the other service of the trace
	res, err := client.Do(req)
	if err != nil {
		return err
	}
	defer res.Body.Close() //nolint:errcheck // it was read to its end
	text, err := io.ReadAll(io.LimitReader(res.Body, 1<<10))
	switch {
	case err != nil:
		return err
	case res.StatusCode == http.StatusServiceUnavailable:
		return fmt.Errorf("the inventory: %s: %w", strings.TrimSpace(string(text)), coordinator.ErrNotAcquired)
	case res.StatusCode != http.StatusNoContent:
		return fmt.Errorf("the inventory: %s: %s", res.Status, strings.TrimSpace(string(text)))
	}
	return nil
}
