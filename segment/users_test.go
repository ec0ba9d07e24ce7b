package segment

import (
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/go-leasehold/leasehold/internal/redistest"
)

// usersOf are the units that a stock counts for its users.
func usersOf(t *testing.T, s *Stock) map[string]string {
	t.Helper()
	all := map[string]string{}
	for _, h := range s.homes {
		for user, units := range hashAt(t, redistest.Shared(t), h.keys.users) {
			if user != "" {
				all[user] = units
			}
		}
	}
	return all
}

// TestUserLimitUnderLoad: however many orders of a user come at once, and from however many processes.
func TestUserLimitUnderLoad(t *testing.T) {
	t.Parallel()
	const limit, users = 5, 4
	s := loaded(t, Config{Segments: 3, PerUser: limit}, 1000)
	fleet := []*Stock{s, twin(t, s), twin(t, s)}
	var calls sync.WaitGroup
	var units [users]atomic.Int64
	for i := range 60 {
		calls.Go(func() {
			for j := range 10 {
				u := (i + j) % users
				o := Order{ID: fmt.Sprint(i, " ", j), User: fmt.Sprint("user ", u), Quantity: int64(1 + j%2)}
				if j%3 == 0 {
					o.ID = ""
				}
				var err error
				if j%3 == 1 {
					_, err = fleet[i%3].Reserve(t.Context(), o, time.Hour)
				} else {
					_, err = fleet[i%3].Deduct(t.Context(), o)
				}
				switch {
				case err == nil:
					units[u].Add(o.Quantity)
				case !errors.Is(err, ErrUserLimit):
					t.Error(err)
				}
			}
		})
	}
	within(t, "the calls end", calls.Wait)
	want := map[string]string{}
	for u := range users {
		require.LessOrEqual(t, units[u].Load(), int64(limit))
		require.GreaterOrEqual(t, units[u].Load(), int64(limit-1))
		want[fmt.Sprint("user ", u)] = fmt.Sprint(units[u].Load())
	}
	require.Equal(t, want, usersOf(t, s))
	books := audited(t, s)
	require.Equal(t, int64(1000), books.Left+books.Sold+books.Reserved)
}

// TestUserLimitInOneBatch: orders that travel together count one after the other.
func TestUserLimitInOneBatch(t *testing.T) {
	t.Parallel()
	s := loaded(t, Config{Segments: 1, PerUser: 5}, 100)
	var b batch
	for i := range 4 {
		o := Order{ID: fmt.Sprint(i), User: "u", Quantity: 2}
		b.orders = append(b.orders, deduct.step(o))
	}
	b.orders = append(b.orders, giveBack.step(Order{ID: "0", User: "u", Quantity: 2}), deduct.step(Order{ID: "9", User: "u", Quantity: 3}))
	outcomes, err := s.homes[0].ask(&b)
	require.NoError(t, err)
	var statuses []status
	for _, out := range outcomes {
		statuses = append(statuses, out.status)
	}
	require.Equal(t, []status{statusDone, statusDone, statusOver, statusOver, statusDone, statusDone}, statuses)
	require.Equal(t, map[string]string{"u": "5"}, usersOf(t, s))
}

// TestUserGetsUnitsBack: whatever is returned, cancelled or expired counts no more, once; and who has none is not kept.
func TestUserGetsUnitsBack(t *testing.T) {
	t.Parallel()
	s, clock := loadedAt(t, Config{Segments: 1, PerUser: 3}, 100)
	o := func(id string) Order { return Order{ID: id, User: "u", Quantity: 3} }
	over := func() {
		t.Helper()
		require.Equal(t, map[string]string{"u": "3"}, usersOf(t, s))
		_, err := s.Deduct(t.Context(), Order{ID: "more", User: "u", Quantity: 1})
		require.ErrorIs(t, err, ErrUserLimit)
	}
	_, err := s.Deduct(t.Context(), o("a"))
	require.NoError(t, err)
	over()
	for range 2 {
		require.NoError(t, s.Return(t.Context(), o("a")))
		require.Empty(t, usersOf(t, s))
	}
	r, err := s.Reserve(t.Context(), o("b"), time.Hour)
	require.NoError(t, err)
	over()
	for range 2 {
		require.NoError(t, r.Cancel(t.Context()))
		require.Empty(t, usersOf(t, s))
	}
	_, err = s.Reserve(t.Context(), o("c"), time.Hour)
	require.NoError(t, err)
	over()
	clock.add(t, time.Hour)
	for range 2 {
		_, err = s.look()
		require.NoError(t, err)
		require.Empty(t, usersOf(t, s))
	}
	r, err = s.Reserve(t.Context(), o("d"), time.Hour)
	require.NoError(t, err)
	require.NoError(t, r.Confirm(t.Context()))
	over()
	clock.add(t, 10*DefaultRemember)
	over()
	_, err = s.Deduct(t.Context(), Order{ID: "4", User: "v", Quantity: 4})
	require.ErrorIs(t, err, ErrUserLimit, "more than anybody may have")
	require.Equal(t, Books{Loaded: 100, Sold: 3, Left: 97}, audited(t, s))
}
