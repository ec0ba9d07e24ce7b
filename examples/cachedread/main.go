// Command cachedread is a cache in front of a slow database, as a fleet of HTTP servers has it, under a read/write
// lock for each product: reads mostly cost no Redis command at all, each expiry costs one rebuild in the whole
// fleet, and nobody is shown what had been overwritten before they asked.
//
//	GET /product/17   from the process's memory, from Redis, or rebuilt from the database
//	PUT /product/17   changes the database and the cache
//
// It starts several such servers, sends them a mix of reads and writes, and counts; first without the lock, as such
// a cache is often written, then with it, and shows both beside each other.
//
//	go run ./examples/cachedread                         # with a Redis of its own
//	go run ./examples/cachedread -redis 127.0.0.1:6379   # on yours
//	go run ./examples/cachedread -processes 5 -clients 100 -writes 5 -expiry 200ms
//
// What to copy is shop.go: the reads, the rebuild and the writes, and why they are right. naive.go is what not to
// copy. cache.go is the cache in Redis, with a fence, and database.go a database with one; the rest starts
// processes and counts.
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

// settings are what the flags say.
type settings struct {
	processes int
	clients   int
	duration  time.Duration
	keys      int
	writes    float64 // percent
	expiry    time.Duration
	delay     time.Duration
	redis     string
}

func main() {
	if addr, ok := os.LookupEnv(workerVariable); ok {
		os.Exit(worker(addr, os.Stdin, os.Stdout))
	}
	os.Exit(program.Main("cachedread", parse, run))
}

// parse reads the flags and refuses what makes no sense.
func parse(args []string, out io.Writer) (settings, error) {
	var s settings
	flags := flag.NewFlagSet("cachedread", flag.ContinueOnError)
	flags.SetOutput(out)
	flags.IntVar(&s.processes, "processes", 3, "how many servers there are, each a process")
	flags.IntVar(&s.clients, "clients", 48, "how many clients ask at the same time")
	flags.DurationVar(&s.duration, "duration", 5*time.Second, "how long each of the two rounds lasts")
	flags.IntVar(&s.keys, "keys", 100, "how many products there are; a few of them are asked for most of the time")
	flags.Float64Var(&s.writes, "writes", 1, "how many of a hundred requests are writes")
	flags.DurationVar(&s.expiry, "expiry", time.Second, "how long a product stays in the cache")
	flags.DurationVar(&s.delay, "delay", 20*time.Millisecond, "how long the database takes for a query; an update takes a tenth of it")
	flags.StringVar(&s.redis, "redis", "", "host:port of a Redis to use instead of an embedded one")
	err := program.Parse(flags, args, func() error {
		switch {
		case s.processes < 1 || s.processes > 64:
			return errors.New("-processes must be from 1 to 64")
		case s.clients < 1 || s.clients > 1000:
			return errors.New("-clients must be from 1 to 1000")
		case s.duration < 100*time.Millisecond:
			return errors.New("-duration must be at least 100ms")
		case s.keys < 1 || s.keys > 100_000:
			return errors.New("-keys must be from 1 to 100000")
		case !(s.writes >= 0 && s.writes <= 50): // so that NaN is refused as well
			return errors.New("-writes must be from 0 to 50")
		case s.delay < 0 || s.delay > time.Second:
			return errors.New("-delay must be from 0 to 1s")
		case s.expiry < 10*time.Millisecond || s.expiry > time.Hour:
			return errors.New("-expiry must be from 10ms to 1h")
		case s.expiry < 2*s.delay:
			return errors.New("-expiry must be at least twice -delay, or rebuilding is all that happens")
		}
		return nil
	})
	return s, err
}

// run plays both rounds and prints the table. It fails when the lock has let a stale read or a second rebuild
// through, or something else went wrong.
func run(ctx context.Context, s settings, out, progress io.Writer) (err error) {
	logf := func(format string, args ...any) { fmt.Fprintf(progress, format+"\n", args...) }
	server, err := devredis.Use(ctx, s.redis, logf)
	if err != nil {
		return err
	}
	defer func() { _ = server.Close() }() // what may be left of it is a temporary directory
	redis, err := meter.Connect(server.Addr())
	if err != nil {
		return err
	}
	defer redis.Close()
	logf("%d servers, %d clients, %s products: %.4g %% writes, entries expire after %v, a query takes %v",
		s.processes, s.clients, report.Thousands(int64(s.keys)), s.writes, s.expiry, s.delay)
	team, err := startTeam(ctx, s, server.Addr())
	if err != nil && ctx.Err() != nil && errors.Is(err, context.Cause(ctx)) {
		logf("interrupted before anything was done")
		return nil
	}
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, team.Close()) }()

	var rounds []result
	for _, locked := range []bool{false, true} {
		if ctx.Err() != nil {
			break
		}
		fmt.Fprintf(progress, "round %d: %s, for %v\n", len(rounds)+1, roundName(locked), s.duration)
		r, err := play(ctx, team, redis, s, locked, progress)
		if err != nil {
			return err
		}
		rounds = append(rounds, r)
	}
	printTable(out, rounds)
	if ctx.Err() != nil {
		logf("interrupted: that is what was done until then")
	}
	return verdict(rounds)
}

// verdict is an error when the lock has not kept what it is there for.
func verdict(rounds []result) error {
	var errs []error
	for _, r := range rounds {
		if !r.locked {
			continue // shows what happens without
		}
		if r.stale > 0 {
			errs = append(errs, fmt.Errorf("%s: %d stale reads", r.name, r.stale))
		}
		if r.Surplus > 0 || r.overlaps > 0 {
			errs = append(errs, fmt.Errorf("%s: %d rebuilds met a fresh entry, %d ran beside another",
				r.name, r.Surplus, r.overlaps))
		}
	}
	return errors.Join(errs...)
}
