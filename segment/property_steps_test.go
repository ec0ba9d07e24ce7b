package segment

import (
	"context"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/go-leasehold/leasehold/internal/redistest"
)

// stepped runs commands one by one, and says before each which it is, from 0.
type stepped struct {
	server
	before func(step int)
	n      int
}

func (s *stepped) run(ctx context.Context, calls []call) []answer {
	answers := make([]answer, len(calls))
	for i := range calls {
		s.before(s.n) // one call at a time: it needs no lock
		s.n++
		answers[i] = s.server.run(ctx, calls[i:i+1])[0]
	}
	return answers
}

// manySteps is more than the commands of a call that has units moved and finds that others were quicker.
const manySteps = 24

// meanwhileOn is a stock of three segments with a unit in the first and in the second, and a process on which something happens
// before each command.
func meanwhileOn(t *testing.T, mine, others *Stock, before func(other *Stock, step int)) (process, other *Stock) {
	t.Helper()
	name := redistest.Prefix(t)
	other = newStock(others.c, name, others.conf, others.settings, others.server)
	require.NoError(t, other.Load(t.Context(), 2))
	steps := &stepped{server: mine.server, before: func(int) {}}
	process = newStock(mine.c, name, mine.conf, mine.settings, steps)
	_, err := process.Remaining(t.Context()) // what is asked first, and once, is none of the steps
	require.NoError(t, err)
	steps.n, steps.before = 0, func(step int) { before(other, step) }
	return process, other
}

// While an order is tried, a unit comes back in one segment, and then one is taken in another: at every moment there
// is one for it, wherever it looks, so it is never sold out. Every pair of places is tried.
func TestUnitsThatWanderAreNeverSoldOut(t *testing.T) {
	conf := Config{Segments: 3}
	shared := redistest.Shared(t)
	mine, others := opened(t, processAt(t, shared.Option()), "-", conf), opened(t, processAt(t, shared.Option()), "-", conf)
	x, y, z := idAt(mine, 0, "x"), idAt(mine, 1, "y"), idAt(mine, 2, "z")
	for i := range manySteps {
		for j := i; j < manySteps; j++ {
			var between []error
			steps := 0
			process, other := meanwhileOn(t, mine, others, func(other *Stock, step int) {
				steps = step
				if step == i {
					between = append(between, other.Return(t.Context(), Order{ID: x, Quantity: 1}))
				}
				if step == j {
					_, err := other.Deduct(t.Context(), Order{ID: y, Quantity: 1})
					between = append(between, err)
				}
			})
			_, err := other.Deduct(t.Context(), Order{ID: x, Quantity: 1})
			require.NoError(t, err)
			_, err = process.Deduct(t.Context(), Order{ID: z, Quantity: 1})
			require.NoError(t, err, "back at %d, taken at %d", i, j)
			for _, err := range between {
				require.NoError(t, err, "back at %d, taken at %d", i, j)
			}
			if i > steps {
				return
			}
		}
	}
	require.Fail(t, "there are more steps than these")
}

// While an order for the last units is tried, its twin is, in another process. Both are told that they have them.
func TestTwinsForTheLastUnitsBothHaveThem(t *testing.T) {
	conf := Config{Segments: 3}
	shared := redistest.Shared(t)
	mine, others := opened(t, processAt(t, shared.Option()), "-", conf), opened(t, processAt(t, shared.Option()), "-", conf)
	twin := Order{ID: idAt(mine, 2, "z"), Quantity: 2}
	for i := range manySteps {
		steps := 0
		process, other := meanwhileOn(t, mine, others, func(other *Stock, step int) {
			steps = step
			if step == i {
				if _, err := other.Deduct(t.Context(), twin); err != nil {
					t.Errorf("the twin at step %d: %v", i, err)
				}
			}
		})
		_, err := process.Deduct(t.Context(), twin)
		require.NoError(t, err, "its twin at step %d", i)
		audit, err := other.Audit(t.Context())
		require.NoError(t, err)
		require.Equal(t, int64(2), audit.Sold, "its twin at step %d", i)
		if i > steps {
			require.Greater(t, i, 5)
			return
		}
	}
	require.Fail(t, "there are more steps than these")
}
