package coordinator

import (
	"math/bits"
	"math/rand/v2"
	"runtime"
	"sync"
	"sync/atomic"
)

// stripe counts, for one of the cores or so, who came in and who went out. It has
// a cache line to itself. A reader goes out by the stripe by which it came in.
type stripe struct {
	in, out atomic.Int64
	_       [48]byte
}

// newStripes returns a stripe for each core, or a few more.
func newStripes() []stripe {
	return make([]stripe, 1<<bits.Len(uint(runtime.GOMAXPROCS(0)-1)))
}

// badge is what a reader carries while it is inside a gate: by which stripe it
// came in. Badges lie in a pool, so that a core mostly takes the one that it gave
// back, and counts where it counted before. (The idea is that of xsync.Counter and
// xsync.RBMutex, whose tokens can't be found again when a hold is dropped.)
type badge struct {
	slot uint32
	at   *whereabouts
	_    [48]byte
}

// whereabouts is where a badge is. It outlives the badge.
type whereabouts struct {
	inside atomic.Pointer[gate]
	_      [56]byte
}

var badges = sync.Pool{New: func() any {
	b := &badge{slot: rand.Uint32(), at: &whereabouts{}}
	runtime.AddCleanup(b, (*whereabouts).collected, b.at)
	return b
}}

// collected is called when a badge is garbage-collected: one that the pool has
// dropped, or one inside a gate, whose hold nobody can unlock any more. Its hold
// costs nothing for being found so; a claim's does.
func (w *whereabouts) collected() {
	if g := w.inside.Load(); g != nil {
		g.actor.forgotten(g)
	}
}

// enter counts a reader in.
func (g *gate) enter() *badge {
	b := badges.Get().(*badge)
	s := g.stripe(b)
	if n := s.in.Load(); !s.in.CompareAndSwap(n, n+1) {
		b.slot++ // another core counts here
		g.stripe(b).in.Add(1)
	}
	b.at.inside.Store(g)
	return b
}

// goBack takes enter back: it was not let in.
func (g *gate) goBack(b *badge) {
	g.stripe(b).in.Add(-1)
	b.putAway()
}

// goOut counts a reader out.
func (g *gate) goOut(b *badge) {
	g.stripe(b).out.Add(1)
	b.putAway()
}

func (b *badge) putAway() {
	b.at.inside.Store(nil)
	badges.Put(b)
}

func (g *gate) stripe(b *badge) *stripe { return &g.stripes[int(b.slot)&(len(g.stripes)-1)] }

// deserted says that nobody is inside. Where the gate was shut before, nobody can
// come in any more: so it was, stripe by stripe, when "out" was read, and nobody
// came in by it until "in" was.
func (g *gate) deserted() bool {
	for i := range g.stripes {
		out := g.stripes[i].out.Load()
		if g.stripes[i].in.Load() != out {
			return false
		}
	}
	return true
}

// passed is how many have come in so far.
func (g *gate) passed() (n int64) {
	for i := range g.stripes {
		n += g.stripes[i].in.Load()
	}
	return n
}

// readers is about how many are inside.
func (g *gate) readers() (n int) {
	for i := range g.stripes {
		n -= int(g.stripes[i].out.Load())
		n += int(g.stripes[i].in.Load())
	}
	return max(n, 0)
}
