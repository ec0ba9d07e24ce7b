package main

import (
	"context"
	"fmt"
	"net/http"
	"sync"
	"time"

	"github.com/go-leasehold/leasehold/examples/tracing/otlp"
)

// tellTime is for how long the report goes on when everybody waits, so that all have heard whom they wait for.
const tellTime = 200 * time.Millisecond

// The requests of a round, by their names.
const (
	nightly   = "nightly report"
	first     = "order 1"
	second    = "order 2"
	impatient = "order 3, impatient"
	change    = "price change"
	look      = "look at the prices"
)

// victims are the requests that wait for the report, whether they know it or not.
var victims = []string{first, second, impatient, change, look}

// evidence is what there is to know of a round.
type evidence struct {
	keys     string // which are to be in no span
	spans    []otlp.Span
	lost     int64
	statuses map[string]int // what was answered
	renewals uint64         // of the report's lease
	partial  bool           // not everything was traced
}

// round is a round under way.
type round struct {
	t        *team
	ctx      context.Context // its limit
	hurry    <-chan struct{} // closed by Ctrl-C
	running  sync.WaitGroup
	mu       sync.Mutex
	statuses map[string]int
	failed   error
}

// play plays the scenario. Each step waits until the one before has had its effect, so that it is the same on a slow
// machine. An interrupted round is played to its end, if quicker, so it has a limit of its own.
func play(ctx context.Context, t *team, r *otlp.Receiver, s settings) (e evidence, err error) {
	hurry := ctx.Done()
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), s.hold+answerLimit)
	defer cancel()
	rd := &round{t: t, ctx: ctx, hurry: hurry, statuses: map[string]int{}}
	before, err := t.state(ctx, reports)
	if err != nil {
		return e, err
	}
	err = rd.steps(s, before)
	if err != nil {
		cancel() // who waits still would do so until the limit
	}
	rd.running.Wait()
	if rd.failed != nil {
		err = rd.failed // the first one is the one to tell
	}
	if err != nil {
		return e, err
	}
	after, err := t.state(ctx, reports)
	if err != nil {
		return e, err
	}
	e = evidence{keys: t.keys, statuses: rd.statuses, renewals: after.Renewals - before.Renewals, partial: sampled()}
	if err := t.flush(ctx); err != nil {
		return e, err
	}
	e.spans, e.lost = r.Take()
	return e, nil
}

// steps sends the requests, one after the other. At the end, those that have not been answered yet will be.
func (r *round) steps(s settings, before state) error {
	for _, m := range r.t.members { // what is left of the round before is none of this one's
		err := r.until(m.role, "it has no lease", func(is state) bool {
			for _, l := range is.Locks {
				if l.Leased {
					return false
				}
			}
			return true
		})
		if err != nil {
			return err
		}
	}
	start := time.Now()
	r.send(reports, "POST /reports", nightly)
	if err := r.until(reports, "it has the stock", func(is state) bool { return is.Locks["stock"].Holds == 1 }); err != nil {
		return err
	}
	for i, name := range []string{first, second} {
		r.send(checkout, "POST /orders", name)
		if err := r.until(inventory, "it waits for the stock", func(is state) bool { return is.Locks["stock"].Waiters == i+1 }); err != nil {
			return err
		}
	}
	if err := r.until(inventory, "it knows for whom it waits", func(is state) bool { return is.Locks["stock"].Told || sampled() }); err != nil {
		return err // one who is impatient would not hear of it
	}
	r.send(checkout, "POST /orders?patience="+s.patience.String(), impatient)
	if err := r.until(inventory, "it waits for the stock again", func(is state) bool {
		return is.Locks["stock"].Waiters == 3 || r.answered(impatient)
	}); err != nil {
		return err
	}
	r.send(inventory, "PUT /prices", change)
	if err := r.until(checkout, "it knows that the catalog is wanted", func(is state) bool { return is.Locks["catalog"].Wanted }); err != nil {
		return err
	}
	r.send(checkout, "GET /prices", look)
	if err := r.until(checkout, "it waits for the catalog", func(is state) bool { return is.Locks["catalog"].Waiters == 1 }); err != nil {
		return err
	}
	time.Sleep(tellTime)
	select {
	case <-time.After(s.hold - time.Since(start)):
	case <-r.hurry:
	}
	if err := r.until(reports, "it has renewed its lease, and the impatient order is over", func(is state) bool {
		return is.Renewals > before.Renewals && r.answered(impatient)
	}); err != nil {
		return err
	}
	status, text, err := r.t.send(r.ctx, reports, "POST /enough", "")
	if err == nil && status != http.StatusNoContent {
		err = fmt.Errorf("end the report: %d %s", status, text)
	}
	return err
}

// until is [team.until]. A request that has failed is reason enough to stop.
func (r *round) until(role, what string, so func(state) bool) error {
	var failed error
	err := r.t.until(r.ctx, role, what, func(is state) bool {
		r.mu.Lock()
		failed = r.failed
		r.mu.Unlock()
		return failed != nil || so(is)
	})
	if failed != nil {
		return failed
	}
	return err
}

// send sends a request, which is answered when it is.
func (r *round) send(role, pattern, name string) {
	r.running.Go(func() {
		status, text, err := r.t.send(r.ctx, role, pattern, name)
		if err == nil && status != http.StatusNoContent && status != http.StatusServiceUnavailable {
			err = fmt.Errorf("%d %s", status, text)
		}
		r.mu.Lock()
		defer r.mu.Unlock()
		r.statuses[name] = status
		if err != nil && r.failed == nil {
			r.failed = fmt.Errorf("%s: %w", name, err)
		}
	})
}

func (r *round) answered(name string) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.statuses[name] != 0
}
