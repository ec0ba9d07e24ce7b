package redislease_test

import (
	"context"
	"crypto/tls"
	"errors"
	"io"
	"log/slog"
	"net"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/redis/rueidis"
	"github.com/stretchr/testify/require"

	"github.com/go-leasehold/leasehold/internal/redistest"
	"github.com/go-leasehold/leasehold/lease"
	"github.com/go-leasehold/leasehold/lease/redislease"
)

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
	eventually(t, func(c *collector) { // the first tells of the loss, if it comes before the server is found down
		_, err = p.try(acquire("k", 2))
		require.ErrorContains(c, err, "notices don't come in, so a grant would be missed: the server is down: nothing listens there")
	})
	require.ErrorAs(t, err, &failure)
	require.Equal(t, redislease.StageInbox, failure.Stage)
	_, err = p.Inspect(t.Context(), "k")
	require.ErrorContains(t, err, "is down")

	server.Restart()
	p.event(lease.Connected)
	p.do(lease.Lost, renew("k", 1))
	p.do(lease.Held, acquire("k", 2))
}

// gate lets a test say what becomes of connections that are made.
type gate struct {
	mu   sync.Mutex
	dial func(ctx context.Context, address string, dialer *net.Dialer) (net.Conn, error) // nil: as usual
}

func (g *gate) set(dial func(context.Context, string, *net.Dialer) (net.Conn, error)) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.dial = dial
}

func (g *gate) DialCtx(ctx context.Context, address string, dialer *net.Dialer, _ *tls.Config) (net.Conn, error) {
	g.mu.Lock()
	dial := g.dial
	g.mu.Unlock()
	if dial == nil {
		return dialer.DialContext(ctx, "tcp", address)
	}
	return dial(ctx, address, dialer)
}

// TestErrorsOfALostInboxNameTheNewestReason: the server was lost, and each try to get back in meets something else.
func TestErrorsOfALostInboxNameTheNewestReason(t *testing.T) {
	server := redistest.Start(t)
	server.Do(t, "ACL", "SETUSER", "app", "on", ">secret", "~*", "&*", "+@all")
	option, g := server.Option(), &gate{}
	option.Username, option.Password, option.DialCtxFn = "app", "secret", g.DialCtx
	p := openWith(t, option, "p", redislease.Config{TTL: time.Second})
	says := func(text, code string) {
		t.Helper()
		eventually(t, func(c *collector) {
			_, err := p.try(acquire("k", 1))
			var failure *redislease.Error
			require.ErrorAs(c, err, &failure)
			require.ErrorContains(c, err, text)
			require.Equal(c, code, failure.Code)
		})
	}
	g.set(func(context.Context, string, *net.Dialer) (net.Conn, error) { return nil, syscall.ECONNREFUSED })
	server.Do(t, "CLIENT", "KILL", "TYPE", "pubsub")
	p.event(lease.Disconnected)
	says("the server is down: nothing listens there", "")

	g.set(func(ctx context.Context, _ string, _ *net.Dialer) (net.Conn, error) {
		<-ctx.Done()
		return nil, ctx.Err()
	})
	says("the server can't be reached: no connection in time", "")

	var silent []net.Conn
	g.set(func(context.Context, string, *net.Dialer) (net.Conn, error) {
		near, far := net.Pipe()
		silent = append(silent, far) // one at a time
		go func() { _, _ = io.Copy(io.Discard, far) }()
		return near, nil
	})
	says("the server is silent: the connection is open, or half open, and no answer came in time", "")

	server.Do(t, "ACL", "SETUSER", "app", "resetpass", ">other")
	g.set(nil)
	says("the user name or the password is wrong", "WRONGPASS")
	server.Do(t, "ACL", "SETUSER", "app", ">secret")
	p.event(lease.Connected)
	p.do(lease.Held, acquire("k", 2))
	for _, far := range silent {
		_ = far.Close()
	}
}

// TestBriefLossIsWaitedOut: what joins a queue waits for the inbox where it is being subscribed again, for no longer
// than for an answer.
func TestBriefLossIsWaitedOut(t *testing.T) {
	server := redistest.Start(t)
	option, g := server.Option(), &gate{}
	option.DialCtxFn = g.DialCtx
	option.Dialer.Timeout = limit
	p := openWith(t, option, "p", redislease.Config{TTL: time.Second})
	dialling, open := make(chan struct{}, 10), make(chan struct{})
	g.set(func(ctx context.Context, address string, dialer *net.Dialer) (net.Conn, error) {
		dialling <- struct{}{}
		select {
		case <-open:
		case <-ctx.Done():
		}
		return dialer.DialContext(ctx, "tcp", address)
	})
	server.Do(t, "CLIENT", "KILL", "TYPE", "pubsub")
	p.event(lease.Disconnected)
	<-dialling
	_, err := p.try(acquire("k", 1))
	require.ErrorContains(t, err, "the server is silent")
	answers := make(chan error, 1)
	p.Send(acquire("k", 2), func(_ lease.Reply, err error) { answers <- err })
	close(open)
	if err := <-answers; err != nil { // a machine too slow for this
		require.ErrorContains(t, err, "the server is silent")
	}
	p.event(lease.Connected)
	p.do(lease.Held, acquire("other", 3))
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

// blockingHandler never returns from a line until it is let go.
type blockingHandler struct {
	slog.Handler
	in, letGo chan struct{}
}

func (h blockingHandler) Handle(context.Context, slog.Record) error {
	h.in <- struct{}{}
	<-h.letGo
	return nil
}

// TestAnswersComeBeforeTheLine about them.
func TestAnswersComeBeforeTheLine(t *testing.T) {
	server, master := redistest.Start(t), redistest.Start(t)
	log := blockingHandler{slog.NewTextHandler(io.Discard, nil), make(chan struct{}, 10), make(chan struct{})}
	store, err := redislease.New(server.Option(), redislease.Config{Logger: slog.New(log)})
	require.NoError(t, err)
	p := &peer{Store: store, t: t, id: "p", news: make(chan struct{}, 1)}
	_, err = p.Open(t.Context(), "p", p.record)
	require.NoError(t, err)
	t.Cleanup(p.close)
	host, port, err := net.SplitHostPort(master.Addr())
	require.NoError(t, err)
	server.Do(t, "REPLICAOF", host, port)
	_, err = p.try(acquire("k", 1))
	require.ErrorContains(t, err, "read-only replica")
	<-log.in
	p.event(lease.Disconnected)
	p.event(lease.Connected)
	_, err = p.try(acquire("k", 2))
	require.ErrorContains(t, err, "read-only replica")
	close(log.letGo)
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

// TestCloseDoesNotWaitForAUsersDialFunction that looks at no context.
func TestCloseDoesNotWaitForAUsersDialFunction(t *testing.T) {
	server := redistest.Start(t)
	option, g := server.Option(), &gate{}
	option.DialCtxFn = g.DialCtx
	p := newPeer(t, option, redislease.Config{})
	_, err := p.Open(t.Context(), "p", p.record)
	require.NoError(t, err)
	dialling, letGo, closed := make(chan struct{}, 10), make(chan struct{}), make(chan struct{}, 10)
	g.set(func(_ context.Context, address string, _ *net.Dialer) (net.Conn, error) {
		dialling <- struct{}{}
		<-letGo
		conn, err := net.Dial("tcp", address)
		return &told{conn, closed}, err
	})
	server.Do(t, "CLIENT", "KILL", "TYPE", "pubsub")
	<-dialling
	answers := make(chan error, 1)
	p.Send(renew("k", 1), func(_ lease.Reply, err error) { answers <- err })
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	require.ErrorIs(t, p.Close(ctx), context.Canceled)
	require.Error(t, <-answers)
	close(letGo)
	<-closed // what came too late
}

// told tells of its end.
type told struct {
	net.Conn
	closed chan<- struct{}
}

func (t *told) Close() error {
	t.closed <- struct{}{}
	return t.Conn.Close()
}
