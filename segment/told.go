package segment

import (
	"context"
	"errors"

	"github.com/go-leasehold/leasehold/coordinator"
	"github.com/go-leasehold/leasehold/telemetry"
)

// operations are what metrics call the verbs. Others are no orders of a user.
var operations = map[verb]telemetry.Operation{
	deduct: telemetry.OperationDeduct, unnamed: telemetry.OperationDeduct, nameless: telemetry.OperationDeduct,
	reserve: telemetry.OperationReserve, confirm: telemetry.OperationConfirm, cancel: telemetry.OperationCancel,
	giveBack: telemetry.OperationReturn, restock: telemetry.OperationRestock,
}

// tell counts an order that is answered.
func (s *Stock) tell(o *order, out *outcome) { s.tellAll(o.verb, out, 1, unitsOf(o, out)) }

// tellAll counts orders that are answered alike.
func (s *Stock) tellAll(v verb, out *outcome, orders, units int64) {
	if op, ok := operations[v]; ok && orders > 0 {
		s.told.Answered(op, out.told(), orders, units)
	}
}

// tellFailed counts an order that could not be done, and returns why.
func (s *Stock) tellFailed(v verb, err error) error {
	out := failed(err)
	s.tellAll(v, &out, 1, 0)
	return err
}

// unitsOf is how many units an order moved, if it was carried out.
func unitsOf(o *order, out *outcome) int64 {
	if o.quantity == 0 && out.detail != nil {
		return out.detail.quantity
	}
	return o.quantity
}

// final says that the order is not tried again: no units are moved for it, and nobody else's attempt is
// waited for.
func (o *outcome) final() bool { return !pulls(o) && o.status != statusBusy }

// alike says that metrics call two outcomes the same.
func (o *outcome) alike(other *outcome) bool {
	return o.status == other.status && (o.detail == other.detail || o.status == statusDone || o.status == statusAgain)
}

// told is what metrics call an outcome.
func (o *outcome) told() telemetry.Outcome {
	switch o.status {
	case statusDone:
		return telemetry.Done
	case statusAgain:
		return telemetry.Repeated
	case statusFailed:
		return toldOf(o.detail.err)
	}
	switch {
	case o.detail != nil && o.detail.maybe:
		return telemetry.Uncertain
	case o.status == statusShort:
		return telemetry.SoldOut
	case o.status == statusOver:
		return telemetry.Limited
	case o.status == statusExpired:
		return telemetry.Expired
	}
	return telemetry.Refused
}

// toldOf is what metrics call an error that a caller gets; nil: the order was done.
func toldOf(err error) telemetry.Outcome {
	switch {
	case err == nil:
		return telemetry.Done
	case errors.Is(err, ErrUncertain):
		return telemetry.Uncertain
	case errors.Is(err, ErrSoldOut):
		return telemetry.SoldOut
	case errors.Is(err, ErrUserLimit):
		return telemetry.Limited
	case errors.Is(err, ErrExpired):
		return telemetry.Expired
	case errors.Is(err, ErrNotDone) && errors.Is(err, context.DeadlineExceeded):
		return telemetry.Timeout
	case errors.Is(err, ErrNotDone):
		return telemetry.Canceled
	case errors.Is(err, coordinator.ErrClosed):
		return telemetry.Closed
	case errors.Is(err, coordinator.ErrUnavailable):
		return telemetry.Unavailable
	}
	return telemetry.Refused
}

// tell counts the orders of a flight that has landed, but for those that have to go on, and those whose
// callers have left and were told something else. Orders that are alike are counted together.
func (f *flight) tell(s *Stock, left []int) {
	for _, at := range left {
		f.orders[at].verb = cancelled
	}
	var first *outcome // of those that are alike
	var v verb
	var orders, units int64
	for i := range f.orders {
		o, out := &f.orders[i], &f.outcomes[i]
		if !out.final() {
			continue
		}
		if first == nil || o.verb != v || !out.alike(first) {
			s.tellAll(v, first, orders, units)
			first, v, orders, units = out, o.verb, 0, 0
		}
		orders++
		units += unitsOf(o, out)
	}
	s.tellAll(v, first, orders, units)
	for i := range f.nameless {
		g := &f.nameless[i]
		waiting := int64(g.count - g.left)
		if f.err != nil {
			out := failed(f.err)
			s.tellAll(nameless, &out, waiting, 0)
			continue
		}
		served := min(int64(g.served), waiting)
		s.tellAll(nameless, &outcome{status: statusDone}, served, served*g.quantity)
	}
}

// tell counts a call over several stocks at each of them.
func (o *spanning) tell(op telemetry.Operation, receipt AllReceipt, err error) {
	out := toldOf(err)
	if receipt.Repeated {
		out = telemetry.Repeated
	}
	for i := range o.parts {
		p := &o.parts[i]
		p.home.stock.told.Answered(op, out, 1, p.order.Quantity)
	}
}

// tellKnown counts a call that one of the stocks answers as sold out, which is counted there: the others.
func (o *spanning) tellKnown(at int) {
	for i := range o.parts {
		if i != at {
			o.parts[i].home.stock.told.Answered(telemetry.OperationDeductAll, telemetry.SoldOut, 1, 0)
		}
	}
}

// ours are the errors of the scripts themselves.
var ours = map[string]bool{"UNLOADED": true, "EPOCH": true, "LOADED": true, "HALFLOADED": true}

// tellSent counts commands and what came of them.
func (s *Stock) tellSent(answers []answer) {
	failures := int64(0)
	for i := range answers {
		if err := answers[i].err; err != nil && !ours[code(err)] {
			failures++
		}
	}
	s.told.Sent(int64(len(answers)), failures)
}

// tellRead counts commands that no script is in.
func (s *Stock) tellRead(commands int, err error) {
	failures := 0
	if err != nil {
		failures = commands
	}
	s.told.Sent(int64(commands), int64(failures))
}
