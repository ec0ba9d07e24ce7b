package faulttest

import (
	"errors"
	"math"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/go-leasehold/leasehold/coordinator"
	"github.com/go-leasehold/leasehold/internal/faults"
	"github.com/go-leasehold/leasehold/internal/redistest"
)

// absurd are times no lease can have.
var absurd = []time.Duration{
	-time.Second, 0, time.Microsecond, 999 * time.Microsecond, time.Millisecond, coordinator.MinTTL - 1,
	coordinator.MaxTTL + 1, math.MaxInt64, math.MinInt64,
}

// A8: zero, negative and absurd lease times are refused, with the limit in the error, before anything is sent.
func TestAbsurdLeaseTimesAreRefusedBeforeAnyCommand(t *testing.T) {
	t.Parallel()
	s := redistest.Start(t)
	proxy := faults.NewProxy(t, s.Addr())
	for _, ttl := range absurd {
		_, err := coordinator.New(at(proxy.Addr()), coordinator.WithTTL(ttl))
		require.ErrorIs(t, err, coordinator.ErrInvalid, "%v", ttl)
		require.ErrorContains(t, err, "100ms")
	}
	require.Zero(t, proxy.Accepted(), "nothing was even connected")

	c := process(t, proxy.Addr())
	seen := listen(proxy)
	for _, ttl := range absurd {
		m := c.Mutex("k", coordinator.TTL(ttl))
		_, err := m.Lock(t.Context())
		require.ErrorIs(t, err, coordinator.ErrInvalid, "%v", ttl)
		_, err = m.TryLock(t.Context())
		require.ErrorIs(t, err, coordinator.ErrInvalid, "%v", ttl)
		_, err = m.TryLockFor(t.Context(), time.Second)
		require.ErrorIs(t, err, coordinator.ErrInvalid, "%v", ttl)
	}
	for _, d := range []time.Duration{-1, -time.Second, math.MinInt64} {
		_, err := c.Mutex("k", coordinator.MaxHold(d)).Lock(t.Context())
		require.ErrorIs(t, err, coordinator.ErrInvalid, "MaxHold(%v)", d)
		_, err = c.Mutex("k").TryLockFor(t.Context(), d)
		require.ErrorIs(t, err, coordinator.ErrInvalid, "TryLockFor(%v)", d)
	}
	require.Zero(t, seen.count(func(cmd []string) bool { return !strings.EqualFold(cmd[0], "PING") }))
	require.Empty(t, s.Keys(t, "*"))
}

// A8: a wait or a limit near the largest integer does not overflow into none at all.
func TestHugeTimesDoNotOverflow(t *testing.T) {
	t.Parallel()
	s := redistest.Start(t)
	p1, p2 := process(t, s.Addr()), process(t, s.Addr())
	hold := take(t, p1.Mutex("k", coordinator.MaxHold(math.MaxInt64), coordinator.TTL(coordinator.MaxTTL)))
	require.InDelta(t, coordinator.MaxTTL.Seconds(), pttl(t, s, "lock:k").Seconds(), 60)
	require.NoError(t, hold.Extend(math.MaxInt64))
	done := make(chan outcome, 1)
	go func() { // ends with the hold below
		got, err := p2.Mutex("k").TryLockFor(t.Context(), math.MaxInt64)
		done <- outcome{hold: got, err: err}
	}()
	awaitQueue(t, p1, "k", 1)
	time.Sleep(200 * time.Millisecond) // what has overflowed is over by now
	require.Empty(t, done, "it waits")
	require.NoError(t, hold.Err())
	require.NoError(t, hold.Unlock())
	got := await(t, done, hangs, "the lock")
	require.NoError(t, got.err)
	require.NoError(t, got.hold.Unlock())
}

// A8: a lease time that is no whole number of milliseconds is rounded up, never cut, on acquire and on renewal.
func TestLeaseTimesAreRoundedUpToMilliseconds(t *testing.T) {
	t.Parallel()
	s := redistest.Start(t)
	proxy := faults.NewProxy(t, s.Addr())
	c := process(t, proxy.Addr())
	seen := listen(proxy)
	for ttl, want := range map[time.Duration]string{
		100 * time.Millisecond: "100", 100*time.Millisecond + 1: "101", 150*time.Millisecond + 999*time.Microsecond: "151",
		1500 * time.Millisecond: "1500", 1500*time.Millisecond + time.Microsecond: "1501",
	} {
		key := ttl.String()
		of := func(script string) func([]string) bool {
			return func(cmd []string) bool { return verb(cmd) == script && nameIn(cmd) == "lock:"+key }
		}
		for begin := time.Now(); seen.count(of("renew")) == 0; { // on a machine that stalls a lease may end without one
			require.Less(t, time.Since(begin), hangs, "a renewal")
			hold := take(t, c.Mutex(key, coordinator.TTL(ttl)))
			for hold.Valid() && seen.count(of("renew")) == 0 {
				time.Sleep(time.Millisecond)
			}
			require.True(t, oneOf(hold.Unlock(), nil, coordinator.ErrLeaseLost))
		}
		for _, p := range slices.Concat(seen.all(of("acquire")), seen.all(of("renew"))) {
			require.Equal(t, want, ttlIn(p.cmd), "%v in %s", ttl, verb(p.cmd))
		}
	}
}

// ttlIn is the lease time in a script's command, in milliseconds.
func ttlIn(cmd []string) string {
	own := cmd[3+3+7:]
	if verb(cmd) == "acquire" {
		return own[2]
	}
	return own[1]
}

// A8: what Redis has of a lease is at no moment less than what its holder believes, and a lease that is used for
// shorter ones too is not cut down to them.
func TestRenewalNeverShortensTheLease(t *testing.T) {
	t.Parallel()
	const ttl = 2100 * time.Millisecond
	s := redistest.Start(t)
	c := process(t, s.Addr(), coordinator.WithTTL(ttl))
	believed := func(key string) time.Duration {
		for _, k := range c.Snapshot().Keys {
			if k.Key == key {
				return k.Valid
			}
		}
		return 0
	}
	short := take(t, c.Mutex("short"))
	long := take(t, c.Mutex("long", coordinator.TTL(time.Hour)))
	const rounding = time.Millisecond // PTTL tells whole ones
	renewals := stats(c).Renewals
	for end := time.Now().Add(lasting(2*time.Second, 20*time.Second)); time.Now().Before(end); {
		inner, err := c.Mutex("long", coordinator.TTL(coordinator.MinTTL)).Lock(long.Context())
		require.NoError(t, err)
		before := time.Now()
		valid := believed("short")
		left := pttl(t, s, "lock:short")
		require.GreaterOrEqual(t, left+time.Since(before)+rounding, valid, "lease of %v", ttl)
		require.Greater(t, pttl(t, s, "lock:long"), 59*time.Minute)
		require.NoError(t, inner.Unlock())
	}
	require.GreaterOrEqual(t, stats(c).Renewals, renewals+2)
	require.NoError(t, errors.Join(short.Unlock(), long.Unlock()))
}
