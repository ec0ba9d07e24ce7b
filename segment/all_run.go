package segment

import (
	"context"
	"errors"
	"fmt"
	"sync"

	"github.com/go-leasehold/leasehold/coordinator"
)

// callState is what becomes of a call over several stocks. Its work is done on a goroutine of
// its own, which goes on where the caller has left: to give back, or to finish what is decided.
type callState struct {
	ended chan struct{} // closed when the caller may have its answer

	mu       sync.Mutex
	left     bool // the caller has gone, and was told that nothing was done
	deciding bool // what decides may be on its way
	told     bool
	decided  bool
	receipt  AllReceipt
	err      error
}

// run works on a goroutine, and waits for the end of it or of ctx.
func (o *spanning) run(ctx context.Context, work func(context.Context)) (AllReceipt, error) {
	if ctx.Err() != nil {
		return AllReceipt{}, o.about(ended(ErrNotDone, ctx), nil)
	}
	go func() { // ends in time: what it sends does, and what it waits for ends with ctx
		defer o.end()
		work(ctx)
	}()
	select {
	case <-o.ended:
	case <-ctx.Done():
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	switch {
	case o.decided:
		return o.receipt, o.err
	case o.deciding:
		return AllReceipt{}, o.about(ended(ErrUncertain, ctx), nil)
	}
	o.left = true
	return AllReceipt{}, o.about(ended(ErrNotDone, ctx), nil)
}

// decide sets the caller's answer, the first time.
func (o *spanning) decide(receipt AllReceipt, err error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if !o.decided {
		o.decided, o.receipt, o.err = true, receipt, err
	}
}

// end lets the caller have its answer.
func (o *spanning) end() {
	o.mu.Lock()
	defer o.mu.Unlock()
	if !o.told {
		o.told = true
		close(o.ended)
	}
}

// mayDecide is to be asked before what decides is sent: false, the caller has gone.
func (o *spanning) mayDecide() bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.deciding = !o.left
	return o.deciding
}

// undecided notes that what was sent has decided nothing.
func (o *spanning) undecided() {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.deciding = false
}

func (o *spanning) hasLeft() bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.left
}

// settings asks for those of all stocks that are not known.
func (o *spanning) settings() (*part, error) {
	for i := range o.parts {
		p := &o.parts[i]
		var err error
		if p.set, err = p.home.stock.set(); err != nil {
			return p, err
		}
	}
	return nil, nil
}

// step is one of the order at one of its homes.
func (o *spanning) step(verb string, i int, attempt string) *step {
	p := &o.parts[i]
	st := &step{
		home: p.home, set: p.set, verb: verb, field: o.field, lines: o.lines, attempt: attempt, quantity: p.order.Quantity,
	}
	if i > 0 {
		st.first = o.first()
	}
	return st
}

// steps are of all homes from one on.
func (o *spanning) steps(verb string, from int, attempt string) (all []*step) {
	for i := from; i < len(o.parts); i++ {
		all = append(all, o.step(verb, i, attempt))
	}
	return all
}

// send has steps done, all in one round trip.
func (o *spanning) send(steps ...*step) { takeSteps(o.parts[0].home.stock.run, steps...) }

// sendOnce is send for what somebody else will do if it fails.
func (o *spanning) sendOnce(steps ...*step) { takeSteps(o.parts[0].home.stock.once, steps...) }

// deduct makes attempts until one decides.
func (o *spanning) deduct(ctx context.Context) {
	for misses := 0; ; misses++ {
		a := &attempt{spanning: o}
		obstacle := a.make(ctx)
		if o.isDecided() {
			return
		}
		if ctx.Err() != nil {
			return // the caller goes by that, too
		}
		obstacle.rest(ctx, misses)
	}
}

func (o *spanning) isDecided() bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.decided
}

// giveBack is ReturnAll: forward only.
func (o *spanning) giveBack(ctx context.Context) {
	for misses := 0; ; misses++ {
		if p, err := o.settings(); err != nil {
			o.decide(AllReceipt{}, o.about(err, p))
			return
		}
		st := o.step("recall", 0, "")
		st.detail = o.others()
		if !o.mayDecide() {
			return
		}
		o.send(st)
		if st.status == statusBusy {
			o.undecided()
			if st.rest(ctx, misses); ctx.Err() != nil {
				return
			}
			continue
		}
		o.recalled(st)
		return
	}
}

func (o *spanning) recalled(st *step) {
	var err error
	switch st.status {
	case statusDone, statusAgain:
	case statusUnknown:
		err = ErrUnknownOrder
	case statusFailed:
		o.decide(AllReceipt{}, o.about(st.err, &o.parts[0]))
		return
	default:
		o.decide(AllReceipt{}, o.about(refusal(st.status), &o.parts[0]))
		return
	}
	// Before anybody is told: whoever returns and then deducts is not to hear of what was known before.
	o.forget()
	o.decide(AllReceipt{}, o.about(err, nil))
	if st.by != "" {
		o.complete("undo", "g", st.by)
		o.forget()
	}
}

// forget makes void what is known of stocks that are sold out.
func (o *spanning) forget() {
	for i := range o.parts {
		o.parts[i].home.stock.sold.forget()
	}
}

// complete has all other homes do what was decided at the first, and then closes it there. What fails
// is done by whoever sees it a few seconds later.
func (o *spanning) complete(verb, kind, attempt string) {
	steps := o.steps(verb, 1, attempt)
	o.send(steps...)
	for _, st := range steps {
		if st.status == statusFailed && !st.gone() {
			return
		}
	}
	last := o.step("close", 0, attempt)
	last.detail = kind
	o.send(last)
}

// over says that a stock was reset or dropped.
func over(err error) bool { return errors.Is(err, ErrEpoch) || errors.Is(err, ErrNotLoaded) }

// refusal is the error that an answer stands for.
func refusal(st status) error {
	if err := refusals[st]; err != nil {
		return err
	}
	return fmt.Errorf("%w: %w: %d", coordinator.ErrUnavailable, errUnreadable, st)
}
