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
	require.Equal(t, n-maxSteps, p.Cycles[0].Cut)
	require.Zero(t, p.Cycles[0].More)
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
	p = &picture{h: &handler{}, graph: g, callers: map[int]int{}}
	p.cycles(rings)
	require.Len(t, p.Cycles[0].Steps, 2)
	require.Zero(t, p.Cycles[0].Cut)
	require.Equal(t, n-1, p.Cycles[0].More)
}

func TestALongCycleSaysThatItIsCut(t *testing.T) {
	onStage(t, func(t *testing.T, s *scene) {
		var has []context.Context
		for i := range maxSteps + 3 {
			has = append(has, s.lock(s.ctx, fmt.Sprint(i)))
		}
		for i := range has {
			s.queue(has[i], fmt.Sprint((i+1)%len(has)))
		}
		time.Sleep(time.Second)
		c := s.json("/?format=json").Cycles[0]
		require.Len(t, c.Steps, maxSteps)
		require.Equal(t, 3, c.Cut)
		body := s.get("/").Body.String()
		wellMade(t, body)
		shows(t, body, "and so on: 3 more steps, the last of which waits for what the first one has")
	})
}

// A caller is numbered where it can be met again, whatever of it is shown.
func TestCallersAreNumbered(t *testing.T) {
	onStage(t, func(t *testing.T, s *scene) {
		mine := coordinator.WithOwner(s.ctx)
		s.lock(mine, "a")
		s.lock(mine, "b")
		s.lock(s.lock(s.ctx, "c"), "d")
		p := s.json("/?format=json")
		require.Equal(t, []int{1, 1}, []int{p.key(t, "a").Holds[0].Caller, p.key(t, "b").Holds[0].Caller})
		require.Zero(t, p.key(t, "c").Holds[0].Caller)
		require.Zero(t, p.key(t, "d").Holds[0].Caller)
		require.Equal(t, 1, s.json("/?format=json&q=b").Keys[0].Holds[0].Caller)
	})
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
