package scenario_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/go-leasehold/leasehold/bench/result"
)

const (
	lockTTL  = 1e6 // microseconds
	lostKeys = 20
)

// A killed holder's lock is free once its time to live is over, counted from when it was taken: it was not renewed since.
func TestCrashWaitsForTheLeaseToEnd(t *testing.T) {
	rounds := measured(t, "crash", nil, "leasehold", "redislock")
	for name, r := range rounds {
		ordered(t, name, r)
		require.InDelta(t, lostKeys, r[result.Operations], 0, name)
		require.Greater(t, r[result.OverTTL], r[result.LatencyMax]-lockTTL, name) // it was taken before it was lost
		require.Greater(t, r[result.OverTTL], -lockTTL/10, name)                  // what it took to hear that it was taken
		require.Zero(t, r[result.Violations], name)
	}
}

// Each contender's key has to be found in Redis: deleting one that is not there fails.
func TestDeletedKeysAreThoseOfTheContender(t *testing.T) {
	for name, r := range measured(t, "deleted", nil, "leasehold", "redislock/1ms", "redsync/1ms", "textbook/1ms") {
		ordered(t, name, r)
		require.InDelta(t, lostKeys, r[result.Operations], 0, name)
	}
}
