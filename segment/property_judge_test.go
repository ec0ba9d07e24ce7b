package segment

import (
	"context"
	"errors"
	"fmt"

	"github.com/go-leasehold/leasehold/coordinator"
)

// watch is what is noted when a call begins, to judge what it is told.
type watch struct {
	process  *shop
	tag      int
	first    int // the moment in which it began
	commands int
	befallen int
	epoch    string // that the process knew
	knew     bool   // that it is sold out
	known    int64  // how often it has answered so by itself
}

func (w *world) begin(p *shop, d *deed, choose func(*call) mishap) *watch {
	v := &watch{process: p, tag: w.tag(), knew: p.stock.sold.known.Load() != nil, known: p.stock.Snapshot().Known}
	if choose != nil {
		p.faulty.begin(v.tag, choose)
	}
	if epoch := p.stock.epoch.Load(); epoch != nil {
		v.epoch = *epoch
	}
	_, v.befallen = p.faulty.state()
	v.first, v.commands = w.mayhem.mark()
	v.first--
	return v
}

// window is what a call may have met.
type window struct {
	world   *world
	deed    *deed
	watch   *watch
	out     told
	order   Order
	field   string
	moments []moment
	took    int64 // units that its commands took
	unnamed int64
	guarded []seen // what became of its reservations in a WithSegment
	stray   bool   // copies of its commands came later, or may come
	faulty  bool   // something befell the process
	gone    bool
	alone   bool // nothing else happened meanwhile
}

func (w *world) window(v *watch, d *deed, out told) *window {
	x := &window{world: w, deed: d, watch: v, out: out, order: d.order(w.sale)}
	x.field = x.order.field()
	if d.What == actRestock {
		x.field = "R" + x.order.ID
	}
	gone, befallen := v.process.faulty.state()
	x.gone, x.faulty = gone, befallen != v.befallen
	w.mayhem.mu.Lock()
	defer w.mayhem.mu.Unlock()
	book := w.mayhem.book
	x.moments = book.moments[v.first:len(book.moments):len(book.moments)]
	x.took, x.unnamed = book.tookBy[v.tag], book.unnamed[v.tag]
	last := &x.moments[len(x.moments)-1]
	for field, tag := range book.owner {
		if n, ok := last.orders[field]; ok && tag == v.tag {
			x.guarded = append(x.guarded, n)
		}
	}
	x.alone = w.sale.Crew == nil && len(w.mayhem.late) == 0
	for _, m := range d.Mishaps {
		x.stray = x.stray || m.What == delayed || m.What == doubled || m.What == crashDuring
		x.alone = x.alone && m.What == fine
	}
	return x
}

// some says whether there was such a moment.
func (x *window) some(is func(m *moment) bool) bool {
	for i := range x.moments {
		if is(&x.moments[i]) {
			return true
		}
	}
	return false
}

// is says whether the order was of a kind, and as it is asked for, at some moment.
func (x *window) is(kinds ...byte) bool {
	return x.some(func(m *moment) bool {
		n, ok := m.orders[x.field]
		for _, kind := range kinds {
			if ok && n.kind == kind && !differ(&n.note, &asked{quantity: x.order.Quantity}) {
				return true
			}
		}
		return false
	})
}

// fresh says that the order was not on record at a moment.
func (x *window) fresh(m *moment) bool {
	n, ok := m.orders[x.field]
	return !ok || n.maybe || x.deed.What == actUnnamed || x.deed.What == actLocked
}

// judge says what is wrong with what a call was told.
func (x *window) judge() error {
	if err := x.verdict(); err != nil {
		return fmt.Errorf("%v: told %q (repeated %t): %w", x.deed, fmt.Sprint(x.out.err), x.out.repeated, err)
	}
	return nil
}

var (
	errNever      = errors.New("that was so at no moment of the call")
	errUnexpected = errors.New("that is none of the answers")
)

func when(ok bool) error {
	if ok {
		return nil
	}
	return errNever
}

func (x *window) verdict() error {
	err, d := x.out.err, x.deed
	switch {
	case err == nil:
		return x.success()
	case errors.Is(err, ErrUncertain):
		if !x.faulty && !x.gone && d.Ctx == ctxPatient {
			return fmt.Errorf("nothing befell it")
		}
		return nil
	case errors.Is(err, ErrNotDone), errors.Is(err, context.Canceled), errors.Is(err, context.DeadlineExceeded):
		switch {
		case d.Ctx == ctxPatient:
			return fmt.Errorf("it was patient")
		case errors.Is(err, ErrNotDone) && x.world.sale.Crew == nil && !x.stray && x.took != 0:
			return fmt.Errorf("it took %d units", x.took)
		}
		return nil
	case errors.Is(err, coordinator.ErrClosed):
		return when(x.gone)
	case errors.Is(err, ErrEpoch):
		return when(x.some(func(m *moment) bool { return !m.usable || m.set != x.watch.epoch }))
	case errors.Is(err, ErrNotLoaded):
		return when(x.some(func(m *moment) bool { return !m.usable }))
	case errors.Is(err, ErrLoaded):
		return when(d.What == actLoad && x.some(func(m *moment) bool { return m.usable }))
	}
	if d.What == actLocked {
		return x.guardedFailure()
	}
	return x.refusal()
}

func (x *window) success() error {
	switch x.deed.What {
	case actDeduct:
		if x.world.sale.Crew == nil && !x.out.repeated && x.took == 0 {
			return fmt.Errorf("it took nothing")
		}
		return when(x.is('t'))
	case actReserve:
		return when(x.is('v', 't'))
	case actConfirm, actRestock:
		return when(x.is('t'))
	case actCancel, actReturn:
		return when(x.is('r', 'x'))
	case actUnnamed:
		if x.world.sale.Crew == nil && x.unnamed != x.order.Quantity {
			return fmt.Errorf("it took %d units", x.unnamed)
		}
	case actLocked:
		if x.world.sale.Crew == nil && (len(x.guarded) != 1 || x.guarded[0].kind != 't') {
			return fmt.Errorf("its reservation is %+v", x.guarded)
		}
		return when(x.out.ran && x.out.said == nil)
	case actRemain:
		if last := &x.moments[len(x.moments)-1]; x.alone && x.out.number != last.available {
			return fmt.Errorf("%d remain, and it was told %d", last.available, x.out.number)
		}
	case actAudit:
		if last := &x.moments[len(x.moments)-1]; x.alone && (x.out.audit.Left != last.available || x.out.audit.UnderWay != 0 || !x.out.audit.Still) {
			return fmt.Errorf("%d are left, and it was told %+v", last.available, x.out.audit)
		}
	case actLoad, actReset:
		return when(x.some(func(m *moment) bool { return m.usable }))
	}
	return nil
}

// refusal is for an order that was told what it is, or that it can't be.
func (x *window) refusal() error {
	err, o := x.out.err, &x.order
	switch {
	case errors.Is(err, ErrSoldOut):
		return x.soldOut()
	case errors.Is(err, ErrUserLimit):
		return when(x.some(func(m *moment) bool {
			return x.fresh(m) && m.users[o.User]+o.Quantity > x.world.sale.Limit && x.world.sale.Limit > 0
		}))
	case errors.Is(err, ErrOrderMismatch):
		return when(x.some(func(m *moment) bool {
			n, ok := m.orders[x.field]
			return ok && differ(&n.note, &asked{quantity: o.Quantity})
		}))
	case errors.Is(err, ErrReturned):
		return when(x.is('r'))
	case errors.Is(err, ErrExpired):
		return when(x.is('x'))
	case errors.Is(err, ErrReserved):
		return when(x.deed.What == actDeduct && x.is('v'))
	case errors.Is(err, ErrConfirmed):
		return when(x.deed.What == actCancel && x.is('t'))
	case errors.Is(err, ErrUnknownOrder):
		return when(x.some(x.fresh))
	}
	return errUnexpected
}

// soldOut wants a moment in which the order was not on record and all units together were too few. Where the process
// may have answered by what it knew, and others give back at any time, the answer may be late.
func (x *window) soldOut() error {
	if x.took != 0 && x.world.sale.Crew == nil && !x.stray {
		return fmt.Errorf("it took %d units", x.took)
	}
	local := x.watch.process.stock.Snapshot().Known != x.watch.known
	if local && x.world.sale.Crew != nil {
		return nil
	}
	return when(x.some(func(m *moment) bool {
		n, on := m.orders[x.field]
		// What a process knows by itself does not tell of an order that came on record since, with another quantity or as
		// returned; one that has what is asked for can't have come.
		fresh := x.fresh(m) || local && on && (n.kind == 'r' || differ(&n.note, &asked{quantity: x.order.Quantity}))
		return m.set != "" && fresh && m.available < x.order.Quantity
	}))
}

// guardedFailure is for a WithSegment.
func (x *window) guardedFailure() error {
	kind := byte(0)
	if len(x.guarded) == 1 {
		kind = x.guarded[0].kind
	}
	err := x.out.err
	switch {
	case errors.Is(err, ErrSoldOut):
		if x.out.ran {
			return fmt.Errorf("its function was called")
		}
		return x.soldOut()
	case x.world.sale.Crew != nil:
		return when(errors.Is(err, errOnPurpose) && x.out.said != nil || errors.Is(err, ErrExpired))
	case errors.Is(err, errOnPurpose):
		return when(x.out.said != nil && (kind == 'r' || kind == 'x'))
	case errors.Is(err, ErrExpired):
		return when(x.out.ran && kind == 'x')
	}
	return errUnexpected
}
