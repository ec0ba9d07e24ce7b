package main

import (
	"context"
	"net/http"
	"time"
)

// rowsTime is how long the report takes for some of the rows.
const rowsTime = 50 * time.Millisecond

// report counts the stock, which must not change meanwhile; so it has the mutex from the first row to the last. That is the
// mistake: it might count a copy. In this scenario it goes on until the parent has seen that everybody waits for it.
func (s *service) report(r *http.Request) error {
	return s.stock.Do(r.Context(), func(ctx context.Context) error {
		for {
			if err := work(ctx, "count rows", rowsTime); err != nil {
				return err
			}
			select {
			case <-s.enough:
				return nil
			default:
			}
		}
	})
}

// tellEnough has the report come to its end. It answers when that has heard.
func (s *service) tellEnough(w http.ResponseWriter, r *http.Request) {
	select {
	case s.enough <- struct{}{}:
		answer(w, nil)
	case <-r.Context().Done():
		answer(w, context.Cause(r.Context()))
	}
}
