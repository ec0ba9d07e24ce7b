package lockz

import (
	"cmp"
	"slices"
)

const (
	maxCycles = 20
	maxSteps  = 50
)

// components returns the strongly connected component of each node (Tarjan, 1972;
// with a stack of its own, since a chain of waits can be long).
func components(next [][]int) []int {
	const none = -1
	type visit struct{ node, edge int }
	index, low, part := make([]int, len(next)), make([]int, len(next)), make([]int, len(next))
	for i := range next {
		index[i], part[i] = none, none
	}
	var path []visit
	var open []int // visited, and not yet of a component
	count, parts := 0, 0
	enter := func(node int) {
		index[node], low[node] = count, count
		count++
		path, open = append(path, visit{node, 0}), append(open, node)
	}
	for start := range next {
		if index[start] == none {
			enter(start)
		}
		for len(path) > 0 {
			v := &path[len(path)-1]
			node := v.node
			if v.edge < len(next[node]) {
				to := next[node][v.edge]
				v.edge++
				if index[to] == none {
					enter(to)
				} else if part[to] == none {
					low[node] = min(low[node], index[to])
				}
				continue
			}
			path = path[:len(path)-1]
			if len(path) > 0 {
				above := path[len(path)-1].node
				low[above] = min(low[above], low[node])
			}
			if low[node] == index[node] {
				for part[node] == none {
					part[open[len(open)-1]] = parts
					open = open[:len(open)-1]
				}
				parts++
			}
		}
	}
	return part
}

// shortest returns the shortest way from a node back to itself, within its
// component, the node first.
func shortest(next [][]int, part []int, start int) []int {
	from := map[int]int{}
	queue := []int{start}
	for len(queue) > 0 {
		node := queue[0]
		queue = queue[1:]
		for _, to := range next[node] {
			if to == start {
				cycle := []int{node}
				for node != start {
					node = from[node]
					cycle = append(cycle, node)
				}
				slices.Reverse(cycle)
				return cycle
			}
			if _, met := from[to]; !met && part[to] == part[start] {
				from[to] = node
				queue = append(queue, to)
			}
		}
	}
	return nil
}

// ring is a cycle of the graph: waits, each with how the one before leads to it.
type ring struct {
	links []link
	knot  int // how many waits are in its component
}

// link is a wait, and the owner of its call who holds what the wait before waits
// for; none, if it is a writer who is only next to get it.
type link struct {
	wait  spot
	owner int
}

// rings returns a cycle of each knot of waits, that with the longest wait first,
// and notes which waits are stuck.
func (g *graph) rings(n *nodes) []ring {
	part := components(n.next)
	knots := map[int][]int{}
	for i := range g.waits {
		knots[part[i]] = append(knots[part[i]], i)
	}
	older := func(a, b int) int { return cmp.Compare(g.waiter(g.waits[b]).Waited, g.waiter(g.waits[a]).Waited) }
	var starts []int
	for _, knot := range knots {
		if len(knot) < 2 {
			continue
		}
		for _, i := range knot {
			g.stuck[g.waits[i]] = true
		}
		starts = append(starts, slices.MinFunc(knot, older))
	}
	slices.SortFunc(starts, func(a, b int) int { return cmp.Or(older(a, b), cmp.Compare(a, b)) })
	rings := make([]ring, 0, len(starts))
	for _, start := range starts {
		r := ring{knot: len(knots[part[start]])}
		path := shortest(n.next, part, start)
		for i, node := range path {
			if node < len(g.waits) {
				before := path[(i+len(path)-1)%len(path)]
				r.links = append(r.links, link{g.waits[node], n.owners[before]})
			}
		}
		rings = append(rings, r)
	}
	return rings
}
