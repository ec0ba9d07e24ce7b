package segment

import (
	"context"
	"fmt"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/go-leasehold/leasehold/coordinator"
)

// maxFlight is how many orders go in one script: Lua hands on less than 8,000
// values at once, and a script must not keep the server for long.
const maxFlight = 1000

const (
	// maxFlying is how many flights of a lane may be on their way at once: while the server
	// works for one of them, the callers of the other are told, and come again.
	maxFlying = 2
	// minBeside is how many calls leave beside a flight that is on its way, at least: a script
	// for each of a few costs more than they gain.
	minBeside = 32
)

// lane has the calls of this process at one segment travel together: while a
// flight is on its way, the next is collected, which leaves when that has
// landed, or beside it where it is worth a script. Nothing waits for a timer, and
// a call that is alone leaves at once. Flights may overtake each other: each order
// is decided by its record, in whatever sequence its scripts arrive.
//
// A goroutine that sends flights starts with the first and ends when there is no
// next one for it; what it sends ends in time, or with the coordinator.
type lane struct {
	home *home

	mu      sync.Mutex
	flying  int       // goroutines; one at least where anything is in next
	waiting int       // calls in flights that have not landed
	crowd   int       // the most that have waited lately
	next    []*flight // not sent yet; the last is being collected
	usual   int       // orders of the flight before

	failing outage // as its flights know it
}

// flight is a number of calls that go in one script.
type flight struct {
	// Guarded by the lane's mu until sent.
	sent     bool
	boarded  int
	orders   []order
	nameless []groupCall
	left     []int // orders whose callers have gone since it was sent
	landing  bool  // what became of it is known

	// Written before landed is closed.
	outcomes []outcome
	err      error // of the nameless
	landed   chan struct{}
}

// groupCall is a group, whose callers are served first come, first served.
type groupCall struct {
	group
	claimed *atomic.Int64
	left    int // callers who have gone since it was sent
}

// submit has an order travel, and waits for its outcome, or for the end of ctx.
func (l *lane) submit(ctx context.Context, o order) outcome {
	l.mu.Lock()
	if limit := l.home.stock.conf.MaxWaiting; limit > 0 && o.verb.takes() && l.waiting+int(l.home.puller.calls.Load()) >= limit {
		l.mu.Unlock()
		out := failed(fmt.Errorf("%w: %d calls wait at segment %d", coordinator.ErrTooManyWaiters, limit, l.home.index))
		l.home.stock.tell(&o, &out)
		return out
	}
	l.waiting++
	f := l.collecting()
	at, claimed := f.board(&o)
	if l.flying == 0 || l.flying < maxFlying && l.worth(f) {
		l.flying++
		go l.fly()
	}
	l.mu.Unlock()
	if done := ctx.Done(); done != nil {
		select {
		case <-f.landed:
		case <-done:
			if out, ok := l.leave(ctx, f, at, &o); ok {
				l.home.stock.tell(&o, &out)
				return out
			}
			<-f.landed
		}
	} else {
		<-f.landed
	}
	switch {
	case claimed == nil:
		return f.outcomes[at]
	case f.err != nil:
		return failed(f.err)
	case claimed.Add(1) <= int64(f.nameless[at].served):
		return outcome{status: statusDone}
	}
	return outcome{status: statusShort}
}

// collecting returns the flight that is being collected. It needs mu.
func (l *lane) collecting() *flight {
	if n := len(l.next); n > 0 {
		if f := l.next[n-1]; len(f.orders)+len(f.nameless) < maxFlight {
			return f
		}
	}
	f := &flight{landed: make(chan struct{}), orders: make([]order, 0, l.usual)}
	l.next = append(l.next, f)
	return f
}

// worth says that a flight is to leave beside another one: it has a good part of those who
// wait. It needs mu.
func (l *lane) worth(f *flight) bool { return f.boarded >= max(minBeside, l.crowd/3) }

// board takes an order in, and says where it is. It needs the lane's mu.
func (f *flight) board(o *order) (at int, claimed *atomic.Int64) {
	f.boarded++
	if o.verb != nameless {
		f.orders = append(f.orders, *o)
		return len(f.orders) - 1, nil
	}
	for i := range f.nameless {
		if g := &f.nameless[i]; g.quantity == o.quantity {
			g.count++
			return i, g.claimed
		}
	}
	f.nameless = append(f.nameless, groupCall{group: group{quantity: o.quantity, count: 1}, claimed: &atomic.Int64{}})
	return len(f.nameless) - 1, f.nameless[len(f.nameless)-1].claimed
}

// leave is for a caller whose context has ended; false: its flight lands in this very moment.
func (l *lane) leave(ctx context.Context, f *flight, at int, o *order) (outcome, bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	switch {
	case f.landing:
		return outcome{}, false
	case f.sent && o.verb == nameless:
		f.nameless[at].left++
	case f.sent:
		f.left = append(f.left, at)
	case o.verb == nameless:
		f.nameless[at].count--
	default:
		f.orders[at].verb = cancelled
	}
	if f.sent {
		return failed(ended(ErrUncertain, ctx)), true
	}
	return failed(ended(ErrNotDone, ctx)), true
}

// fly is a goroutine that sends flights.
func (l *lane) fly() {
	for {
		f := l.takeOff()
		if f == nil {
			return
		}
		f.serve(l.home, &l.failing)
		l.mu.Lock()
		l.waiting -= f.boarded
		f.landing = true // nobody leaves any more
		l.mu.Unlock()
		f.tell(l.home.stock, f.left)
		close(f.landed)
		// Those who have just been told mostly have another order. They come first, so that
		// all of them travel in the next flight and not every other one in every other
		// flight; where nobody else can run, this is nothing.
		runtime.Gosched()
	}
}

// takeOff returns the next flight, or nil where the goroutine has none.
func (l *lane) takeOff() *flight {
	l.mu.Lock()
	defer l.mu.Unlock()
	if len(l.next) == 0 || l.flying > 1 && !l.worth(l.next[0]) {
		l.flying-- // who is still on the way takes what there is
		if l.flying == 0 {
			l.next = nil
			l.failing.end()
		}
		return nil
	}
	f := l.next[0]
	l.next = l.next[1:]
	f.sent = true
	l.usual = len(f.orders)
	l.crowd = max(l.waiting, l.crowd-l.crowd/8)
	return f
}

// serve sends the flight. What may be done once only goes in a script of its own, which is
// not sent again when its answer is lost.
func (f *flight) serve(h *home, failing *outage) {
	if f.plain() { // which is what most flights are: nothing to sort
		f.outcomes, f.err = h.askSince(failing, &batch{orders: f.orders})
		if f.err != nil {
			f.outcomes = slices.Repeat([]outcome{failed(f.err)}, len(f.orders))
		}
		return
	}
	f.outcomes = make([]outcome, len(f.orders))
	var named, once batch
	var namedAt, onceAt []int
	for i := range f.orders {
		switch v := f.orders[i].verb; {
		case v == cancelled:
		case v.once():
			once.orders, onceAt = append(once.orders, f.orders[i]), append(onceAt, i)
		default:
			named.orders, namedAt = append(named.orders, f.orders[i]), append(namedAt, i)
		}
	}
	for i := range f.nameless {
		once.nameless = append(once.nameless, f.nameless[i].group)
	}
	f.part(h, failing, &named, namedAt)
	f.part(h, failing, &once, onceAt)
}

// plain says that all goes in one script that can be sent again.
func (f *flight) plain() bool {
	if len(f.nameless) > 0 {
		return false
	}
	for i := range f.orders {
		if v := f.orders[i].verb; v == cancelled || v.once() {
			return false
		}
	}
	return true
}

func (f *flight) part(h *home, failing *outage, b *batch, at []int) {
	if len(b.orders)+len(b.nameless) == 0 {
		return
	}
	outcomes, err := h.askSince(failing, b)
	if err != nil {
		outcomes = slices.Repeat([]outcome{failed(err)}, len(at))
	}
	for i, to := range at {
		f.outcomes[to] = outcomes[i]
	}
	if err == nil {
		for i := range b.nameless {
			f.nameless[i].served = b.nameless[i].served
		}
	} else if len(b.nameless) > 0 {
		f.err = err
	}
}
