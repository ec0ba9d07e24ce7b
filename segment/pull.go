package segment

import (
	"cmp"
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/go-leasehold/leasehold/coordinator"
)

// puller moves units to a home that is short, for all calls of this process that
// wait there. Units move, orders don't: a donor gives, and says how much it has ever given
// to this home; the home takes the difference to what it has ever received, and the
// waiting orders are tried in that same script. Either step may be lost, late, or done
// twice.
//
// Its goroutine starts with the first order that waits and ends with the last.
type puller struct {
	home *home

	mu      sync.Mutex
	running bool
	waiting []*waiter
	calls   atomic.Int64 // that wait here
}

// waiter is a call whose order found its home short.
type waiter struct {
	order order
	try   func() outcome // of a part of an order over several stocks: its own script; the order has the quantity alone
	out   chan outcome   // has room for one

	// Guarded by the puller's mu.
	asked bool // a script with the order may be on its way
	gone  bool // nobody waits any more
}

// submit has units moved until the order is served, or it is proved that there
// are not enough, or ctx has ended.
func (p *puller) submit(ctx context.Context, o order) outcome {
	return p.wait(ctx, &waiter{order: o, out: make(chan outcome, 1)})
}

// submitPart is submit of something that tries for itself to take a quantity here.
func (p *puller) submitPart(ctx context.Context, quantity int64, try func() outcome) outcome {
	return p.wait(ctx, &waiter{order: order{quantity: quantity}, try: try, out: make(chan outcome, 1)})
}

func (p *puller) wait(ctx context.Context, w *waiter) outcome {
	p.calls.Add(1)
	defer p.calls.Add(-1)
	p.mu.Lock()
	p.waiting = append(p.waiting, w)
	if !p.running {
		p.running = true
		go p.run()
	}
	p.mu.Unlock()
	select {
	case out := <-w.out:
		return out
	case <-ctx.Done():
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	select {
	case out := <-w.out: // it was served in the same moment
		return out
	default:
	}
	w.gone = true
	if w.asked {
		return failed(ended(ErrUncertain, ctx))
	}
	return failed(ended(ErrNotDone, ctx))
}

// take returns those who wait, at most as many as go in a script; none ends the goroutine.
func (p *puller) take() []*waiter {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.waiting = slices.DeleteFunc(p.waiting, func(w *waiter) bool { return w.gone })
	if len(p.waiting) == 0 {
		p.waiting = nil
		p.running = false
		return nil
	}
	return slices.Clone(p.waiting[:min(len(p.waiting), maxFlight)])
}

// answer gives a waiter its outcome.
func (p *puller) answer(w *waiter, out outcome) {
	p.mu.Lock()
	defer p.mu.Unlock()
	w.gone = true
	w.out <- out
}

// run is the goroutine.
func (p *puller) run() {
	var turn *coordinator.Hold
	yield := func() {
		if turn != nil {
			_ = turn.Unlock() // its loss does no harm: it keeps pullers apart, and that matters for speed alone
			turn = nil
		}
	}
	defer yield()
	misses := 0
	for {
		batch := p.take()
		if len(batch) == 0 {
			return
		}
		served, err := p.round(batch, misses)
		switch {
		case err != nil:
			for _, w := range batch {
				if !w.isGone(p) {
					p.answer(w, failed(err))
				}
			}
			misses = 0
			yield()
		case served > 0:
			misses = 0
			yield()
		default:
			misses++
			if misses > 1 && turn == nil {
				turn = p.turn()
			}
			pause := time.Millisecond << min(misses, 6)
			time.Sleep(pause/2 + rand.N(pause))
		}
	}
}

// turnWait is how long a puller waits for its turn: about as long as a round takes on a busy server.
const turnWait = 20 * time.Millisecond

// turn keeps two pullers from passing the last units to and fro.
func (p *puller) turn() *coordinator.Hold {
	s := p.home.stock
	hold, err := s.c.Mutex("stock:"+s.name+"/pull", coordinator.ClassAs(s.name)).TryLockFor(context.Background(), turnWait)
	if err != nil {
		return nil
	}
	return hold
}

func (w *waiter) isGone(p *puller) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return w.gone
}

// round looks at all segments and moves units, or proves that there are none. It says
// how many orders it has decided.
func (p *puller) round(batch []*waiter, misses int) (served int, err error) {
	s, started, generation := p.home.stock, time.Now(), p.home.stock.sold.generation()
	first, err := s.look()
	if err != nil {
		return 0, err
	}
	least := slices.MinFunc(batch, func(a, b *waiter) int { return cmp.Compare(a.order.quantity, b.order.quantity) })
	if first.available()-first.undecided() >= least.order.quantity {
		before := len(batch)
		batch, err = p.move(batch, first)
		if err != nil || before > len(batch) {
			return before - len(batch), err
		}
		if misses > 0 && first.underWay() > 0 { // it may be on its way for ever: who gave has crashed
			err = s.settle()
		}
		return 0, err
	}
	if first.underWay() < 0 { // a failover may have lost what was given
		if err := s.settle(); err != nil {
			return 0, err
		}
		if first, err = s.look(); err != nil {
			return 0, err
		}
	}
	again := time.Now()
	second, err := s.look()
	if err != nil {
		return 0, err
	}
	sum, ok := first.most(second)
	// A record may be older than the proof, and forgotten by its end.
	if !ok || time.Since(started) > s.conf.Remember/2 {
		return 0, nil
	}
	served, err = p.refuse(batch, sum)
	if served > 0 {
		s.sold.learn(sum, second, again, generation)
	}
	return served, err
}

// move has the fullest segments give units to this one, as many as are needed, and tries the
// waiting orders with them. It returns those still waiting.
func (p *puller) move(batch []*waiter, seen survey) ([]*waiter, error) {
	h := p.home
	donors := make([]int, 0, len(seen))
	for i := range seen {
		if i != h.index && seen[i].left > 0 {
			donors = append(donors, i)
		}
	}
	slices.SortFunc(donors, func(a, b int) int { return cmp.Compare(seen[b].left, seen[a].left) })
	want := -seen[h.index].left
	for _, w := range batch {
		want += w.order.quantity
	}
	want = max(want, 1)
	enough := 0
	for here := int64(0); enough < len(donors) && here < want; enough++ {
		here += seen[donors[enough]].left
	}
	if enough == 0 { // all that there is came here meanwhile
		return p.try(nil, batch)
	}
	credits, err := h.receive(donors[:enough], want, seen)
	if err != nil {
		return batch, err
	}
	return p.try(credits, batch)
}

// try credits units and tries orders at home in one script. It returns those that were short.
// What may be done once only is tried in a script of its own.
func (p *puller) try(credits []credit, waiting []*waiter) (still []*waiter, err error) {
	b := batch{credits: credits}
	var named, once, parts []*waiter
	p.mu.Lock()
	for _, w := range waiting {
		if w.gone {
			continue
		}
		w.asked = true
		switch {
		case w.try != nil:
			parts = append(parts, w)
		case w.order.verb.once():
			once = append(once, w)
		default:
			named = append(named, w)
			b.orders = append(b.orders, w.order)
		}
	}
	p.mu.Unlock()
	if len(b.credits)+len(b.orders) > 0 {
		outcomes, err := p.home.ask(&b)
		if err != nil {
			return slices.Concat(named, once, parts), err
		}
		for i, w := range named {
			still = p.told(still, w, outcomes[i])
		}
	}
	still = p.tryParts(still, parts)
	for _, w := range once {
		b := batch{}
		if w.order.verb == nameless {
			b.nameless = []group{{quantity: w.order.quantity, count: 1}}
		} else {
			b.orders = []order{w.order}
		}
		outcomes, err := p.home.ask(&b)
		out := outcome{status: statusShort}
		switch {
		case err != nil:
			out = failed(err)
		case len(outcomes) > 0:
			out = outcomes[0]
		case b.nameless[0].served > 0:
			out.status = statusDone
		}
		still = p.told(still, w, out)
	}
	return still, nil
}

// tryParts has parts of orders over several stocks tried, each by a script of its own.
func (p *puller) tryParts(still, parts []*waiter) []*waiter {
	outcomes := make([]outcome, len(parts))
	var all sync.WaitGroup
	for i, w := range parts {
		all.Go(func() { outcomes[i] = w.try() })
	}
	all.Wait()
	for i, w := range parts {
		still = p.told(still, w, outcomes[i])
	}
	return still
}

// told passes an outcome on, unless the order was short: then it goes on waiting.
func (p *puller) told(still []*waiter, w *waiter, out outcome) []*waiter {
	if out.status == statusShort {
		w.order.maybe = w.order.maybe || out.detail != nil && out.detail.maybe
		p.idle(w)
		return append(still, w)
	}
	p.answer(w, out)
	return still
}

// idle notes that no script with the order is on its way.
func (p *puller) idle(w *waiter) {
	p.mu.Lock()
	defer p.mu.Unlock()
	w.asked = false
}

// refuse tells those who want more than the sum that it is sold out: that was all
// there was at one moment since they asked. Last, their home is asked once more, for a
// twin of the order may have taken meanwhile.
func (p *puller) refuse(batch []*waiter, sum int64) (int, error) {
	var lost []*waiter
	for _, w := range batch {
		if w.order.quantity > sum {
			lost = append(lost, w)
		}
	}
	if len(lost) == 0 {
		return 0, nil
	}
	still, err := p.try(nil, lost)
	if err != nil {
		return 0, err
	}
	s := p.home.stock
	s.counters.soldOut.Add(int64(len(still)))
	for _, w := range still {
		err := s.sold.err
		if w.order.maybe {
			err = fmt.Errorf("%w, and now: %w", ErrUncertain, err)
		}
		p.answer(w, failed(err))
	}
	return len(lost), nil
}

// pulls says that an outcome is one that moving units may change.
func pulls(out *outcome) bool { return out.status == statusShort }

// do has an order done at its home, wherever the units are.
func (s *Stock) do(ctx context.Context, h *home, o order) outcome {
	for misses := 0; ; misses++ {
		out := h.lane.submit(ctx, o)
		if pulls(&out) {
			o.maybe = o.maybe || out.detail != nil && out.detail.maybe
			if out = h.puller.submit(ctx, o); out.final() {
				s.tell(&o, &out)
			}
		}
		if out.status != statusBusy || o.verb == query {
			return out
		}
		if err := h.await(ctx, o.field, misses); err != nil {
			return failed(s.tellFailed(o.verb, err))
		}
	}
}
