package lease_test

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/go-leasehold/leasehold/lease"
)

func TestOwnersHaveOneName(t *testing.T) {
	for owner, ticket := range map[string]lease.Ticket{"a:1": 1, "a:b:7": 7, "a:18446744073709551615": 1<<64 - 1, " :2": 2} {
		id, got, ok := lease.ParseOwner(owner)
		require.True(t, ok, owner)
		require.Equal(t, owner, lease.Owner(id, got))
		require.Equal(t, ticket, got)
	}
	for _, owner := range []string{"", "a", ":1", "a:", "a:0", "a:01", "a:+1", "a:-1", "a:1 ", "a:1:", "a:18446744073709551616", "a:write", "a:0x1", "a:1_0"} {
		id, ticket, ok := lease.ParseOwner(owner)
		require.False(t, ok, owner)
		require.Equal(t, owner, id)
		require.Zero(t, ticket)
	}
}

// FuzzOwners: every id and ticket have a name of their own, which is read as it was made; what is no such name is an id.
func FuzzOwners(f *testing.F) {
	for _, owner := range []string{"host-1-a:7", "a:07", "a:0", ":1", "a:b:1", "", ":", "a:18446744073709551615", "a:18446744073709551616"} {
		f.Add(owner, uint64(7))
	}
	f.Fuzz(func(t *testing.T, owner string, n uint64) {
		id, ticket, ok := lease.ParseOwner(owner)
		if ok {
			require.Equal(t, owner, lease.Owner(id, ticket))
			require.NotZero(t, ticket)
		} else {
			require.Equal(t, owner, id)
			require.Zero(t, ticket)
		}
		back, same, ok := lease.ParseOwner(lease.Owner(owner, lease.Ticket(n)))
		require.Equal(t, owner != "" && n > 0, ok)
		if ok {
			require.Equal(t, owner, back)
			require.EqualValues(t, n, same)
			require.True(t, strings.HasPrefix(lease.Owner(owner, lease.Ticket(n)), owner+":"))
		}
	})
}
