package lockz

import (
	"slices"
	"time"

	"github.com/go-leasehold/leasehold/coordinator"
	"github.com/go-leasehold/leasehold/lease"
)

// graph is who waits for whom among the callers of this process. What can be in a
// cycle is a call that waits and comes with an owner: somebody may wait for what
// that owner holds. So can the first writer of a queue, whoever it is: the readers
// behind it wait for it.
type graph struct {
	keys    []coordinator.KeySnapshot
	writers []int // of each key: the place of the first writer in its queue, or -1
	waits   []spot
	// Of each owner that waits: its waits, as indices, and its holds.
	waitsOf map[int][]int
	holdsOf map[int][]spot
	stuck   map[spot]bool // waits that are in a knot: each waits for all others
	has     []int         // of each owner: how many holds
}

// spot is where a hold or a wait stands in a snapshot: in which key, and at which
// place in its list.
type spot struct{ key, at int }

// newGraph looks through a snapshot's keys.
func newGraph(keys []coordinator.KeySnapshot) *graph {
	g := &graph{
		keys: keys, writers: make([]int, len(keys)),
		waitsOf: map[int][]int{}, holdsOf: map[int][]spot{}, stuck: map[spot]bool{},
	}
	for k := range keys {
		writer := firstWriter(keys[k].Waiters)
		g.writers[k] = writer
		for at, w := range keys[k].Waiters {
			if len(w.Owners) == 0 && at != writer {
				continue
			}
			for _, owner := range w.Owners {
				g.waitsOf[owner] = append(g.waitsOf[owner], len(g.waits))
			}
			g.waits = append(g.waits, spot{k, at})
		}
	}
	for k := range keys {
		for at := range keys[k].Holds {
			owner := keys[k].Holds[at].Owner
			if owner >= len(g.has) { // they are numbered from 1
				g.has = append(g.has, make([]int, owner+1-len(g.has))...)
			}
			g.has[owner]++
			if len(g.waits) > 0 && len(g.waitsOf[owner]) > 0 {
				g.holdsOf[owner] = append(g.holdsOf[owner], spot{k, at})
			}
		}
	}
	return g
}

// seenAgain says that there is more of an owner than one hold.
func (g *graph) seenAgain(owner int) bool {
	return owner > 0 && (g.has[owner] > 1 || len(g.waitsOf[owner]) > 0)
}

func (g *graph) waiter(s spot) *coordinator.WaiterSnapshot { return &g.keys[s.key].Waiters[s.at] }

func (g *graph) hold(s spot) *coordinator.HoldSnapshot { return &g.keys[s.key].Holds[s.at] }

// nodes are the graph in numbers, for algorithms: first the waits, then the keys
// that they wait for, then the owners who hold these.
type nodes struct {
	g      *graph
	next   [][]int
	keyOf  map[int]int // a snapshot's key → its node
	ownOf  map[int]int // an owner → its node
	owners map[int]int // and back
}

// number gives the graph in numbers. Only what is older than the making of the
// snapshot counts: all of it was so at the moment when that began, although keys
// were looked at one after the other.
func (g *graph) number(took time.Duration) *nodes {
	n := &nodes{g: g, keyOf: map[int]int{}, ownOf: map[int]int{}, owners: map[int]int{}}
	n.next = make([][]int, len(g.waits))
	writers := g.writersAhead()
	var has map[int]bool // the owners who have the key
	for i, s := range g.waits {
		if i == 0 || s.key != g.waits[i-1].key {
			has = g.ownersOf(s.key)
		}
		w := g.waiter(s)
		switch {
		// An owner of the call has the key: a goroutine that works for the same caller
		// came in first, and the call waits for that.
		case w.Try || w.Waited < took || slices.ContainsFunc(w.Owners, func(owner int) bool { return has[owner] }):
		case w.Mode == lease.Shared && !g.written(s.key):
			if writer, ok := writers[i]; ok {
				n.next[i] = append(n.next[i], writer)
			}
		default:
			key := n.key(s.key, took) // first: it makes next longer
			n.next[i] = append(n.next[i], key)
		}
	}
	return n
}

// key returns the node of a key, which leads to those who hold it.
func (n *nodes) key(k int, took time.Duration) int {
	if node, ok := n.keyOf[k]; ok {
		return node
	}
	node := len(n.next)
	n.keyOf[k] = node
	n.next = append(n.next, nil)
	for _, hold := range n.g.keys[k].Holds {
		if hold.Age >= took && len(n.g.waitsOf[hold.Owner]) > 0 {
			owner := n.owner(hold.Owner)
			n.next[node] = append(n.next[node], owner)
		}
	}
	return node
}

// owner returns the node of an owner, which leads to its waits.
func (n *nodes) owner(owner int) int {
	if node, ok := n.ownOf[owner]; ok {
		return node
	}
	node := len(n.next)
	n.ownOf[owner], n.owners[node] = node, owner
	n.next = append(n.next, n.g.waitsOf[owner])
	return node
}

// written says that a key's holder here is a writer.
func (g *graph) written(k int) bool {
	holds := g.keys[k].Holds
	return len(holds) > 0 && holds[0].Mode == lease.Exclusive
}

// ownersOf returns the owners who have a key here.
func (g *graph) ownersOf(key int) map[int]bool {
	owners := map[int]bool{}
	for i := range g.keys[key].Holds {
		owners[g.keys[key].Holds[i].Owner] = true
	}
	return owners
}

// writersAhead returns, for each wait, the first wait of a writer before it in the
// queue of its key.
func (g *graph) writersAhead() map[int]int {
	ahead := map[int]int{}
	key, writer, at := -1, -1, -1
	for i, s := range g.waits { // key by key, in the order of their queues
		if s.key != key {
			key, writer, at = s.key, -1, g.writers[s.key]
		}
		if s.at == at {
			writer = i
		} else if writer >= 0 {
			ahead[i] = writer
		}
	}
	return ahead
}

// behind returns the writer for whom a reader waits, before it in the queue, or nil:
// it waits for a holder.
func (g *graph) behind(s spot) *coordinator.WaiterSnapshot {
	w := g.waiter(s)
	if w.Try || w.Mode != lease.Shared || g.written(s.key) {
		return nil
	}
	if at := g.writers[s.key]; at >= 0 && at < s.at {
		return &g.keys[s.key].Waiters[at]
	}
	return nil
}

// firstWriter returns the place of the first writer in a queue, or -1.
func firstWriter(queue []coordinator.WaiterSnapshot) int {
	for at := range queue {
		if queue[at].Mode == lease.Exclusive && !queue[at].Try {
			return at
		}
	}
	return -1
}
