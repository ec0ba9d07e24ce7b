package segment

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/go-leasehold/leasehold/internal/redistest"
)

// TestExactNumbers: where a float begins to lose units, and where Lua begins to write 1e+14.
func TestExactNumbers(t *testing.T) {
	t.Parallel()
	c := processAt(t, redistest.Shared(t).Option())
	for _, total := range []int64{1e14, 1e14 + 1, 1e15 + 1, 1<<53 - 1, 1<<53 - 2, 1<<52 + 1} {
		for _, conf := range []Config{{Segments: 1}, {Segments: 3}, {Segments: 3, PerUser: MaxUnits}} {
			s := opened(t, c, redistest.Prefix(t), conf)
			require.NoError(t, s.Load(t.Context(), total))
			large, some := Order{ID: "large", User: "u", Quantity: total - 3}, Order{ID: "some", User: "u", Quantity: 2}
			_, err := s.Reserve(t.Context(), large, time.Hour)
			require.NoError(t, err)
			_, err = s.Confirm(t.Context(), large)
			require.NoError(t, err)
			_, err = s.Deduct(t.Context(), some)
			require.NoError(t, err)
			require.Equal(t, Books{Loaded: total, Sold: total - 1, Left: 1}, audited(t, s))
			left, err := s.Remaining(t.Context())
			require.NoError(t, err)
			require.Equal(t, int64(1), left)
			_, err = s.Deduct(t.Context(), Order{ID: "two", User: "u", Quantity: 2})
			require.ErrorIs(t, err, ErrSoldOut)
			for _, o := range []Order{large, some} {
				r, err := s.Deduct(t.Context(), o)
				require.NoError(t, err)
				require.Equal(t, Receipt{Segment: r.Segment, Repeated: true, Quantity: o.Quantity}, r)
				o.Quantity--
				_, err = s.Deduct(t.Context(), o)
				require.ErrorIs(t, err, ErrOrderMismatch)
			}
			require.NoError(t, s.Return(t.Context(), large))
			require.Equal(t, Books{Loaded: total, Sold: 2, Left: total - 2}, audited(t, s))
			_, err = s.Deduct(t.Context(), Order{ID: "again", User: "u", Quantity: total - 2})
			require.NoError(t, err)
			require.Equal(t, Books{Loaded: total, Sold: total}, audited(t, s))
		}
	}
}
