package faulttest

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/go-leasehold/leasehold/coordinator"
	"github.com/go-leasehold/leasehold/internal/faults"
	"github.com/go-leasehold/leasehold/internal/redistest"
)

// outages are the ways in which Redis is not there.
var outages = map[string]func(p *faults.Proxy, on bool){
	"nothing listens": func(p *faults.Proxy, on bool) {
		p.Refuse(on)
		p.Reset()
	},
	"half open": func(p *faults.Proxy, on bool) {
		p.HalfOpen(on)
		p.Reset()
	},
	"silent": (*faults.Proxy).BlackHole,
}

// I3: Redis is away before the call. A try says so at once, a limited wait within its limit, one without a limit
// obeys its context, and goes on when Redis is back.
func TestUnreachableRedisNeverHangsACall(t *testing.T) {
	t.Parallel()
	for name, cut := range outages {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			const ttl, limit = 900 * time.Millisecond, 500 * time.Millisecond
			server := redistest.Shared(t)
			key := redistest.Prefix(t) + "k"
			proxy := faults.NewProxy(t, server.Addr())
			c := steady(t, proxy.Addr(), ours(ttl, coordinator.WithUnavailableAfter(0))...)
			cut(proxy, true)
			m := c.Mutex(key)

			hold, took, err := try(t, m)
			require.Nil(t, hold)
			require.ErrorIs(t, err, coordinator.ErrUnavailable)
			require.Less(t, took, ttl/3+slack)

			start := time.Now()
			within(t, hangs, "TryLockFor", func() { hold, err = m.TryLockFor(context.Background(), limit) })
			require.Nil(t, hold)
			require.ErrorIs(t, err, coordinator.ErrUnavailable)
			require.Less(t, time.Since(start), limit+ttl/3+slack)

			ctx, cancel := context.WithCancel(context.Background())
			waits := lockLater(ctx, m)
			endless := lockLater(context.Background(), c.Mutex(key))
			time.Sleep(ttl / 2) // they stand in the outage for a while
			cancel()
			out := await(t, waits, slack, "the cancelled call")
			require.Nil(t, out.hold)
			require.ErrorIs(t, out.err, context.Canceled)
			require.Empty(t, endless)

			cut(proxy, false)
			out = await(t, endless, hangs, "the endless call after recovery")
			require.NoError(t, out.err)
			require.NoError(t, out.hold.Unlock())
		})
	}
}

// I3: Redis goes away while the command is on its way.
func TestRedisThatGoesAwayDuringACallIsTold(t *testing.T) {
	t.Parallel()
	for name, cut := range outages {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			const ttl = 900 * time.Millisecond
			server := redistest.Shared(t)
			key := redistest.Prefix(t) + "k"
			proxy := faults.NewProxy(t, server.Addr())
			c := steady(t, proxy.Addr(), ours(ttl, coordinator.WithUnavailableAfter(ttl))...)
			proxy.Hold(faults.Down, true) // the server runs it, and nothing comes back
			net := listen(proxy)
			tried := make(chan error, 1)
			go func() {
				_, err := c.Mutex(key).TryLock(context.Background())
				tried <- err
			}()
			locked := lockLater(context.Background(), c.Mutex(key+"2"))
			eventually(t, hangs, "both commands", func() bool { return net.count(is("acquire")) == 2 })
			cut(proxy, true)
			require.ErrorIs(t, await(t, tried, ttl/3+slack, "TryLock"), coordinator.ErrUnavailable)
			out := await(t, locked, ttl+ttl/3+slack, "Lock")
			require.Nil(t, out.hold)
			require.ErrorIs(t, out.err, coordinator.ErrUnavailable)

			proxy.Hold(faults.Down, false)
			cut(proxy, false)
			require.NoError(t, take(t, c.Mutex(key)).Unlock())
			eventually(t, ttl+slack, "nothing left of the calls that failed", func() bool {
				return !exists(t, server, key) && !exists(t, server, key+"2")
			})
		})
	}
}
