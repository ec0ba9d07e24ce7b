package redislease_test

import (
	"context"
	"fmt"
	"strconv"
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

// counter counts calls.
type counter struct {
	calls atomic.Int64
	stop  func()
}

// watch counts what is told of a name.
func watch(t testing.TB, p *peer, name string) *counter {
	t.Helper()
	c := &counter{}
	var err error
	c.stop, err = p.Watch(name, func() { c.calls.Add(1) })
	require.NoError(t, err)
	return c
}

// read reads keys with tracking.
func read(t testing.TB, p *peer, keys ...string) []rueidis.RedisResult {
	t.Helper()
	plain := plainOf(t, p)
	var reads []rueidis.Completed
	for _, key := range keys {
		reads = append(reads, plain.B().Get().Key(key).Build())
	}
	results, err := p.Tracked(t.Context(), reads...)
	require.NoError(t, err)
	require.Len(t, results, len(keys))
	return results
}

// settle waits until everything was told that the server had to tell: the answer of a command comes behind it.
func settle(t testing.TB, p *peer) {
	t.Helper()
	_, err := p.Inspect(t.Context(), "settle")
	require.NoError(t, err)
}

func TestTrackedReadsAreToldOf(t *testing.T) {
	server := redistest.Start(t)
	p := openPeer(t, server, "p", redislease.Config{})
	plain := plainOf(t, p)
	a, b := watch(t, p, "a"), watch(t, p, "b")
	server.Do(t, "SET", "a", "1")
	settle(t, p)
	require.Zero(t, a.calls.Load(), "nobody had read it")

	results := read(t, p, "a", "b", "c")
	value, err := results[0].ToString()
	require.NoError(t, err)
	require.Equal(t, "1", value)
	require.True(t, rueidis.IsRedisNil(results[1].Error()))
	for i, change := range []func(){
		func() { set(t, plain, "a", "2") },
		func() { server.Do(t, "SET", "a", "3") },
		func() { server.Do(t, "PEXPIRE", "a", "1000000") },
		func() { server.Do(t, "DEL", "a") },
		func() { server.Do(t, "RPUSH", "a", "1") },
	} {
		change()
		settle(t, p)
		require.EqualValues(t, i+1, a.calls.Load(), "of the first change")
		server.Do(t, "EXPIRE", "a", "100")
		settle(t, p)
		require.EqualValues(t, i+1, a.calls.Load(), "and of no other until it is read again")
		read(t, p, "a")
	}
	require.Zero(t, b.calls.Load())
	var before int64
	for ms := 50; ; ms *= 2 { // until it lives long enough to be read
		server.Do(t, "SET", "b", "1", "PX", strconv.Itoa(ms))
		settle(t, p)
		before = b.calls.Load()
		require.Positive(t, before)
		if read(t, p, "b")[0].Error() == nil {
			break
		}
	}
	eventually(t, func(c *collector) { require.Equal(c, before+1, b.calls.Load(), "it has ended by itself") })
	p.do(lease.Held, acquire("k", 1))
	require.EqualValues(t, 5, a.calls.Load())

	_, err = p.Tracked(t.Context())
	require.NoError(t, err)
	results, err = p.Tracked(t.Context(), plain.B().Get().Key("a").Build(), plain.B().Llen().Key("a").Build())
	require.NoError(t, err)
	require.ErrorContains(t, results[0].Error(), "WRONGTYPE")
	n, err := results[1].AsInt64()
	require.NoError(t, err)
	require.EqualValues(t, 1, n)
}

// TestWhatMayHaveBeenMissedIsToldOf: to all who watch anything.
func TestWhatMayHaveBeenMissedIsToldOf(t *testing.T) {
	server := redistest.Start(t)
	option := server.Option()
	var losses atomic.Int64
	option.OnInvalidations = func(messages []rueidis.RedisMessage) {
		if messages == nil {
			losses.Add(1)
		}
	}
	p := openWith(t, option, "p", redislease.Config{})
	p.do(lease.Held, acquire("k", 1))
	watchers := []*counter{watch(t, p, "a"), watch(t, p, "a"), watch(t, p, "b")}
	plainOf(t, p)
	for i, fault := range [][]string{
		{"FLUSHALL"}, {"CLIENT", "KILL", "TYPE", "pubsub"}, {"FLUSHDB"}, {"CLIENT", "KILL", "TYPE", "pubsub"},
	} {
		read(t, p, "a")
		server.Do(t, fault...)
		eventually(t, func(c *collector) {
			for _, w := range watchers {
				require.EqualValues(c, i+1, w.calls.Load(), fault)
			}
		})
		if fault[0] == "CLIENT" {
			p.event(lease.Disconnected)
			p.event(lease.Connected)
		}
	}
	read(t, p, "a")
	server.Do(t, "SET", "a", "1")
	settle(t, p)
	require.EqualValues(t, 5, watchers[0].calls.Load(), "the new connection tracks as the old one did")
	require.EqualValues(t, 5, watchers[1].calls.Load())
	require.EqualValues(t, 4, watchers[2].calls.Load())

	server.Do(t, "CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes")
	settle(t, p)
	eventually(t, func(c *collector) { set(c, plainOf(t, p), "c", "after the loss was noticed") })
	require.EqualValues(t, 4, watchers[2].calls.Load(), "a connection that tracks nothing is no loss")
	require.EqualValues(t, 4, losses.Load(), "nor for the user's own function")
	p.close()
	require.EqualValues(t, 6, watchers[0].calls.Load(), "nothing is told from now on, and that is told")
	require.EqualValues(t, 5, watchers[2].calls.Load())
	require.Zero(t, p.Watched())
	_, err := p.Watch("a", func() {})
	require.ErrorIs(t, err, lease.ErrStoreClosed)
	_, err = p.Tracked(t.Context())
	require.ErrorIs(t, err, lease.ErrStoreClosed)
	watchers[0].stop()
}

// TestManyNames: read in one call, each told of by itself, and the leases go on meanwhile.
func TestManyNames(t *testing.T) {
	const names = 4096
	server := redistest.Start(t)
	p := openPeer(t, server, "p", redislease.Config{})
	manyNames(t, p, server.Client(t), names)
	before := server.Commands()
	read(t, p, make([]string, names)...)
	require.LessOrEqual(t, server.Commands()-before, int64(2*names+10))
}

func manyNames(t *testing.T, p *peer, other rueidis.Client, names int) {
	t.Helper()
	watchers, keys := make([]*counter, names), make([]string, names)
	for i := range names {
		keys[i] = "name:" + strconv.Itoa(i)
		watchers[i] = watch(t, p, keys[i])
		set(t, other, keys[i], strconv.Itoa(i))
	}
	p.do(lease.Held, acquire("k", 1))
	for i, result := range read(t, p, keys...) {
		value, err := result.ToString()
		require.NoError(t, err)
		require.Equal(t, strconv.Itoa(i), value)
	}
	for i := range names {
		require.Zero(t, watchers[i].calls.Load())
		if i%2 == 0 {
			set(t, other, keys[i], "changed")
		}
	}
	eventually(t, func(c *collector) {
		for i := range names {
			require.EqualValues(c, (i+1)%2, watchers[i].calls.Load(), i)
		}
	})
	require.Equal(t, names, p.Watched())
	for i := range names {
		watchers[i].stop()
	}
	require.Zero(t, p.Watched(), "nothing is kept of them")
	p.do(lease.Held, renew("k", 1))
}

func TestStopEndsOneWatch(t *testing.T) {
	server := redistest.Start(t)
	p := openPeer(t, server, "p", redislease.Config{})
	a, b, c := watch(t, p, "k"), watch(t, p, "k"), watch(t, p, "k")
	var within atomic.Int64
	var stop func()
	stop, err := p.Watch("k", func() { // it may call us
		stop()
		within.Add(1)
		_, err := p.Watch("k", func() { within.Add(100) })
		if err != nil {
			t.Error(err)
		}
	})
	require.NoError(t, err)
	change := func() {
		read(t, p, "k")
		server.Do(t, "INCR", "k")
		settle(t, p)
	}
	b.stop()
	b.stop()
	change()
	a.stop()
	change()
	c.stop()
	change()
	require.EqualValues(t, 1, a.calls.Load())
	require.EqualValues(t, 0, b.calls.Load())
	require.EqualValues(t, 2, c.calls.Load())
	require.EqualValues(t, 201, within.Load())
}

// TestStopWhileItIsTold: of two that are told at the same time, the first ends the second.
func TestStopWhileItIsTold(t *testing.T) {
	server := redistest.Start(t)
	p := openPeer(t, server, "p", redislease.Config{})
	var second *counter
	_, err := p.Watch("k", func() { second.stop() })
	require.NoError(t, err)
	second = watch(t, p, "k")
	read(t, p, "k")
	server.Do(t, "SET", "k", "1")
	settle(t, p)
	require.Zero(t, second.calls.Load())
}

// TestNoTracking: the text says why.
func TestNoTracking(t *testing.T) {
	server, fake := redistest.Start(t), miniredis.RunT(t)
	server.Do(t, append(strings.Fields(redislease.ACLRule("app", "lock:")), ">pass", "-client|tracking")...)
	for want, change := range map[string]func(*rueidis.ClientOption){
		"speaks RESP2":              func(o *rueidis.ClientOption) { o.AlwaysRESP2 = true },
		"DisableCache is set":       func(o *rueidis.ClientOption) { o.DisableCache = true },
		"refuses CLIENT TRACKING":   func(o *rueidis.ClientOption) { o.Username, o.Password = "app", "pass" },
		"the connection speaks RES": func(o *rueidis.ClientOption) { o.InitAddress = []string{fake.Addr()} },
	} {
		option := server.Option()
		change(&option)
		p := openWith(t, option, "p", redislease.Config{})
		plain := plainOf(t, p)
		_, err := p.Watch("lock:k", func() {})
		require.ErrorIs(t, err, redislease.ErrNoTracking)
		require.ErrorContains(t, err, want)
		_, err = p.Tracked(t.Context(), plain.B().Get().Key("lock:k").Build())
		require.ErrorIs(t, err, redislease.ErrNoTracking)
		require.True(t, rueidis.IsRedisNil(plain.Do(t.Context(), plain.B().Get().Key("lock:k").Build()).Error()))
		p.close()
	}
}

func TestOnlyReadsCanBeTracked(t *testing.T) {
	server := redistest.Start(t)
	p := openPeer(t, server, "p", redislease.Config{})
	b := plainOf(t, p).B()
	for _, command := range []rueidis.Completed{
		b.Set().Key("k").Value("1").Build(), b.Arbitrary("GET").Keys("k").Build(), b.Subscribe().Channel("c").Build(),
		b.Blpop().Key("k").Timeout(0).Build(), b.Eval().Script("return 1").Numkeys(0).Build(), {},
	} {
		require.False(t, redislease.CanTrack(command))
		_, err := p.Tracked(t.Context(), b.Get().Key("k").Build(), command)
		require.ErrorContains(t, err, "command 1 is not marked as a read")
	}
	watched := watch(t, p, "k")
	_, err := p.Tracked(t.Context(), b.Arbitrary("GET").Keys("k").ReadOnly())
	require.NoError(t, err)
	server.Do(t, "SET", "k", "1")
	settle(t, p)
	require.EqualValues(t, 1, watched.calls.Load())
}

// TestReadThatWouldNotBeTrackedIsAnError: even if the server answers it.
func TestReadThatWouldNotBeTrackedIsAnError(t *testing.T) {
	server := redistest.Start(t)
	server.Do(t, append(strings.Fields(redislease.ACLRule("app", "lock:")), ">pass", "-client|caching")...)
	option := server.Option()
	option.Username, option.Password = "app", "pass"
	p := openWith(t, option, "p", redislease.Config{})
	_, err := p.Tracked(t.Context(), plainOf(t, p).B().Get().Key("lock:k").Build())
	var failure *redislease.Error
	require.ErrorAs(t, err, &failure)
	require.Equal(t, "NOPERM", failure.Code)
}

// TestTrackedEndsInTime: with its context, with the store's patience, and where there is no server.
func TestTrackedEndsInTime(t *testing.T) {
	server := redistest.Start(t)
	p := openPeer(t, server, "p", redislease.Config{TTL: time.Second})
	plain := plainOf(t, p)
	ask := func(ctx context.Context) error {
		_, err := p.Tracked(ctx, plain.B().Get().Key("k").Build())
		return err
	}
	require.NoError(t, ask(t.Context()))
	server.Pause()
	ctx, cancel := context.WithCancelCause(t.Context())
	cancel(fmt.Errorf("the test's"))
	require.ErrorIs(t, ask(ctx), context.Canceled)
	start := time.Now()
	err := ask(t.Context())
	require.Less(t, time.Since(start), limit)
	var failure *redislease.Error
	require.ErrorAs(t, err, &failure)
	require.Equal(t, redislease.StageReply, failure.Stage)
	require.ErrorContains(t, err, "the server is silent")
	server.Resume()
	server.Kill()
	eventually(t, func(c *collector) { require.ErrorContains(c, ask(t.Context()), "the server is down") })
	server.Restart()
	eventually(t, func(c *collector) { require.NoError(c, ask(t.Context())) })
}

// TestTrackedIsPatientNoLongerThanALease: even where the connection is.
func TestTrackedIsPatientNoLongerThanALease(t *testing.T) {
	server := redistest.Start(t)
	option := server.Option()
	option.Dialer.KeepAlive, option.ConnWriteTimeout = time.Hour, time.Hour
	p := openWith(t, option, "p", redislease.Config{TTL: time.Second})
	get := plainOf(t, p).B().Get().Key("k").Build()
	server.Pause()
	start := time.Now()
	_, err := p.Tracked(t.Context(), get)
	require.ErrorContains(t, err, "not answered in time")
	require.Less(t, time.Since(start), limit)
	server.Resume()
}
