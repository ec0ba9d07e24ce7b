package segment

import (
	"testing"

	"github.com/stretchr/testify/require"
)

// The plans of TestStockInSequence get everywhere: what is never met is not tested.
func TestPlansReachWhatTheyAreFor(t *testing.T) {
	t.Parallel()
	coordinators := coordinatorsFor(t)
	reached := map[string]int{}
	for seed := range 60 {
		s := drawSale.Example(seed)
		require.NoError(t, newWorld(t, s, coordinators, reached).sequence(), "%d: %v", seed, s)
	}
	t.Log(reached)
	for _, what := range []string{
		"unreachable", "lost command", "lost reply", "doubled", "delayed", "crash before", "crash after", "crash during", "meanwhile",
		"late copy run", "crash between give and credit", "crash while loading",
		"units given", "units received", "units told again", "units of a crash received",
		"rotation", "record of the bucket before", "forgotten",
		"reservation expired", "told expired", "confirmed", "told reserved", "told confirmed",
		"returned", "returned before it was taken", "told returned", "told unknown",
		"asked again", "told again", "mismatch", "user limit", "restocked", "the long way",
		"sold out", "sold out with no command", "told again while sold out is known",
		"uncertain", "not done", "told epoch", "told loaded", "told not loaded",
		"done: deduct", "done: deduct without an ID", "done: reserve", "done: confirm", "done: cancel", "done: return",
		"done: restock", "done: with segment", "done: remaining", "done: audit", "done: load", "done: reset",
		"uncertain of deduct without an ID", "user limit of deduct without an ID", "sold out of deduct without an ID",
	} {
		require.Positive(t, reached[what], "%s: %v", what, reached)
	}
}
