package faulttest

import (
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/go-leasehold/leasehold/coordinator"
	"github.com/go-leasehold/leasehold/internal/faults"
	"github.com/go-leasehold/leasehold/internal/redistest"
)

// A2 a: a holder that overslept its lease unlocks when another has the key.
func TestUnlockAfterTheLeaseHasPassedOnHitsNobody(t *testing.T) {
	t.Parallel()
	const ttl = 200 * time.Millisecond
	s := redistest.Start(t)
	p1 := startPeer(t, s.Addr(), s.Addr(), ttl)
	p2 := process(t, s.Addr())
	p1.take(t, "k")
	p1.Stop()
	time.Sleep(2 * ttl) // it oversleeps: nothing can be waited for in a process that stands still
	hold := take(t, p2.Mutex("k"))
	p1.Send("unlock k")
	before := owners(t, s, "k")
	p1.Cont()
	require.Equal(t, "k lost", p1.Expect(t, "unlocked"))
	stays(t, s, p2, hold, before)
	p1.Send("try k")
	require.Equal(t, "k busy", p1.Expect(t, "refused"), "by now all it had to send has arrived")
	stays(t, s, p2, hold, before)
	require.NoError(t, hold.Unlock())
}

// A2 a, with a limit of its own instead of a pause: the hold ended, its lease did not.
func TestUnlockAfterTheHoldHasExpiredHitsNobody(t *testing.T) {
	t.Parallel()
	s := redistest.Start(t)
	p1 := process(t, s.Addr(), coordinator.WithRetention(0))
	p2 := process(t, s.Addr())
	old := take(t, p1.Mutex("k", coordinator.MaxHold(200*time.Millisecond)))
	hold := take(t, p2.Mutex("k"))
	require.Less(t, old.Token(), hold.Token())
	before := owners(t, s, "k")
	require.ErrorIs(t, old.Unlock(), coordinator.ErrHoldExpired)
	_, err := p1.Mutex("k").TryLock(t.Context())
	require.ErrorIs(t, err, coordinator.ErrNotAcquired)
	stays(t, s, p2, hold, before)
	require.NoError(t, hold.Unlock())
}

// stays wants the key still in the hands of c, for nearly a full lease, and everybody else kept out.
func stays(t *testing.T, s *redistest.Server, c *coordinator.Coordinator, hold *coordinator.Hold, before []string) {
	t.Helper()
	require.Equal(t, before, owners(t, s, "k"))
	require.Equal(t, c.ID(), holderOf(t, c, "k"))
	require.Greater(t, pttl(t, s, "lock:k"), 10*time.Second, "of 30 s, renewed at 20")
	require.NoError(t, hold.Err())
	third := process(t, s.Addr())
	_, err := third.Mutex("k").TryLock(t.Context())
	require.ErrorIs(t, err, coordinator.ErrNotAcquired)
}

// A2 b: the reply to a release is lost after it ran, so that it is sent again, while the same process locks anew.
func TestRepeatedReleaseLeavesTheNewLeaseOfTheSameProcessAlone(t *testing.T) {
	t.Parallel()
	for name, lose := range map[string]func(*faults.Proxy, func([]string) bool) *faults.Drop{
		"connection cut": (*faults.Proxy).DropReply, "connection mute": (*faults.Proxy).DropReplySilently,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := redistest.Start(t)
			proxy := faults.NewProxy(t, s.Addr())
			seen := listen(proxy)
			// The TTL decides how long it waits for an answer that does not come.
			c := process(t, proxy.Addr(), coordinator.WithRetention(0), coordinator.WithTTL(2*time.Second))
			first := take(t, c.Mutex("k"))
			drop := lose(proxy, is("release"))
			require.NoError(t, first.Unlock())
			await(t, drop.Done(), hangs, "the release")
			hold := take(t, c.Mutex("k"))
			require.Less(t, first.Token(), hold.Token())
			require.GreaterOrEqual(t, seen.count(is("release")), 2, "it was sent again")
			require.NotEqual(t, ownerIn(seen.all(is("release"))[0].cmd), owners(t, s, "k")[0], "a ticket is used once")
			require.ErrorIs(t, first.Unlock(), coordinator.ErrNotHeld)
			require.Equal(t, c.ID(), holderOf(t, c, "k"))
			_, err := process(t, s.Addr()).Mutex("k").TryLock(t.Context())
			require.ErrorIs(t, err, coordinator.ErrNotAcquired)
			require.NoError(t, hold.Err())
			require.NoError(t, hold.Unlock())
		})
	}
}

// A2 b, the copy that comes late: the first release is stuck in the network, the second one is answered, the same
// process locks again, and only then does the first arrive.
func TestReleaseThatArrivesLateLeavesTheNewLeaseAlone(t *testing.T) {
	t.Parallel()
	s := redistest.Start(t)
	warm(t, s)
	proxy := faults.NewProxy(t, s.Addr())
	// The TTL decides how long it waits for an answer that does not come.
	c := process(t, proxy.Addr(), coordinator.WithRetention(0), coordinator.WithTTL(3*time.Second))
	first := take(t, c.Mutex("k"))
	stuck, arrive := make(chan struct{}), make(chan struct{})
	letGo := sync.OnceFunc(func() { close(arrive) })
	t.Cleanup(letGo) // a failed test ends too
	var copied atomic.Pointer[string]
	proxy.OnCommand(func(cmd []string) faults.Action {
		if verb(cmd) == "release" && copied.CompareAndSwap(nil, &cmd[0]) {
			close(stuck)
			<-arrive
		}
		return faults.Pass
	})
	late := proxy.DropReply(func(cmd []string) bool { return len(cmd) > 0 && copied.Load() == &cmd[0] }) // that very copy
	require.NoError(t, first.Unlock())
	await(t, stuck, hangs, "the release on its way")
	hold := take(t, c.Mutex("k")) // so a later copy has been answered
	before := owners(t, s, "k")
	letGo()
	await(t, late.Done(), hangs, "the late release")
	require.Equal(t, before, owners(t, s, "k"))
	require.NoError(t, hold.Err())
	require.NoError(t, hold.Unlock())
}
