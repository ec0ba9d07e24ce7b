package scenario_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/go-leasehold/leasehold/bench/harness"
	"github.com/go-leasehold/leasehold/bench/result"
)

// few is enough to see that something is measured, and what it is.
var few = []harness.Point{{Label: "500", X: 500}}

func TestMemoryOfHeldKeys(t *testing.T) {
	rounds := measured(t, "memory-held", few, "leasehold", "redislock")
	for name, r := range rounds {
		require.Positive(t, r[result.HeapPerItem], name)
		require.Greater(t, r[result.RedisPer], 16.0, "%s: less than the key's name", name)
	}
	require.Less(t, rounds["leasehold"][result.Goroutines], 1.0, "a goroutine for each key")
}

func TestMemoryOfIdleKeys(t *testing.T) {
	held := measured(t, "memory-held", few, "leasehold")["leasehold"]
	for name, r := range measured(t, "memory-idle", few, "leasehold", "redislock") {
		require.Less(t, r[result.Goroutines], 1.0, name)
		if name == "leasehold" {
			require.Less(t, r[result.HeapPerItem], held[result.HeapPerItem], "nothing was given back")
		}
	}
}

func TestMemoryOfWaiters(t *testing.T) {
	for name, r := range measured(t, "memory-waiter", few, "leasehold", "redislock") {
		require.Positive(t, r[result.HeapPerItem], name)
		require.GreaterOrEqual(t, r[result.Goroutines], 1.0, "%s: not all of them waited", name)
	}
}
