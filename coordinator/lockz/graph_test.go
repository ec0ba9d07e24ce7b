package lockz

import (
	"context"
	"fmt"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/go-leasehold/leasehold/coordinator"
	"github.com/go-leasehold/leasehold/lease"
)

// steps puts a cycle in words.
func steps(c Cycle) (words []string) {
	for _, s := range c.Steps {
		verb := "has"
		if s.Next {
			verb = "is next to get"
		}
		words = append(words, fmt.Sprintf("%s %s, waits for %s", verb, s.Has.Text, s.Key.Text))
	}
	return words
}

func TestTwoThatWaitForEachOther(t *testing.T) {
	onStage(t, func(t *testing.T, s *scene) {
		s.deadlock("a", "b")
		s.queue(s.ctx, "a") // has nothing: it waits for the deadlock, and is no part of it
		time.Sleep(time.Second)
		p := s.json("/?format=json")
		require.Len(t, p.Cycles, 1)
		c := p.Cycles[0]
		require.False(t, c.Possible)
		require.Equal(t, []string{"has a, waits for b", "has b, waits for a"}, steps(c), "the longest wait first")
		require.Equal(t, []int{1, 2}, []int{c.Steps[0].Caller, c.Steps[1].Caller})
		require.Equal(t, []Seconds{3, 2}, []Seconds{c.Steps[0].Age, c.Steps[1].Age})
		require.Equal(t, []Seconds{4, 4}, []Seconds{c.Steps[0].Held, c.Steps[1].Held})
		require.Equal(t, s.holds[0].Token(), c.Steps[0].Token)
		require.Zero(t, c.More)
		for _, w := range p.Waits {
			require.Equal(t, len(w.Callers) > 0, w.Cycle)
		}
		a := p.key(t, "a")
		require.Equal(t, 1, a.Holds[0].Caller)
		require.Equal(t, []int{2}, a.Waiters[0].Callers)
		require.Empty(t, a.Waiters[1].Callers)
		shows(t, s.get("/").Body.String(), "<title>locks (deadlock)</title>")
	})
}

// A caller may have its keys by several holds, one within the other.
func TestACycleThroughAnOuterHold(t *testing.T) {
	onStage(t, func(t *testing.T, s *scene) {
		has := s.lock(s.lock(s.ctx, "outer"), "inner")
		other := s.lock(s.ctx, "other")
		s.queue(other, "outer")
		time.Sleep(time.Second)
		s.queue(has, "other")
		time.Sleep(time.Second)
		p := s.json("/?format=json")
		require.Equal(t, []string{"has other, waits for outer", "has outer, waits for other"}, steps(p.Cycles[0]))
		require.Len(t, p.Waits[1].Callers, 2)
		require.ElementsMatch(t, []Name{nameOf("inner"), nameOf("outer")}, p.Waits[1].Has)
	})
}

func TestAChainIsNoCycle(t *testing.T) {
	onStage(t, func(t *testing.T, s *scene) {
		a, b := s.lock(s.ctx, "a"), s.lock(s.ctx, "b")
		s.lock(s.ctx, "c")
		s.queue(a, "b")
		s.queue(b, "c")
		time.Sleep(time.Second)
		p := s.json("/?format=json")
		require.Empty(t, p.Cycles)
		showsNot(t, s.get("/").Body.String(), "deadlock</")
	})
}

// A fixed owner's goroutines are one caller. One of them that waits for another, which
// was granted the key while both waited, is no deadlock.
func TestGoroutinesOfOneCallerAreNoCycle(t *testing.T) {
	onStage(t, func(t *testing.T, s *scene) {
		mine := coordinator.WithOwner(s.ctx)
		s.lock(s.ctx, "k")
		got := make(chan *coordinator.Hold, 3)
		for range 3 {
			s.wait.Go(func() {
				h, err := s.Coordinator.Mutex("k").Lock(mine)
				require.NoError(t, err)
				got <- h
			})
		}
		synctest.Wait()
		require.NoError(t, s.holds[0].Unlock())
		first := <-got
		time.Sleep(time.Second)
		p := s.json("/?format=json")
		require.Len(t, p.Waits, 2)
		require.Equal(t, p.Waits[0].Callers, p.Waits[0].For, "it waits for its own caller")
		require.Empty(t, p.Cycles)
		require.NoError(t, first.Unlock())
		for range 2 {
			require.NoError(t, (<-got).Unlock())
		}
	})
}

// A reader waits for the writer before it in the queue, not for the readers inside.
func TestAReaderWaitsForTheWriterBeforeIt(t *testing.T) {
	onStage(t, func(t *testing.T, s *scene) {
		reads := s.read(s.ctx, "catalog")
		has := s.lock(s.ctx, "a")
		s.queueTo(has, "catalog", lease.Exclusive) // waits for the reader
		time.Sleep(time.Second)
		other := s.lock(s.ctx, "b")
		s.queueTo(other, "catalog", lease.Shared) // waits for that writer
		time.Sleep(time.Second)
		s.queue(reads, "b") // the reader inside waits for that one
		time.Sleep(time.Second)
		p := s.json("/?format=json")
		require.Len(t, p.Cycles, 1)
		require.Equal(t, []string{
			"is next to get catalog, waits for catalog", "has catalog, waits for b", "has b, waits for catalog",
		}, steps(p.Cycles[0]))
		require.Positive(t, p.Cycles[0].Steps[0].Caller)
		require.Equal(t, p.Cycles[0].Steps[0].Caller, p.Waits[1].Behind.Callers[0])
		body := s.get("/").Body.String()
		shows(t, body, "is next to get")
		shows(t, body, fmt.Sprintf("to read, behind caller %d, a writer", p.Cycles[0].Steps[0].Caller))
	})
}

// The writer in the middle may be anybody: it holds nothing, and all the same who
// stands behind it waits for it.
func TestAReaderWaitsForAWriterWhoHoldsNothing(t *testing.T) {
	onStage(t, func(t *testing.T, s *scene) {
		reads := s.read(s.ctx, "catalog")
		s.queueTo(s.ctx, "catalog", lease.Exclusive)
		s.queueTo(s.ctx, "catalog", lease.Exclusive) // waits, too, and holds up nobody who isn't
		time.Sleep(time.Second)
		other := s.lock(s.ctx, "b")
		s.queueTo(other, "catalog", lease.Shared) // behind those writers
		time.Sleep(time.Second)
		s.queue(reads, "b")
		time.Sleep(time.Second)
		p := s.json("/?format=json")
		require.Len(t, p.Cycles, 1)
		require.Equal(t, []string{
			"is next to get catalog, waits for catalog", "has catalog, waits for b", "has b, waits for catalog",
		}, steps(p.Cycles[0]))
		require.Zero(t, p.Cycles[0].Steps[0].Caller)
		require.Zero(t, p.Cycles[0].More)
		require.True(t, p.Waits[0].Cycle, "the first writer's")
		require.False(t, p.Waits[1].Cycle)
		require.Nil(t, p.Waits[0].Behind)
		reader := p.Waits[2]
		require.Equal(t, "shared", reader.Mode)
		require.Empty(t, reader.For)
		require.Equal(t, &Waiter{Mode: "exclusive", Age: 3, Since: p.At.Add(-3 * time.Second)}, reader.Behind)
		body := s.get("/").Body.String()
		shows(t, body, "A caller is next to get")
		shows(t, body, "waits for 2.0 s, to read, behind a writer, in a deadlock")
	})
}

// A reader that waits behind readers, and before any writer, waits for no caller.
func TestReadersDoNotWaitForReaders(t *testing.T) {
	keys := []coordinator.KeySnapshot{
		{
			Key: "k", Holds: []coordinator.HoldSnapshot{{Mode: lease.Shared, Owner: 1, Age: time.Hour}},
			Waiters: []coordinator.WaiterSnapshot{{Mode: lease.Shared, Owners: []int{2}, Waited: time.Hour}},
		},
		{
			Key: "l", Holds: []coordinator.HoldSnapshot{{Mode: lease.Exclusive, Owner: 2, Age: time.Hour}},
			Waiters: []coordinator.WaiterSnapshot{{Mode: lease.Exclusive, Owners: []int{1}, Waited: time.Hour}},
		},
	}
	g := newGraph(keys)
	require.Empty(t, g.rings(g.number(0)))
	keys[0].Holds[0].Mode = lease.Exclusive
	g = newGraph(keys)
	require.Len(t, g.rings(g.number(0)), 1)
}

// Keys are looked at one after the other. What is younger than the look may never
// have been so at one time.
func TestWhatIsYoungerThanTheLookIsNoCycle(t *testing.T) {
	const took = 10 * time.Millisecond
	of := func(hold, wait time.Duration, try bool) int {
		g := newGraph([]coordinator.KeySnapshot{
			{
				Key: "a", Holds: []coordinator.HoldSnapshot{{Mode: lease.Exclusive, Owner: 1, Age: hold}},
				Waiters: []coordinator.WaiterSnapshot{{Mode: lease.Exclusive, Owners: []int{2}, Waited: wait, Try: try}},
			},
			{
				Key: "b", Holds: []coordinator.HoldSnapshot{{Mode: lease.Exclusive, Owner: 2, Age: time.Hour}},
				Waiters: []coordinator.WaiterSnapshot{{Mode: lease.Exclusive, Owners: []int{1}, Waited: time.Hour}},
			},
		})
		return len(g.rings(g.number(took)))
	}
	require.Equal(t, 1, of(took, took, false))
	require.Equal(t, 0, of(took-1, took, false))
	require.Equal(t, 0, of(took, took-1, false))
	require.Equal(t, 0, of(took, took, true), "a TryLock doesn't wait for a holder")
}

// A knot of many is told by its shortest cycle, and how many there are.
func TestAKnotOfMany(t *testing.T) {
	const n = 1000
	keys := make([]coordinator.KeySnapshot, n)
	for i := range keys { // a ring, and the first two wait for each other as well
		next := (i + n - 1) % n
		keys[i] = coordinator.KeySnapshot{
			Key: fmt.Sprint(i), Holds: []coordinator.HoldSnapshot{{Mode: lease.Exclusive, Owner: i + 1, Age: time.Hour}},
			Waiters: []coordinator.WaiterSnapshot{{Mode: lease.Exclusive, Owners: []int{next + 1}, Waited: time.Hour}},
		}
	}
	g := newGraph(keys)
	rings := g.rings(g.number(0))
	require.Len(t, rings, 1)
	require.Len(t, rings[0].links, n)
	p := &picture{h: &handler{}, graph: g, callers: map[int]int{}}
	p.cycles(rings)
	require.Len(t, p.Cycles[0].Steps, maxSteps)
	require.Equal(t, n-maxSteps, p.Cycles[0].More)
	trees, more := g.grow(t.Context(), everyKey(n), room{maxBranches, defaultEach})
	require.Len(t, trees, 1)
	require.Zero(t, more)
	require.Equal(t, maxDepth, count(trees), "it ends, and is bounded")
	require.Equal(t, n-maxDepth, counted(trees), "and tells how many are left")

	keys[0].Waiters = append(keys[0].Waiters, coordinator.WaiterSnapshot{Mode: lease.Exclusive, Owners: []int{2}, Waited: 2 * time.Hour})
	g = newGraph(keys)
	rings = g.rings(g.number(0))
	require.Len(t, rings, 1)
	require.Len(t, rings[0].links, 2)
	require.Equal(t, n+1, rings[0].knot)
}

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

func TestManyCyclesAreCut(t *testing.T) {
	var keys []coordinator.KeySnapshot
	for i := range 2 * (maxCycles + 5) {
		other := i ^ 1
		keys = append(keys, coordinator.KeySnapshot{
			Key: fmt.Sprint(i), Holds: []coordinator.HoldSnapshot{{Mode: lease.Exclusive, Owner: i + 1, Age: time.Hour}},
			Waiters: []coordinator.WaiterSnapshot{{Mode: lease.Exclusive, Owners: []int{other + 1}, Waited: time.Hour}},
		})
	}
	p := &picture{h: &handler{}, graph: newGraph(keys), callers: map[int]int{}}
	p.cycles(p.graph.rings(p.graph.number(0)))
	require.Len(t, p.Cycles, maxCycles)
	require.Equal(t, 5, p.MoreCycles)
}

// Against the definition: two nodes are of one component if each can be reached
// from the other.
func TestComponents(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		n := rapid.IntRange(1, 12).Draw(t, "nodes")
		next := make([][]int, n)
		for i := range next {
			next[i] = rapid.SliceOfN(rapid.IntRange(0, n-1), 0, 4).Draw(t, "edges")
		}
		reach := make([][]bool, n)
		for i := range reach {
			reach[i] = make([]bool, n)
			queue := []int{i}
			for len(queue) > 0 {
				node := queue[0]
				queue = queue[1:]
				for _, to := range next[node] {
					if !reach[i][to] {
						reach[i][to] = true
						queue = append(queue, to)
					}
				}
			}
		}
		part := components(next)
		for a := range n {
			for b := range n {
				together := a == b || reach[a][b] && reach[b][a]
				require.Equal(t, together, part[a] == part[b], "%d and %d of %v", a, b, next)
			}
			path := shortest(next, part, a)
			require.Equal(t, reach[a][a], path != nil, "a way from %d to itself in %v", a, next)
			for i, node := range path {
				require.True(t, slices.Contains(next[node], path[(i+1)%len(path)]))
			}
		}
	})
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
	keys := make([]coordinator.KeySnapshot, n+1)
	for i := range n {
		keys[i] = coordinator.KeySnapshot{
			Key: fmt.Sprint(i), Holds: []coordinator.HoldSnapshot{{Mode: lease.Exclusive, Owner: 1, Age: time.Hour}},
			Waiters: []coordinator.WaiterSnapshot{{Mode: lease.Exclusive, Owners: []int{1 + i%2}, Waited: time.Hour}},
		}
		keys[n].Waiters = append(keys[n].Waiters, coordinator.WaiterSnapshot{Mode: lease.Exclusive, Owners: []int{1}, Waited: time.Hour})
	}
	keys[n].Holds = []coordinator.HoldSnapshot{{Mode: lease.Exclusive, Owner: 3, Age: time.Hour}}
	work := func(ctx context.Context) (trees []*branch, more int) {
		g := newGraph(keys)
		require.Empty(t, g.rings(g.number(0)))
		return g.grow(ctx, everyKey(n+1), room{maxBranches, defaultEach})
	}
	began := time.Now()
	trees, more := work(t.Context())
	require.Less(t, time.Since(began), 10*time.Second) // some ten milliseconds; with each call by each key, minutes
	require.Equal(t, n+1, count(trees)+counted(trees)+more)
	require.LessOrEqual(t, count(trees), maxBranches)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	trees, more = work(ctx)
	require.Less(t, count(trees)+counted(trees)+more, n, "nobody waits for it")
}
