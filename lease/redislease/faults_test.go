package redislease_test

import (
	"context"
	"crypto/tls"
	"errors"
	"net"
	"testing"
	"time"

	"github.com/redis/rueidis"
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

func TestBrokenConnectionIsTakenUpAgain(t *testing.T) {
	server := redistest.Start(t)
	p := openPeer(t, server, "p", redislease.Config{})
	p.do(lease.Held, acquire("k", 1))
	for range 5 {
		server.Do(t, "CLIENT", "KILL", "TYPE", "pubsub")
		require.Error(t, p.event(lease.Disconnected).Err)
		p.event(lease.Connected)
		reply, err := p.try(renew("k", 1))
		require.NoError(t, err)
		require.Equal(t, lease.Held, reply.Status)
	}
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

func TestSilentServerIsAnErrorInTime(t *testing.T) {
	server := redistest.Start(t)
	const ttl = 3 * time.Second
	p := openPeer(t, server, "p", redislease.Config{TTL: ttl})
	p.do(lease.Held, acquire("k", 1))
	server.Pause()
	for range 3 {
		start := time.Now()
		_, err := p.try(renew("k", 1))
		took := time.Since(start)
		var failure *redislease.Error
		require.ErrorAs(t, err, &failure)
		require.Equal(t, "renew", failure.Op)
		require.Equal(t, server.Addr(), failure.Addr)
		t.Logf("after %v: %v", took, err)
		require.Less(t, took, ttl, "a third of it on a machine that is not busy")
	}
	server.Resume()
	p.event(lease.Disconnected)
	p.event(lease.Connected)
	eventually(t, func(c *collector) {
		_, err := p.try(renew("k", 1))
		require.NoError(c, err)
	})
}

func TestServerThatIsDownIsNamed(t *testing.T) {
	server := redistest.Start(t)
	p := openPeer(t, server, "p", redislease.Config{})
	p.do(lease.Held, acquire("k", 1))
	server.Kill()
	require.Error(t, p.event(lease.Disconnected).Err)
	_, err := p.try(renew("k", 1))
	var failure *redislease.Error
	require.ErrorAs(t, err, &failure)
	require.Equal(t, redislease.StageConnect, failure.Stage)
	require.ErrorContains(t, err, "the server is down: nothing listens there")
	_, err = p.try(acquire("k", 2))
	require.ErrorContains(t, err, "notices don't come in")
	_, err = p.Inspect(t.Context(), "k")
	require.ErrorContains(t, err, "is down")

	server.Restart()
	p.event(lease.Connected)
	p.do(lease.Lost, renew("k", 1))
	p.do(lease.Held, acquire("k", 2))
}

func TestOpenFailsWithTheReason(t *testing.T) {
	server := redistest.Start(t, "--requirepass", "secret")
	open := func(change func(*rueidis.ClientOption)) error {
		option := server.Option()
		change(&option)
		p := newPeer(t, option, redislease.Config{TTL: time.Second})
		_, err := p.Open(t.Context(), "p", p.record)
		require.Error(t, err)
		require.NoError(t, p.Close(t.Context()))
		_, again := p.Open(t.Context(), "p", p.record)
		require.ErrorIs(t, again, lease.ErrStoreClosed)
		return err
	}
	require.ErrorContains(t, open(func(o *rueidis.ClientOption) { o.Password = "wrong" }), "the user name or the password is wrong")
	require.ErrorContains(t, open(func(o *rueidis.ClientOption) { o.Password = "" }), "wants a password and none was given")
	require.ErrorContains(t, open(func(o *rueidis.ClientOption) { o.InitAddress = []string{"127.0.0.1:1"} }), "is down")

	server.Pause()
	require.ErrorContains(t, open(func(*rueidis.ClientOption) {}), "redislease: open at")
	ctx, cancel := context.WithCancelCause(t.Context())
	cancel(context.Canceled)
	p := newPeer(t, server.Option(), redislease.Config{})
	_, err := p.Open(ctx, "p", p.record)
	require.ErrorIs(t, err, context.Canceled)
	server.Resume()
}

// TestReplicaIsLeft: the server becomes a replica under us, and the connection is
// closed so that a name may lead to the new master.
func TestReplicaIsLeft(t *testing.T) {
	server, master := redistest.Start(t), redistest.Start(t)
	p := openPeer(t, server, "p", redislease.Config{TTL: 200 * time.Millisecond})
	p.do(lease.Held, acquire("k", 1))
	host, port, err := net.SplitHostPort(master.Addr())
	require.NoError(t, err)
	server.Do(t, "REPLICAOF", host, port)
	eventually(t, func(c *collector) {
		_, err := p.try(acquire("other", 2))
		var failure *redislease.Error
		require.ErrorAs(c, err, &failure)
		require.Equal(c, "READONLY", failure.Code)
		require.ErrorContains(c, err, "the server is a read-only replica")
	})
	p.event(lease.Disconnected)
	problems, err := p.Check(t.Context())
	if err == nil { // it was connected again by then
		require.Equal(t, redislease.ProblemReadOnly, problems[0].Code)
	}
	another := newPeer(t, server.Option(), redislease.Config{})
	_, err = another.Open(t.Context(), "p", another.record)
	require.ErrorContains(t, err, "read-only replica")
	server.Do(t, "REPLICAOF", "NO", "ONE")
	eventually(t, func(c *collector) {
		_, err := p.try(acquire("other", 3))
		require.NoError(c, err)
	})
}

// TestFullServer: an acquire is refused with nothing changed, a release works.
func TestFullServer(t *testing.T) {
	server := redistest.Start(t)
	p := openPeer(t, server, "p", redislease.Config{})
	p.do(lease.Held, acquire("k", 1))
	p.do(lease.Waiting, acquire("k", 2))
	server.Do(t, "CONFIG", "SET", "maxmemory", "1")
	_, err := p.try(acquire("other", 3))
	var failure *redislease.Error
	require.ErrorAs(t, err, &failure)
	require.Equal(t, "OOM", failure.Code)
	require.ErrorContains(t, err, "has reached its maxmemory")
	p.do(lease.Done, release("k", 1))
	require.Equal(t, lease.Ticket(2), p.event(lease.Granted).Ticket)
	problems, err := p.Check(t.Context())
	require.NoError(t, err)
	require.Equal(t, redislease.ProblemMemory, problems[0].Code)
	require.True(t, problems[0].Fatal)
	server.Do(t, "CONFIG", "SET", "maxmemory", "0")
	require.Empty(t, server.Keys(t, "*other*"))
}

func TestBadMessagesAreCountedOut(t *testing.T) {
	server := redistest.Shared(t)
	id := "bad-" + t.Name()
	p := openPeer(t, server, id, redislease.Config{})
	for _, message := range []string{"", "grant", "nonsense \x00", "grant " + id + ":1 9 1 1 k", "grant other:1 1 2 0 k"} {
		server.Do(t, "PUBLISH", "lock:~inbox:"+id, message)
	}
	server.Do(t, "PUBLISH", "lock:~inbox:"+id, "want "+id+":3 - the key")
	e := p.event(lease.Wanted)
	require.Equal(t, lease.Event{Type: lease.Wanted, Key: "the key", Ticket: 3}, e)
}

func TestCloseOfASilentServerEnds(t *testing.T) {
	server := redistest.Start(t)
	p := newPeer(t, server.Option(), redislease.Config{})
	_, err := p.Open(t.Context(), "p", p.record)
	require.NoError(t, err)
	server.Pause()
	answers := make(chan error, 1)
	p.Send(acquire("k", 1), func(_ lease.Reply, err error) { answers <- err })
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	require.ErrorIs(t, p.Close(ctx), context.DeadlineExceeded)
	answer := <-answers
	var failure *redislease.Error
	require.True(t, errors.Is(answer, lease.ErrStoreClosed) || errors.As(answer, &failure), "%v", answer)
	server.Resume()
	require.NoError(t, p.Close(t.Context()))
}
