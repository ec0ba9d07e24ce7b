// Command quickstart puts the library to work: several processes, each with many goroutines, increment counters in
// Redis by reading, adding one and writing back, which is only right under a lock. It does so first on one key
// that everybody wants, then on many, and shows what came out: an exact counter, and what it cost.
//
//	go run ./examples/quickstart                         # with a server of its own
//	go run ./examples/quickstart -redis 127.0.0.1:6379   # on yours
//	go run ./examples/quickstart -processes 8 -goroutines 50 -duration 10s -keys 1000
//
// The lock itself is in work.go; the rest starts processes and counts.
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
	"github.com/go-leasehold/leasehold/examples/internal/program"
)

// settings are what the flags say.
type settings struct {
	processes  int
	goroutines int
	duration   time.Duration
	keys       int
	redis      string
}

func main() {
	if addr, ok := os.LookupEnv(workerVariable); ok {
		os.Exit(worker(addr, os.Stdin, os.Stdout))
	}
	os.Exit(program.Main("quickstart", parse, run))
}

// parse reads the flags and refuses what makes no sense.
func parse(args []string, out io.Writer) (settings, error) {
	var s settings
	flags := flag.NewFlagSet("quickstart", flag.ContinueOnError)
	flags.SetOutput(out)
	flags.IntVar(&s.processes, "processes", 4, "how many processes share the locks")
	flags.IntVar(&s.goroutines, "goroutines", 100, "how many goroutines lock in each process")
	flags.DurationVar(&s.duration, "duration", 3*time.Second, "how long each of the two rounds lasts")
	flags.IntVar(&s.keys, "keys", 100, "how many keys there are in the second round")
	flags.StringVar(&s.redis, "redis", "", "host:port of a Redis to use instead of an embedded one")
	err := program.Parse(flags, args, func() error {
		switch {
		case s.processes < 1 || s.processes > 64:
			return errors.New("-processes must be from 1 to 64")
		case s.goroutines < 1 || s.goroutines > 10_000:
			return errors.New("-goroutines must be from 1 to 10000")
		case s.duration < 100*time.Millisecond:
			return errors.New("-duration must be at least 100ms")
		case s.keys < 1 || s.keys > 1_000_000:
			return errors.New("-keys must be from 1 to 1000000")
		}
		return nil
	})
	return s, err
}

// run plays both rounds and prints the table. It fails when a counter is not exact, or something else went wrong.
func run(ctx context.Context, s settings, out, progress io.Writer) (err error) {
	logf := func(format string, args ...any) { fmt.Fprintf(progress, format+"\n", args...) }
	server, err := devredis.Use(ctx, s.redis, logf)
	if err != nil {
		return err
	}
	defer func() { _ = server.Close() }() // what may be left of it is a temporary directory
	field, err := newField(server.Addr())
	if err != nil {
		return err
	}
	defer field.close()
	logf("%d processes, %d goroutines each: lock, read the counter, write it plus one, unlock", s.processes, s.goroutines)
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
	for _, keys := range []int{1, s.keys} {
		if ctx.Err() != nil {
			break
		}
		r, err := play(ctx, team, field, s, keys, progress)
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

// verdict is an error when a counter is not exact: then two of us were inside at once.
func verdict(rounds []result) error {
	for _, r := range rounds {
		if !r.exact() {
			return fmt.Errorf("%s: the counter says %d after %d increments", r.name, r.counted, r.locks)
		}
	}
	return nil
}
