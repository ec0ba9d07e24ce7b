package segment

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/go-leasehold/leasehold/internal/redistest"
)

// spanned are stocks of one coordinator, each with units.
func spanned(t testing.TB, conf Config, units ...int64) []*Stock {
	t.Helper()
	c := processAt(t, redistest.Shared(t).Option())
	prefix := redistest.Prefix(t)
	stocks := make([]*Stock, len(units))
	for i, n := range units {
		stocks[i] = opened(t, c, prefix+string(rune('a'+i)), conf)
		require.NoError(t, stocks[i].Load(t.Context(), n))
	}
	return stocks
}

func lines(stocks []*Stock, quantities ...int64) []Line {
	all := make([]Line, len(quantities))
	for i, q := range quantities {
		all[i] = Line{stocks[i], q}
	}
	return all
}

func TestDeductAll(t *testing.T) {
	t.Parallel()
	stocks := spanned(t, Config{Segments: 4}, 10, 10, 10)
	r, err := DeductAll(t.Context(), "o1", "u", lines(stocks, 1, 2, 3)...)
	require.NoError(t, err)
	require.False(t, r.Repeated)
	for i, s := range stocks {
		require.Equal(t, Books{Loaded: 10, Sold: int64(i + 1), Left: 10 - int64(i+1)}, audited(t, s))
	}
	r, err = DeductAll(t.Context(), "o1", "u", lines(stocks, 1, 2, 3)...)
	require.NoError(t, err)
	require.True(t, r.Repeated)
	for i, s := range stocks {
		require.Equal(t, Books{Loaded: 10, Sold: int64(i + 1), Left: 10 - int64(i+1)}, audited(t, s))
	}
	_, err = DeductAll(t.Context(), "o2", "u", lines(stocks, 1, 2, 8)...)
	require.ErrorIs(t, err, ErrSoldOut)
	_, err = DeductAll(t.Context(), "o3", "u", lines(stocks, 9, 8, 7)...)
	require.NoError(t, err)
	require.NoError(t, ReturnAll(t.Context(), "o3", "u", lines(stocks, 9, 8, 7)...))
	require.NoError(t, ReturnAll(t.Context(), "o3", "u", lines(stocks, 9, 8, 7)...))
	_, err = DeductAll(t.Context(), "o3", "u", lines(stocks, 9, 8, 7)...)
	require.ErrorIs(t, err, ErrReturned)
	require.ErrorIs(t, ReturnAll(t.Context(), "o9", "u", lines(stocks, 9, 8, 7)...), ErrUnknownOrder)
	_, err = DeductAll(t.Context(), "o9", "u", lines(stocks, 9, 8, 7)...)
	require.ErrorIs(t, err, ErrReturned)
	_, err = DeductAll(t.Context(), "o1", "u", lines(stocks, 1, 2, 4)...)
	require.ErrorIs(t, err, ErrOrderMismatch)
	for i, s := range stocks {
		require.Equal(t, Books{Loaded: 10, Sold: int64(i + 1), Left: 10 - int64(i+1)}, audited(t, s))
	}
}
