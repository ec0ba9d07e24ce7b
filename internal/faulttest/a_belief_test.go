package faulttest

import (
	"context"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/go-leasehold/leasehold/coordinator"
	"github.com/go-leasehold/leasehold/internal/faults"
	"github.com/go-leasehold/leasehold/internal/redistest"
)

// A1, its network half: a holder that loses only its link to Redis, and goes on writing elsewhere, stops believing
// in its lease by the clock alone, before anybody else enters.
func TestHolderCutOffFromRedisStopsBelievingBeforeOthersEnter(t *testing.T) {
	t.Parallel()
	const ttl = 2 * time.Second
	s := redistest.Start(t)
	warm(t, s)
	proxy := faults.NewProxy(t, s.Addr())
	hole := holeAtSecondRenewal(t, proxy)
	p1 := startPeer(t, proxy.Addr(), s.Addr(), ttl)
	p2 := process(t, s.Addr(), coordinator.WithTTL(ttl))
	first := p1.take(t, "k")
	p1.ask(t, "watch k", "watching")
	second := lockLater(t.Context(), p2.Mutex("k"))
	awaitQueue(t, p2, "k", 1)
	await(t, hole.begun, hangs, "the hole")
	require.Equal(t, "k true", p1.ask(t, "write k early", "wrote"), "while it is valid it may write")

	lost := p1.lost(t, "k")
	require.Equal(t, "lost", lost.cause)
	require.Equal(t, "k false", p1.ask(t, "valid k", "valid"))
	require.WithinRange(t, lost.signal, hole.good.Add(ttl/2), hole.good.Add(ttl+ttl/5), "told at the lease's end, without Redis")

	got := await(t, second, hangs, "the lock for the other process")
	require.NoError(t, got.err)
	require.True(t, lost.believed.Before(got.at), "both believed: until %v, from %v", lost.believed, got.at)
	require.Less(t, first, got.hold.Token())
	store := s.Client(t)
	require.True(t, fencedWrite(store, "k", got.hold.Token(), "second"))
	require.Equal(t, "k false", p1.ask(t, "write k late", "wrote"), "the store refuses the stale token")
	lateCommandsChangeNothing(t, s, p1, p2, got.hold, func() {
		hole.end()
		await(t, hole.late, hangs, "the renewal that comes late")
	})
}

// hole is what a process falls into between two renewals.
type hole struct {
	begun chan struct{}
	good  time.Time     // when the last renewal before it passed; read after begun
	end   func()        // gives the network back
	late  chan struct{} // the renewal that was stuck in it has been run
}

// holeAtSecondRenewal holds everything from the second renewal through the proxy on, that one included.
func holeAtSecondRenewal(t *testing.T, p *faults.Proxy) *hole {
	t.Helper()
	back := make(chan struct{})
	h := &hole{begun: make(chan struct{}), late: make(chan struct{}, 1)}
	h.end = sync.OnceFunc(func() {
		p.BlackHole(false)
		close(back)
	})
	t.Cleanup(h.end)
	var renewals atomic.Int64
	p.OnCommand(func(cmd []string) faults.Action {
		if verb(cmd) == "renew" {
			switch renewals.Add(1) {
			case 1:
				h.good = time.Now()
			case 2:
				p.BlackHole(true)
				close(h.begun)
				<-back
			}
		}
		return faults.Pass
	})
	var ran atomic.Int64
	p.OnReply(func(cmd []string) faults.Action {
		if verb(cmd) == "renew" && ran.Add(1) == 2 {
			h.late <- struct{}{}
		}
		return faults.Pass
	})
	return h
}

// lateCommandsChangeNothing lets the old holder unlock, gives it its network back, and wants the new holder's lease
// untouched by all that comes late.
func lateCommandsChangeNothing(t *testing.T, s *redistest.Server, old *peer, c *coordinator.Coordinator, hold *coordinator.Hold, restore func()) {
	t.Helper()
	before := owners(t, s, "k")
	require.Equal(t, "k lost", old.ask(t, "unlock k", "unlocked"))
	restore()
	old.take(t, "another") // it has got an answer of Redis
	require.Equal(t, before, owners(t, s, "k"))
	require.Equal(t, c.ID(), holderOf(t, c, "k"))
	require.Positive(t, pttl(t, s, "lock:k"))
	require.NoError(t, hold.Err())
	third := process(t, s.Addr())
	_, err := third.Mutex("k").TryLock(t.Context())
	require.ErrorIs(t, err, coordinator.ErrNotAcquired)
	require.NoError(t, hold.Unlock())
}

// A1, its process half: a holder whose whole process stands still cannot stop believing; its store refuses what it
// writes on waking up, and it is told at once.
func TestFrozenHolderIsFencedOffAndToldOnWakingUp(t *testing.T) {
	t.Parallel()
	const ttl = 2 * time.Second
	s := redistest.Start(t)
	p1 := startPeer(t, s.Addr(), s.Addr(), ttl)
	p2 := process(t, s.Addr(), coordinator.WithTTL(ttl))
	first := p1.take(t, "k")
	p1.ask(t, "watch k", "watching")
	second := lockLater(t.Context(), p2.Mutex("k"))
	awaitQueue(t, p2, "k", 1)
	p1.Stop()
	got := await(t, second, hangs, "the lock for the other process")
	require.NoError(t, got.err)
	require.Less(t, first, got.hold.Token())
	require.True(t, fencedWrite(s.Client(t), "k", got.hold.Token(), "second"))

	p1.Send("write k late")
	p1.Send("valid k")
	p1.Cont()
	require.Equal(t, "k false", p1.Expect(t, "wrote"), "the store refuses the stale token")
	require.Equal(t, "k false", p1.Expect(t, "valid"))
	lost := p1.lost(t, "k")
	require.Equal(t, "lost", lost.cause)
	require.True(t, lost.believed.Before(got.at))
	lateCommandsChangeNothing(t, s, p1, p2, got.hold, func() {})
}

// A1, the "is held" query: a renewal that Redis never answers makes it say no, from the lease's end on and for
// whoever asks.
func TestEveryWayToAskSaysNoAfterTheLeaseHasEnded(t *testing.T) {
	t.Parallel()
	const ttl = 600 * time.Millisecond
	s := redistest.Start(t)
	proxy := faults.NewProxy(t, s.Addr())
	c := cutOff(t, proxy.Addr(), coordinator.WithTTL(ttl))
	hold := take(t, c.Mutex("k"))
	inner, err := c.Mutex("k").Lock(hold.Context())
	require.NoError(t, err)
	proxy.BlackHole(true)
	await(t, hold.Context().Done(), hangs, "the signal")
	require.ErrorIs(t, context.Cause(hold.Context()), coordinator.ErrLeaseLost)
	require.ErrorIs(t, context.Cause(inner.Context()), coordinator.ErrLeaseLost)
	require.False(t, hold.Valid())
	require.ErrorIs(t, hold.Err(), coordinator.ErrLeaseLost)
	require.Zero(t, hold.Count())
	require.ErrorIs(t, inner.Unlock(), coordinator.ErrLeaseLost)
	require.ErrorIs(t, hold.Unlock(), coordinator.ErrLeaseLost)
	require.Empty(t, c.Snapshot().Keys[0].Holds)
	proxy.BlackHole(false)
}
