package main

import (
	"context"
	"net/http"
	"time"

	"github.com/go-leasehold/leasehold/examples/seckill/shop"
)

// errand is what a buyer does with a reservation.
type errand struct {
	crowd   *crowd
	order   *shop.Order
	at      int             // the number of the server that is asked first
	hangUps []time.Duration // see crowd.click
}

// pay pays, in time or too late.
func (e *errand) pay(ctx context.Context) error {
	c := e.crowd
	for _, r := range c.click(ctx, e.at, "/pay", e.order, e.hangUps...) {
		switch {
		case r.err != nil:
			return r.err
		case r.status == http.StatusOK:
			c.ledger.note(line(e.order), func(t *told) { t.paid = true })
		case r.status == http.StatusGone:
			c.ledger.note(line(e.order), func(t *told) { t.expired = true })
		default:
			return r.unexpected("/pay", e.order)
		}
	}
	return nil
}

// payAndGoAway pays, and never learns what became of it. Whatever did, the books have to agree.
func (e *errand) payAndGoAway(ctx context.Context) error {
	e.crowd.ledger.note(line(e.order), func(t *told) { t.silent = true })
	ctx, stop := context.WithTimeout(ctx, e.hangUps[0]+time.Millisecond)
	defer stop()
	_, _, _ = e.crowd.send(ctx, e.at, http.MethodPost, "/pay", e.order) // who goes away hears no answer
	return nil
}

// cancel gives the reservation up.
func (e *errand) cancel(ctx context.Context) error {
	r := e.crowd.insist(ctx, e.at, "/cancel", e.order, e.hangUps[0])
	switch {
	case r.err != nil:
		return r.err
	case r.status != http.StatusOK:
		return r.unexpected("/cancel", e.order)
	}
	e.crowd.ledger.note(line(e.order), func(t *told) { t.cancelled = true })
	return nil
}
