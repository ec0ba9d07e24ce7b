package redislease_test

import (
	"context"
	"io"
	"log/slog"
	"net"
	"runtime"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/redis/rueidis"
	"github.com/stretchr/testify/require"

	"github.com/go-leasehold/leasehold/internal/redistest"
	"github.com/go-leasehold/leasehold/lease"
	"github.com/go-leasehold/leasehold/lease/redislease"
)

// counted counts itself out when it is closed.
type counted struct {
	net.Conn
	open   *atomic.Int64
	closed atomic.Bool
}

func (c *counted) Close() error {
	if !c.closed.Swap(true) {
		c.open.Add(-1)
	}
	return c.Conn.Close()
}

// readers is how many goroutines of the client read from a server.
func readers() int { return goroutinesIn("(*pipe)._backgroundRead(") }

// goroutinesIn is how many goroutines are inside a function.
func goroutinesIn(function string) int {
	stacks := make([]byte, 1<<20)
	return strings.Count(string(stacks[:runtime.Stack(stacks, true)]), function)
}

// TestOpenLeavesNothingOfTheTries: the client that is tried first is one for a cluster, and then perhaps one without
// tracking, or without RESP3.
func TestOpenLeavesNothingOfTheTries(t *testing.T) {
	single, cluster, fake := redistest.Start(t), startCluster(t), miniredis.RunT(t)
	single.Do(t, append(strings.Fields(redislease.ACLRule("app", "lock:")), ">pass", "-client|tracking")...)
	for name, of := range map[string]struct {
		option      rueidis.ClientOption
		connections int
	}{
		"single":           {single.Option(), 1},
		"without tracking": {rueidis.ClientOption{InitAddress: []string{single.Addr()}, Username: "app", Password: "pass"}, 1},
		"cluster":          {cluster.Option(), 1},
		"miniredis":        {rueidis.ClientOption{InitAddress: []string{fake.Addr()}}, 2},
	} {
		t.Run(name, func(t *testing.T) {
			var open atomic.Int64
			g := &gate{}
			g.set(func(ctx context.Context, address string, dialer *net.Dialer) (net.Conn, error) {
				conn, err := dialer.DialContext(ctx, "tcp", address)
				if err != nil {
					return nil, err
				}
				open.Add(1)
				return &counted{Conn: conn, open: &open}, nil
			})
			of.option.DialCtxFn = g.DialCtx
			before := readers()
			p := openWith(t, of.option, "p", redislease.Config{})
			p.do(lease.Held, acquire("k", 1))
			eventually(t, func(c *collector) {
				require.EqualValues(c, of.connections, open.Load())
				require.Equal(c, before+of.connections, readers())
			})
			p.do(lease.Done, release("k", 1))
			p.close()
			require.Zero(t, open.Load())
			eventually(t, func(c *collector) { require.Equal(c, before, readers()) })
		})
	}
}

// TestOpenTriesAgainWhereNothingAnswers: leases are short, and so are the time-outs of connections; a server that is
// slow at first is no reason to give up.
func TestOpenTriesAgainWhereNothingAnswers(t *testing.T) {
	server := redistest.Start(t)
	option, g := server.Option(), &gate{}
	option.DialCtxFn = g.DialCtx
	tries := 0
	g.set(func(ctx context.Context, address string, dialer *net.Dialer) (net.Conn, error) {
		if tries++; tries < 4 {
			near, far := net.Pipe()
			go func() { _, _ = io.Copy(io.Discard, far) }() // ends with near
			return near, nil
		}
		dialer.Timeout = limit // from here on a slow machine is none of ours
		return dialer.DialContext(ctx, "tcp", address)
	})
	store, err := redislease.New(option, redislease.Config{TTL: 200 * time.Millisecond, Logger: slog.New(slog.DiscardHandler)})
	require.NoError(t, err)
	_, err = store.Open(t.Context(), "p", func(lease.Event) {})
	require.NoError(t, err)
	require.GreaterOrEqual(t, tries, 4)
	require.NoError(t, store.Close(t.Context()))
}
