package main

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"os"
	"strconv"
	"sync/atomic"
	"time"

	"github.com/redis/rueidis"

	"github.com/go-leasehold/leasehold/coordinator"
)

const (
	// readLease is how long a process keeps the right to read a product that nobody reads and nobody wants to
	// change: it costs a renewal every ten seconds, and a change takes it away at once.
	readLease = time.Minute
	// tokenRetention is short, so that a real server is soon as it was before.
	tokenRetention = time.Minute
	// nameLimit bounds the name of a product, in bytes.
	nameLimit = 1 << 10
	// headerLimit bounds the wait for a request's header.
	headerLimit = 10 * time.Second
	// idlePerHost is how many connections a client keeps: as many as there may be clients.
	idlePerHost = 1000
)

// service is what a server serves products with.
type service interface {
	view(ctx context.Context, id int, show func(*product) error) error
	change(ctx context.Context, id int, name string) (*product, error)
	counts() counts
}

// counters count what a service did.
type counters struct{ memory, rebuilds, surplus, avoided atomic.Int64 }

// counts are counters at one moment.
type counts struct {
	Memory   int64 // views out of the process's memory
	Rebuilds int64
	Surplus  int64 // rebuilds that met an entry which was still there when they stored theirs: one was enough
	Avoided  int64 // times that somebody had done it before, under the lock
}

// rebuilt counts a rebuild.
func (c *counters) rebuilt(met bool) {
	c.rebuilds.Add(1)
	if met {
		c.surplus.Add(1)
	}
}

func (c *counters) counts() counts {
	return counts{c.memory.Load(), c.rebuilds.Load(), c.surplus.Load(), c.avoided.Load()}
}

func (c *counts) add(o counts) {
	c.Memory += o.Memory
	c.Rebuilds += o.Rebuilds
	c.Surplus += o.Surplus
	c.Avoided += o.Avoided
}

// server is one process of the service: an HTTP server, a coordinator, and a connection to Redis for the cache.
type server struct {
	locks *coordinator.Coordinator
	redis rueidis.Client
	http  *http.Server
	addr  string
	ended chan struct{}

	stage atomic.Pointer[stage] // nil between rounds
}

// stage is what a server serves in one round.
type stage struct {
	service
	db       *connection
	products int
}

func startServer(redisAddr string) (*server, error) {
	redis, err := rueidis.NewClient(rueidis.ClientOption{InitAddress: []string{redisAddr}, DisableCache: true})
	if err != nil {
		return nil, fmt.Errorf("connect to %s: %w", redisAddr, err)
	}
	quiet := slog.New(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: slog.LevelError}))
	locks, err := coordinator.New(rueidis.ClientOption{InitAddress: []string{redisAddr}},
		coordinator.WithSharedRetention(readLease),
		coordinator.WithTokenRetention(tokenRetention),
		coordinator.WithLogger(quiet)) // that miniredis can do less needs no line for each process
	if err != nil {
		redis.Close()
		return nil, err
	}
	s := &server{locks: locks, redis: redis, ended: make(chan struct{})}
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		close(s.ended)
		_ = s.close(context.Background()) // the listener's error is the one to tell
		return nil, fmt.Errorf("start a server: %w", err)
	}
	s.addr = listener.Addr().String()
	s.http = newServer(s.handler())
	go func() {
		defer close(s.ended)
		_ = s.http.Serve(listener) // says that it was closed
	}()
	return s, nil
}

// open begins a round.
func (s *server) open(o order) {
	db := newConnection(o.Database)
	cache := &cache{redis: s.redis, prefix: o.Prefix, expiry: o.Expiry}
	stage := &stage{db: db, products: o.Products, service: &naive{cache: cache, db: db}}
	if o.Locked {
		stage.service = newShop(s.locks, cache, db, o.Prefix, o.Products)
	}
	s.stage.Store(stage)
}

// shut ends a round, and returns what was done in it.
func (s *server) shut() counts {
	stage := s.stage.Swap(nil)
	if stage == nil {
		return counts{}
	}
	stage.db.close()
	return stage.counts()
}

// close ends the server, and hands its leases over.
func (s *server) close(ctx context.Context) error {
	if s.http != nil {
		_ = s.http.Shutdown(ctx) // who is still served has his connection cut with the process
	}
	<-s.ended
	s.shut()
	err := s.locks.Close(ctx)
	s.redis.Close()
	return err
}

func (s *server) handler() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /product/{id}", s.serve(get))
	mux.HandleFunc("PUT /product/{id}", s.serve(put))
	return mux
}

// serve refuses what is no product.
func (s *server) serve(do func(http.ResponseWriter, *http.Request, service, int)) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		stage := s.stage.Load()
		if stage == nil {
			http.Error(w, "closed", http.StatusServiceUnavailable)
			return
		}
		id, err := strconv.Atoi(r.PathValue("id"))
		if err != nil || id < 0 || id >= stage.products {
			http.Error(w, "no such product", http.StatusNotFound)
			return
		}
		do(w, r, stage.service, id)
	}
}

// get makes the answer under the lock, and sends it when the lock is free again: a client that is slow to read must
// not keep writers waiting, in all processes.
func get(w http.ResponseWriter, r *http.Request, s service, id int) {
	var text []byte
	err := s.view(r.Context(), id, func(p *product) (err error) {
		text, err = json.Marshal(p)
		return err
	})
	if err != nil {
		answer(w, nil, err)
		return
	}
	answerText(w, text)
}

func put(w http.ResponseWriter, r *http.Request, s service, id int) {
	name, err := io.ReadAll(http.MaxBytesReader(w, r.Body, nameLimit)) // before the lock, for the same reason
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	p, err := s.change(r.Context(), id, string(name))
	answer(w, p, err)
}

// newServer returns a server with what every server should have.
func newServer(h http.Handler) *http.Server {
	return &http.Server{Handler: h, ReadHeaderTimeout: headerLimit}
}

// newClient returns a client that keeps its connections.
func newClient() *http.Client {
	return &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: idlePerHost, DisableCompression: true}}
}
