package faulttest

import (
	"errors"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/go-leasehold/leasehold/coordinator"
	"github.com/go-leasehold/leasehold/internal/faults"
	"github.com/go-leasehold/leasehold/internal/redistest"
)

// soon is well below the ten seconds after which a waiter of a 30 s lease looks unasked: who wakes up within it was
// told, or looked at the right moment.
const soon = 3 * time.Second

// lateReply delays the acknowledgement of every SUBSCRIBE through the proxy, and tells when each was due: what is
// published meanwhile comes late as well.
func lateReply(p *faults.Proxy, delay time.Duration) <-chan time.Time {
	due := make(chan time.Time, 100)
	p.OnReply(func(cmd []string) faults.Action {
		if !faults.Is("subscribe")(cmd) {
			return faults.Pass
		}
		due <- time.Now().Add(delay)
		return faults.DelayReply(delay)
	})
	return due
}

// lateCommand delays every SUBSCRIBE itself: what is published meanwhile reaches nobody.
func lateCommand(p *faults.Proxy, delay time.Duration) <-chan time.Time {
	due := make(chan time.Time, 100)
	p.OnCommand(func(cmd []string) faults.Action {
		if faults.Is("subscribe")(cmd) {
			due <- time.Now().Add(delay)
			time.Sleep(delay) // of this connection only
		}
		return faults.Pass
	})
	return due
}

// inTime ends both delays.
func inTime(p *faults.Proxy) {
	p.OnCommand(nil)
	p.OnReply(nil)
}

// B1: the release comes while the waiter's subscription is being set up again, so that the message reaches nobody.
func TestReleaseDuringResubscriptionIsNotMissed(t *testing.T) {
	t.Parallel()
	s := redistest.Start(t)
	p1 := process(t, s.Addr(), coordinator.WithRetention(0))
	proxy := faults.NewProxy(t, s.Addr())
	p2 := process(t, proxy.Addr())
	longest := 500 * time.Millisecond
	for round := range rounds(10, 1000) {
		delay := longest
		if round > 0 {
			delay = rand.N(longest)
		}
		hold := take(t, p1.Mutex("k"))
		waiting := lockLater(t.Context(), p2.Mutex("k"))
		awaitQueue(t, p1, "k", 1)
		late := lateCommand
		if round%2 == 1 {
			late = lateReply
		}
		due := late(proxy, delay)
		proxy.Reset()
		acknowledged := await(t, due, hangs, "the subscription")
		time.Sleep(delay / 5)
		require.NoError(t, hold.Unlock())
		got := await(t, waiting, hangs, "the lock")
		require.NoError(t, got.err)
		require.Less(t, got.at.Sub(acknowledged), soon, "from the acknowledgement on")
		inTime(proxy)
		require.NoError(t, got.hold.Unlock())
	}
}

// B1, a process that begins: what is released while its first subscription is set up is met by its first look.
func TestReleaseDuringTheFirstSubscriptionIsNotMissed(t *testing.T) {
	t.Parallel()
	s := redistest.Start(t)
	p1 := process(t, s.Addr(), coordinator.WithRetention(0))
	proxy := faults.NewProxy(t, s.Addr())
	due := lateReply(proxy, 500*time.Millisecond)
	hold := take(t, p1.Mutex("k"))
	time.AfterFunc(100*time.Millisecond, func() { _ = hold.Unlock() }) // its effect is what is asserted
	p2 := process(t, proxy.Addr())
	acknowledged := await(t, due, hangs, "the subscription")
	got, err := p2.Mutex("k").TryLockFor(t.Context(), 300*time.Millisecond)
	require.NoError(t, err)
	require.Less(t, time.Since(acknowledged), soon)
	require.NoError(t, got.Unlock())
}

// B1, a short wait: setting up the subscription does not eat it up; there is a last direct look.
func TestShortWaitLooksAgainAfterResubscription(t *testing.T) {
	t.Parallel()
	s := redistest.Start(t)
	p1 := process(t, s.Addr(), coordinator.WithRetention(0))
	proxy := faults.NewProxy(t, s.Addr())
	p2 := process(t, proxy.Addr(), coordinator.WithTTL(10*time.Second)) // looks unasked after 3.3 s only
	const wait = 2 * time.Second
	for range rounds(3, 100) {
		hold := take(t, p1.Mutex("k"))
		done := make(chan outcome, 1)
		go func() { // ends with its wait
			got, err := p2.Mutex("k").TryLockFor(t.Context(), wait)
			done <- outcome{hold: got, err: err}
		}()
		awaitQueue(t, p1, "k", 1)
		due := lateCommand(proxy, wait/4)
		proxy.Reset()
		await(t, due, hangs, "the subscription")
		require.NoError(t, hold.Unlock())
		got := await(t, done, hangs, "the end of the wait")
		require.NoError(t, got.err, "the key was free for most of the wait")
		inTime(proxy)
		require.NoError(t, got.hold.Unlock())
	}
}

// B1, a wait that is shorter than the subscription takes ends in time, and leaves nothing in anybody's way.
func TestWaitShorterThanTheResubscriptionEndsInTime(t *testing.T) {
	t.Parallel()
	s := redistest.Start(t)
	p1 := process(t, s.Addr(), coordinator.WithRetention(0))
	proxy := faults.NewProxy(t, s.Addr())
	p2 := process(t, proxy.Addr())
	hold := take(t, p1.Mutex("k"))
	due := lateCommand(proxy, time.Second)
	proxy.Reset()
	await(t, due, hangs, "the subscription")
	begin := time.Now()
	_, err := p2.Mutex("k").TryLockFor(t.Context(), 300*time.Millisecond)
	require.Error(t, err)
	require.Less(t, time.Since(begin), soon)
	require.True(t, errors.Is(err, coordinator.ErrNotAcquired) || errors.Is(err, coordinator.ErrUnavailable), "%v", err)
	require.NoError(t, hold.Unlock())
	again, err := p1.Mutex("k").TryLockFor(t.Context(), soon)
	require.NoError(t, err)
	require.NoError(t, again.Unlock())
	inTime(proxy)
	require.NoError(t, take(t, p2.Mutex("k")).Unlock())
}

// B4 a: the connection that carries tracking and messages is killed while its process waits, and the release comes
// in the gap. Tracking is there again before the key is looked at.
func TestReleaseWhileTheTrackingConnectionIsGone(t *testing.T) {
	t.Parallel()
	const ttl = 3 * time.Second
	s := redistest.Start(t)
	p1 := process(t, s.Addr(), coordinator.WithRetention(0), coordinator.WithTTL(ttl))
	proxy := faults.NewProxy(t, s.Addr())
	p2 := process(t, proxy.Addr(), coordinator.WithTTL(ttl))
	for range rounds(3, 100) {
		hold := take(t, p1.Mutex("k"))
		waiting := lockLater(t.Context(), p2.Mutex("k"))
		awaitQueue(t, p1, "k", 1)
		time.Sleep(150 * time.Millisecond) // by now the waiter has looked with tracking
		proxy.Refuse(true)
		killTracking(t, s)
		eventually(t, hangs, "the end of the connection", func() bool { return proxy.Connections() == 0 })
		require.NoError(t, hold.Unlock())
		eventually(t, hangs, "the release", func() bool { return holderOf(t, p1, "k") != p1.ID() })
		seen := listen(proxy)
		back := time.Now()
		proxy.Refuse(false)
		got := await(t, waiting, hangs, "the lock")
		require.NoError(t, got.err)
		require.Less(t, got.at.Sub(back), ttl, "within the bound of looking, and as much again")
		requireTrackedFirst(t, seen)
		require.NoError(t, got.hold.Unlock())
	}
}

// killTracking kills every connection that tracks, as an operator would.
func killTracking(t *testing.T, s *redistest.Server) {
	t.Helper()
	killed := 0
	for _, c := range clients(t, s) {
		if c["sub"] != "0" {
			s.Do(t, "CLIENT", "KILL", "ID", c["id"])
			killed++
		}
	}
	require.Equal(t, 2, killed, "one of each process")
}

// requireTrackedFirst wants tracking to be on before the first script of the new connection.
func requireTrackedFirst(t *testing.T, seen *wire) {
	t.Helper()
	all := seen.all(nil)
	first := func(match func([]string) bool) int {
		return slices.IndexFunc(all, func(p passed) bool { return match(p.cmd) })
	}
	tracking := first(faults.Is("client", "tracking", "on"))
	script := first(func(cmd []string) bool { return verb(cmd) != "" })
	require.NotEqual(t, -1, tracking)
	require.NotEqual(t, -1, script)
	require.Less(t, tracking, script)
}

// B4 b: a holder's own renewals would empty the server's note of who wants to know; it reads the key again behind
// each, so that a later deletion is told at once.
func TestDeletionAfterRenewalsIsStillNoticed(t *testing.T) {
	t.Parallel()
	const ttl = 2400 * time.Millisecond
	s := redistest.Start(t)
	proxy := faults.NewProxy(t, s.Addr())
	c := process(t, proxy.Addr(), coordinator.WithTTL(ttl))
	seen := listen(proxy)
	hold := take(t, c.Mutex("k"))
	eventually(t, hangs, "renewals", func() bool { return stats(c).Renewals >= 4 }) // the first look, and three in turn
	renewals, looks := seen.count(is("renew")), seen.count(faults.Is("hmget"))
	require.Equal(t, renewals, looks, "the key is read again after every write of its own")
	require.Equal(t, renewals, seen.count(faults.Is("client", "caching")), "with tracking")
	s.Do(t, "DEL", "lock:k")
	deleted := time.Now()
	await(t, hold.Context().Done(), hangs, "the signal")
	require.Less(t, time.Since(deleted), ttl/3, "before the next renewal is due")
	require.ErrorIs(t, hold.Unlock(), coordinator.ErrLeaseLost)
}
