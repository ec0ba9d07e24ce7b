package faulttest

import (
	"context"
	"errors"
	"fmt"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/go-leasehold/leasehold/coordinator"
	"github.com/go-leasehold/leasehold/internal/faults"
	"github.com/go-leasehold/leasehold/internal/redistest"
)

// closeGrace is what Close's documentation allows it beyond its context.
const closeGrace = 250 * time.Millisecond

// D8: Close with 100 held locks and 1,000 waiters. Waiters are refused while the holders still work; what is held
// when the context ends is ended and handed over before Close returns; then nothing is sent, no connection and no
// goroutine is left, and a second Close is harmless. It looks for goroutines, so it runs alone.
func TestCloseEndsWaitersHoldersAndRenewals(t *testing.T) {
	const held, waiters = 100, 1000
	server := redistest.Start(t)
	other := steady(t, server.Addr(), ours(time.Second)...)
	proxy := faults.NewProxy(t, server.Addr())
	before := goleak.IgnoreCurrent()
	net := listen(proxy)
	c := joinAtRisk(t, patient(proxy.Addr()), coordinator.WithTTL(3*time.Second))
	holds := holdMany(t, c, held)
	var refused []<-chan outcome
	for i := range waiters {
		refused = append(refused, lockLater(context.Background(), c.Mutex(fmt.Sprintf("held-%d", i%held))))
	}
	eventually(t, hangs, "all waiting", func() bool { return waitingIn(c) == waiters })
	inherits := lockLater(t.Context(), other.Mutex("held-7"))
	awaitQueue(t, other, "held-7", 1)

	ctx, stop := context.WithCancel(context.Background())
	closed := make(chan error, 1)
	go func() { closed <- c.Close(ctx) }() // returns after stop
	for _, r := range refused {
		out := await(t, r, hangs, "a waiter's end")
		require.ErrorIs(t, out.err, coordinator.ErrClosed)
		require.Nil(t, out.hold)
	}
	for _, hold := range holds {
		require.NoError(t, hold.Err(), "holds may finish until Close's context ends")
	}
	require.NoError(t, holds[0].Unlock())
	_, err := c.Mutex("anything").Lock(context.Background())
	require.ErrorIs(t, err, coordinator.ErrClosed)
	require.Empty(t, closed)

	stop()
	said := await(t, closed, closeGrace+slack, "Close after its context's end")
	require.ErrorIs(t, holds[1].Err(), coordinator.ErrClosed)
	require.LessOrEqual(t, keysOf(t, server, c), keysLeft(t, said))
	require.NoError(t, await(t, inherits, hangs, "the hand-over").hold.Unlock())
	eventually(t, 3*time.Second+slack, "the keys gone", func() bool { return len(leftovers(t, server)) == 0 })
	eventually(t, slack, "the connections closed", func() bool { return proxy.Connections() == 0 })
	staysQuiet(t, net, 1200*time.Millisecond, nil, "a command after Close")
	for _, hold := range holds[1:] {
		require.ErrorIs(t, hold.Unlock(), coordinator.ErrClosed)
	}
	within(t, slack, "a second Close", func() {
		if again := c.Close(context.Background()); fmt.Sprint(again) != fmt.Sprint(said) {
			t.Errorf("closing again said %v, not %v", again, said)
		}
	})
	require.NoError(t, goleak.Find(before))
}

// keysLeft is how many keys an error of Close says it could not hand over: none where there is no error.
func keysLeft(t *testing.T, err error) int {
	t.Helper()
	if err == nil || !errors.Is(err, coordinator.ErrUnavailable) && errors.Is(err, context.DeadlineExceeded) {
		return 0 // in the second case there was no time to say goodbye
	}
	require.ErrorIs(t, err, coordinator.ErrUnavailable)
	found := regexp.MustCompile(`(\d+) keys could not be handed over`).FindStringSubmatch(err.Error())
	require.Len(t, found, 2, err)
	n, err := strconv.Atoi(found[1])
	require.NoError(t, err)
	return n
}

// keysOf is how many locks the process has in Redis.
func keysOf(t *testing.T, s *redistest.Server, c *coordinator.Coordinator) (n int) {
	t.Helper()
	for _, name := range leftovers(t, s) {
		message := s.Do(t, "HKEYS", name)
		if owners, err := message.AsStrSlice(); err == nil && len(owners) == 1 && strings.HasPrefix(owners[0], c.ID()) {
			n++
		}
	}
	return n
}

// waitingIn is how many calls wait in the process.
func waitingIn(c *coordinator.Coordinator) (n int) {
	for _, k := range c.Snapshot().Keys {
		n += len(k.Waiters)
	}
	return n
}

// D8: Close with no way to Redis. It returns in time, says how many keys are left to expire, ends its holders, and
// renews nothing when the way is there again; the keys are free a lease later.
func TestCloseWithRedisGoneSaysWhatIsLeft(t *testing.T) {
	t.Parallel()
	for name, cut := range map[string]func(p *faults.Proxy, on bool){
		"silent": func(p *faults.Proxy, on bool) { p.Swallow(faults.Up, on) },
		"half open": func(p *faults.Proxy, on bool) {
			p.HalfOpen(on)
			p.Reset()
		},
		"refusing": func(p *faults.Proxy, on bool) {
			p.Refuse(on)
			p.Reset()
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			const ttl, n = 2500 * time.Millisecond, 100
			server := redistest.Start(t)
			proxy := faults.NewProxy(t, server.Addr())
			net := listen(proxy)
			c := joinAtRisk(t, patient(proxy.Addr()), ours(ttl)...)
			holds := holdMany(t, c, n)
			cut(proxy, true)
			ctx, cancel := context.WithTimeout(context.Background(), 200*time.Millisecond)
			defer cancel()
			var err error
			within(t, 200*time.Millisecond+closeGrace+slack, "Close", func() { err = c.Close(ctx) })
			if !errors.Is(err, coordinator.ErrUnavailable) { // a slow machine: it goes on behind our back, to an end
				require.ErrorIs(t, err, context.DeadlineExceeded)
				within(t, hangs, "Close", func() { err = c.Close(context.Background()) })
			}
			require.ErrorIs(t, err, coordinator.ErrUnavailable)
			require.Equal(t, keysOf(t, server, c), keysLeft(t, err), "all, unless the machine was slow")
			for _, hold := range holds {
				require.ErrorIs(t, hold.Unlock(), coordinator.ErrClosed)
			}
			renewed := net.count(is("renew"))
			cut(proxy, false)
			eventually(t, ttl+slack, "the keys gone", func() bool { return len(leftovers(t, server)) == 0 })
			eventually(t, slack, "the connections closed", func() bool { return proxy.Connections() == 0 })
			require.Equal(t, renewed, net.count(is("renew")), "renewed after Close")
			within(t, slack, "a second Close", func() {
				if again := c.Close(context.Background()); again == nil || again.Error() != err.Error() {
					t.Errorf("closing again said %v, not %v", again, err)
				}
			})
		})
	}
}

// D8: several calls of Close at the same time, one of them with no time at all, while locks come and go.
func TestCloseCalledByManyAtOnce(t *testing.T) {
	t.Parallel()
	server := redistest.Shared(t)
	prefix := redistest.Prefix(t)
	other := steady(t, server.Addr(), ours(time.Second)...)
	for i := range rounds(10, 500) {
		key := fmt.Sprintf("%s%d", prefix, i)
		c := joinAtRisk(t, patient(server.Addr()), ours(time.Second)...)
		working := make(chan error, 4)
		for range cap(working) {
			go func() { // ends with Close
				for {
					if err := c.Mutex(key).Do(context.Background(), func(context.Context) error { return nil }); err != nil {
						working <- err
						return
					}
				}
			}()
		}
		free(t, other, key) // they are at work
		ended := make(chan error, 3)
		over, cancel := context.WithCancel(context.Background())
		cancel()
		for _, ctx := range []context.Context{context.Background(), over, context.Background()} {
			go func() { ended <- c.Close(ctx) }()
		}
		for range cap(ended) {
			require.NoError(t, await(t, ended, hangs, "Close"))
		}
		for range cap(working) {
			require.ErrorIs(t, await(t, working, hangs, "a worker's end"), coordinator.ErrClosed)
		}
	}
}
