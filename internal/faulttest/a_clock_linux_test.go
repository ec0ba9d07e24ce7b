package faulttest

import (
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/go-leasehold/leasehold/coordinator"
	"github.com/go-leasehold/leasehold/internal/faults"
	"github.com/go-leasehold/leasehold/internal/redistest"
)

// A9: the server's clock steps forward by more than the lease has left. Redis expires by that clock, so it takes the lease away early, and
// may give the key to another process while the holder, whose clock did not step, has not asked yet: the only fault of a clock that
// exclusion can't survive. The holder is told at its next renewal, or at once where Redis tells of changes, and its
// token is lower than that of whoever came in.
func TestServerClockThatStepsForwardEndsTheLease(t *testing.T) { //nolint:paralleltest // the clock is set by the environment
	const ttl = 6 * time.Second
	for _, tracking := range []bool{true, false} {
		t.Run("tracking "+strconv.FormatBool(tracking), func(t *testing.T) {
			clock := faults.NewClock(t)
			server := redistest.Start(t)
			option := patient(server.Addr())
			option.DisableCache = !tracking
			holder, other := join(t, option, ours(ttl)...), join(t, option, ours(ttl)...)
			held := grab(t, holder.Mutex("k"))
			waits := lockLater(t.Context(), other.Mutex("k"))
			awaitQueue(t, other, "k", 1)

			clock.Step(t, 10*time.Second)
			stepped := time.Now()
			require.ErrorIs(t, ended(t, held, hangs), coordinator.ErrLeaseLost)
			told := time.Since(stepped)
			require.Less(t, told, ttl/3+slack, "its next renewal")
			got := await(t, waits, hangs, "the waiter")
			require.NoError(t, got.err)
			require.Greater(t, got.hold.Token(), held.Token())
			require.ErrorIs(t, held.Unlock(), coordinator.ErrLeaseLost)
			t.Logf("the holder was told %v after the step, the waiter came in after %v", told, got.at.Sub(stepped))
			require.True(t, got.hold.Valid(), "the late Unlock hit nobody")
			require.NoError(t, got.hold.Unlock())
			free(t, holder, "k")
		})
	}
}

// A9: a step forward by less than the lease has left, and any step backward, ends no lease. Backward, tokens go on from where they
// were, places in the queue keep their order, and the key of a holder that crashed stays for as much longer.
func TestSmallStepsOfTheServerClockEndNoLease(t *testing.T) { //nolint:paralleltest // as above
	const ttl = 3 * time.Second
	clock := faults.NewClock(t)
	server := redistest.Start(t)
	holder := steady(t, server.Addr(), ours(ttl)...)
	first, second := steady(t, server.Addr(), ours(ttl)...), steady(t, server.Addr(), ours(ttl)...)
	dies := startPeer(t, server.Addr(), server.Addr(), ttl)
	token := uint64(0)
	for _, step := range []time.Duration{ttl / 3, -10 * time.Minute, ttl / 3, -ttl} {
		held := grab(t, holder.Mutex("k"))
		require.Greater(t, held.Token(), token, "tokens grow over a step of the clock")
		token = held.Token()
		one := lockLater(t.Context(), first.Mutex("k"))
		awaitQueue(t, first, "k", 1)
		clock.Step(t, step)
		two := lockLater(t.Context(), second.Mutex("k"))
		awaitQueue(t, second, "k", 2)
		renewals := stats(holder).Renewals
		eventually(t, hangs, "a renewal after the step", func() bool { return stats(holder).Renewals > renewals })
		require.True(t, held.Valid())
		require.NoError(t, held.Unlock())
		for _, waits := range []<-chan outcome{one, two} {
			got := await(t, waits, hangs, "its turn, in the order of arrival")
			require.NoError(t, got.err)
			require.Greater(t, got.hold.Token(), token)
			token = got.hold.Token()
			require.NoError(t, got.hold.Unlock())
		}
	}
	dies.take(t, "d")
	dies.Kill()
	clock.Step(t, -time.Hour)
	left := pttl(t, server, "lock:d")
	require.Greater(t, left, time.Hour-time.Minute)
	require.NoError(t, holder.ForceUnlock(t.Context(), "d"), "there is a way out")
	free(t, holder, "d")
}

// A9: what a client sends has no time of its own clock in it: relative times only, so that a skewed one matters to nobody.
func TestNothingThatIsSentDependsOnTheClientsClock(t *testing.T) {
	t.Parallel()
	server := redistest.Shared(t)
	proxy := faults.NewProxy(t, server.Addr())
	sent := listen(proxy)
	prefix := redistest.Prefix(t)
	a, b := steady(t, proxy.Addr(), ours(time.Second)...), steady(t, server.Addr(), ours(time.Second)...)
	for i := range 3 {
		held := grab(t, a.Mutex(prefix))
		waits := lockLater(t.Context(), b.Mutex(prefix))
		awaitQueue(t, b, prefix, 1)
		renewals := stats(a).Renewals
		if i == 0 {
			eventually(t, hangs, "a renewal", func() bool { return stats(a).Renewals > renewals })
		}
		require.NoError(t, held.Unlock())
		got := await(t, waits, hangs, "the other process")
		again := lockLater(t.Context(), a.Mutex(prefix))
		awaitQueue(t, b, prefix, 1)
		require.NoError(t, got.hold.Unlock())
		got = await(t, again, hangs, "the first process")
		require.NoError(t, got.err)
		require.NoError(t, got.hold.Unlock())
	}
	now := time.Now()
	commands := 0
	for _, passed := range sent.all(nil) {
		cmd := passed.cmd
		if !strings.HasPrefix(strings.ToUpper(cmd[0]), "EVAL") {
			continue
		}
		commands++
		for _, word := range cmd[2:] {
			n, err := strconv.ParseInt(word, 10, 64)
			if err != nil {
				continue
			}
			for _, then := range []time.Time{time.Unix(n, 0), time.UnixMilli(n), time.UnixMicro(n), time.Unix(0, n)} {
				require.Greater(t, now.Sub(then).Abs(), 24*time.Hour, "%q", cmd)
			}
		}
	}
	require.NotZero(t, commands)
}
