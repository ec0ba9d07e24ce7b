// Package devredis is the server that the examples bring along, so that they run with nothing set up: a
// redis-server of their own if there is one in PATH, and otherwise miniredis, a Redis in this very process,
// whose clock is the real one. It keeps nothing and is no server for anything but a look at the library.
package devredis

import (
	"context"
	"fmt"
	"os/exec"
	"time"

	"github.com/alicebob/miniredis/v2"
)

// Kinds of servers.
const (
	RedisServer = "redis-server"
	Miniredis   = "miniredis"
	External    = "external" // which somebody else has started
)

// startLimit bounds the start of a server by Use.
const startLimit = 30 * time.Second

// Server is a running server.
type Server struct {
	// Kind is [RedisServer], [Miniredis] or [External].
	Kind string

	addr  string
	close func() error
}

// Start starts a server and says through logf which one; ctx bounds the start only. The server lives until
// Close, and on Linux it dies with this process, whatever ends it.
func Start(ctx context.Context, logf func(format string, args ...any)) (*Server, error) {
	binary, err := exec.LookPath(RedisServer)
	if err != nil {
		logf("no redis-server in PATH: using miniredis, in this process")
		return startMiniredis()
	}
	s, err := startRedisServer(ctx, binary)
	if err != nil {
		return nil, err
	}
	logf("using a redis-server of its own (%s) on %s", binary, s.addr)
	return s, nil
}

// Use returns the server at addr, or, if addr is empty, one that it starts.
func Use(ctx context.Context, addr string, logf func(format string, args ...any)) (*Server, error) {
	if addr != "" {
		return &Server{Kind: External, addr: addr, close: func() error { return nil }}, nil
	}
	ctx, cancel := context.WithTimeout(ctx, startLimit)
	defer cancel()
	return Start(ctx, logf)
}

// Addr returns the server's host:port.
func (s *Server) Addr() string { return s.addr }

// Close ends the server, if it is not external; everything in it is lost.
func (s *Server) Close() error { return s.close() }

// startMiniredis starts a server in this process. Left alone, its keys would never expire: tests want it so.
func startMiniredis() (*Server, error) {
	m := miniredis.NewMiniRedis()
	if err := m.StartAddr("127.0.0.1:0"); err != nil {
		return nil, fmt.Errorf("start miniredis: %w", err)
	}
	m.ClockTTL(true)
	return &Server{Kind: Miniredis, addr: m.Addr(), close: func() error {
		m.Close()
		return nil
	}}, nil
}
