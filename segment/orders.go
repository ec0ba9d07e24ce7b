package segment

import (
	"context"
	"fmt"
	"strconv"
	"time"

	"github.com/go-leasehold/leasehold/coordinator"
	"github.com/go-leasehold/leasehold/telemetry"
)

// Receipt tells where an order was taken.
type Receipt struct {
	// Segment is the order's home.
	Segment int
	// Repeated: it had been taken before, and nothing more was taken now.
	Repeated bool
	// Quantity is how many units it has.
	Quantity int64
}

// Deduct takes an order's units, all of them or none: nil, or [ErrSoldOut],
// [ErrUserLimit], and for an order on record [ErrOrderMismatch], [ErrReturned],
// [ErrExpired], [ErrReserved].
//
// An order with an ID is taken exactly once: sent again, by this process or
// another, after a lost reply, a crash, a restock, it gets the first answer (nil,
// with [Receipt.Repeated]) and takes nothing more, for as long as [Config.Remember]
// says. So send it again when the error is [ErrUncertain]. An order without an ID is
// taken at most once: where the error is [ErrUncertain], its units may be gone.
//
// After a call whose outcome is not known (ErrUncertain, a client that hung up) a refusal is not the last word:
// the first call may still be on its way, find units that came back meanwhile, and take them. Whoever tells a
// buyer "no" for good after that sends [Stock.Return], which rules it out. A refusal that is
// ErrUncertain as well says so of a copy that this very call has sent.
//
// Units are moved from other segments where the order's own has too few, so a
// quantity of more than one is served whenever the sum of all allows it; that may
// take a few round trips. ctx bounds the wait, and decides nothing else.
func (s *Stock) Deduct(ctx context.Context, o Order) (Receipt, error) {
	if err := s.check(ctx, &o, deduct); err != nil {
		return Receipt{}, s.about(err, &o)
	}
	if s.sold.answers(&o, telemetry.OperationDeduct) {
		return Receipt{}, s.sold.err
	}
	h, what := s.home(&o), order{verb: deduct, quantity: o.Quantity}
	switch {
	case o.ID != "":
		what.field = o.field()
	case h.index == s.anonymous && s.conf.PerUser == 0:
		what.verb = nameless
	default:
		what.verb, what.field = unnamed, o.field()
	}
	out := s.do(ctx, h, what)
	return s.receipt(&o, h, &out)
}

// Return gives back what an order took, or has reserved. Nil: it holds nothing,
// and what it held is back, now or before. [ErrUnknownOrder]: it is not on record
// (never taken, or longer ago than is remembered: then [Stock.Restock] is the way);
// nothing came back, and it is on record as returned from now on, so that a Deduct
// that is still on its way does not take. It may be sent again at will. A Quantity
// of 0 stands for what the order has.
func (s *Stock) Return(ctx context.Context, o Order) error {
	_, err := s.act(ctx, &o, giveBack)
	return err
}

// Restock adds units to the stock, exactly once per ID within [Config.Remember], as
// orders are taken. They come to one segment, and move on from there where they are
// wanted. A stock of more than 2^53 - 1 units is refused.
func (s *Stock) Restock(ctx context.Context, id string, quantity int64) error {
	o := Order{ID: id, Quantity: quantity}
	if ctx == nil {
		return s.about(invalid("the context is nil"), nil)
	}
	if ctx.Err() != nil {
		return s.about(s.tellFailed(restock, ended(ErrNotDone, ctx)), nil)
	}
	if err := o.validate(&Config{}, true); err != nil {
		return s.about(err, nil)
	}
	all, err := s.lookWithin(ctx)
	if err != nil {
		return s.about(s.tellFailed(restock, err), nil)
	}
	var loaded int64
	for i := range all {
		loaded += all[i].loaded
	}
	h := s.homes[Index(id, len(s.homes))]
	what := order{verb: restock, field: "R" + id, quantity: quantity}
	if loaded > MaxUnits-quantity {
		what.verb = query // it may be among them already
	}
	out := s.do(ctx, h, what)
	if what.verb == query {
		s.tellAll(restock, &out, 1, 0)
	}
	if out.status == statusFull || out.status == statusUnknown {
		return s.about(s.tooMuch(loaded, quantity), nil)
	}
	_, err = s.receipt(&o, h, &out)
	return err
}

func (s *Stock) tooMuch(loaded, quantity int64) error {
	return invalid("%d units on top of %d are over the limit of %d", quantity, loaded, int64(MaxUnits))
}

// Reservation is an order whose units are held until a deadline.
type Reservation struct {
	Receipt
	// Deadline is when the units go back by themselves, by this process's clock
	// and a little early rather than late.
	Deadline time.Time
	// Confirmed: the order had been reserved and confirmed before; there is no
	// deadline.
	Confirmed bool

	stock *Stock
	order Order
}

// Reserve holds an order's units for ttl: until then [Stock.Confirm] takes them
// and [Stock.Cancel] gives them back; after that they are back by themselves, once. The order
// needs an ID. Reserved again, it has the first deadline. Errors are those of Deduct;
// ttl is from a millisecond to 366 days.
func (s *Stock) Reserve(ctx context.Context, o Order, ttl time.Duration) (*Reservation, error) {
	if err := s.check(ctx, &o, reserve); err != nil {
		return nil, s.about(err, &o)
	}
	if ttl < time.Millisecond || ttl > MaxReserve {
		return nil, s.about(invalid("a reservation for %v is not within 1ms and %v", ttl, MaxReserve), &o)
	}
	if s.sold.answers(&o, telemetry.OperationReserve) {
		return nil, s.sold.err
	}
	h := s.home(&o)
	out := s.do(ctx, h, order{verb: reserve, field: o.field(), quantity: o.Quantity, ttl: ttl})
	receipt, err := s.receipt(&o, h, &out)
	if err != nil {
		return nil, err
	}
	r := &Reservation{Receipt: receipt, stock: s, order: o}
	if out.detail != nil {
		r.Deadline = out.detail.asked.Add(out.detail.left)
	} else {
		r.Confirmed = true
	}
	return r, nil
}

// Confirm is [Stock.Confirm] of the order.
func (r *Reservation) Confirm(ctx context.Context) error {
	_, err := r.stock.Confirm(ctx, r.order)
	return err
}

// Cancel is [Stock.Cancel] of the order.
func (r *Reservation) Cancel(ctx context.Context) error { return r.stock.Cancel(ctx, r.order) }

// Confirm takes what an order has reserved. It may be sent again at will, and from another
// process. A Quantity of 0 stands for what is reserved. [ErrExpired]: it came too late, the units went back and may have been
// sold. [ErrReturned]: it was cancelled. [ErrUnknownOrder]: it is not on record.
func (s *Stock) Confirm(ctx context.Context, o Order) (Receipt, error) {
	return s.act(ctx, &o, confirm)
}

// Cancel gives back what an order has reserved. Nil: it holds nothing, for it was cancelled or
// has expired, now or before. [ErrConfirmed]: it is taken; Return gives that back. [ErrUnknownOrder]: it is
// not on record; from now on it is, as returned, so that a Reserve that is still on its way
// does not reserve. A Quantity of 0 stands for what is reserved.
func (s *Stock) Cancel(ctx context.Context, o Order) error {
	_, err := s.act(ctx, &o, cancel)
	return err
}

// act has something done to an order with an ID.
func (s *Stock) act(ctx context.Context, o *Order, v verb) (Receipt, error) {
	checked := *o
	if o.Quantity == 0 {
		checked.Quantity = 1
	}
	if err := s.check(ctx, &checked, v); err != nil {
		return Receipt{}, s.about(err, o)
	}
	h := s.home(o)
	out := s.do(ctx, h, order{verb: v, field: o.field(), quantity: o.Quantity})
	return s.receipt(o, h, &out)
}

// State is what an order is.
type State int

// The states.
const (
	Unknown   State = iota // not on record: never taken, or forgotten
	Taken                  // by Deduct, or reserved and confirmed
	Reserved               // until its deadline
	Returned               // taken or reserved, and given back; or given back before it could be
	Expired                // reserved, and not confirmed in time
	Undecided              // a part of an order over several stocks that is under way
)

// String returns the state in lower case.
func (s State) String() string {
	if s < Unknown || s > Undecided {
		return "state " + strconv.Itoa(int(s))
	}
	return [...]string{"unknown", "taken", "reserved", "returned", "expired", "undecided"}[s]
}

// Record is what is known of an order.
type Record struct {
	State    State
	Quantity int64
	Deadline time.Time // of Reserved
}

// Lookup tells what an order is, and changes nothing. An order that is not on record is no
// error, but [Unknown].
func (s *Stock) Lookup(ctx context.Context, user, id string) (Record, error) {
	o := Order{ID: id, User: user, Quantity: 1}
	if err := s.check(ctx, &o, query); err != nil {
		return Record{}, s.about(err, &o)
	}
	h := s.home(&o)
	out := s.do(ctx, h, order{verb: query, field: o.field()})
	states := map[status]State{
		statusUnknown: Unknown, statusAgain: Taken, statusReserved: Reserved, statusReturned: Returned, statusExpired: Expired,
		statusBusy: Undecided, statusMismatch: Taken, // as a part of an order over several stocks
	}
	state, ok := states[out.status]
	if !ok {
		_, err := s.receipt(&o, h, &out)
		return Record{}, err
	}
	r := Record{State: state}
	if d := out.detail; d != nil {
		r.Quantity = d.quantity
		if state == Reserved {
			r.Deadline = d.asked.Add(d.left)
		}
	}
	return r, nil
}

// refusals are the errors that the script's answers stand for.
var refusals = map[status]error{
	statusShort:    ErrSoldOut,
	statusMismatch: ErrOrderMismatch,
	statusReturned: ErrReturned,
	statusExpired:  ErrExpired,
	statusReserved: ErrReserved,
	statusOver:     ErrUserLimit,
	statusUnknown:  ErrUnknownOrder,
	statusTaken:    ErrConfirmed,
}

// receipt makes the caller's answer of an outcome.
func (s *Stock) receipt(o *Order, h *home, out *outcome) (Receipt, error) {
	switch out.status {
	case statusDone, statusAgain:
		r := Receipt{Segment: h.index, Repeated: out.status == statusAgain}
		if out.detail != nil {
			r.Quantity = out.detail.quantity
		} else if o != nil {
			r.Quantity = o.Quantity
		}
		return r, nil
	case statusFailed:
		if out.detail.err == s.sold.err { //nolint:errorlint // it is that very value, which names the stock
			return Receipt{}, out.detail.err
		}
		return Receipt{}, s.about(out.detail.err, o)
	}
	if err := refusals[out.status]; err != nil {
		if out.detail != nil && out.detail.maybe {
			err = fmt.Errorf("%w, and now: %w", ErrUncertain, err)
		}
		return Receipt{}, s.about(err, o)
	}
	return Receipt{}, s.about(fmt.Errorf("%w: orders: %w: %d", coordinator.ErrUnavailable, errUnreadable, out.status), o)
}
