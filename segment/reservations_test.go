package segment

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/go-leasehold/leasehold/internal/redistest"
)

// TestReservationComesBackAtItsDeadline: to the microsecond, by the server's clock, and once.
func TestReservationComesBackAtItsDeadline(t *testing.T) {
	t.Parallel()
	s, clock := loadedAt(t, Config{Segments: 1}, 5)
	o := Order{ID: "o", Quantity: 2}
	_, err := s.Reserve(t.Context(), o, time.Hour)
	require.NoError(t, err)
	clock.add(t, time.Hour-time.Microsecond)
	require.Equal(t, Books{Loaded: 5, Reserved: 2, Left: 3}, audited(t, s))
	clock.add(t, time.Microsecond)
	for range 2 {
		require.Equal(t, Books{Loaded: 5, Left: 5}, audited(t, s))
	}
	_, err = s.Confirm(t.Context(), o)
	require.ErrorIs(t, err, ErrExpired)
	require.NoError(t, s.Cancel(t.Context(), o))
	require.NoError(t, s.Return(t.Context(), o))
	require.Equal(t, Books{Loaded: 5, Left: 5}, audited(t, s))
}

// TestConfirmAtTheDeadline: it is for the microsecond before, and too late at it.
func TestConfirmAtTheDeadline(t *testing.T) {
	t.Parallel()
	s, clock := loadedAt(t, Config{Segments: 1}, 5)
	early, late := Order{ID: "early", Quantity: 1}, Order{ID: "late", Quantity: 1}
	for _, o := range []Order{early, late} {
		_, err := s.Reserve(t.Context(), o, time.Hour)
		require.NoError(t, err)
	}
	clock.add(t, time.Hour-time.Microsecond)
	_, err := s.Confirm(t.Context(), early)
	require.NoError(t, err)
	clock.add(t, time.Microsecond)
	_, err = s.Confirm(t.Context(), late)
	require.ErrorIs(t, err, ErrExpired)
	require.Equal(t, Books{Loaded: 5, Sold: 1, Left: 4}, audited(t, s))
}

// crowdDue reserves a crowd of orders of one unit, whose deadlines come one after the other and then are all over. A script
// sends at most 128 of them back.
func crowdDue(t *testing.T, conf Config, n int, at func(i int) string) (*Stock, []Order) {
	t.Helper()
	s, clock := loadedAt(t, conf, int64(n)*2)
	orders := make([]Order, n)
	for i := range orders {
		orders[i] = Order{ID: at(i), User: fmt.Sprintf("user-%d", i%7), Quantity: 1}
		_, err := s.Reserve(t.Context(), orders[i], time.Hour+time.Duration(i)*time.Second)
		require.NoError(t, err)
	}
	clock.add(t, 2*time.Hour)
	return s, orders
}

// TestManyDueAtOnce: more than a script sends back. Whichever of them somebody asks for, it has expired.
func TestManyDueAtOnce(t *testing.T) {
	t.Parallel()
	const n = 300
	for v, of := range reactions {
		for _, limit := range []int64{0, n} {
			s, orders := crowdDue(t, Config{Segments: 1, PerUser: limit}, n, func(i int) string { return fmt.Sprint(i) })
			what := fmt.Sprintf("%c, limit %d", v, limit)
			last := orders[n-1]
			receipt, err := v.call(t, s, last)
			require.ErrorIs(t, err, of[isOverdue].err, what)
			if v == reserve || v == confirm || v == deduct {
				require.Equal(t, Receipt{}, receipt, what)
			}
			require.Equal(t, isExpired, remembered(t, s, last), what)
			require.Equal(t, Books{Loaded: 2 * n, Left: 2 * n}, audited(t, s), what)
			open := hashAt(t, redistest.Shared(t), s.homes[0].keys.open)
			require.Equal(t, map[string]string{"": ""}, open, what)
			require.Equal(t, map[string]string{"": "0"}, hashAt(t, redistest.Shared(t), s.homes[0].keys.users), what)
		}
	}
}

// TestManyDueAtThisVeryMoment: those that a script does not get to have expired as well.
func TestManyDueAtThisVeryMoment(t *testing.T) {
	t.Parallel()
	const n = 200
	s, clock := loadedAt(t, Config{Segments: 1}, n)
	orders := make([]order, n)
	for i := range orders {
		orders[i] = order{verb: reserve, field: fmt.Sprint("0:", i), quantity: 1, ttl: time.Hour}
	}
	_, err := s.homes[0].ask(&batch{orders: orders})
	require.NoError(t, err)
	clock.add(t, time.Hour)
	for i := range orders {
		orders[i].verb = confirm
	}
	outcomes, err := s.homes[0].ask(&batch{orders: orders})
	require.NoError(t, err)
	for i, out := range outcomes {
		require.Equal(t, statusExpired, out.status, i)
	}
	require.Equal(t, Books{Loaded: n, Left: n}, audited(t, s))
}

// TestManyDueAreSoldAgain: "sold out" is not said while reservations that are over wait to go back, of which each call sends
// back a bounded number.
func TestManyDueAreSoldAgain(t *testing.T) {
	t.Parallel()
	const n = 2000
	s, clock := loadedAt(t, Config{Segments: 1}, n)
	for from := 0; from < n; from += n / 4 {
		var b batch
		for i := range n / 4 {
			b.orders = append(b.orders, reserve.step(Order{ID: fmt.Sprint(from + i), Quantity: 1}))
		}
		_, err := s.homes[0].ask(&b)
		require.NoError(t, err)
	}
	_, err := s.Deduct(t.Context(), Order{ID: "early", Quantity: 1})
	require.ErrorIs(t, err, ErrSoldOut)
	clock.add(t, reservedFor)
	seen, err := s.look()
	require.NoError(t, err)
	require.True(t, seen[0].more)
	require.LessOrEqual(t, seen[0].left, int64(128))
	s.sold.forget() // it would learn of it when the time that the clock has jumped over has passed
	_, err = s.Deduct(t.Context(), Order{ID: "all", Quantity: n})
	require.NoError(t, err)
	require.Equal(t, Books{Loaded: n, Sold: n}, audited(t, s))
}

// TestReservationOutlivesBuckets: it is no record that is forgotten.
func TestReservationOutlivesBuckets(t *testing.T) {
	t.Parallel()
	s, clock := loadedAt(t, Config{Segments: 1, Remember: time.Minute}, 5)
	kept, lost := Order{ID: "kept", Quantity: 1}, Order{ID: "lost", Quantity: 1}
	for _, o := range []Order{kept, lost} {
		_, err := s.Reserve(t.Context(), o, time.Hour)
		require.NoError(t, err)
	}
	for range 20 {
		clock.edge(t, time.Minute, time.Second)
		require.Equal(t, Books{Loaded: 5, Reserved: 2, Left: 3}, audited(t, s))
	}
	r, err := s.Confirm(t.Context(), kept)
	require.NoError(t, err)
	require.False(t, r.Repeated)
	clock.add(t, time.Hour)
	_, err = s.Confirm(t.Context(), lost)
	require.ErrorIs(t, err, ErrExpired)
	require.Equal(t, Books{Loaded: 5, Sold: 1, Left: 4}, audited(t, s))
}
