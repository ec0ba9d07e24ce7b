package segment

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"time"

	"github.com/go-leasehold/leasehold/coordinator"
)

// lockedFor is how long a crashed process keeps the units of a WithSegment; a living one
// extends it.
const lockedFor = 30 * time.Second

// Held is a locked segment, with units of it taken: what the function of
// [Stock.WithSegment] is given.
type Held struct {
	// Index is the segment.
	Index int
	// Quantity is how many units are taken.
	Quantity int64
	// Token is the fencing token of the segment's lock: it goes into whatever is written
	// while it is held, so that a late write can be refused.
	Token uint64
}

// WithSegment locks the segment of a routing key, takes quantity units there, calls fn, and then
// makes them sold; where fn fails or panics they go back. While fn runs, nobody else is in a WithSegment of this
// segment. It is for work that has to be done under a lock, a row of the segment in a
// database say; [Stock.Deduct] needs none.
//
// fn commits its own work before it returns: the lock is free only after that. Its context ends when the lock is no
// longer safe, and when ctx ends; seg.Token goes into the update, for a process can be paused between
// looking at its context and writing. Where the process crashes, the units go back by themselves within 30 s.
// An error after fn returned nil says that they went back under fn, for the process was paused or cut off for so
// long ([ErrExpired]), or may go back, for the server can't be told that they are sold: what fn has committed is to be undone, or is
// sold twice. Where that matters, [Stock.Reserve] and [Stock.Confirm] with an ID can be sent again until they are through.
//
// The routing key is not a user: [Config.PerUser] does not count it, and nothing makes
// two calls of the same one exactly-once.
func (s *Stock) WithSegment(ctx context.Context, routingKey string, quantity int64, fn func(ctx context.Context, seg Held) error) (err error) {
	switch {
	case ctx == nil:
		return s.about(invalid("the context is nil"), nil)
	case routingKey == "":
		return s.about(invalid("the routing key is empty"), nil)
	case fn == nil:
		return s.about(invalid("WithSegment without a function"), nil)
	}
	if err := validQuantity(quantity); err != nil {
		return s.about(err, nil)
	}
	h := s.homes[Index(routingKey, len(s.homes))]
	return s.c.Mutex(s.lockKey(h.index), coordinator.ClassAs(s.name)).Do(ctx, func(ctx context.Context) error {
		return h.locked(ctx, quantity, fn)
	})
}

// lockKey is the key of a segment's lock.
func (s *Stock) lockKey(i int) string { return "stock:" + tagged(s.name, i) }

// locked is WithSegment under the lock.
func (h *home) locked(ctx context.Context, quantity int64, fn func(ctx context.Context, seg Held) error) (err error) {
	s := h.stock
	hold := coordinator.HoldFrom(ctx)
	// No user can have this one: it has no length before it.
	what := order{verb: reserve, field: "W" + rand.Text(), quantity: quantity, ttl: lockedFor}
	out := s.do(ctx, h, what)
	if _, err := s.receipt(nil, h, &out); err != nil {
		return err
	}
	stop := h.extend(what)
	done := false
	defer func() {
		stop()
		if done {
			return
		}
		// What failed, or panics: the lock's context may be over, and the units go back all the same.
		what.verb = cancel
		out := h.outlasting(ctx, what)
		if _, failure := s.receipt(nil, h, &out); failure != nil && !errors.Is(failure, ErrUnknownOrder) {
			err = errors.Join(err, fmt.Errorf("give back %d units: %w", quantity, failure))
		}
	}()
	if err := fn(ctx, Held{Index: h.index, Quantity: quantity, Token: hold.Token()}); err != nil {
		return err
	}
	done = true
	what.verb = confirm
	out = h.outlasting(ctx, what)
	_, err = s.receipt(nil, h, &out)
	return err
}

// outlasting has an order done that must be, whether or not ctx is over; no longer than it
// can be of use: after that its units have gone back by themselves.
func (h *home) outlasting(ctx context.Context, o order) outcome {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), lockedFor)
	defer cancel()
	return h.stock.do(ctx, h, o)
}

// extend puts the deadline of a reservation off until it is stopped.
func (h *home) extend(what order) (stop func()) {
	what.verb = extend
	ended := make(chan struct{})
	gone := make(chan struct{})
	go func() { // ends with stop, which waits for it
		defer close(gone)
		ticker := time.NewTicker(lockedFor / 3)
		defer ticker.Stop()
		for {
			select {
			case <-ended:
				return
			case <-ticker.C:
				ctx, cancel := context.WithTimeout(context.Background(), lockedFor/3)
				h.lane.submit(ctx, what) // what became of it is told by confirm
				cancel()
			}
		}
	}()
	return func() {
		close(ended)
		<-gone
	}
}
