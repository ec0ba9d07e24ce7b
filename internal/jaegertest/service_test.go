package jaegertest

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/redis/rueidis"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/trace"
	"go.opentelemetry.io/otel/trace/noop"

	"github.com/go-leasehold/leasehold/coordinator"
	"github.com/go-leasehold/leasehold/internal/faults"
	"github.com/go-leasehold/leasehold/lease"
	"github.com/go-leasehold/leasehold/rwlock"
	"github.com/go-leasehold/leasehold/telemetry"
)

func init() { roles["service"] = serve }

// settings are what a service is started with.
type settings struct {
	Name               string // of the service
	Protocol, Endpoint string // of OTLP
	Redis, Prefix      string
	TTL                time.Duration
	KeyAttribute       bool
	Bare               bool // requests have no spans of their own
}

// What a service uses a key as.
const (
	asMutex  = "mutex"
	asReader = "reader"
	asWriter = "writer"
)

// service is a real process that serves requests, each of which locks one key; it does what it is told, a line at a
// time. See driver for the lines.
type service struct {
	c        *coordinator.Coordinator
	provider *sdktrace.TracerProvider
	tracer   trace.Tracer // of the requests

	mu       sync.Mutex
	requests map[string]served
}

// served is a request that holds its lock.
type served struct {
	hold *coordinator.Hold
	span trace.Span
}

func serve(args []string) {
	var set settings
	exitIf(json.Unmarshal([]byte(args[0]), &set))
	ctx := context.Background()
	provider, err := newProvider(ctx, set.Name, set.Protocol, set.Endpoint)
	exitIf(err)
	c, err := coordinator.New(rueidis.ClientOption{InitAddress: []string{set.Redis}},
		coordinator.WithTTL(set.TTL), coordinator.WithKeyPrefix(set.Prefix),
		coordinator.WithLogger(slog.New(slog.NewTextHandler(os.Stderr, nil))),
		coordinator.WithTelemetry(telemetry.Config{
			TracerProvider: provider,
			KeyClass:       func(key string) string { class, _, _ := strings.Cut(key, ":"); return class },
			KeyAttribute:   set.KeyAttribute,
		}))
	exitIf(err)
	s := &service{c: c, provider: provider, tracer: provider.Tracer("service"), requests: map[string]served{}}
	if set.Bare {
		s.tracer = noop.NewTracerProvider().Tracer("service")
	}
	faults.Say("ready")
	for line, ok := faults.Hear(); ok; line, ok = faults.Hear() {
		s.act(ctx, strings.Fields(line))
	}
	exitIf(c.Close(ctx))
	exitIf(provider.Shutdown(ctx))
}

func exitIf(err error) {
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(3)
	}
}

// act obeys one line.
func (s *service) act(ctx context.Context, words []string) {
	switch words[0] {
	case "serve":
		request, mode, key := words[1], words[2], words[3]
		limit, err := time.ParseDuration(words[4])
		exitIf(err)
		ctx, span := s.tracer.Start(ctx, request, trace.WithSpanKind(trace.SpanKindServer))
		faults.Say("serving %s %s", request, written(span.SpanContext()))
		go s.serve(ctx, span, request, mode, key, limit) // ends with the wait
	case "finish":
		s.mu.Lock()
		r := s.requests[words[1]]
		s.mu.Unlock()
		exitIf(r.hold.Unlock())
		r.span.End()
	case "waiters":
		waiters, err := strconv.Atoi(words[2])
		exitIf(err)
		await(func() bool { return s.waits(words[1], waiters) })
		faults.Say("waits %s", words[1])
	case "wanted":
		await(func() bool {
			k, ok := s.snapshot(words[1])
			return ok && k.Wanted
		})
		faults.Say("wanted %s", words[1])
	case "told":
		await(func() bool { return s.told(ctx, words[1]) })
		faults.Say("known %s", words[1])
	case "renewals":
		renewals, err := strconv.ParseUint(words[1], 10, 64)
		exitIf(err)
		await(func() bool { return s.c.Snapshot().Stats.Renewals >= renewals })
		faults.Say("renewed")
	case "flush":
		exitIf(s.c.FlushTelemetry(ctx))
		exitIf(s.provider.ForceFlush(ctx))
		faults.Say("flushed")
	}
}

// serve locks, and does a piece of work under the lock.
func (s *service) serve(ctx context.Context, span trace.Span, request, mode, key string, limit time.Duration) {
	hold, err := s.lock(ctx, mode, key, limit)
	if err != nil {
		span.End()
		var failed *coordinator.WaitError
		if !errors.As(err, &failed) {
			exitIf(err)
		}
		faults.Say("failed %s %s", request, failed.Holder)
		return
	}
	is := trace.SpanContextFromContext(hold.Context())
	_, work := s.provider.Tracer("service").Start(hold.Context(), "work")
	work.End()
	s.mu.Lock()
	s.requests[request] = served{hold, span}
	s.mu.Unlock()
	faults.Say("holds %s %s %d", request, written(is), hold.Token())
}

// lock waits for the lock, at most that long unless limit is 0.
func (s *service) lock(ctx context.Context, mode, key string, limit time.Duration) (*coordinator.Hold, error) {
	if mode == asMutex {
		if limit == 0 {
			return s.c.Mutex(key).Lock(ctx)
		}
		return s.c.Mutex(key).TryLockFor(ctx, limit)
	}
	rw := rwlock.New(s.c, key)
	if mode == asReader {
		hold, err := rw.RLock(ctx)
		return hold.Hold, err
	}
	hold, err := rw.Lock(ctx)
	return hold.Hold, err
}

// waits says whether that many calls wait here, and, where no lease is here, the process has its place in the queue.
func (s *service) waits(key string, waiters int) bool {
	k, ok := s.snapshot(key)
	return ok && len(k.Waiters) == waiters && (k.Phase == "queued" || k.Phase == "held")
}

func (s *service) snapshot(key string) (coordinator.KeySnapshot, bool) {
	for _, k := range s.c.Snapshot().Keys {
		if k.Key == key {
			return k, true
		}
	}
	return coordinator.KeySnapshot{}, false
}

// told says whether Redis knows the trace of who has the key.
func (s *service) told(ctx context.Context, key string) bool {
	info, err := s.c.Inspect(ctx, key)
	exitIf(err)
	return slices.ContainsFunc(info.Holders, func(h lease.Holder) bool { return h.Trace != "" })
}

// await returns once that is so. How long it may take, the test decides that waits for this process's answer.
func await(so func() bool) {
	for tick := time.NewTicker(5 * time.Millisecond); !so(); {
		<-tick.C
	}
}

// written is a span's ids as they go to the test.
func written(s trace.SpanContext) string { return s.TraceID().String() + " " + s.SpanID().String() }
