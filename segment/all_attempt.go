package segment

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"time"

	"github.com/go-leasehold/leasehold/coordinator"
)

// waitsInAttempt is how long an attempt waits for units while it holds those of other
// stocks: less than partLasts, for then it couldn't decide any more.
const waitsInAttempt = partLasts * 4 / 5

var errClocks = errors.New("segment: the clocks of the servers that the stocks are on are too far apart")

var errAttemptOver = errors.New("segment: the attempt is over")

// attempt is one attempt to take all parts of an order.
type attempt struct {
	*spanning
	id    string // dealt at the first home
	dealt time.Time
	held  int // parts that it may hold: from the first on
}

// make makes the attempt. Where it decides nothing, and the caller waits on, it tells what is in the way, if
// that is known.
func (a *attempt) make(ctx context.Context) (obstacle *step) {
	if p, err := a.settings(); err != nil {
		a.decide(AllReceipt{}, a.about(err, p))
		return nil
	}
	st, out := a.begin(ctx)
	at := 0
	if out.status == statusDone {
		a.id, a.dealt = st.by, time.Now()
		within, cancel := context.WithTimeoutCause(ctx, waitsInAttempt, errAttemptOver)
		defer cancel()
		for at = 1; at < len(a.parts); at++ {
			if st, out = a.prepare(within, at); out.status != statusDone {
				break
			}
		}
	}
	if out.status == statusDone {
		a.commit()
		return nil
	}
	if out.status == statusOutrun && st.by == "late" && time.Since(a.dealt) < partLasts {
		out = failed(fmt.Errorf("%w: %w", coordinator.ErrUnavailable, errClocks))
	}
	a.fail(ctx, &a.parts[at], &out)
	return st
}

// begin takes the first part.
func (a *attempt) begin(ctx context.Context) (*step, outcome) {
	detail := rand.Text()
	return a.hold(ctx, 0, func() *step {
		st := a.step("begin", 0, "")
		st.detail = detail
		return st
	})
}

// prepare takes another part.
func (a *attempt) prepare(ctx context.Context, i int) (*step, outcome) {
	a.held = i + 1 // also where it is not known
	return a.hold(ctx, i, func() *step { return a.step("prepare", i, a.id) })
}

// hold takes a part, for which units are moved where its home is short.
func (a *attempt) hold(ctx context.Context, i int, make func() *step) (*step, outcome) {
	if ctx.Err() != nil {
		return nil, failed(ended(ErrNotDone, ctx))
	}
	var st *step
	try := func() outcome {
		next := make()
		a.send(next)
		if next.status == statusDone && i == 0 && a.hasLeft() {
			a.send(a.step("abort", 0, next.by))
		}
		st = next
		return next.outcome()
	}
	out := try()
	if !pulls(&out) {
		return st, out
	}
	out = a.parts[i].home.puller.submitPart(ctx, a.parts[i].order.Quantity, try)
	if out.status == statusFailed {
		return nil, out // another try may be on its way, and write st
	}
	return st, out
}

func (st *step) outcome() outcome {
	if st.status == statusFailed {
		return failed(st.err)
	}
	return outcome{status: st.status}
}

// commit decides that the order is taken, and has it finished everywhere.
func (a *attempt) commit() {
	a.held = len(a.parts)
	if !a.mayDecide() {
		a.giveUp(a.send)
		return
	}
	st := a.step("commit", 0, a.id)
	st.detail = a.others()
	a.send(st)
	switch {
	case st.status == statusDone:
		a.decide(AllReceipt{}, nil)
		a.complete("finish", "d", a.id)
	case st.status == statusFailed && errors.Is(st.err, ErrUncertain):
		// What it holds is taken or goes back within partLasts.
		a.decide(AllReceipt{}, a.about(st.err, &a.parts[0]))
	case st.status == statusFailed:
		a.decide(AllReceipt{}, a.about(st.err, &a.parts[0]))
		a.giveUp(a.send)
	default: // it took too long
		a.undecided()
		a.giveUp(a.send)
	}
}

// giveUp gives back what the attempt holds, and returns what the first home says of it. Where that fails, the
// parts go back at their deadline.
func (a *attempt) giveUp(send func(...*step)) *step {
	if a.id == "" {
		return nil
	}
	steps := a.steps("abort", 0, a.id)[:max(a.held, 1)]
	send(steps...)
	return steps[0]
}

// fail ends an attempt that could not have the part at a home.
func (a *attempt) fail(ctx context.Context, at *part, out *outcome) {
	switch out.status {
	case statusAgain:
		a.giveUp(a.send)
		a.decide(AllReceipt{Repeated: true}, nil)
		return
	case statusBusy, statusOutrun:
		a.giveUp(a.send)
		return
	case statusFailed:
		err := out.detail.err
		if ctx.Err() == nil && errors.Is(err, errAttemptOver) {
			a.giveUp(a.send)
			return
		}
		if !errors.Is(err, at.home.stock.sold.err) {
			if ctx.Err() == nil {
				a.decide(AllReceipt{}, a.about(err, at))
				a.end()
			}
			a.giveUp(a.sendOnce)
			return
		}
	}
	// A refusal. Last, the first home is asked, for a twin may have taken it.
	if first := a.giveUp(a.send); first != nil && first.status != statusDone && first.status != statusUnknown {
		switch first.status {
		case statusAgain:
			a.decide(AllReceipt{Repeated: true}, nil)
		case statusFailed:
			a.decide(AllReceipt{}, a.about(first.err, &a.parts[0]))
		default:
			a.decide(AllReceipt{}, a.about(refusal(first.status), &a.parts[0]))
		}
		return
	}
	if out.status == statusFailed {
		a.decide(AllReceipt{}, out.detail.err)
		return
	}
	a.decide(AllReceipt{}, a.about(refusal(out.status), at))
}
