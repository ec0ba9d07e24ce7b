package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"os"
	"sync"
	"time"

	"github.com/redis/rueidis"

	"github.com/go-leasehold/leasehold/coordinator"
	"github.com/go-leasehold/leasehold/examples/seckill/shop"
)

const (
	// tokenRetention is short, so that a real server is soon as it was before.
	tokenRetention = time.Minute
	// requestLimit is how many requests a server serves at once.
	requestLimit = 2000
	// workLimit bounds the work on one request.
	workLimit = 10 * time.Second
	// quantityLimit is the largest order.
	quantityLimit = 100
)

// setup is what a server has to know.
type setup struct {
	Redis    string
	Database string // its URL
	Sale     shop.Config
}

// server is one process of the service.
type server struct {
	locks *coordinator.Coordinator
	db    *connection
	sale  *shop.Sale
	http  *http.Server
	addr  string

	running sync.WaitGroup
	stop    context.CancelFunc // of what sweeps
}

func newCoordinator(redis string, log *slog.Logger) (*coordinator.Coordinator, error) {
	return coordinator.New(rueidis.ClientOption{InitAddress: []string{redis}},
		coordinator.WithTokenRetention(tokenRetention), coordinator.WithLogger(log))
}

// quiet logs errors: that miniredis can do less needs no line for each process.
func quiet() *slog.Logger {
	return slog.New(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: slog.LevelError}))
}

// startServer starts a server.
func startServer(ctx context.Context, to setup) (_ *server, err error) {
	s := &server{stop: func() {}}
	defer func() {
		if err != nil {
			_ = s.close(ctx) // its error is not the one to tell
		}
	}()
	if s.locks, err = newCoordinator(to.Redis, quiet()); err != nil {
		return nil, err
	}
	s.db = newConnection(to.Database)
	if s.sale, err = shop.Open(ctx, s.locks, s.db, to.Sale); err != nil {
		return nil, err
	}
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, fmt.Errorf("start a server: %w", err)
	}
	s.addr = listener.Addr().String()
	limits := shop.Limits{Requests: requestLimit, Quantity: quantityLimit, Work: workLimit}
	s.http = shop.NewServer(shop.Handler(s.sale, limits, quiet()))
	s.running.Go(func() { _ = s.http.Serve(listener) }) // says that it was closed
	sweeping, stop := context.WithCancel(context.Background())
	s.stop = stop
	s.running.Go(func() {
		s.sale.Run(sweeping, func(err error) { quiet().Error("sweep", "error", err) })
	})
	return s, nil
}

// close ends the server in good order: first no more requests, last the coordinator, which they need.
func (s *server) close(ctx context.Context) (err error) {
	if s.http != nil {
		err = s.http.Shutdown(ctx)
	}
	s.stop()
	s.running.Wait()
	if s.db != nil {
		s.db.close()
	}
	if s.locks != nil {
		err = errors.Join(err, s.locks.Close(ctx))
	}
	return err
}
