package lockz

import (
	"cmp"
	"context"
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
	open []twig // waits of callers that have keys which others wait for; the first ones
	rest int    // other waits
	more int    // keys below that there was no room for
	loop bool   // a call that waits for it is in a cycle
}

// twig is a wait with what it holds up.
type twig struct {
	wait spot
	held []*branch
}

// room bounds the trees.
type room struct {
	keys  int // in all of them
	twigs int // of a key
}

// forest makes the trees. A key stands in them once.
type forest struct {
	g    *graph
	ctx  context.Context // of the request
	room room
	met  map[int]bool // keys that stand in the trees
	cut  map[int]bool // keys that are below those, or would be, and had no room
	done map[int]bool // owners whose keys are all met or cut: many calls may wait with one who has many
	work int
}

// over says that nobody waits for the trees any more. It is asked often.
func (f *forest) over() bool {
	f.work++
	return f.work%1024 == 0 && f.ctx.Err() != nil
}

// grow returns the trees of the given keys, which are sorted, and how many keys had
// no room and stand below none that had. Keys that another one of them leads to stand
// below that one, but for those of deadlocks: these are trees, with what they hold up.
func (g *graph) grow(ctx context.Context, keys []int, room room) (trees []*branch, more int) {
	f := &forest{g: g, ctx: ctx, room: room, met: map[int]bool{}, cut: map[int]bool{}, done: map[int]bool{}}
	stuck, below := map[int]bool{}, f.below(keys)
	for s := range g.stuck {
		stuck[s.key] = true
	}
	for _, grows := range []func(key int) bool{
		func(key int) bool { return stuck[key] },
		func(key int) bool { return !below[key] },
		func(int) bool { return true }, // what leads to itself, and is too young to be a deadlock
	} {
		for _, key := range keys {
			if f.over() {
				return trees, more
			}
			if f.met[key] || f.cut[key] || !grows(key) {
				continue
			}
			if b := f.branch(key, 0); b != nil {
				trees = append(trees, b)
			} else {
				more += f.cutAway(key)
			}
		}
	}
	return trees, more
}

// below returns which of the keys are held by somebody who waits for another one.
func (f *forest) below(keys []int) map[int]bool {
	const several = -1
	waits := map[int]int{} // an owner → the key that it waits for
	for owner, all := range f.g.waitsOf {
		for _, i := range all {
			key := f.g.waits[i].key
			if before, ok := waits[owner]; ok && before != key {
				waits[owner] = several
				break
			}
			waits[owner] = key
		}
	}
	below := map[int]bool{}
	for _, key := range keys {
		for i := range f.g.keys[key].Holds {
			if other, ok := waits[f.g.keys[key].Holds[i].Owner]; ok && other != key {
				below[key] = true
				break
			}
		}
	}
	return below
}

// branch returns a key's branch, or nil where there is no room.
func (f *forest) branch(key, depth int) *branch {
	if f.room.keys == 0 || depth >= maxDepth {
		return nil
	}
	f.room.keys--
	f.met[key] = true
	b := &branch{key: key}
	for at, w := range f.g.keys[key].Waiters {
		if f.over() {
			break
		}
		s := spot{key, at}
		b.loop = b.loop || f.g.stuck[s]
		t := twig{wait: s}
		full := len(b.open) >= f.room.twigs
		for _, held := range f.take(w.Owners) {
			if f.met[held] || f.cut[held] {
				continue // by the branch of one before it
			}
			var below *branch
			if !full {
				below = f.branch(held, depth+1)
			}
			if below != nil {
				t.held = append(t.held, below)
			} else {
				b.more += f.cutAway(held)
			}
		}
		if !full && (len(t.held) > 0 || f.g.stuck[s]) {
			b.open = append(b.open, t)
		} else {
			b.rest++
		}
	}
	return b
}

// take returns the keys that owners have and somebody waits for, of each owner once:
// who asks puts them in the trees, or counts them.
func (f *forest) take(owners []int) (keys []int) {
	for _, owner := range owners {
		if f.done[owner] {
			continue
		}
		f.done[owner] = true
		for _, s := range f.g.holdsOf[owner] {
			if len(f.g.keys[s.key].Waiters) > 0 && !f.met[s.key] && !f.cut[s.key] {
				keys = append(keys, s.key)
			}
		}
	}
	slices.SortFunc(keys, cmp.Compare[int])
	return slices.Compact(keys)
}

// cutAway leaves a key out, and all that would be below it, and returns how many
// these are.
func (f *forest) cutAway(key int) (n int) {
	f.cut[key] = true
	for left := []int{key}; len(left) > 0; n++ {
		key = left[len(left)-1]
		left = left[:len(left)-1]
		for i := range f.g.keys[key].Waiters {
			if f.over() {
				return n
			}
			for _, held := range f.take(f.g.keys[key].Waiters[i].Owners) {
				f.cut[held] = true
				left = append(left, held)
			}
		}
	}
	return n
}
