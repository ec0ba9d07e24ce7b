package segment

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/go-leasehold/leasehold/coordinator"
	"github.com/go-leasehold/leasehold/internal/redistest"
)

// visitors are the coordinators of a fair: the first is whoever looks at it, the others are processes.
func visitors(t *testing.T) []*coordinator.Coordinator {
	t.Helper()
	all := make([]*coordinator.Coordinator, 3)
	for i := range all {
		all[i] = processAt(t, redistest.Shared(t).Option())
	}
	return all
}

// Of an order that is taken before the edge of a bucket and returned after it there are two records, until the older
// bucket is dropped: a book that reads the older one calls sold what is back. No fault is needed for that.
func TestFairsAtTheEdgeOfABucket(t *testing.T) {
	t.Parallel()
	all := visitors(t)
	act := func(acts ...doing) []doing { return acts }
	for name, f := range map[string]*fair{
		"returned after it": {
			Stocks: 2, Segments: 1, Processes: 1, Units: 3, Edge: 20,
			Acts: [][]doing{act(doing{What: deductsAll}), act(doing{What: passesLong}), act(doing{What: returnsAll})},
		},
		"returned after it, among faults": { // as it was found
			Stocks: 2, Segments: 2, Processes: 3, Units: 2, Limit: 4, Edge: 95,
			Acts: [][]doing{
				act(doing{Process: 1, What: returnsAll}, doing{Process: 1, Order: 2, Ills: []ill{{At: 3, Later: 22}, {3, commandLost, 23}}}),
				act(doing{Process: 0, Order: 2, What: passesLong, Hasty: true, Ills: []ill{{0, commandTwice, 26}}},
					doing{Process: 2, Order: 1, What: passesLong, Ills: []ill{{8, diesAfter, 8}, {4, commandLost, 26}}}),
				act(doing{Process: 0, Order: 2, What: returnsAll}, doing{Process: 2, What: passesLong}),
				act(doing{Process: 1, Order: 4}, doing{Process: 0, Order: 3, What: deductsOne, Ills: []ill{{At: 6, Later: 15}, {At: 7, Later: 12}}}),
				act(doing{Process: 2, Order: 3}),
				act(doing{Process: 2, Order: 1, Ills: []ill{{At: 12, Later: 30}, {0, commandLost, 9}}}),
				act(doing{Process: 2, Order: 3, What: passesLong}, doing{Process: 0, Order: 5, What: passes},
					doing{Process: 1, Order: 2, Ills: []ill{{3, commandTwice, 3}, {2, cutOff, 13}}}),
				act(doing{Process: 1, Order: 2, What: returnsAll, Hasty: true, Ills: []ill{{5, diesBefore, 15}}},
					doing{Process: 0, Order: 1, What: passes}),
			},
		},
	} {
		t.Run(name, func(t *testing.T) {
			failures, told := f.takesPlace(t, all)
			require.Empty(t, failures, "told: %v", told)
		})
	}
}
