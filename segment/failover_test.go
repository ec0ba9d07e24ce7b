package segment

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/go-leasehold/leasehold/internal/redistest"
)

// TestFailover: units that a donor has twice are taken from it again; what it has sold of them is in Short.
func TestFailover(t *testing.T) {
	t.Parallel()
	for _, soldTwice := range []int64{0, 3, 4} {
		for _, by := range []string{"an audit", "an order"} {
			s := loaded(t, Config{Segments: 3}, 12)
			total := gives(t, s, 1, 0, 4)
			require.Equal(t, "4", total)
			_, err := s.homes[0].ask(&batch{credits: []credit{{1, total}}})
			require.NoError(t, err)
			_, err = s.Deduct(t.Context(), Order{ID: idAt(s, 0, "o"), Quantity: 4})
			require.NoError(t, err)
			// The donor forgets that it gave them, and sells some.
			redistest.Shared(t).Do(t, "HSET", s.homes[1].keys.books, "left", number(4-soldTwice), "took", number(soldTwice),
				"given:0", "0", "gave", "0")
			want := Books{Loaded: 12, Left: 8, Sold: 4 + soldTwice, Short: soldTwice}
			if by == "an order" {
				_, err = s.Deduct(t.Context(), Order{ID: idAt(s, 0, "p"), Quantity: 8})
				require.NoError(t, err)
				want.Sold, want.Left = want.Sold+8, 0
			}
			for range 2 {
				require.Equal(t, want, audited(t, s), "%d sold twice, found by %s", soldTwice, by)
			}
			_, err = s.Deduct(t.Context(), Order{ID: "q", Quantity: 9})
			require.ErrorIs(t, err, ErrSoldOut)
		}
	}
}

// TestLostCreditIsCreditedAgain: a failover at home, after which its donors' totals are ahead.
func TestLostCreditIsCreditedAgain(t *testing.T) {
	t.Parallel()
	s := loaded(t, Config{Segments: 3}, 12)
	total := gives(t, s, 1, 0, 4)
	for range 3 { // the second and third: told twice
		_, err := s.homes[0].ask(&batch{credits: []credit{{1, total}, {1, total}}})
		require.NoError(t, err)
	}
	require.Equal(t, Books{Loaded: 12, Left: 12}, audited(t, s))
	redistest.Shared(t).Do(t, "HSET", s.homes[0].keys.books, "left", "4", "got:1", "0", "gotten", "0")
	require.Equal(t, Books{Loaded: 12, Left: 12}, audited(t, s))
	_, err := s.Deduct(t.Context(), Order{ID: "all", Quantity: 12})
	require.NoError(t, err)
}
