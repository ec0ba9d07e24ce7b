package faulttest

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/redis/rueidis"
	"github.com/stretchr/testify/require"

	"github.com/go-leasehold/leasehold/coordinator"
	"github.com/go-leasehold/leasehold/internal/redistest"
)

// Faults of topologies: what happens to locks when the servers change their roles, or hand slots over.

// gathering is keys that one process holds, and others wait for.
type gathering struct {
	holds []*coordinator.Hold
	moved chan outcome
}

// assemble has one process hold keys that three others wait for, with five calls each.
func assemble(t *testing.T, option rueidis.ClientOption, ttl time.Duration, keys []string) *gathering {
	t.Helper()
	const others, each = 3, 5
	join := func() *coordinator.Coordinator {
		return joinAtRisk(t, option, ours(ttl, coordinator.WithUnavailableAfter(0))...)
	}
	c := &gathering{moved: make(chan outcome, len(keys)*others*each)}
	holder := join()
	for _, key := range keys {
		c.holds = append(c.holds, grab(t, holder.Mutex(key)))
	}
	for range others {
		waits := join()
		for _, key := range keys {
			for range each {
				go func() { // ends with its grant, or with the test
					hold, err := waits.Mutex(key).Lock(t.Context())
					c.moved <- outcome{hold, err, time.Now()}
					if err == nil {
						_ = hold.Unlock() // told by the others' turns
					}
				}()
			}
		}
	}
	for _, key := range keys {
		awaitQueue(t, holder, key, others)
	}
	return c
}

// goOn unlocks all holds, requires that everybody who waits has a turn, and returns when the last had.
func (c *gathering) goOn(t *testing.T) (last time.Time, lost int) {
	t.Helper()
	for _, hold := range c.holds {
		if err := hold.Unlock(); err != nil {
			require.ErrorIs(t, err, coordinator.ErrLeaseLost)
			lost++
		}
	}
	for range cap(c.moved) {
		got := await(t, c.moved, 2*hangs, "a waiter")
		require.NoError(t, got.err)
		if got.at.After(last) {
			last = got.at
		}
	}
	return last, lost
}

// keysOver are keys in different slots.
func keysOver(n int) []string {
	var keys []string
	for i := range n {
		keys = append(keys, fmt.Sprint("k", i))
	}
	return keys
}

// H1 and recovery: a primary is killed under holders and waiters. Everybody who waits moves on when another one has taken over.
func TestWaitersMoveOnAfterAFailover(t *testing.T) {
	t.Parallel()
	for _, kind := range []redistest.Kind{redistest.Sentinel, redistest.Cluster} {
		for name, change := range map[string]func(*redistest.Topology, *redistest.Server){
			"killed": func(topology *redistest.Topology, s *redistest.Server) {
				s.Kill()
				topology.AwaitTakeover(s)
			},
			"on demand": func(topology *redistest.Topology, s *redistest.Server) { topology.Failover(s) },
		} {
			t.Run(string(kind)+", "+name, func(t *testing.T) {
				const ttl = 30 * time.Second
				topology := redistest.StartTopology(t, kind, time.Second)
				c := assemble(t, topology.Option(), ttl, keysOver(20))
				change(topology, topology.Primary("lock:k0"))
				settled := time.Now()
				last, lost := c.goOn(t)
				t.Logf("%d waiters have all had their turns %v after the takeover; %d of %d leases were lost",
					cap(c.moved), last.Sub(settled), lost, len(c.holds))
				require.Less(t, last.Sub(settled), ttl/3, "without waiting for a look")
			})
		}
	}
}

// Recovery: slots move to another node under holders and waiters, key by key. Nobody is told of it, no lease is lost, and everybody who waits
// moves on.
func TestSlotsMoveUnderHoldersAndWaiters(t *testing.T) {
	t.Parallel()
	const ttl = 6 * time.Second // with renewals and looks while slots move
	topology := redistest.StartTopology(t, redistest.Cluster, time.Minute)
	var keys []string
	for i := range 10 {
		keys = append(keys, fmt.Sprintf("a{m}%d", i), fmt.Sprintf("b{n}%d", i))
	}
	c := assemble(t, topology.Option(), ttl, keys)
	for _, key := range []string{"lock:{m}", "lock:{n}"} {
		from := topology.Primary(key)
		primaries := topology.Primaries()
		to := primaries[(slices.Index(primaries, from)+1)%len(primaries)]
		require.NoError(t, topology.MoveSlot(redistest.SlotOf(from, key), to, func() { time.Sleep(ttl / 200) }))
	}
	moved := time.Now()
	for _, hold := range c.holds {
		require.NoError(t, hold.Err())
	}
	last, lost := c.goOn(t)
	t.Logf("%d waiters have all had their turns %v after the move", cap(c.moved), last.Sub(moved))
	require.Zero(t, lost)
}

// H6: names with all kinds of braces, on a cluster of several nodes: all that belongs to a lock is in one slot, hand-offs work, and different
// names are different locks.
func TestNamesOfAllKindsOnACluster(t *testing.T) {
	t.Parallel()
	topology := redistest.StartTopology(t, redistest.Cluster, time.Minute)
	a, b := join(t, topology.Option(), ours(30*time.Second)...), join(t, topology.Option(), ours(30*time.Second)...)
	names := []string{"a", "a{b}c", "{}a", "a}b{c", strings.Repeat("n", 200), "{a}", "}{", "{{a}}", "~a", "a{}b{c}", "\x00{\xff}"}
	var holds []*coordinator.Hold
	for _, name := range names {
		holds = append(holds, grab(t, a.Mutex(name))) // none waits for another
	}
	var waits []<-chan outcome
	for _, name := range names {
		waits = append(waits, lockLater(t.Context(), b.Mutex(name)))
	}
	for _, name := range names {
		awaitQueue(t, a, name, 1)
	}
	for _, primary := range topology.Primaries() {
		for _, name := range primary.Keys(t, "lock:*") {
			require.Equal(t, primary, topology.Primary(name), name)
		}
	}
	for i, hold := range holds {
		require.NoError(t, hold.Unlock())
		got := await(t, waits[i], hangs, names[i])
		require.NoError(t, got.err, names[i])
		require.NoError(t, got.hold.Unlock())
	}
}

// D6 on a cluster: very many held keys, and a shard that hangs. Leases of the other shards are renewed in time; those of the one that hangs
// are told of their end before anybody else can have them.
func TestSilentShardDelaysNoRenewalOfOthers(t *testing.T) {
	t.Parallel()
	ttl := 10 * time.Second
	topology := redistest.StartTopology(t, redistest.Cluster, time.Minute)
	c := joinAtRisk(t, topology.Option(), ours(ttl)...)
	silent := topology.Primary("lock:k0")
	var there, elsewhere []*coordinator.Hold
	for i := range rounds(1000, 20_000) {
		key := fmt.Sprint("k", i)
		hold := grab(t, c.Mutex(key))
		if i%100 == 0 && topology.Primary("lock:"+key) == silent {
			there = append(there, hold)
		} else if i%100 == 0 {
			elsewhere = append(elsewhere, hold)
		}
	}
	require.NotEmpty(t, there)
	require.NotEmpty(t, elsewhere)
	var fresh []string
	for i := range 20 {
		if key := fmt.Sprint("fresh", i); topology.Primary("lock:"+key) != silent {
			fresh = append(fresh, key)
		}
	}
	renewals := stats(c).Renewals
	silent.Pause()
	begun := time.Now()
	for _, hold := range there {
		require.ErrorIs(t, ended(t, hold, ttl+hangs), coordinator.ErrLeaseLost)
	}
	require.Less(t, time.Since(begun), ttl+slack, "before their leases end at the server")
	for _, hold := range elsewhere {
		require.NoError(t, hold.Err(), "%v after the shard fell silent", time.Since(begun))
	}
	require.Greater(t, stats(c).Renewals, renewals)
	for _, key := range fresh { // nor does it keep others from being locked
		require.NoError(t, grab(t, c.Mutex(key)).Unlock())
	}
	silent.Resume()
	require.NoError(t, shut(c))
}
