package main

import (
	"context"
	"fmt"
	"math"
	"math/rand/v2"
	"net/http"
	"sync"
	"time"

	"github.com/go-leasehold/leasehold/examples/internal/report"
	"github.com/go-leasehold/leasehold/examples/seckill/shop"
	"github.com/go-leasehold/leasehold/segment"
)

// How many of a hundred do what.
const (
	percentNow    = 20 // of those who buy: at once, without a reservation
	percentHangUp = 8  // of requests: don't wait for the answer, and ask another server
	percentDouble = 8  // of those who buy, or pay: send it twice at once, to two servers
	percentNever  = 8  // of those who have reserved: don't pay
	percentCancel = 8  // likewise: cancel
	percentLate   = 6  // likewise: pay too late
	percentAway   = 4  // of those who pay: don't wait for the answer, and never ask again
)

const (
	// hangUpWithin is how soon those who hang up do.
	hangUpWithin = 5 * time.Millisecond
	// thinkFor is how long a buyer takes at most to pay, or to think better of it.
	thinkFor = 150 * time.Millisecond
	// lateBy is by how much late payments are late.
	lateBy = 100 * time.Millisecond
)

// buyer is one who buys one order after the other, each as another user.
type buyer struct {
	crowd  *crowd
	dice   *rand.Rand
	zipf   *rand.Zipf // nil: all users alike
	number int
	orders int

	accepted, soldOut report.Samples
}

func newBuyer(c *crowd, number int) *buyer {
	b := &buyer{crowd: c, number: number, dice: rand.New(rand.NewPCG(rand.Uint64(), rand.Uint64()))}
	if c.s.skew > 0 {
		b.zipf = rand.NewZipf(b.dice, c.s.skew, 1, uint64(c.s.users-1))
	}
	return b
}

// end adds what the buyer has measured to what others have.
func (b *buyer) end() {
	b.crowd.mu.Lock()
	defer b.crowd.mu.Unlock()
	b.crowd.accepted.Merge(b.accepted)
	b.crowd.soldOut.Merge(b.soldOut)
}

func (b *buyer) chance(percent int) bool { return b.dice.IntN(100) < percent }

// soon is when to hang up, for those who do; otherwise never.
func (b *buyer) soon() time.Duration {
	if !b.chance(percentHangUp) {
		return 0
	}
	return time.Duration(1 + b.dice.Int64N(int64(hangUpWithin)))
}

// order makes a new order.
func (b *buyer) order() *shop.Order {
	user := b.dice.IntN(b.crowd.s.users)
	if b.zipf != nil {
		user = int(b.zipf.Uint64())
	}
	quantity := int64(1)
	switch dice := b.dice.IntN(100); {
	case dice < 10:
		quantity = 3
	case dice < 30:
		quantity = 2
	}
	if limit := b.crowd.s.limit; limit > 0 {
		quantity = min(quantity, limit)
	}
	b.orders++
	return &shop.Order{
		User: fmt.Sprintf("user-%d", user), ID: fmt.Sprintf("order-%d-%d", b.number, b.orders), Quantity: quantity, Now: b.chance(percentNow),
	}
}

func line(o *shop.Order) segment.Order {
	return segment.Order{User: o.User, ID: o.ID, Quantity: o.Quantity}
}

// buy tries to buy.
func (b *buyer) buy(ctx context.Context) error {
	o, c := b.order(), b.crowd
	replies := c.click(ctx, b.anywhere(), "/buy", o, b.clicks()...)
	c.tally.orders.Add(1)
	var best *reply
	open := false
	for i := range replies {
		r := &replies[i]
		open = open || r.repeated
		switch {
		case r.err != nil:
			return r.err
		case r.status == http.StatusOK:
			b.accepted.Add(r.took)
			c.ledger.taken(line(o), r.answer.Repeated, r.answer.State == "paid")
			best = r
		case r.answer.Code == "sold_out":
			b.soldOut.Add(r.took)
			fallthrough
		default:
			if best == nil {
				best = r
			}
		}
	}
	if open && o.Now && best.status != http.StatusOK {
		b.makeSure(ctx, o)
	}
	return b.told(ctx, o, best)
}

// makeSure is for who was told no and has not heard of an earlier copy of the order, which may still be sold. When the sale
// is over it is cancelled, unless it has been sold. A reservation needs none of that: it lapses.
func (b *buyer) makeSure(ctx context.Context, o *shop.Order) {
	c, at := b.crowd, b.anywhere()
	c.errands.Go(func() {
		c.pause(ctx, math.MaxInt64)
		switch r := c.insist(ctx, at, "/cancel", o, 0); {
		case r.err != nil:
			c.fail(r.err)
		case r.answer.Code == "paid":
			c.ledger.taken(line(o), true, true)
		case r.status != http.StatusOK:
			c.fail(r.unexpected("/cancel", o))
		}
	})
}

// told counts what a buyer was told, and goes on from there.
func (b *buyer) told(ctx context.Context, o *shop.Order, r *reply) error {
	tally := &b.crowd.tally
	switch {
	case r.status == http.StatusOK:
		tally.accepted.Add(1)
		b.crowd.took(o.Quantity)
		if r.answer.State == "reserved" {
			b.after(ctx, o, r.answer.Deadline)
		}
	case r.answer.Code == "sold_out":
		tally.soldOut.Add(1)
	case r.answer.Code == "user_limit":
		tally.limited.Add(1)
	case r.answer.Code == "expired": // the server that took it died, and nobody answered for so long
		tally.expired.Add(1)
	default:
		return r.unexpected("/buy", o)
	}
	return nil
}

// reply is what became of a click.
type reply struct {
	status   int
	answer   shop.Answer
	took     time.Duration // from the sending of this very copy
	repeated bool          // there were copies before it, of which one may be under way still
	err      error         // there was no answer, and won't be one
}

// unexpected is the error of an answer that nobody should get here.
func (r *reply) unexpected(path string, o *shop.Order) error {
	return fmt.Errorf("%s of %+v: unexpected answer: %d %s: %s (request %s)",
		path, *o, r.status, r.answer.Code, r.answer.Message, r.answer.Request)
}

// click sends an order once, or twice at once to two servers; each click hangs up when it is told to, but for 0.
func (c *crowd) click(ctx context.Context, at int, path string, o *shop.Order, hangUps ...time.Duration) []reply {
	replies := make([]reply, len(hangUps))
	var wg sync.WaitGroup
	for i, hangUp := range hangUps {
		wg.Go(func() { replies[i] = c.insist(ctx, at+i, path, o, hangUp) })
	}
	wg.Wait()
	return replies
}

// clicks casts the dice for click.
func (b *buyer) clicks() []time.Duration {
	hangUps := []time.Duration{b.soon()}
	if b.chance(percentDouble) {
		hangUps = append(hangUps, b.soon())
	}
	return hangUps
}

// after does, beside the next order, what there is to do with a reservation. The dice are not for several goroutines, so
// they are cast before.
func (b *buyer) after(ctx context.Context, o *shop.Order, deadline time.Time) {
	e := &errand{crowd: b.crowd, order: o, at: b.anywhere(), hangUps: b.clicks()}
	think, do, late := time.Duration(b.dice.Int64N(int64(thinkFor))), e.pay, false
	switch dice := b.dice.IntN(100); {
	case dice < percentNever:
		return
	case dice < percentNever+percentCancel:
		do = e.cancel
	case dice < percentNever+percentCancel+percentLate:
		think, late = time.Until(deadline)+lateBy+think, true
	case b.chance(percentAway):
		do = e.payAndGoAway
	}
	b.crowd.errands.Go(func() {
		if !b.crowd.pause(ctx, think) && late {
			return // there is no time for it any more
		}
		if err := do(ctx); err != nil {
			b.crowd.fail(err)
		}
	})
}

// anywhere is the number of any server.
func (b *buyer) anywhere() int { return b.dice.IntN(1 << 20) }
