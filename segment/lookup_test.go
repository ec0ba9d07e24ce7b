package segment

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/go-leasehold/leasehold/internal/redistest"
)

// lookedUp is what Lookup calls a state.
var lookedUp = map[state]State{isNone: Unknown, isTaken: Taken, isHeld: Reserved, isReturned: Returned, isExpired: Expired, isOverdue: Expired}

// TestLookup tells what an order is, and changes nothing.
func TestLookup(t *testing.T) {
	t.Parallel()
	server := redistest.Shared(t)
	c := processAt(t, server.Option())
	for from, want := range lookedUp {
		for _, p := range places() {
			s, o := p.with(t, c, from)
			was := contents(t, server, s)
			began := time.Now()
			record, err := s.Lookup(t.Context(), o.User, o.ID)
			require.NoError(t, err)
			require.Equal(t, want, record.State)
			if from == isNone {
				require.Equal(t, Record{}, record)
				continue
			}
			require.Equal(t, int64(orderedUnits), record.Quantity)
			require.Equal(t, want == Reserved, !record.Deadline.IsZero())
			if want == Reserved {
				require.WithinRange(t, record.Deadline, began, time.Now().Add(reservedFor))
			}
			if from != isOverdue {
				require.Equal(t, was, contents(t, server, s))
			}
		}
	}
}

// TestReturnOfAnyQuantity of an order that is not there keeps a Deduct of any quantity from taking.
func TestReturnOfAnyQuantity(t *testing.T) {
	t.Parallel()
	s := loaded(t, Config{Segments: 1}, 10)
	for name, back := range map[string]func(Order) error{
		"return": func(o Order) error { return s.Return(t.Context(), o) },
		"cancel": func(o Order) error { return s.Cancel(t.Context(), o) },
	} {
		require.ErrorIs(t, back(Order{ID: name}), ErrUnknownOrder)
		require.NoError(t, back(Order{ID: name}))
		require.NoError(t, back(Order{ID: name, Quantity: 4}))
		for q := range int64(3) {
			_, err := s.Deduct(t.Context(), Order{ID: name, Quantity: q + 1})
			require.ErrorIs(t, err, ErrReturned)
			_, err = s.Reserve(t.Context(), Order{ID: name, Quantity: q + 1}, time.Minute)
			require.ErrorIs(t, err, ErrReturned)
		}
		_, err := s.Confirm(t.Context(), Order{ID: name})
		require.ErrorIs(t, err, ErrReturned)
	}
	require.Equal(t, Books{Loaded: 10, Left: 10}, audited(t, s))
}
