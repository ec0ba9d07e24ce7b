package segment

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/go-leasehold/leasehold/telemetry"
)

// Line is what an order over several stocks wants of one.
type Line struct {
	Stock    *Stock
	Quantity int64
}

// AllReceipt tells of an order over several stocks that is taken.
type AllReceipt struct {
	// Repeated: it had been taken before, and nothing more was taken now.
	Repeated bool
}

// DeductAll takes the units of all lines or of none, exactly once for a user and ID, as
// [Stock.Deduct] does for one stock: for as long as the shortest [Config.Remember] of the
// stocks, sent again it gets the first answer. So send it again when the error is [ErrUncertain]. The ID is
// needed, and at each repetition the same lines, in any order: other quantities or other stocks are
// [ErrOrderMismatch], as is what is on record of Deduct or Reserve. Lines of the same stock
// are summed. There are at most [MaxLines], and the stocks have one coordinator.
//
// Its units are held at the home of each stock, then it is decided at one place, the home in the stock
// whose name is first. [ErrSoldOut] and [ErrUserLimit] say that one stock could not serve it (the error
// names it); nothing is taken then, and what was held is back. Where a process crashes, or the server
// is cut off, in the middle, whoever looks at the stocks a few seconds later (an order that is short, [Stock.Remaining],
// [Stock.Audit]) ends it: all back, or, where it was decided, all taken. The clocks of the servers that stocks
// are on must not be half a minute apart.
//
// It costs a round trip for each stock and three more. ctx bounds the wait, and decides nothing else.
func DeductAll(ctx context.Context, id, user string, lines ...Line) (AllReceipt, error) {
	o, err := newSpanning(ctx, id, user, lines)
	if err != nil {
		return AllReceipt{}, err
	}
	if len(o.parts) == 1 {
		r, err := o.parts[0].home.stock.Deduct(ctx, o.parts[0].order)
		return AllReceipt{r.Repeated}, err
	}
	for i := range o.parts {
		if s := o.parts[i].home.stock; s.sold.answers(&o.parts[i].order, telemetry.OperationDeductAll) {
			o.tellKnown(i)
			return AllReceipt{}, s.sold.err
		}
	}
	r, err := o.run(ctx, o.deduct)
	o.tell(telemetry.OperationDeductAll, r, err)
	return r, err
}

// ReturnAll gives back what [DeductAll] of the same user, ID and lines took, all of it. Nil: it holds nothing, and what it held
// is back, now or before; or it is decided that it goes back, and what a server that can't be reached has of it
// is back a few seconds after that. [ErrUnknownOrder]: it is not on record; nothing came back, and it is on
// record as returned from now on, so that a DeductAll that is still on its way does not take. Other lines are
// [ErrOrderMismatch]. It may be sent again at will.
func ReturnAll(ctx context.Context, id, user string, lines ...Line) error {
	o, err := newSpanning(ctx, id, user, lines)
	if err != nil {
		return err
	}
	if len(o.parts) == 1 {
		return o.parts[0].home.stock.Return(ctx, o.parts[0].order)
	}
	r, err := o.run(ctx, o.giveBack)
	o.tell(telemetry.OperationReturnAll, r, err)
	return err
}

// spanning is an order over several stocks, and a call of DeductAll or ReturnAll with it.
type spanning struct {
	parts []part // by the name of the stock; the order is decided at the home of the first
	field string // what it is called on record
	lines string // stands for all that it wants
	callState
}

// part is what a spanning order wants of one stock.
type part struct {
	home  *home
	order Order
	set   string // the settings of the stock, when the attempt began
}

// newSpanning refuses what no script should see, and sums lines of the same stock.
func newSpanning(ctx context.Context, id, user string, lines []Line) (*spanning, error) {
	parts, err := summed(ctx, id, user, lines)
	if err != nil {
		return nil, fmt.Errorf("%w: order %q of user %q", err, id, user)
	}
	o := &spanning{parts: parts, field: parts[0].order.field(), lines: linesOf(parts)}
	o.ended = make(chan struct{})
	return o, nil
}

func summed(ctx context.Context, id, user string, lines []Line) ([]part, error) {
	switch {
	case ctx == nil:
		return nil, invalid("the context is nil")
	case len(lines) == 0:
		return nil, invalid("the order has no lines")
	case len(lines) > MaxLines:
		return nil, invalid("an order of %d lines is over the limit of %d", len(lines), MaxLines)
	}
	var parts []part
	for i, l := range lines {
		if l.Stock == nil {
			return nil, invalid("the stock of line %d is nil", i)
		}
		first := lines[0].Stock
		if l.Stock.c != first.c {
			return nil, invalid("the stocks %q and %q have different coordinators", first.name, l.Stock.name)
		}
		o := Order{ID: id, User: user, Quantity: l.Quantity}
		if err := o.validate(&l.Stock.conf, true); err != nil {
			return nil, fmt.Errorf("%w: line %d, stock %q", err, i, l.Stock.name)
		}
		at := slices.IndexFunc(parts, func(p part) bool { return p.home.stock.name == l.Stock.name })
		if at < 0 {
			parts = append(parts, part{home: l.Stock.home(&o), order: o})
			continue
		}
		same := &parts[at]
		if one, other := same.home.stock.conf.terms(), l.Stock.conf.terms(); one != other {
			return nil, invalid("stock %q is in the order with settings %q and %q (segments:remember in ms:limit)", l.Stock.name, one, other)
		}
		if same.order.Quantity > MaxUnits-l.Quantity {
			return nil, invalid("%d units of stock %q on top of %d are over the limit of %d",
				l.Quantity, l.Stock.name, same.order.Quantity, int64(MaxUnits))
		}
		same.order.Quantity += l.Quantity
	}
	slices.SortFunc(parts, func(a, b part) int { return cmp.Compare(a.home.stock.name, b.home.stock.name) })
	return parts, nil
}

// linesOf stands for stocks and quantities: 64 bits, so that no two orders of one ID and user have the same by chance.
func linesOf(parts []part) string {
	h := sha256.New()
	for i := range parts {
		fmt.Fprintf(h, "%d:%s%d ", len(parts[i].home.stock.name), parts[i].home.stock.name, parts[i].order.Quantity)
	}
	return hex.EncodeToString(h.Sum(nil)[:8])
}

// about names the order in an error, and the stock that it comes from, if one does.
func (o *spanning) about(err error, at *part) error {
	first := &o.parts[0].order
	switch {
	case err == nil:
		return nil
	case at != nil:
		return at.home.stock.about(err, &at.order)
	}
	return fmt.Errorf("%w: order %q of user %q", err, first.ID, first.User)
}

// first is where the order is decided, as other homes write it down.
func (o *spanning) first() string { return o.parts[0].place() }

// others are all homes but the first, as the first writes them down.
func (o *spanning) others() string {
	all := make([]string, 0, len(o.parts))
	for i := range o.parts[1:] {
		all = append(all, o.parts[i+1].place())
	}
	return strings.Join(all, " ")
}

func (p *part) place() string { return placeOf(p.home, p.set) }

// placeOf is how a home is written down, so that who knows nothing of its stock can go there:
// <length of name>:<name><segment>:<settings>, which any number of can stand in a row with blanks between them.
func placeOf(h *home, set string) string {
	name := h.stock.name
	return strconv.Itoa(len(name)) + ":" + name + strconv.Itoa(h.index) + ":" + set
}

var errPlace = errors.New("segment: what is on record of an order is unreadable")

// places goes to homes that are written down. They can be asked, but look at nothing themselves.
func (s *Stock) places(text string) (homes []*home, sets []string, err error) {
	for text != "" {
		length, rest, _ := strings.Cut(text, ":")
		n, err := strconv.Atoi(length)
		if err != nil || n < 0 || n > len(rest) {
			return nil, nil, errPlace
		}
		name, tail, _ := rest[:n], "", ""
		tail, text, _ = strings.Cut(rest[n:], " ")
		number, set, _ := strings.Cut(tail, ":")
		index, err := strconv.Atoi(number)
		conf, ok := confOf(set)
		if err != nil || !ok || index < 0 || index >= conf.Segments {
			return nil, nil, errPlace
		}
		stranger := &Stock{c: s.c, name: name, conf: conf, settings: s.settings, server: s.server, told: s.c.Telemetry().Class(name).Stocks()}
		homes, sets = append(homes, newHome(stranger, index)), append(sets, set)
	}
	return homes, sets, nil
}
