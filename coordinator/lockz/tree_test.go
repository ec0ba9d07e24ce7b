package lockz

import (
	"context"
	"fmt"
	"math"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/go-leasehold/leasehold/coordinator"
	"github.com/go-leasehold/leasehold/lease"
)

func everyKey(n int) (keys []int) {
	for i := range n {
		keys = append(keys, i)
	}
	return keys
}

func count(trees []*branch) (n int) {
	for _, b := range trees {
		n++
		for _, t := range b.open {
			n += count(t.held)
		}
	}
	return n
}

// counted is how many keys the trees have no room for.
func counted(trees []*branch) (n int) {
	for _, b := range trees {
		n += b.more
		for _, t := range b.open {
			n += counted(t.held)
		}
	}
	return n
}

// A tree says of each key once who has it and what it holds up, cycles or not.
func TestTreesHaveEachKeyOnce(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		n := rapid.IntRange(1, 20).Draw(t, "keys")
		owner := rapid.IntRange(0, n)
		keys := make([]coordinator.KeySnapshot, n)
		for i := range keys {
			keys[i].Key = fmt.Sprint(i)
			for range rapid.IntRange(0, 2).Draw(t, "holds") {
				keys[i].Holds = append(keys[i].Holds, coordinator.HoldSnapshot{Mode: lease.Shared, Owner: owner.Draw(t, "owner")})
			}
			for range rapid.IntRange(1, 3).Draw(t, "waiters") {
				w := coordinator.WaiterSnapshot{Mode: lease.Exclusive}
				for range rapid.IntRange(0, 3).Draw(t, "owners") {
					if o := owner.Draw(t, "owner"); o > 0 {
						w.Owners = append(w.Owners, o)
					}
				}
				keys[i].Waiters = append(keys[i].Waiters, w)
			}
		}
		g := newGraph(keys)
		g.rings(g.number(0))
		trees, more := g.grow(t.Context(), everyKey(n), room{maxBranches, defaultEach})
		require.Zero(t, more)
		require.Equal(t, n, count(trees))
		for _, b := range trees {
			require.Equal(t, len(keys[b.key].Waiters), b.rest+len(b.open))
		}
		few := room{rapid.IntRange(1, 5).Draw(t, "keys shown"), rapid.IntRange(1, 2).Draw(t, "calls shown")}
		trees, more = g.grow(t.Context(), everyKey(n), few)
		require.LessOrEqual(t, count(trees), few.keys)
		require.Equal(t, n, count(trees)+counted(trees)+more, "what is not shown is counted, once")
	})
}

// What stands at the top of a tree is what all below it wait for, also where not all
// of that has room.
func TestALongChainIsOneTree(t *testing.T) {
	const n = 100
	keys := make([]coordinator.KeySnapshot, n)
	for i := range keys { // the caller of each waits for the one before
		keys[i] = coordinator.KeySnapshot{
			Key: fmt.Sprint(i), Holds: []coordinator.HoldSnapshot{{Mode: lease.Exclusive, Owner: i + 1, Age: time.Hour}},
			Waiters: []coordinator.WaiterSnapshot{{Mode: lease.Exclusive, Owners: []int{i + 2}, Waited: time.Hour}},
		}
	}
	trees, more := newGraph(keys).grow(t.Context(), everyKey(n), room{maxBranches, defaultEach})
	require.Len(t, trees, 1)
	require.Zero(t, trees[0].key)
	require.Equal(t, maxDepth, count(trees))
	require.Equal(t, n-maxDepth, counted(trees))
	require.Zero(t, more)
	trees, more = newGraph(keys).grow(t.Context(), everyKey(n), room{1, defaultEach})
	require.Equal(t, n-1, trees[0].more)
	require.Zero(t, more)
}

// One owner may have any number of keys, and wait with any number of calls: a program
// that has one owner for all.
func TestOneOwnerOfAllIsNoTrouble(t *testing.T) {
	const n = 30_000
	work := func(ctx context.Context, n int) (trees []*branch, more int) {
		keys := keysOfOneOwner(n)
		g := newGraph(keys)
		require.Empty(t, g.rings(g.number(0)))
		return g.grow(ctx, everyKey(n+1), room{maxBranches, defaultEach})
	}
	quickest := func(n int) time.Duration {
		least := time.Duration(math.MaxInt64)
		for range 3 {
			began := time.Now()
			work(t.Context(), n)
			least = min(least, time.Since(began))
		}
		return least
	}
	// Ten times as many are ten times the work; each call by each key would be a hundred times.
	require.Less(t, quickest(n), 40*quickest(n/10))
	trees, more := work(t.Context(), n)
	require.Equal(t, n+1, count(trees)+counted(trees)+more)
	require.LessOrEqual(t, count(trees), maxBranches)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	trees, more = work(ctx, n)
	require.Less(t, count(trees)+counted(trees)+more, n, "nobody waits for it")
}

// keysOfOneOwner are n keys that one owner has, each waited for by one call, and one for which n of its calls wait.
func keysOfOneOwner(n int) []coordinator.KeySnapshot {
	keys := make([]coordinator.KeySnapshot, n+1)
	for i := range n {
		keys[i] = coordinator.KeySnapshot{
			Key: fmt.Sprint(i), Holds: []coordinator.HoldSnapshot{{Mode: lease.Exclusive, Owner: 1, Age: time.Hour}},
			Waiters: []coordinator.WaiterSnapshot{{Mode: lease.Exclusive, Owners: []int{1 + i%2}, Waited: time.Hour}},
		}
		keys[n].Waiters = append(keys[n].Waiters, coordinator.WaiterSnapshot{Mode: lease.Exclusive, Owners: []int{1}, Waited: time.Hour})
	}
	keys[n].Holds = []coordinator.HoldSnapshot{{Mode: lease.Exclusive, Owner: 3, Age: time.Hour}}
	return keys
}
