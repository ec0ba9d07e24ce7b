package faulttest

import (
	"context"
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/rueidis"
	"github.com/stretchr/testify/require"

	"github.com/go-leasehold/leasehold/coordinator"
	"github.com/go-leasehold/leasehold/internal/faults"
	"github.com/go-leasehold/leasehold/internal/redistest"
)

// D1 a: unlocked in a tight loop, over a network of random delays, with renewals due at the same moment and with
// callers that go away. After a key's release nothing renews it, all keys are gone a lease after the last call,
// and then nothing is sent any more.
func TestUnlockEndsRenewalWhateverItRacesWith(t *testing.T) {
	t.Parallel()
	const ttl, workers = 600 * time.Millisecond, 16
	each := rounds(500, 100_000) / workers
	server := redistest.Start(t)
	proxy := faults.NewProxy(t, server.Addr())
	net := listen(proxy)
	c := steady(t, proxy.Addr(), ours(ttl)...)
	jitter(t, proxy)

	var locked, cancelled atomic.Int64
	var all sync.WaitGroup
	for w := range workers {
		all.Go(func() {
			for i := range each {
				limit := hangs
				if i%3 == 0 {
					limit = rand.N(8 * time.Millisecond) // about as long as a grant takes
				}
				ctx, cancel := context.WithTimeout(context.Background(), limit)
				hold, err := c.Mutex(fmt.Sprintf("%d-%d", w, i)).Lock(ctx)
				if err == nil {
					locked.Add(1)
					time.Sleep(rand.N(130 * time.Millisecond)) // the first look, which renews, is due after 100
					_ = hold.Unlock()                          // "whatever its result": a slow machine may have lost it
				} else {
					cancelled.Add(1)
				}
				cancel()
			}
		})
	}
	all.Wait()
	t.Logf("%d locked, %d cancelled, %d renewals", locked.Load(), cancelled.Load(), net.count(is("renew")))
	require.Positive(t, net.count(is("renew")), "nothing was renewed, so nothing was raced with")
	require.Positive(t, cancelled.Load())

	eventually(t, ttl+slack, "all keys gone", func() bool { return len(leftovers(t, server)) == 0 })
	eventually(t, hangs, "nothing left to do", func() bool { return len(c.Snapshot().Keys) == 0 })
	staysQuiet(t, net, ttl, takes, "a command after everything was unlocked")
	released := map[string]bool{}
	for _, p := range net.all(func(cmd []string) bool { return verb(cmd) != "" }) {
		switch verb(p.cmd) {
		case "release":
			released[nameIn(p.cmd)] = true
		case "renew":
			require.False(t, released[nameIn(p.cmd)], "renewed after its release: %v", p.cmd)
		}
	}
}

// jitter changes the network's delay all the time, until the test ends.
func jitter(t testing.TB, p *faults.Proxy) {
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		for ctx.Err() == nil {
			p.SetDelay(rand.N(3*time.Millisecond), rand.N(3*time.Millisecond))
			time.Sleep(5 * time.Millisecond)
		}
	}()
	t.Cleanup(func() {
		cancel()
		<-ended
		p.SetDelay(0, 0)
	})
}

// D1 b: the network is gone during Unlock and comes back after the lease. Renewal has ended with the call: the key
// is gone when its lease is over, without help, and nothing renews it when the network is back.
func TestUnlockThatFailsOnTheNetworkEndsRenewalToo(t *testing.T) {
	t.Parallel()
	for name, cut := range map[string]func(p *faults.Proxy, on bool){
		"everything arrives late": (*faults.Proxy).BlackHole,
		"everything is lost":      func(p *faults.Proxy, on bool) { p.Swallow(faults.Up, on) },
		"connections are reset": func(p *faults.Proxy, on bool) {
			p.Refuse(on)
			p.Reset()
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			const ttl = 2 * time.Second
			server := redistest.Start(t)
			proxy := faults.NewProxy(t, server.Addr())
			net := listen(proxy)
			c := join(t, untracked(proxy.Addr()), ours(ttl)...)
			first := take(t, c.Mutex("k"))
			owner := owners(t, server, "k")[0]
			renewals := both(is("renew"), func(cmd []string) bool { return ownerIn(cmd) == owner })
			cut(proxy, true)
			within(t, ttl, "Unlock without a network", func() { require.NoError(t, first.Unlock()) })
			unlocked := time.Now()
			renewed := net.count(renewals)

			eventually(t, ttl+slack, "the key gone while nobody can reach it", func() bool { return !exists(t, server, "k") })
			if wait := ttl - time.Since(unlocked); wait > 0 {
				time.Sleep(wait) // the network stays away for the whole lease
			}
			cut(proxy, false)
			second := take(t, c.Mutex("k"))
			require.Greater(t, second.Token(), first.Token())
			require.NoError(t, second.Unlock())
			eventually(t, slack, "the key gone again", func() bool { return !exists(t, server, "k") })
			eventually(t, hangs, "nothing left to do", func() bool { return len(c.Snapshot().Keys) == 0 })
			staysQuiet(t, net, ttl/2, takes, "a command after everything was unlocked")
			require.Equal(t, renewed, net.count(renewals), "renewed after Unlock")
		})
	}
}

// D3: renewals fail for a reason that passes. They are tried again faster than the interval, and the lease survives.
func TestOneFailedRenewalDoesNotEndRenewal(t *testing.T) {
	t.Parallel()
	ttl := lasting(4*time.Second, 9*time.Second)
	for name, fault := range map[string]struct {
		action faults.Action
		times  int
	}{
		"no answer": {faults.Silence, 1},
		"BUSY":      {faults.Fail("BUSY Redis is busy running a script. You can only call SCRIPT KILL or SHUTDOWN NOSAVE."), 3},
		"LOADING":   {faults.Fail("LOADING Redis is loading the dataset in memory"), 3},
		"READONLY":  {faults.Fail("READONLY You can't write against a read only replica."), 3},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			server := redistest.Shared(t)
			key := redistest.Prefix(t) + "k"
			proxy := faults.NewProxy(t, server.Addr())
			c := steady(t, proxy.Addr(), ours(ttl)...)
			hold := take(t, c.Mutex(key))
			// The first look at a hold is soon; what is to fail is the renewal after it, which is due by schedule.
			eventually(t, ttl, "the first look", func() bool { return stats(c).Renewals > 0 })
			before := stats(c).Renewals
			var failed atomic.Int64
			net := meddle(proxy, func(cmd []string) faults.Action {
				if both(is("renew"), about(key))(cmd) && failed.Add(1) <= int64(fault.times) {
					return fault.action
				}
				return faults.Pass
			})
			eventually(t, 2*ttl, "a renewal that worked again", func() bool { return stats(c).Renewals > before })
			require.True(t, hold.Valid(), "%v", hold.Err())
			require.Greater(t, pttl(t, server, "lock:"+key), ttl/3)
			tries := net.all(both(is("renew"), about(key)))
			require.Greater(t, len(tries), fault.times)
			for i := 1; i < fault.times; i++ {
				require.Less(t, tries[i].at.Sub(tries[i-1].at), ttl/3, "the pace of trying again")
			}
			require.NoError(t, hold.Unlock())
		})
	}
}

// D3: the key is deleted under its holder. "Not the owner" ends renewal and tells the holder, with and without
// client-side caching.
func TestRenewalEndsWhenOwnershipIsGone(t *testing.T) {
	t.Parallel()
	for name, connect := range map[string]func(addr string) rueidis.ClientOption{
		"told by tracking": patient, "told by the renewal": untracked,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			const ttl = 1500 * time.Millisecond
			server := redistest.Shared(t)
			key := redistest.Prefix(t) + "k"
			proxy := faults.NewProxy(t, server.Addr())
			net := listen(proxy)
			c := join(t, connect(proxy.Addr()), ours(ttl)...)
			require.Equal(t, name == "told by tracking", c.Snapshot().Capabilities.Tracking)
			hold := grab(t, c.Mutex(key))
			eventually(t, ttl, "a renewal", func() bool { return stats(c).Renewals > 0 })
			answered := net.count(is("renew"))

			server.Do(t, "DEL", "lock:"+key)
			require.ErrorIs(t, ended(t, hold, ttl/3+slack), coordinator.ErrLeaseLost)
			require.False(t, hold.Valid())
			require.ErrorIs(t, hold.Unlock(), coordinator.ErrLeaseLost)
			// One look found out; another one may have been on its way.
			require.LessOrEqual(t, net.count(is("renew")), answered+2)
			staysQuiet(t, net, ttl, is("renew"), "a renewal of a lease that is gone")
			require.False(t, exists(t, server, key))
		})
	}
}
