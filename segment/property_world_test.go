package segment

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/go-leasehold/leasehold/coordinator"
	"github.com/go-leasehold/leasehold/internal/redistest"
)

// world is one run: a stock, its processes, and what stands between them and Redis.
type world struct {
	t      testing.TB
	sale   *sale
	name   string
	server *redistest.Server
	clock  *serverClock
	mayhem *mayhem
	conf   Config

	processes []*shop
	tags      chan int // numbers of deeds
	refused   []int    // tags of deeds that were told for certain that they took nothing
}

// shop is a process: one handle on the stock, until it crashes.
type shop struct {
	c      *coordinator.Coordinator
	stock  *Stock
	faulty *faulty
}

// newWorld makes the processes of a run. Nothing is loaded.
func newWorld(t testing.TB, sale *sale, coordinators []*coordinator.Coordinator, reached map[string]int) *world {
	w := &world{
		t: t, sale: sale, name: redistest.Prefix(t), server: redistest.Shared(t),
		conf: Config{Segments: sale.Segments, Remember: remembers, PerUser: sale.Limit}, tags: make(chan int, 1),
	}
	w.clock = newClock(t, w.server, w.name)
	w.tags <- 1
	// A round time, so that a plan meets the edges of buckets at the same places in each run.
	start := time.Unix(1_700_000_000/60*60, 0)
	w.clock.set(t, start)
	w.mayhem = &mayhem{
		redis: w.clock.wrap(redis{coordinators[len(coordinators)-1]}), book: newChronicle(&w.conf, start.UnixMicro()), reached: reached,
	}
	for i := range sale.Processes {
		c := coordinators[i%(len(coordinators)-1)]
		if sale.Shared {
			c = coordinators[0]
		}
		w.processes = append(w.processes, w.open(c))
	}
	return w
}

// open makes a process, on whose commands nothing befalls yet.
func (w *world) open(c *coordinator.Coordinator) *shop {
	p := &shop{c: c, faulty: &faulty{mayhem: w.mayhem, choose: plain}}
	settings := c.Settings()
	settings.UnavailableAfter = 2 * hangs
	p.stock = newStock(c, w.name, w.conf, settings, p.faulty)
	return p
}

func (w *world) tag() int {
	n := <-w.tags
	w.tags <- n + 1
	return n
}

// coordinatorsFor returns the coordinators that runs use one after the other; the last is that of mayhem.
func coordinatorsFor(t testing.TB) []*coordinator.Coordinator {
	all := make([]*coordinator.Coordinator, 4)
	for i := range all {
		all[i] = processAt(t, redistest.Shared(t).Option())
	}
	return all
}

// told is what a call came to.
type told struct {
	err      error
	repeated bool
	number   int64 // Remaining
	audit    Audit
	ran      bool // WithSegment called its function, which said
	said     error
}

var errOnPurpose = errors.New("segment: the function fails on purpose")

// call has a process do something, and waits for the end of it.
func (w *world) call(p *shop, d *deed) (out told) {
	ctx, cancel := context.WithTimeout(context.Background(), hangs)
	defer cancel()
	switch d.Ctx {
	case ctxEnded:
		cancel()
	case ctxHasty:
		ctx, cancel = context.WithTimeout(context.Background(), time.Duration(rand.IntN(2000))*time.Microsecond)
		defer cancel()
	}
	s, o := p.stock, d.order(w.sale)
	var receipt Receipt
	switch d.What {
	case actDeduct, actUnnamed:
		receipt, out.err = s.Deduct(ctx, o)
	case actReserve:
		var r *Reservation
		if r, out.err = s.Reserve(ctx, o, d.TTL); out.err == nil {
			receipt = r.Receipt
		}
	case actConfirm:
		receipt, out.err = s.Confirm(ctx, o)
	case actCancel:
		out.err = s.Cancel(ctx, o)
	case actReturn:
		out.err = s.Return(ctx, o)
	case actRestock:
		out.err = s.Restock(ctx, o.ID, o.Quantity)
	case actRemain:
		out.number, out.err = s.Remaining(ctx)
	case actAudit:
		out.audit, out.err = s.Audit(ctx)
	case actLoad:
		out.err = s.Load(ctx, w.sale.Units)
	case actReset:
		out.err = s.Reset(ctx, w.sale.Units)
	case actLocked:
		out.err = s.WithSegment(ctx, o.route(), o.Quantity, func(context.Context, Held) error {
			out.ran = true
			if d.Fails {
				out.said = errOnPurpose
			}
			return out.said
		})
	}
	out.repeated = receipt.Repeated
	return out
}

// quiet waits until the process does nothing any more in the background.
func (w *world) quiet(p *shop) error {
	for deadline := time.Now().Add(hangs); ; time.Sleep(50 * time.Microsecond) {
		if !p.busy() {
			return nil
		}
		if time.Now().After(deadline) {
			return fmt.Errorf("a process is busy for ever")
		}
	}
}

func (p *shop) busy() bool {
	for _, h := range p.stock.homes {
		h.lane.mu.Lock()
		flying := h.lane.flying
		h.lane.mu.Unlock()
		h.puller.mu.Lock()
		running := h.puller.running
		h.puller.mu.Unlock()
		if flying > 0 || running {
			return true
		}
	}
	k := &p.stock.sold
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.learning
}

// settled waits until no process knows that it is sold out where more can be sold.
func (w *world) settled() error {
	w.mayhem.mu.Lock()
	moments := w.mayhem.book.moments
	available := moments[len(moments)-1].available
	w.mayhem.mu.Unlock()
	for _, p := range w.processes {
		for deadline := time.Now().Add(hangs); ; time.Sleep(50 * time.Microsecond) {
			known := p.stock.sold.known.Load()
			if known == nil || known.sum >= available {
				break
			}
			if time.Now().After(deadline) {
				return fmt.Errorf("a process goes on knowing that %d are left, and it is %d", known.sum, available)
			}
		}
	}
	return nil
}
