package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"os"
	"strings"
	"time"

	"github.com/redis/rueidis"
	"go.opentelemetry.io/contrib/instrumentation/net/http/otelhttp"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/trace"

	"github.com/go-leasehold/leasehold/coordinator"
	"github.com/go-leasehold/leasehold/coordinator/lockz"
	"github.com/go-leasehold/leasehold/examples/tracing/blame"
	"github.com/go-leasehold/leasehold/rwlock"
	"github.com/go-leasehold/leasehold/telemetry"
)

const (
	// ttl is short, so that the report's lease is renewed while it is looked at.
	ttl = 2 * time.Second
	// tokenRetention is short, so that a real server is soon as it was before.
	tokenRetention = time.Minute
	// headerLimit bounds the wait for a request's header.
	headerLimit = 10 * time.Second
	// sendLimit bounds what is sent at the end, where the receiver of it is slow or not there.
	sendLimit = 3 * time.Second
	// lockzPath is where the live page is.
	lockzPath = "/debug/lockz"
	// requestHeader names a request, for people.
	requestHeader = "X-Request"
)

// classOf says what a key may be called in spans and metrics: the part of it that says what kind of thing is locked. What
// tells one thing of a kind from the next stays out, for there is no end to it.
func classOf(key string) string { return key[strings.LastIndexByte(key, ':')+1:] }

// newCoordinator is where leasehold is told of telemetry: which class a key is of, and where traces are looked at. That
// there are an SDK, exporters and so on it need not be told.
func newCoordinator(to setup) (*coordinator.Coordinator, error) {
	quiet := slog.New(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: slog.LevelError}))
	return coordinator.New(rueidis.ClientOption{InitAddress: []string{to.Redis}},
		coordinator.WithTelemetry(telemetry.Config{KeyClass: classOf, TraceURL: to.TraceURL, HoldAlarm: to.Alarm}),
		coordinator.WithTTL(ttl), coordinator.WithTokenRetention(tokenRetention),
		coordinator.WithLogger(quiet)) // that miniredis can do less needs no line for each process
}

// service is one process: a coordinator, the two locks that all have in common, and an HTTP server.
type service struct {
	role    string
	export  *export
	warned  bool // that not everything could be sent
	locks   *coordinator.Coordinator
	stock   *coordinator.Mutex
	catalog *rwlock.Lock
	peer    string // the URL of the inventory
	enough  chan struct{}

	transport *http.Transport // to it
	http      *http.Server
	addr      string
	ended     chan struct{}
}

// startService starts the service of this role.
func startService(ctx context.Context, to setup) (_ *service, err error) {
	s := &service{role: to.Role, peer: to.Inventory, enough: make(chan struct{}), transport: &http.Transport{}, ended: make(chan struct{})}
	defer func() {
		if err != nil {
			_ = s.close(ctx) // its error is not the one to tell
		}
	}()
	if s.export, err = startExport(ctx, to.Role, to.Receiver); err != nil {
		return nil, err
	}
	if s.locks, err = newCoordinator(to); err != nil {
		return nil, err
	}
	s.stock, s.catalog = s.locks.Mutex(to.Keys+":stock"), rwlock.New(s.locks, to.Keys+":catalog")
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, fmt.Errorf("start %s: %w", to.Role, err)
	}
	s.addr = listener.Addr().String()
	s.http = &http.Server{Handler: s.handler(to), ReadHeaderTimeout: headerLimit}
	go func() {
		defer close(s.ended)
		_ = s.http.Serve(listener) // says that it was closed
	}()
	return s, nil
}

// handler has what the role serves, each with a span of its own, and what this program's parent asks.
func (s *service) handler(to setup) http.Handler {
	mux := http.NewServeMux()
	for pattern, serve := range s.routes(to.Role) {
		mux.Handle(pattern, otelhttp.NewHandler(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if name := r.Header.Get(requestHeader); name != "" {
				trace.SpanFromContext(r.Context()).SetAttributes(attribute.String(blame.RequestAttribute, name))
			}
			answer(w, serve(r))
		}), pattern))
	}
	mux.HandleFunc("GET /state", s.state)
	mux.HandleFunc("POST /enough", s.tellEnough)
	if to.Lockz {
		mux.Handle("GET "+lockzPath, lockz.Handler(s.locks, lockz.WithTitle(to.Role)))
	}
	return mux
}

func (s *service) routes(role string) map[string]func(*http.Request) error {
	switch role {
	case checkout:
		return map[string]func(*http.Request) error{"POST /orders": s.order, "GET /prices": s.browse}
	case inventory:
		return map[string]func(*http.Request) error{"POST /reservations": s.reserve, "PUT /prices": s.reprice}
	case reports:
		return map[string]func(*http.Request) error{"POST /reports": s.report}
	}
	return nil
}

// answer says what became of a request: 503 where somebody else had the lock for too long.
func answer(w http.ResponseWriter, err error) {
	switch {
	case err == nil:
		w.WriteHeader(http.StatusNoContent)
	case errors.Is(err, coordinator.ErrNotAcquired):
		http.Error(w, err.Error(), http.StatusServiceUnavailable)
	default:
		http.Error(w, err.Error(), http.StatusInternalServerError)
	}
}

// lockState is what a service holds of a lock, and who waits for it there.
type lockState struct {
	Leased  bool // or being asked for
	Holds   int
	Waiters int
	Wanted  bool // by another process
	Told    bool // which hold elsewhere it waits for
}

// state is what a service says of itself to the parent.
type state struct {
	Locks    map[string]lockState // by their class
	Renewals uint64
}

// state tells the parent how far it is, so that it can wait for this without a clock.
func (s *service) state(w http.ResponseWriter, _ *http.Request) {
	snapshot := s.locks.Snapshot()
	is := state{Locks: map[string]lockState{}, Renewals: snapshot.Stats.Renewals}
	for _, k := range snapshot.Keys {
		is.Locks[classOf(k.Key)] = lockState{
			Leased: k.Owner != "", Holds: len(k.Holds) + k.Readers, Waiters: len(k.Waiters), Wanted: k.Wanted,
			Told: k.HolderTrace.IsValid(),
		}
	}
	_ = json.NewEncoder(w).Encode(is) // a parent that hung up has other worries
}

// flush sends everything that was told so far.
func (s *service) flush() error {
	ctx, cancel := context.WithTimeout(context.Background(), sendLimit)
	defer cancel()
	// First what the locks still have to tell the SDK, then what the SDK has.
	if err := errors.Join(s.locks.FlushTelemetry(ctx), s.export.flush(ctx)); err != nil {
		s.warn(err)
	}
	return nil
}

// warn says what could not be sent, which is no failure of the service, once.
func (s *service) warn(err error) {
	if !s.warned {
		fmt.Fprintf(os.Stderr, "%s: not everything could be sent: %v\n", s.role, err)
		s.warned = true
	}
}

// close ends the service in good order: first no more requests, then the locks, last the SDK, which they tell.
func (s *service) close(ctx context.Context) (err error) {
	if s.http != nil {
		err = s.http.Shutdown(ctx)
		<-s.ended
	}
	if s.locks != nil {
		err = errors.Join(err, s.locks.Close(ctx))
	}
	s.transport.CloseIdleConnections()
	if s.export != nil {
		ctx, cancel := context.WithTimeout(ctx, sendLimit)
		defer cancel()
		if err := s.export.close(ctx); err != nil {
			s.warn(err)
		}
	}
	return err
}
