// Command seckill is a flash sale, as a fleet of HTTP servers has it: the stock is in Redis, in segments, and sold exactly
// once to each buyer however often they ask, whichever servers die; what is paid is in a database.
//
//	POST /buy      {"user": "ann", "order": "17", "quantity": 2}   reserves, or sells at once with "now": true
//	POST /pay      {"user": "ann", "order": "17"}                  in time, or 410
//	POST /cancel   {"user": "ann", "order": "17"}
//	GET /stock     GET /healthz
//
// It starts several such servers and sends them a crowd of buyers, some of whom hang up and ask another server, click twice,
// never pay, pay too late or cancel. In the middle it kills one of the servers with kill -9. In the end it
// compares three books to the unit: the stock's, the database's, and what the buyers were told.
//
//	go run ./examples/seckill                         # with a Redis of its own
//	go run ./examples/seckill -redis 127.0.0.1:6379   # on yours
//	go run ./examples/seckill -processes 5 -stock 20000 -segments 32 -limit 2 -skew 1.2
//
// What to copy is shop/sale.go: the order in which the stock and the database are written, and why that is right. With it
// goes shop/http.go, its face: which error is which status, and the limits that a service needs when everybody comes at
// once. The rest is servers, buyers and the proof.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"time"

	"github.com/go-leasehold/leasehold/examples/internal/devredis"
	"github.com/go-leasehold/leasehold/examples/internal/meter"
	"github.com/go-leasehold/leasehold/examples/internal/program"
	"github.com/go-leasehold/leasehold/examples/internal/report"
)

const (
	// usualStock is the stock where none is named, and slowStock on miniredis.
	usualStock, slowStock = 3_000, 1_000
)

// settings are what the flags say.
type settings struct {
	processes int
	clients   int
	stock     int64
	segments  int
	duration  time.Duration
	hold      time.Duration
	limit     int64
	users     int
	skew      float64
	waiting   int
	kill      bool
	redis     string
}

func main() {
	if text, ok := os.LookupEnv(workerVariable); ok {
		os.Exit(worker(text, os.Stdin, os.Stdout))
	}
	os.Exit(program.Main("seckill", parse, run))
}

// parse reads the flags and refuses what makes no sense.
func parse(args []string, out io.Writer) (settings, error) {
	var s settings
	flags := flag.NewFlagSet("seckill", flag.ContinueOnError)
	flags.SetOutput(out)
	flags.IntVar(&s.processes, "processes", 3, "how many servers there are, each a process")
	flags.IntVar(&s.clients, "clients", 64, "how many buyers try to buy at the same time")
	flags.Int64Var(&s.stock, "stock", 0, "how many units are for sale (default 3000, and 1000 on miniredis)")
	flags.IntVar(&s.segments, "segments", 8, "how many segments the stock is in")
	flags.DurationVar(&s.duration, "duration", 6*time.Second, "how long the sale lasts")
	flags.DurationVar(&s.hold, "hold", time.Second, "how long a reservation waits for its payment")
	flags.Int64Var(&s.limit, "limit", 4, "how many units a user may have; 0 is no limit")
	flags.IntVar(&s.users, "users", 10_000, "how many users there are")
	flags.Float64Var(&s.skew, "skew", 0, "over 1: some users come much more often than others, with this exponent of Zipf's; 0: all alike")
	flags.IntVar(&s.waiting, "waiting", 1000, "how many calls may wait at one segment in one server; one more is put off with 429")
	flags.BoolVar(&s.kill, "kill", true, "kill one server in the middle, as kill -9 does, and start it again")
	flags.StringVar(&s.redis, "redis", "", "host:port of a Redis to use instead of an embedded one")
	err := program.Parse(flags, args, func() error {
		switch {
		case s.processes < 1 || s.processes > 64:
			return errors.New("-processes must be from 1 to 64")
		case s.clients < 1 || s.clients > 1000:
			return errors.New("-clients must be from 1 to 1000")
		case s.stock < 0 || s.stock > 10_000_000:
			return errors.New("-stock must be from 1 to 10000000, or 0 for the default")
		case s.segments < 1 || s.segments > 1024:
			return errors.New("-segments must be from 1 to 1024")
		case s.duration < 100*time.Millisecond:
			return errors.New("-duration must be at least 100ms")
		case s.hold < 100*time.Millisecond || s.hold > time.Minute:
			return errors.New("-hold must be from 100ms to 1m")
		case s.limit < 0:
			return errors.New("-limit must not be negative")
		case s.users < 1 || s.users > 10_000_000:
			return errors.New("-users must be from 1 to 10000000")
		case s.waiting < 1 || s.waiting > 1_000_000:
			return errors.New("-waiting must be from 1 to 1000000")
		case s.skew != 0 && !(s.skew > 1 && s.skew <= 10): // so that NaN is refused as well
			return errors.New("-skew must be 0, or over 1 and at most 10")
		}
		return nil
	})
	return s, err
}

// run has the sale, prints what came of it, and proves that it was right. It fails where it was not.
func run(ctx context.Context, s settings, out, progress io.Writer) (err error) {
	logf := func(format string, args ...any) { fmt.Fprintf(progress, format+"\n", args...) }
	server, err := devredis.Use(ctx, s.redis, logf)
	if err != nil {
		return err
	}
	defer func() { _ = server.Close() }() // what may be left of it is a temporary directory
	if s.stock == 0 {
		s.stock = usualStock
		if server.Kind == devredis.Miniredis {
			s.stock = slowStock
		}
	}
	redis, err := meter.Connect(server.Addr())
	if err != nil {
		return err
	}
	defer redis.Close()
	logf("%d servers, %d buyers at a time of %s users, %s units in %d segments: at most %s for a user, reserved for %v",
		s.processes, s.clients, report.Thousands(int64(s.users)), report.Thousands(s.stock), s.segments, limitText(s.limit), s.hold)
	sale, err := openSale(ctx, s, server.Addr())
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, sale.close()) }()
	team, err := startTeam(ctx, s.processes, sale.setup)
	if err != nil && ctx.Err() != nil && errors.Is(err, context.Cause(ctx)) {
		logf("interrupted before anything was done")
		return nil
	}
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, team.Close()) }()

	r, err := play(ctx, sale, team, redis, s, progress)
	if err != nil {
		return err
	}
	printTable(out, &r)
	checks := prove(&r.evidence)
	checks.Print(out)
	if ctx.Err() != nil {
		logf("interrupted: that is what was done until then")
	}
	return checks.Verdict()
}
