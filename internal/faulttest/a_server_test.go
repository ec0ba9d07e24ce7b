package faulttest

import (
	"context"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/go-leasehold/leasehold/coordinator"
	"github.com/go-leasehold/leasehold/internal/redistest"
)

// A7: a server that is also a cache evicts the lease; its holder is told within one interval of renewal, and the
// server was found unfit beforehand.
func TestHolderIsToldThatItsLeaseWasEvicted(t *testing.T) {
	t.Parallel()
	const ttl = 1500 * time.Millisecond
	s := redistest.Start(t, "--maxmemory", "10mb", "--maxmemory-policy", "allkeys-lru")
	c := process(t, s.Addr(), coordinator.WithTTL(ttl))
	hold := take(t, c.Mutex("k"))
	require.Contains(t, problems(t, c), "eviction", "Check names the policy")

	value := strings.Repeat("x", 100<<10)
	for i := 0; evictions(t, s) == 0; i++ {
		require.Less(t, i, 10_000, "the limit was not reached")
		s.Do(t, "SET", "data-"+strconv.Itoa(i), value)
	}
	// The lease is fresher than the data, so it is among the last to go: squeeze until it has.
	s.Do(t, "CONFIG", "SET", "maxmemory", "1mb")
	eventually(t, hangs, "the lease's eviction", func() bool {
		_, _ = s.DoErr("SET", "data", value) // is refused when nothing is left to evict
		return pttl(t, s, "lock:k") == -2*time.Millisecond
	})
	gone := time.Now()
	s.Do(t, "CONFIG", "SET", "maxmemory", "0")
	await(t, hold.Context().Done(), hangs, "the signal")
	require.ErrorIs(t, context.Cause(hold.Context()), coordinator.ErrLeaseLost)
	require.Less(t, time.Since(gone), ttl/3+ttl/3, "an interval, and as much again for a slow machine")
	require.ErrorIs(t, hold.Unlock(), coordinator.ErrLeaseLost)
	next := take(t, c.Mutex("k"))
	require.Less(t, hold.Token(), next.Token(), "though the counter was evicted too")
	require.NoError(t, next.Unlock())
}

// A7: a server that is full and evicts nothing can't grant; that is not "busy", and who holds goes on holding.
func TestServerOutOfMemoryIsUnavailableAndNotBusy(t *testing.T) {
	t.Parallel()
	const ttl = 2400 * time.Millisecond
	s := redistest.Start(t, "--maxmemory", "10mb", "--maxmemory-policy", "noeviction")
	c := process(t, s.Addr(), coordinator.WithTTL(ttl), coordinator.WithUnavailableAfter(300*time.Millisecond))
	require.NotContains(t, problems(t, c), "eviction")
	hold := take(t, c.Mutex("held"))
	s.Do(t, "SET", "data", strings.Repeat("x", 1<<20))
	s.Do(t, "CONFIG", "SET", "maxmemory", "1mb")

	_, err := c.Mutex("k").TryLock(t.Context())
	require.ErrorIs(t, err, coordinator.ErrUnavailable)
	require.NotErrorIs(t, err, coordinator.ErrNotAcquired)
	require.ErrorContains(t, err, "OOM")
	_, err = c.Mutex("fresh").Lock(t.Context())
	require.ErrorIs(t, err, coordinator.ErrUnavailable)
	require.NotErrorIs(t, err, coordinator.ErrNotAcquired)
	_, err = c.Mutex("held").TryLock(t.Context())
	require.ErrorIs(t, err, coordinator.ErrNotAcquired, "this one is known to be busy")

	renewals := stats(c).Renewals
	eventually(t, hangs, "renewals", func() bool { return stats(c).Renewals >= renewals+2 })
	require.NoError(t, hold.Err())
	require.NoError(t, hold.Unlock())
	s.Do(t, "CONFIG", "SET", "maxmemory", "0")
	require.NoError(t, take(t, c.Mutex("k")).Unlock())
}

func evictions(t testing.TB, s *redistest.Server) int {
	t.Helper()
	message := s.Do(t, "INFO", "stats")
	text, err := message.ToString()
	require.NoError(t, err)
	for line := range strings.Lines(text) {
		if n, ok := strings.CutPrefix(line, "evicted_keys:"); ok {
			count, err := strconv.Atoi(strings.TrimSpace(n))
			require.NoError(t, err)
			return count
		}
	}
	require.FailNow(t, "no evicted_keys in INFO")
	return 0
}

// problems are the codes of what Check finds wrong with the server.
func problems(t testing.TB, c *coordinator.Coordinator) []string {
	t.Helper()
	found, err := c.Check(t.Context())
	require.NoError(t, err)
	var codes []string
	for _, p := range found {
		codes = append(codes, p.Code)
	}
	return codes
}
