package faulttest

import (
	"bytes"
	"context"
	"errors"
	"runtime"
	"testing"
	"time"

	"github.com/redis/rueidis"
	"github.com/stretchr/testify/require"

	"github.com/go-leasehold/leasehold/coordinator"
	"github.com/go-leasehold/leasehold/internal/faults"
	"github.com/go-leasehold/leasehold/internal/redistest"
	"github.com/go-leasehold/leasehold/lease"
	"github.com/go-leasehold/leasehold/lease/redislease"
)

// badServer is a server that can't serve locks, as a process sees it.
type badServer struct {
	says    string
	newSays string // where it differs, to a process that comes later
	opens   bool
	args    []string
	make    func(t testing.TB, s *redistest.Server, p *faults.Proxy) (heal func())
}

// badServers are all those that the errors have to tell apart.
func badServers() map[string]badServer {
	all := map[string]badServer{
		"down": {says: "the server is down: nothing listens there", make: func(_ testing.TB, _ *redistest.Server, p *faults.Proxy) func() {
			p.Refuse(true)
			p.Reset()
			return func() { p.Refuse(false) }
		}},
		"half open": {says: "the server is silent", make: func(_ testing.TB, _ *redistest.Server, p *faults.Proxy) func() {
			p.HalfOpen(true)
			p.Reset()
			return func() { p.HalfOpen(false) }
		}},
		"silent": {says: "the server is silent", make: func(_ testing.TB, _ *redistest.Server, p *faults.Proxy) func() {
			p.BlackHole(true)
			return func() { p.BlackHole(false) }
		}},
		"without scripts": {says: "the user is not permitted to run scripts", make: func(t testing.TB, s *redistest.Server, _ *faults.Proxy) func() {
			s.Do(t, "ACL", "SETUSER", "app", "-@scripting")
			return func() { s.Do(t, "ACL", "SETUSER", "app", "+@scripting") }
		}},
		"with another password": {says: "the user name or the password is wrong", make: func(t testing.TB, s *redistest.Server, p *faults.Proxy) func() {
			s.Do(t, "ACL", "SETUSER", "app", "resetpass", ">changed")
			p.Reset() // a connection that is open stays logged in
			return func() { s.Do(t, "ACL", "SETUSER", "app", ">secret") }
		}},
	}
	for name, bad := range states {
		all[name] = badServer{says: bad.says, newSays: bad.newSays, opens: bad.opens, args: bad.args, make: func(t testing.TB, s *redistest.Server, _ *faults.Proxy) func() {
			return bad.inflict(t, s)
		}}
	}
	return all
}

// Bad input: the server. The error says which kind of bad it is, TryLock says it at once, Lock within
// UnavailableAfter or its context, and a new process is refused in time, or works when the server does.
func TestBadServerIsNamedInTime(t *testing.T) {
	t.Parallel()
	t.Cleanup(func() {
		// A client that found no server has a goroutine that sleeps for up to a second before it ends.
		eventually(t, hangs, "the clients' ends", func() bool {
			stacks := make([]byte, 1<<20)
			return !bytes.Contains(stacks[:runtime.Stack(stacks, true)], []byte("DelayDo"))
		})
	})
	for name, bad := range badServers() {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			const ttl, unavailableAfter = 1500 * time.Millisecond, 600 * time.Millisecond
			server := redistest.Start(t, bad.args...)
			proxy := faults.NewProxy(t, server.Addr())
			server.Do(t, "ACL", "SETUSER", "app", "on", ">secret", "~*", "&*", "+@all")
			option := patient(proxy.Addr())
			option.Username, option.Password = "app", "secret"
			c := join(t, option, ours(ttl, coordinator.WithUnavailableAfter(unavailableAfter))...)
			heal := bad.make(t, server, proxy)
			newcomer := openLater(option)
			sayWhich(t, c, bad.says, ttl, unavailableAfter)
			late := opens(t, await(t, newcomer, hangs, "New"), bad)
			heal()
			free(t, c, "k")
			if late != nil {
				free(t, late, "k")
				require.NoError(t, shut(late))
			}
		})
	}
}

// sayWhich calls everything that asks the server.
func sayWhich(t *testing.T, c *coordinator.Coordinator, says string, ttl, unavailableAfter time.Duration) {
	ctx, cancel := context.WithCancel(context.Background())
	for name, call := range map[string]struct {
		fn    func() (*coordinator.Hold, error)
		limit time.Duration
	}{
		"TryLock":    {func() (*coordinator.Hold, error) { return c.Mutex("try").TryLock(context.Background()) }, ttl / 3},
		"TryLockFor": {func() (*coordinator.Hold, error) { return c.Mutex("for").TryLockFor(context.Background(), ttl/2) }, ttl / 2},
		"Lock":       {func() (*coordinator.Hold, error) { return c.Mutex("wait").Lock(context.Background()) }, unavailableAfter + ttl/3},
	} {
		var hold *coordinator.Hold
		var err error
		start := time.Now()
		within(t, hangs, name, func() { hold, err = call.fn() })
		require.Less(t, time.Since(start), call.limit+slack, name)
		require.Nil(t, hold, name)
		require.ErrorIs(t, err, coordinator.ErrUnavailable, name)
		require.NotErrorIs(t, err, coordinator.ErrNotAcquired, name)
		require.ErrorContains(t, err, says, name)
		var wait *coordinator.WaitError
		require.ErrorAs(t, err, &wait, name)
		var cause *redislease.Error
		require.ErrorAs(t, err, &cause, name)
		require.NotEmpty(t, cause.Addr)
	}
	waits := lockLater(ctx, c.Mutex("cancelled"))
	cancel()
	out := await(t, waits, slack, "a cancelled Lock")
	require.ErrorIs(t, out.err, context.Canceled)
	require.Nil(t, out.hold)
	within(t, ttl/3+slack, "Inspect", func() {
		// A server that refuses changes may still answer who holds a key.
		if _, err := c.Inspect(context.Background(), "k"); err != nil {
			var cause *redislease.Error
			if !errors.As(err, &cause) {
				t.Errorf("Inspect: %v", err)
			}
		}
	})
}

// opened is what New came to.
type opened struct {
	c   *coordinator.Coordinator
	err error
}

// openLater has a new process meet the server, in a goroutine of its own.
func openLater(option rueidis.ClientOption) <-chan opened {
	option.ConnWriteTimeout, option.Dialer.Timeout = 500*time.Millisecond, 500*time.Millisecond // it tries again after that
	done := make(chan opened, 1)
	go func() { // ends with New, which has a limit of its own
		_, quiet := logTo()
		c, err := coordinator.New(option, coordinator.WithTTL(8*time.Second), quiet)
		done <- opened{c, err}
	}()
	return done
}

// opens checks what a new process was told, and returns its coordinator if it got one.
func opens(t *testing.T, got opened, bad badServer) *coordinator.Coordinator {
	c, err := got.c, got.err
	if bad.opens {
		require.NoError(t, err)
		return c
	}
	require.Nil(t, c)
	require.ErrorIs(t, err, coordinator.ErrUnavailable)
	says := bad.says
	if bad.newSays != "" {
		says = bad.newSays
	}
	require.ErrorContains(t, err, says)
	return nil
}

// Bad input: no address, and no password where one is wanted.
func TestNewWithoutAWayInIsRefused(t *testing.T) {
	t.Parallel()
	_, quiet := logTo()
	c, err := coordinator.New(rueidis.ClientOption{}, quiet)
	require.Nil(t, c)
	require.ErrorIs(t, err, coordinator.ErrInvalid)
	require.ErrorContains(t, err, "InitAddress")

	server := redistest.Start(t, "--requirepass", "secret")
	for password, says := range map[string]string{
		"":      "the server wants a password and none was given",
		"wrong": "the user name or the password is wrong",
	} {
		option := at(server.Addr())
		option.Password = password
		c, err := coordinator.New(option, quiet)
		require.Nil(t, c)
		require.ErrorIs(t, err, coordinator.ErrUnavailable)
		require.ErrorContains(t, err, says)
	}
	free(t, join(t, server.Option()), "k")
}

// Bad input: a lock of another kind. Who holds it keeps it.
func TestLockOfAnotherKindIsRefused(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	c := steady(t, server.Addr(), ours(time.Second)...)
	hold := grab(t, c.Mutex("k"))
	store, err := redislease.New(at(server.Addr()), redislease.Config{})
	require.NoError(t, err)
	_, err = store.Open(t.Context(), "reader", func(lease.Event) {})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, store.Close(context.Background())) })
	for _, mode := range []lease.Mode{lease.Shared, lease.Exclusive} {
		refused := make(chan error, 1)
		store.Send(lease.Request{
			Op: lease.Acquire, Key: "k", Kind: lease.ReadWrite, Mode: mode, Ticket: 1, TTL: time.Second, Tokens: 1, Queue: true,
		}, func(_ lease.Reply, err error) { refused <- err })
		require.ErrorIs(t, await(t, refused, hangs, "the refusal"), coordinator.ErrKind)
	}
	require.NoError(t, hold.Err())
	require.Empty(t, inspect(t, c, "k").Waiters)
	require.NoError(t, hold.Unlock())
}

// Bad input: Unlock twice, after a loss, and after Close.
func TestUnlockTwiceAfterLossAndAfterCloseDiffer(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	c := steady(t, server.Addr(), ours(time.Second)...)
	twice, lost, closed := grab(t, c.Mutex("twice")), grab(t, c.Mutex("lost")), grab(t, c.Mutex("closed"))
	require.NoError(t, twice.Unlock())
	require.NoError(t, c.ForceUnlock(t.Context(), "lost"))
	require.ErrorIs(t, ended(t, lost, hangs), coordinator.ErrLeaseLost)
	over, cancel := context.WithCancel(context.Background())
	cancel()
	require.NoError(t, c.Close(over))
	require.ErrorIs(t, ended(t, closed, hangs), coordinator.ErrClosed)

	all := []error{coordinator.ErrNotHeld, coordinator.ErrLeaseLost, coordinator.ErrClosed}
	for range 2 { // and again: each says the same as before
		for i, said := range []error{twice.Unlock(), lost.Unlock(), closed.Unlock()} {
			for j, sentinel := range all {
				require.Equal(t, i == j, errors.Is(said, sentinel), "%v", said)
			}
		}
	}
}
