// Package shop is the service of a flash sale: sale.go is what to copy, http.go is its face, with the limits that a
// service needs when everybody comes at once.
package shop

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/go-leasehold/leasehold/coordinator"
	"github.com/go-leasehold/leasehold/segment"
)

const (
	// unfinishedFor is after which time Sweep takes a payment for left behind, rather than under way in some process.
	unfinishedFor = time.Second
	// sweepEvery is how often Run sweeps.
	sweepEvery = 500 * time.Millisecond
	// leftFor is how old the number of units left may be: it costs a command for each segment, and is the page that
	// everybody reloads.
	leftFor = 200 * time.Millisecond
)

// ErrDatabase is what the errors of the database match, here.
var ErrDatabase = errors.New("shop: the database did not answer")

// Orders is the database's table of orders. Its rows are unique by user and ID:
//
//	CREATE TABLE orders (user_id text, id text, quantity bigint, paid boolean, begun timestamptz, PRIMARY KEY (user_id, id))
//
// All methods may be repeated.
type Orders interface {
	// Begin notes that an order is being paid, unless it is there.
	//
	//	INSERT INTO orders VALUES ($user, $id, $quantity, false, now()) ON CONFLICT DO NOTHING
	Begin(ctx context.Context, o segment.Order) error
	// Paid makes an order a paid one, and adds it where it is not there.
	//
	//	INSERT INTO orders VALUES ($user, $id, $quantity, true, now())
	//	ON CONFLICT (user_id, id) DO UPDATE SET paid = true, quantity = $quantity
	Paid(ctx context.Context, o segment.Order) error
	// Drop takes an order away that was begun and can't be paid any more.
	//
	//	DELETE FROM orders WHERE user_id = $user AND id = $id AND NOT paid
	Drop(ctx context.Context, o segment.Order) error
	// Unfinished returns orders that were begun so long ago or longer, and are not paid.
	//
	//	SELECT user_id, id, quantity FROM orders WHERE NOT paid AND begun <= now() - $age LIMIT 1000
	Unfinished(ctx context.Context, age time.Duration) ([]segment.Order, error)
}

// Config is how a sale is set up: all processes have the same.
type Config struct {
	Name     string        // each sale has one of its own
	Units    int64         // for sale
	Segments int           // see segment.Config
	PerUser  int64         // how many a user may have; 0 is no limit
	Hold     time.Duration // how long a reservation waits for its payment
	Waiting  int           // how many calls may wait at one segment in one process; 0 is as the coordinator
}

// Sale is one process's part of a flash sale.
//
// There are two books: the stock in Redis, which decides who gets something and is quick enough to say no to everybody
// else, and the table of orders, which only those reach who have got something. A process may die between any two
// lines here. So that the books agree all the same,
//
//   - every call may be sent again, by whomever to any process, and gets the first answer: the stock and the table both know
//     an order by its user and ID. Whoever was not told what became of an order sends it again, with the same ID, within
//     segment.Config.Remember;
//   - a yes is final, and so is "expired" or "cancelled". "Sold out" is of that moment: another copy of the same order, which
//     has been under way since before, may still get units that come back. So whoever gives an order up that they have
//     sent more than once sends Cancel, and that is final;
//   - nobody is told "yes" before both books have it;
//   - units that are reserved need no row: unless they are paid for in time, the stock has them back by itself;
//   - a payment has its row before the stock makes it final. What a dead process has left between the two is finished by
//     any other one, in Sweep: the stock knows whether the payment came in time.
//
// [Sale.Deduct] alone has no row first, for then each of a million buyers who get nothing would write one. See there.
type Sale struct {
	stock  *segment.Stock
	orders Orders
	hold   time.Duration

	mu     sync.Mutex // one at a time asks what is left
	left   int64
	failed error
	at     time.Time // when the answer came
}

// Open loads the sale's stock, unless another process has, and returns this process's part of the sale.
func Open(ctx context.Context, locks *coordinator.Coordinator, orders Orders, conf Config) (*Sale, error) {
	stock, err := segment.NewStock(locks, conf.Name, segment.Config{
		Segments: conf.Segments, PerUser: conf.PerUser, MaxWaiting: conf.Waiting,
	})
	if err != nil {
		return nil, err
	}
	if err := stock.Load(ctx, conf.Units); err != nil && !errors.Is(err, segment.ErrLoaded) {
		return nil, err
	}
	// Every process asks once before it serves: that tells whether it has the same settings as the others.
	if _, err := stock.Remaining(ctx); err != nil {
		return nil, err
	}
	return &Sale{stock: stock, orders: orders, hold: conf.Hold}, nil
}

// Stock is for what an operator does: Audit, Restock, and in the end Drop.
func (s *Sale) Stock() *segment.Stock { return s.stock }

// Reserve holds an order's units until its reservation's deadline, for Pay or Cancel. It asks the stock alone.
func (s *Sale) Reserve(ctx context.Context, o segment.Order) (*segment.Reservation, error) {
	r, err := s.stock.Reserve(ctx, o, s.hold)
	if err == nil && r.Confirmed {
		err = s.paid(ctx, o) // by a process that may have died before it wrote that down
	}
	return r, err
}

// Deduct sells an order at once. It is for what is not paid for, or paid for in some other way: a process that
// dies between the two lines leaves units that the stock has sold and no row tells of, until the client sends the order
// again, as it must. Where clients can't be trusted to, Reserve and then Pay in one request: one command more, and no
// gap.
func (s *Sale) Deduct(ctx context.Context, o segment.Order) (segment.Receipt, error) {
	receipt, err := s.stock.Deduct(ctx, o)
	if err == nil {
		err = s.paid(ctx, o)
	}
	return receipt, err
}

// Pay makes a reservation final; where it comes too late the error matches segment.ErrExpired, and the money has to go
// back.
func (s *Sale) Pay(ctx context.Context, user, id string) (segment.Receipt, error) {
	record, err := s.stock.Lookup(ctx, user, id)
	if err != nil {
		return segment.Receipt{}, err
	}
	o := segment.Order{User: user, ID: id, Quantity: record.Quantity}
	if record.State == segment.Reserved { // nothing else gets a row
		if err := s.orders.Begin(ctx, o); err != nil {
			return segment.Receipt{}, database(err)
		}
	}
	return s.finish(ctx, o)
}

// finish pays an order that has a row. Where it is not known what the stock did, the row stays, for who sends the order
// again, or for Sweep.
func (s *Sale) finish(ctx context.Context, o segment.Order) (segment.Receipt, error) {
	receipt, err := s.stock.Confirm(ctx, o)
	if err == nil {
		return receipt, s.paid(ctx, o)
	}
	if hopeless(err) {
		if dropped := s.orders.Drop(ctx, o); dropped != nil {
			return receipt, database(dropped)
		}
	}
	return receipt, err
}

// hopeless says that an order can't be paid, now or later. One that the stock doesn't know is not among them: it may have
// been paid so long ago that it is forgotten.
func hopeless(err error) bool {
	return errors.Is(err, segment.ErrExpired) || errors.Is(err, segment.ErrReturned)
}

// paid writes down that an order is paid.
func (s *Sale) paid(ctx context.Context, o segment.Order) error {
	if err := s.orders.Paid(ctx, o); err != nil {
		return database(err)
	}
	return nil
}

func database(err error) error { return fmt.Errorf("%w: %w", ErrDatabase, err) }

// Cancel gives back what an order has reserved, and makes sure that it takes nothing from now on: it is for who has not
// heard what became of a Reserve or a Deduct, and gives up, as well. An order that is paid stays so: the error matches
// segment.ErrConfirmed. Each call leaves a record, also of an order that never was, so it is not for strangers.
func (s *Sale) Cancel(ctx context.Context, user, id string) error {
	err := s.stock.Cancel(ctx, segment.Order{User: user, ID: id})
	if errors.Is(err, segment.ErrUnknownOrder) {
		return nil // it was none, and won't be one
	}
	return err
}

// Left is how many units are for sale, a moment ago. Reservations may bring some back.
func (s *Sale) Left(ctx context.Context) (int64, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.at.IsZero() || time.Since(s.at) >= leftFor {
		// For all who wait for the lock, so it doesn't end with the one who asks.
		s.left, s.failed = s.stock.Remaining(context.WithoutCancel(ctx))
		s.at = time.Now()
	}
	return s.left, s.failed
}

// Run sweeps until ctx ends. All processes do, and don't mind each other.
func (s *Sale) Run(ctx context.Context, failed func(error)) {
	ticker := time.NewTicker(sweepEvery)
	defer ticker.Stop()
	for {
		select {
		case <-ticker.C:
			if err := s.Sweep(ctx, unfinishedFor); err != nil && ctx.Err() == nil {
				failed(err)
			}
		case <-ctx.Done():
			return
		}
	}
}

// Sweep finishes payments that were begun so long ago or longer, and whose process has died, or got no answer.
func (s *Sale) Sweep(ctx context.Context, age time.Duration) error {
	unfinished, err := s.orders.Unfinished(ctx, age)
	if err != nil {
		return database(err)
	}
	var errs []error
	for _, o := range unfinished {
		if ctx.Err() != nil {
			break
		}
		if _, err := s.finish(ctx, o); err != nil && !hopeless(err) {
			errs = append(errs, err)
		}
	}
	return errors.Join(errs...)
}
