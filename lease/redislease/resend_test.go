package redislease_test

import (
	"bytes"
	"context"
	"crypto/tls"
	"net"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/go-leasehold/leasehold/internal/redistest"
	"github.com/go-leasehold/leasehold/lease"
	"github.com/go-leasehold/leasehold/lease/redislease"
)

func TestForgottenScriptsAreSentAgain(t *testing.T) {
	server := redistest.Start(t)
	p := openPeer(t, server, "p", redislease.Config{})
	requests := []lease.Request{acquire("k", 1), renew("k", 1), yield("k", 1, 2), release("k", 2)}
	watched := acquire("k", 3)
	watched.Watch = "p:3"
	requests = append(requests, watched)
	for _, r := range requests {
		server.Do(t, "SCRIPT", "FLUSH")
		reply, err := p.try(r)
		require.NoError(t, err)
		require.False(t, reply.Resent, "the first copy did nothing")
		require.Equal(t, r.Watch != "", reply.Watched)
		require.Equal(t, r.Watch != "", reply.Present)
	}
	server.Do(t, "SCRIPT", "FLUSH")
	_, err := p.Inspect(t.Context(), "k")
	require.NoError(t, err)
	server.Do(t, "SCRIPT", "FLUSH")
	require.NoError(t, p.Force(t.Context(), "k"))
}

// TestReplyThatIsLostIsAskedForAgain: the server did it, the connection broke before
// the answer, and the second copy finds it done.
func TestReplyThatIsLostIsAskedForAgain(t *testing.T) {
	server := redistest.Start(t)
	option := server.Option()
	armed := make(chan struct{}, 1)
	option.DialCtxFn = func(ctx context.Context, address string, dialer *net.Dialer, _ *tls.Config) (net.Conn, error) {
		conn, err := dialer.DialContext(ctx, "tcp", address)
		return &lossy{Conn: conn, armed: armed}, err
	}
	p := openWith(t, option, "p", redislease.Config{})
	p.do(lease.Held, acquire("warm", 1))
	armed <- struct{}{}
	before := time.Now()
	reply, err := p.try(acquire("k", 1))
	require.NoError(t, err)
	require.Equal(t, lease.Held, reply.Status)
	require.True(t, reply.Resent)
	require.False(t, reply.Sent.Before(before))
	p.event(lease.Disconnected)
	p.event(lease.Connected)
	p.do(lease.Held, renew("k", 1))
}

// TestCallWhoseConnectionBreaksTwice is answered all the same: the client can send a second copy into the connection
// that broke under the first.
func TestCallWhoseConnectionBreaksTwice(t *testing.T) {
	server := redistest.Start(t)
	option := server.Option()
	var breaks atomic.Int64
	option.DialCtxFn = func(ctx context.Context, address string, dialer *net.Dialer, _ *tls.Config) (net.Conn, error) {
		conn, err := dialer.DialContext(ctx, "tcp", address)
		return &refusing{Conn: conn, left: &breaks}, err
	}
	p := openWith(t, option, "p", redislease.Config{})
	for n := range int64(4) {
		breaks.Store(n)
		reply, err := p.try(acquire("k", lease.Ticket(n+1)))
		if n == 3 {
			var failure *redislease.Error
			require.ErrorAs(t, err, &failure)
			break
		}
		require.NoError(t, err, "after %d breaks", n)
		require.Equal(t, lease.Held, reply.Status)
		require.Equal(t, n > 0, reply.Resent)
		require.Zero(t, max(breaks.Load(), 0))
		breaks.Store(0)
		p.do(lease.Done, release("k", lease.Ticket(n+1)))
	}
}

// refusing breaks instead of sending a script, as long as some breaks are left.
type refusing struct {
	net.Conn
	left *atomic.Int64
}

func (r *refusing) Write(b []byte) (int, error) {
	if bytes.Contains(b, []byte("EVAL")) && r.left.Add(-1) >= 0 {
		_ = r.Close()
		return 0, net.ErrClosed
	}
	return r.Conn.Write(b)
}

// lossy reads an answer and breaks instead of passing it on, once it is armed.
type lossy struct {
	net.Conn
	armed chan struct{}
}

func (l *lossy) Read(b []byte) (int, error) {
	n, err := l.Conn.Read(b)
	select {
	case <-l.armed:
		_ = l.Conn.Close()
		return 0, net.ErrClosed
	default:
		return n, err
	}
}
