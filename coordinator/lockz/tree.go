package lockz

import (
	"cmp"
	"slices"
)

const (
	// maxBranches bounds the keys in the tree of who is in whose way, and
	// maxDepth how far they are below each other.
	maxBranches = 200
	maxDepth    = 24
)

// branch is a key in the tree of who is in whose way: who has it, who waits for
// it, and below these the keys that they have meanwhile.
type branch struct {
	key  int
	open []twig // waits of callers that have keys which others wait for
	rest int    // other waits
	more int    // branches that there was no room for
	loop bool   // a call that waits for it is in a cycle
}

// twig is a wait with what it holds up.
type twig struct {
	wait spot
	held []*branch
}

// forest makes the trees. A key stands in them once.
type forest struct {
	g    *graph
	met  map[int]bool
	left int // keys that there is room for
}

// grow returns the trees of the given keys, which are sorted. Keys that another
// one of them leads to stand below that one.
func (g *graph) grow(keys []int) (trees []*branch, more int) {
	f := &forest{g: g, met: map[int]bool{}, left: maxBranches}
	below := map[int]bool{}
	for _, key := range keys {
		for _, owner := range g.ownersOf(key) {
			for _, i := range g.waitsOf[owner] {
				if g.waits[i].key != key {
					below[key] = true
				}
			}
		}
	}
	for _, top := range []bool{true, false} { // the second time, what only cycles lead to
		for _, key := range keys {
			if f.met[key] || top && below[key] {
				continue
			}
			if b := f.branch(key, 0); b != nil {
				trees = append(trees, b)
			} else {
				more++
			}
		}
	}
	slices.SortStableFunc(trees, func(a, b *branch) int {
		switch {
		case a.loop == b.loop:
			return 0
		case a.loop:
			return -1
		}
		return 1
	})
	return trees, more
}

// ownersOf returns the owners who have a key here.
func (g *graph) ownersOf(key int) (owners []int) {
	for _, hold := range g.keys[key].Holds {
		if hold.Owner != 0 {
			owners = append(owners, hold.Owner)
		}
	}
	return owners
}

// branch returns a key's branch, or nil where there is no room.
func (f *forest) branch(key, depth int) *branch {
	if f.left == 0 || depth >= maxDepth {
		return nil
	}
	f.left--
	f.met[key] = true
	b := &branch{key: key}
	for at, w := range f.g.keys[key].Waiters {
		s := spot{key, at}
		b.loop = b.loop || f.g.stuck[s]
		t := twig{wait: s}
		for _, held := range f.held(w.Owners) {
			if f.met[held] {
				continue
			}
			if below := f.branch(held, depth+1); below != nil {
				t.held = append(t.held, below)
			} else {
				b.more++
			}
		}
		if len(t.held) > 0 || f.g.stuck[s] {
			b.open = append(b.open, t)
		} else {
			b.rest++
		}
	}
	return b
}

// held returns the keys that owners have and somebody waits for.
func (f *forest) held(owners []int) (keys []int) {
	for _, owner := range owners {
		for _, s := range f.g.holdsOf[owner] {
			if len(f.g.keys[s.key].Waiters) > 0 {
				keys = append(keys, s.key)
			}
		}
	}
	slices.SortFunc(keys, cmp.Compare[int])
	return slices.Compact(keys)
}
