package faulttest

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/go-leasehold/leasehold/coordinator"
	"github.com/go-leasehold/leasehold/internal/redistest"
)

// How long it takes until a lock goes on after a process or the server has crashed. What is measured is logged; what is asserted is
// what would be wrong on any machine.

// A killed holder costs what was left of its lease: its waiters, in another process, come in then.
func TestKilledHolderCostsWhatIsLeftOfItsLease(t *testing.T) {
	t.Parallel()
	const ttl = 2 * time.Second
	server := redistest.Shared(t)
	prefix := redistest.Prefix(t)
	waiters := steady(t, server.Addr(), ours(ttl)...)
	dies := startPeer(t, server.Addr(), server.Addr(), ttl)
	var waits []<-chan outcome
	for i := range rounds(10, 200) {
		key := fmt.Sprint(prefix, i)
		dies.take(t, key)
		waits = append(waits, lockLater(t.Context(), waiters.Mutex(key)))
		awaitQueue(t, waiters, key, 1)
	}
	dies.Kill()
	ends := make([]time.Time, len(waits))
	for i := range waits {
		message := server.Do(t, "PTTL", fmt.Sprint("lock:", prefix, i))
		left, err := message.AsInt64()
		require.NoError(t, err)
		ends[i] = time.Now().Add(time.Duration(left) * time.Millisecond)
	}
	late := make([]time.Duration, len(waits))
	for i, w := range waits {
		got := await(t, w, ttl+hangs, "the waiter's grant")
		require.NoError(t, got.err)
		late[i] = got.at.Sub(ends[i])
		require.Less(t, late[i], ttl/3, "found by its next look, and not at the lease's end")
		require.NoError(t, got.hold.Unlock())
	}
	slices.Sort(late)
	t.Logf("granted after the end of the lease: median %v, last %v", late[len(late)/2], late[len(late)-1])
}

// A queued process that was killed costs those behind it no time of its lease: the hand-off that would go to it goes on to
// the next in the same step.
func TestKilledWaiterCostsThoseBehindItNothing(t *testing.T) {
	t.Parallel()
	const ttl = 30 * time.Second
	server := redistest.Shared(t)
	prefix := redistest.Prefix(t)
	holder, next := steady(t, server.Addr(), ours(ttl)...), steady(t, server.Addr(), ours(ttl)...)
	handOff := func(key string, between func()) time.Duration {
		held := grab(t, holder.Mutex(key))
		between()
		waits := lockLater(t.Context(), next.Mutex(key))
		eventually(t, hangs, "the next in the queue", func() bool { return localWaiters(next, key) == 1 })
		eventually(t, hangs, "the next behind all", func() bool {
			all := inspect(t, next, key).Waiters
			return len(all) > 0 && all[len(all)-1].Owner[:len(next.ID())] == next.ID()
		})
		begun := time.Now()
		require.NoError(t, held.Unlock())
		got := await(t, waits, hangs, "who is behind the dead")
		require.NoError(t, got.err)
		require.NoError(t, got.hold.Unlock())
		return got.at.Sub(begun)
	}
	var alone, behind []time.Duration
	for i := range rounds(5, 50) {
		key := fmt.Sprint(prefix, i)
		alone = append(alone, handOff(key, func() {}))
		behind = append(behind, handOff(key, func() {
			dies := startPeer(t, server.Addr(), server.Addr(), ttl)
			dies.Send("lock " + key)
			awaitQueue(t, next, key, 1)
			dies.Kill()
			eventually(t, hangs, "its inbox gone", func() bool { return inboxes(t, server, dies.id) == 0 })
		}))
	}
	slices.Sort(alone)
	slices.Sort(behind)
	t.Logf("a hand-off takes %v, over a dead process %v (medians)", alone[len(alone)/2], behind[len(behind)/2])
	require.Less(t, behind[len(behind)-1], ttl/3, "without waiting for a look")
}

// inboxes counts who is subscribed to the inbox of a coordinator.
func inboxes(t testing.TB, server *redistest.Server, id string) int64 {
	t.Helper()
	message := server.Do(t, "PUBSUB", "NUMSUB", "lock:~inbox:"+id)
	values, err := message.ToArray()
	require.NoError(t, err)
	n, err := values[1].AsInt64()
	require.NoError(t, err)
	return n
}

// A server that comes back, empty: every process that waited moves on at once, without waiting for its next look.
func TestWaitersMoveOnWhenTheServerIsBack(t *testing.T) {
	t.Parallel()
	const ttl, keys, each = 30 * time.Second, 20, 5
	for range rounds(1, 20) {
		server := redistest.Start(t)
		holder := joinAtRisk(t, patient(server.Addr()), ours(ttl)...)
		var others []*coordinator.Coordinator
		for range 3 {
			others = append(others, joinAtRisk(t, patient(server.Addr()), ours(ttl, coordinator.WithUnavailableAfter(0))...))
		}
		moved := make(chan outcome, keys*each*len(others))
		for k := range keys {
			key := fmt.Sprint("k", k)
			grab(t, holder.Mutex(key))
			for _, c := range others {
				for range each {
					go func() { // ends with its grant, or with the test
						hold, err := c.Mutex(key).Lock(t.Context())
						moved <- outcome{hold, err, time.Now()}
						if err == nil {
							_ = hold.Unlock() // told by the outcome of the others
						}
					}()
				}
			}
			awaitQueue(t, holder, key, len(others))
		}
		server.Kill()
		time.Sleep(time.Duration(rounds(1, 20)) * ttl / 100) // for connections to be missed, and tried again in vain
		server.Restart()
		back := time.Now()
		var last time.Duration
		for range cap(moved) {
			got := await(t, moved, hangs, "a waiter")
			require.NoError(t, got.err)
			last = max(last, got.at.Sub(back))
		}
		t.Logf("%d waiters of %d processes on %d keys have all had their turns %v after the server was back", cap(moved), len(others), keys, last)
		require.Less(t, last, ttl/3, "without waiting for a look")
	}
}
