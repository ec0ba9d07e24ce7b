// Command tracing shows who blocked whom. Three services, each a process, share a mutex and a read/write lock, and send their
// spans by OTLP; from these the program puts together why each request was slow, across processes and locks:
//
//	checkout   POST /orders        reads the catalog, and has the inventory reserve, under its read lock
//	           GET /prices         reads the catalog
//	inventory  POST /reservations  takes from the stock, under its mutex
//	           PUT /prices         changes the catalog, under its write lock
//	report     POST /reports       counts the stock, under its mutex, for much too long
//
// No request is slow by itself, but for the report. An order waits for the report; a change of prices waits for the order,
// which has the catalog for reading; a look at the prices waits behind that change. Durations alone say that everything is
// slow. The links from each wait to the hold that was in its way lead to the one line that is to be changed.
//
//	go run ./examples/tracing                         # with a Redis, and a receiver of spans, of its own
//	go run ./examples/tracing -redis 127.0.0.1:6379   # on your Redis
//	go run ./examples/tracing -lockz -for 10m         # goes on, with the live page of each service
//
// With OTEL_EXPORTER_OTLP_ENDPOINT set, everything goes there as well, metrics too: to Jaeger, for example, for which
// compose.yaml has what is needed. (Jaeger takes no metrics; OTEL_METRICS_EXPORTER=none sends none.) The usual variables of
// OpenTelemetry say how: OTEL_EXPORTER_OTLP_PROTOCOL (http/protobuf or grpc), OTEL_EXPORTER_OTLP_HEADERS,
// OTEL_TRACES_SAMPLER, OTEL_RESOURCE_ATTRIBUTES and so on.
//
// What to copy is export.go, which sets up OpenTelemetry, and the top of service.go, where a coordinator is told of it;
// checkout.go, inventory.go and report.go are how a program locks then: as always, with a context. The folder blame
// follows links, otlp receives spans, and the rest starts processes, sends requests and proves that it was as is said here.
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
	"github.com/go-leasehold/leasehold/examples/tracing/otlp"
)

// settings are what the flags say.
type settings struct {
	hold     time.Duration
	patience time.Duration
	runFor   time.Duration
	lockz    bool
	traceURL string
	redis    string
}

func main() {
	if text, ok := os.LookupEnv(workerVariable); ok {
		os.Exit(worker(text, os.Stdin, os.Stdout))
	}
	os.Exit(program.Main("tracing", parse, run))
}

// parse reads the flags and refuses what makes no sense.
func parse(args []string, out io.Writer) (settings, error) {
	var s settings
	flags := flag.NewFlagSet("tracing", flag.ContinueOnError)
	flags.SetOutput(out)
	flags.DurationVar(&s.hold, "hold", 1200*time.Millisecond, "how long the report has the stock, at least")
	flags.DurationVar(&s.patience, "patience", 300*time.Millisecond, "how long the impatient order waits")
	flags.DurationVar(&s.runFor, "for", 0, "go on for so long, round after round (default: one round)")
	flags.BoolVar(&s.lockz, "lockz", false, "serve the live page of each service, under "+lockzPath)
	flags.StringVar(&s.traceURL, "trace-url", "http://localhost:16686/trace/{trace}", "where traces are looked at, if they are exported")
	flags.StringVar(&s.redis, "redis", "", "host:port of a Redis to use instead of an embedded one")
	err := program.Parse(flags, args, func() error {
		switch {
		case s.hold < 100*time.Millisecond || s.hold > time.Minute:
			return errors.New("-hold must be from 100ms to 1m")
		case s.patience < 10*time.Millisecond || s.patience > s.hold:
			return errors.New("-patience must be from 10ms to -hold")
		case s.runFor < 0:
			return errors.New("-for must not be negative")
		}
		return traceURL(s.traceURL)
	})
	return s, err
}

// run plays the scenario, prints who waited for whom, and proves it. It fails where the spans say something else.
func run(ctx context.Context, s settings, out, progress io.Writer) (err error) {
	logf := func(format string, args ...any) { fmt.Fprintf(progress, format+"\n", args...) }
	if err := exportable(); err != nil {
		return err
	}
	server, err := devredis.Use(ctx, s.redis, logf)
	if err != nil {
		return err
	}
	defer func() { _ = server.Close() }() // what may be left of it is a temporary directory
	receiver, err := otlp.Start()
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, receiver.Close()) }()
	if exported() {
		logf("spans and metrics go where the OTEL_ variables say, and spans to this process, too")
	} else {
		logf("OTEL_EXPORTER_OTLP_ENDPOINT is not set: spans go to a receiver in this process")
	}
	team, err := startTeam(ctx, s, server.Addr(), receiver.Endpoint())
	if err != nil && ctx.Err() != nil && errors.Is(err, context.Cause(ctx)) {
		logf("interrupted before anything was done")
		return nil
	}
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, team.close()) }()
	for _, m := range team.members {
		logf("%-9s is %s", m.role, m.url)
		if s.lockz {
			logf("          live page: %s%s", m.url, lockzPath)
		}
	}
	return rounds(ctx, s, team, receiver, out, logf)
}

// rounds plays the scenario once, or until the time is over. All rounds are proved, and the first is printed.
func rounds(ctx context.Context, s settings, t *team, r *otlp.Receiver, out io.Writer, logf func(string, ...any)) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	end := time.Now().Add(s.runFor)
	for n := 1; n == 1 || time.Now().Before(end); n++ {
		if ctx.Err() != nil {
			logf("interrupted after %d rounds", n-1)
			return nil
		}
		logf("round %d: the report takes the stock", n)
		e, err := play(ctx, t, r, s)
		if err != nil {
			return err
		}
		checks := prove(e)
		if n == 1 {
			printRound(out, e, s)
			checks.Print(out)
		}
		if err := checks.Verdict(); err != nil {
			return fmt.Errorf("round %d: %w", n, err)
		}
	}
	if ctx.Err() != nil {
		logf("interrupted: that is what was done until then")
	}
	return nil
}
