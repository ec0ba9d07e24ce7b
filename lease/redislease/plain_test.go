package redislease_test

import (
	"context"
	"net"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/rueidis"
	"github.com/stretchr/testify/require"

	"github.com/go-leasehold/leasehold/internal/faults"
	"github.com/go-leasehold/leasehold/internal/redistest"
	"github.com/go-leasehold/leasehold/lease"
	"github.com/go-leasehold/leasehold/lease/redislease"
)

// connections are those of the store, as the server lists them: by the name that the option gives.
func connections(t require.TestingT, server *redistest.Server, name string) (all []string) {
	message, err := server.DoErr("CLIENT", "LIST")
	require.NoError(t, err)
	list, err := message.ToString()
	require.NoError(t, err)
	for line := range strings.Lines(list) {
		if strings.Contains(line, " name="+name+" ") {
			all = append(all, line)
		}
	}
	return all
}

func plainOf(t testing.TB, p *peer) rueidis.Client {
	t.Helper()
	plain, err := p.Plain()
	require.NoError(t, err)
	return plain
}

func set(t require.TestingT, client rueidis.Client, key, value string) {
	require.NoError(t, client.Do(context.Background(), client.B().Set().Key(key).Value(value).Build()).Error())
}

// TestPlainHasConnectionsOfItsOwn: as many as the option says, and none of them tracks.
func TestPlainHasConnectionsOfItsOwn(t *testing.T) {
	server := redistest.Start(t)
	for name, multiplex := range map[string]int{"one": -1, "four": 2} {
		option := server.Option()
		option.ClientName, option.PipelineMultiplex = name, multiplex
		p := openWith(t, option, name, redislease.Config{})
		require.Len(t, connections(t, server, name), 1, "none before it is asked for")
		plain := plainOf(t, p)
		info, err := plain.Do(t.Context(), plain.B().ClientTrackinginfo().Build()).AsMap()
		require.NoError(t, err)
		flags := info["flags"]
		words, err := flags.AsStrSlice()
		require.NoError(t, err)
		require.Equal(t, []string{"off"}, words)
		eventually(t, func(c *collector) { // it picks one by chance
			set(c, plain, name, "1")
			require.Len(c, connections(t, server, name), map[string]int{"one": 2, "four": 5}[name])
		})
		tracking := 0
		for _, line := range connections(t, server, name) {
			_, flags, _ := strings.Cut(line, " flags=")
			if flags, _, _ := strings.Cut(flags, " "); strings.Contains(flags, "t") {
				tracking++
				require.Contains(t, line, " sub=1 ", "the store's own")
			}
		}
		require.Equal(t, 1, tracking)
		plain.Close()
		set(t, plain, name, "still open: others use it too")
		p.do(lease.Held, acquire(name, 1))
		p.close()
		require.Error(t, plain.Do(t.Context(), plain.B().Get().Key(name).Build()).Error())
		_, err = p.Plain()
		require.ErrorIs(t, err, lease.ErrStoreClosed)
		eventually(t, func(c *collector) { require.Empty(c, connections(c, server, name)) })
	}
}

func TestPlainNeedsAnOpenStore(t *testing.T) {
	p := newPeer(t, redistest.Shared(t).Option(), redislease.Config{})
	_, err := p.Plain()
	require.ErrorContains(t, err, "not open")
	_, err = p.Watch("k", func() {})
	require.ErrorContains(t, err, "not open")
	_, err = p.Tracked(t.Context())
	require.ErrorContains(t, err, "not open")
	p.close()
	_, err = p.Plain()
	require.ErrorIs(t, err, lease.ErrStoreClosed)
}

// TestPlainIsMadeOnce: by however many callers, after one try that failed for all who waited for it.
func TestPlainIsMadeOnce(t *testing.T) {
	server := redistest.Start(t)
	option, g := server.Option(), &gate{}
	option.DialCtxFn, option.PipelineMultiplex, option.Dialer.Timeout = g.DialCtx, -1, limit
	p := openWith(t, option, "p", redislease.Config{})
	const callers = 16
	var dials atomic.Int64
	dialling, fail := make(chan struct{}, callers), make(chan struct{})
	g.set(func(context.Context, string, *net.Dialer) (net.Conn, error) {
		dials.Add(1)
		dialling <- struct{}{}
		<-fail
		return nil, net.UnknownNetworkError("the test's")
	})
	type answer struct {
		plain rueidis.Client
		err   error
	}
	answers := make(chan answer, callers)
	ask := func() {
		for range callers {
			go func() {
				plain, err := p.Plain()
				answers <- answer{plain, err}
			}()
		}
	}
	ask()
	<-dialling
	eventually(t, func(c *collector) { require.Equal(c, callers, goroutinesIn("(*plain).get(")) })
	close(fail)
	for range callers {
		a := <-answers
		var failure *redislease.Error
		require.ErrorAs(t, a.err, &failure)
		require.Equal(t, redislease.StageConnect, failure.Stage)
		require.ErrorContains(t, a.err, "the test's")
		require.Nil(t, a.plain)
	}
	require.EqualValues(t, 1, dials.Load())

	g.set(nil)
	ask()
	var plain rueidis.Client
	for range callers {
		a := <-answers
		require.NoError(t, a.err)
		if plain == nil {
			plain = a.plain
		}
		require.Same(t, plain, a.plain)
	}
	set(t, plain, "k", "1")
}

// TestCloseCutsAPlainThatDials: to a server that takes connections and says nothing, by a client that would wait for
// long.
func TestCloseCutsAPlainThatDials(t *testing.T) {
	server := redistest.Start(t)
	proxy := faults.NewProxy(t, server.Addr())
	for _, late := range []bool{false, true} {
		proxy.HalfOpen(false)
		option := server.Option()
		option.InitAddress = []string{proxy.Addr()}
		option.Dialer.Timeout, option.ConnWriteTimeout = 10*limit, 10*limit
		p := openWith(t, option, "p", redislease.Config{TTL: time.Hour})
		p.do(lease.Held, acquire("k", 1))
		proxy.HalfOpen(true)
		before := proxy.Accepted()
		answers := make(chan error, 1)
		go func() {
			_, err := p.Plain()
			answers <- err
		}()
		eventually(t, func(c *collector) { require.Greater(c, proxy.Accepted(), before) })
		ctx, cancel := context.WithTimeout(context.Background(), limit)
		if late {
			cancel()
		}
		start := time.Now()
		err := p.Close(ctx)
		if !late {
			require.NoError(t, err)
		}
		require.ErrorIs(t, <-answers, lease.ErrStoreClosed)
		require.Less(t, time.Since(start), limit)
		cancel()
	}
}

// TestCloseDoesNotWaitForAHungDialFunction: longer than its context.
func TestCloseDoesNotWaitForAHungDialFunction(t *testing.T) {
	server := redistest.Start(t)
	option := server.Option()
	hang, hangs := make(chan struct{}), make(chan struct{}, 10)
	var armed atomic.Bool
	option.AuthCredentialsFn = func(rueidis.AuthCredentialsContext) (rueidis.AuthCredentials, error) {
		if armed.Load() {
			hangs <- struct{}{}
			<-hang
		}
		return rueidis.AuthCredentials{}, nil
	}
	p := openWith(t, option, "p", redislease.Config{})
	armed.Store(true)
	answers := make(chan error, 1)
	go func() {
		_, err := p.Plain()
		answers <- err
	}()
	<-hangs
	ctx, cancel := context.WithTimeout(context.Background(), 50*time.Millisecond)
	defer cancel()
	require.ErrorIs(t, p.Close(ctx), context.DeadlineExceeded)
	close(hang)
	require.ErrorIs(t, <-answers, lease.ErrStoreClosed)
}

// TestCloseCutsPlainConnectionsOfASilentServer: the client would wait a second for each of them.
func TestCloseCutsPlainConnectionsOfASilentServer(t *testing.T) {
	server := redistest.Start(t)
	option := server.Option()
	option.ClientName, option.PipelineMultiplex = "p", 5
	option.Dialer.KeepAlive, option.ConnWriteTimeout = time.Hour, time.Hour // nothing else ends them
	p := openWith(t, option, "p", redislease.Config{})
	plain := plainOf(t, p)
	eventually(t, func(c *collector) {
		set(c, plain, "k", "1")
		require.GreaterOrEqual(c, len(connections(t, server, "p")), 25)
	})
	server.Pause()
	ctx, cancel := context.WithTimeout(context.Background(), 50*time.Millisecond)
	defer cancel()
	start := time.Now()
	_ = p.Close(ctx) // nothing was under way, so there is nothing to complain of
	require.Less(t, time.Since(start), limit)
	server.Resume()
}

// TestPlainLeavesAReplica: whichever of the two clients meets it, behind a name that has moved on.
func TestPlainLeavesAReplica(t *testing.T) {
	for _, byPlain := range []bool{true, false} {
		old, next := redistest.Start(t), redistest.Start(t)
		option, g := old.Option(), &gate{}
		option.DialCtxFn, option.PipelineMultiplex = g.DialCtx, -1 // no further connection is made by the way
		p := openWith(t, option, "p", redislease.Config{})
		plain := plainOf(t, p)
		set(t, plain, "k", "1")
		next.Do(t, "SET", "k", "next")
		g.set(func(ctx context.Context, _ string, dialer *net.Dialer) (net.Conn, error) {
			return dialer.DialContext(ctx, "tcp", next.Addr())
		})
		old.Do(t, "REPLICAOF", "127.0.0.1", "1")
		if byPlain {
			err := plain.DoMulti(t.Context(), plain.B().Set().Key("k").Value("2").Build())[0].Error()
			require.ErrorContains(t, err, "READONLY")
		} else {
			_, err := p.try(acquire("k2", 1))
			require.ErrorContains(t, err, "READONLY")
		}
		eventually(t, func(c *collector) { // the connection that was cut may answer first, with an error
			value, err := plain.Do(t.Context(), plain.B().Get().Key("k").Build()).ToString()
			require.NoError(c, err)
			require.Equal(c, "next", value)
		})
		if byPlain {
			require.Empty(t, p.ofType(lease.Disconnected), "the leases have a connection of their own")
		}
		p.close()
	}
}

// TestPlainUnderRESP2: it speaks what the store's own client does.
func TestPlainUnderRESP2(t *testing.T) {
	server := redistest.Start(t)
	option := server.Option()
	option.AlwaysRESP2 = true
	plain := plainOf(t, openWith(t, option, "p", redislease.Config{}))
	set(t, plain, "k", "1")
	all, err := plain.Do(t.Context(), plain.B().Arbitrary("CONFIG", "GET", "save").Build()).ToMessage()
	require.NoError(t, err)
	require.True(t, all.IsArray(), "under RESP3 it is a map")
}

// TestPlainIsNotInTheWayOfLeases: on one connection an answer that takes long would keep theirs.
func TestPlainIsNotInTheWayOfLeases(t *testing.T) {
	server := redistest.Start(t)
	proxy := faults.NewProxy(t, server.Addr())
	option := server.Option()
	option.InitAddress, option.PipelineMultiplex = []string{proxy.Addr()}, -1
	p := openWith(t, option, "p", redislease.Config{})
	p.do(lease.Held, acquire("k", 1))
	plain := plainOf(t, p)
	asked := make(chan struct{}, 1)
	proxy.OnCommand(func(words []string) faults.Action {
		if strings.EqualFold(words[0], "GET") {
			asked <- struct{}{}
			return faults.DelayReply(limit / 4)
		}
		return faults.Pass
	})
	done := make(chan error, 1)
	go func() { done <- plain.Do(context.Background(), plain.B().Get().Key("k2").Build()).Error() }()
	<-asked
	for range 10 {
		p.do(lease.Held, renew("k", 1))
	}
	select {
	case err := <-done:
		require.Fail(t, "the answer came before those of the renewals", "%v", err)
	default:
	}
	p.close()
	<-done
}
