package main

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/redis/rueidis"

	"github.com/go-leasehold/leasehold/coordinator"
	"github.com/go-leasehold/leasehold/examples/internal/fleet"
	"github.com/go-leasehold/leasehold/examples/internal/meter"
	"github.com/go-leasehold/leasehold/examples/internal/report"
	"github.com/go-leasehold/leasehold/examples/seckill/shop"
	"github.com/go-leasehold/leasehold/segment"
)

const (
	// answerLimit bounds what is still under way when the sale ends, and the wait for reservations to lapse.
	answerLimit = time.Minute
	// downTime is how long a killed server stays away.
	downTime = 300 * time.Millisecond
	// settleEvery is how often it is looked whether all is settled.
	settleEvery = 50 * time.Millisecond
)

// sale is what the servers share, as who holds the sale sees it: the stock, and the database.
type sale struct {
	setup  setup
	db     *database
	orders *connection
	locks  *coordinator.Coordinator
	stock  *segment.Stock
}

// openSale starts the database and loads the stock.
func openSale(ctx context.Context, s settings, redis string) (_ *sale, err error) {
	sl := &sale{}
	if sl.db, err = startDatabase(); err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, sl.close())
		}
	}()
	sl.setup = setup{Redis: redis, Database: sl.db.url, Sale: shop.Config{
		Name: "seckill:" + rand.Text()[:8], Units: s.stock, Segments: s.segments, PerUser: s.limit, Hold: s.hold, Waiting: s.waiting,
	}}
	if sl.locks, err = newCoordinator(redis, quiet()); err != nil {
		return nil, err
	}
	sl.orders = newConnection(sl.db.url)
	opened, err := shop.Open(ctx, sl.locks, sl.orders, sl.setup.Sale)
	if err != nil {
		return nil, err
	}
	sl.stock = opened.Stock()
	return sl, nil
}

// close leaves nothing of the sale on the server.
func (sl *sale) close() (err error) {
	ctx, cancel := context.WithTimeout(context.Background(), fleet.CloseLimit)
	defer cancel()
	if sl.stock != nil {
		err = sl.stock.Drop(ctx)
	}
	if sl.locks != nil {
		err = errors.Join(err, sl.locks.Close(ctx))
	}
	if sl.orders != nil {
		sl.orders.close()
	}
	sl.db.close()
	return err
}

// result is what the sale came to.
type result struct {
	evidence
	crowd    *crowd
	duration time.Duration
	servers  segment.Snapshot // of those that lived to tell
	commands float64          // Redis commands an order; negative where the server doesn't tell
	scripts  float64          // scripts among them, each a round trip; likewise
}

// play has the sale, and collects what there is to know of it.
func play(ctx context.Context, sl *sale, t *team, redis rueidis.Client, s settings, progress io.Writer) (r result, err error) {
	// An interrupted sale is ended and counted like any other, so what it takes has a limit of its own.
	limit, cancel := context.WithTimeout(context.WithoutCancel(ctx), s.duration+s.hold+answerLimit)
	defer cancel()
	fmt.Fprintf(progress, "the sale begins, for %v\n", s.duration)
	r.crowd = newCrowd(s, t.urls)
	before := meter.Read(redis)
	start := time.Now()
	if err := r.hold(ctx, limit, t, s, progress); err != nil {
		return r, err
	}
	r.duration = time.Since(start)
	r.commands, r.scripts = meter.Per(r.crowd.tally.orders.Load(), before, meter.Read(redis))
	if r.servers, err = t.done(limit); err != nil {
		return r, err
	}
	fmt.Fprintln(progress, "the sale is over; waiting for reservations to lapse, and for what was left half done")
	return r, r.settle(limit, sl, s)
}

// hold lets the buyers buy until the sale is over, and kills a server in the middle. ctx ends the sale early, limit what is
// still under way then.
func (r *result) hold(ctx, limit context.Context, t *team, s settings, progress io.Writer) (err error) {
	c := r.crowd
	bought, crashed := make(chan struct{}), make(chan error, 1)
	go func() {
		defer close(bought)
		err = c.run(limit)
	}()
	go func() { crashed <- r.crash(ctx, limit, t, s, progress) }()
	report.Progress{
		Out: progress, Round: "the sale", Length: s.duration, Unit: "orders",
		Note: func() string { return report.Thousands(c.ledger.sold()) + " units paid" },
	}.Watch(ctx, bought, c.tally.orders.Load)
	close(c.stop)
	failed := <-crashed // before the buyers have ended: they may need the server
	<-bought
	return errors.Join(err, failed)
}

// crash kills a server when a third of the units is taken, or half of the time is over.
func (r *result) crash(ctx, limit context.Context, t *team, s settings, progress io.Writer) error {
	if !s.kill {
		return nil
	}
	timer := time.NewTimer(s.duration / 2)
	defer timer.Stop()
	select {
	case <-r.crowd.third:
	case <-timer.C:
	case <-r.crowd.stop:
		return nil
	}
	return t.crash(ctx, limit, downTime, func(format string, args ...any) { fmt.Fprintf(progress, format+"\n", args...) })
}

// settle waits until all reservations are over and nothing is half done, and takes the evidence.
func (r *result) settle(ctx context.Context, sl *sale, s settings) error {
	deadline := time.Now().Add(s.hold + answerLimit/2)
	for {
		audit, err := sl.stock.Audit(ctx)
		r.evidence = evidence{
			loaded: s.stock, limit: s.limit, audit: audit, audited: err,
			unfinished: len(sl.db.unfinished(0)), told: r.crowd.ledger.told, odd: r.crowd.tally.odd.Load(),
		}
		if err != nil && !errors.Is(err, segment.ErrAudit) {
			return err
		}
		settled := audit.Still && audit.Reserved == 0 && r.unfinished == 0
		if err != nil || settled || time.Now().After(deadline) {
			r.book = sl.db.book() // what is unfinished here is told, and what is finished comes after that
			return nil
		}
		time.Sleep(settleEvery)
	}
}
