package scenario_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/go-leasehold/leasehold/bench/result"
)

func TestHandoffPassesTheLockTwentyTimes(t *testing.T) {
	for name, r := range measured(t, "handoff", nil, "leasehold", "redislock/1ms", "ping") {
		ordered(t, name, r)
		require.GreaterOrEqual(t, r[result.Operations], 20.0, name)
		require.Positive(t, r[result.Sent], name)
		require.Positive(t, r[result.Executed], name)
		require.Positive(t, r[result.Bytes], name)
	}
}
