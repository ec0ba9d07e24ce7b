package coordinator_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/go-leasehold/leasehold/coordinator"
	"github.com/go-leasehold/leasehold/internal/redistest"
)

// TestExampleOfWatch: what the example shows holds on a real server.
func TestExampleOfWatch(t *testing.T) {
	server := redistest.Start(t)
	locks, err := coordinator.New(server.Option())
	require.NoError(t, err)
	price, stop, err := cached(locks, "price:42")
	require.NoError(t, err)
	defer stop()
	for _, want := range []string{"10", "11", "12"} {
		server.Do(t, "SET", "price:42", want)
		_, err := locks.Inspect(t.Context(), "k") // its answer comes behind what was to be told
		require.NoError(t, err)
		value, err := price(t.Context())
		require.NoError(t, err)
		require.Equal(t, want, value)
		before := server.Commands()
		for range 100 {
			value, err = price(t.Context())
			require.NoError(t, err)
			require.Equal(t, want, value)
		}
		require.Less(t, server.Commands()-before, int64(100), "from memory")
	}
	require.NoError(t, locks.Close(t.Context()))
}
