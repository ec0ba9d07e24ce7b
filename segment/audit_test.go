package segment

import (
	"context"
	"errors"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/go-leasehold/leasehold/internal/redistest"
)

// TestContextBoundsTheWaitForALook, however long the server takes.
func TestContextBoundsTheWaitForALook(t *testing.T) {
	t.Parallel()
	for name, call := range map[string]func(context.Context, *Stock) error{
		"Remaining": func(ctx context.Context, s *Stock) error { _, err := s.Remaining(ctx); return err },
		"Audit":     func(ctx context.Context, s *Stock) error { _, err := s.Audit(ctx); return err },
		"Restock":   func(ctx context.Context, s *Stock) error { return s.Restock(ctx, "more", 1) },
	} {
		t.Run(name, func(t *testing.T) {
			s := loaded(t, Config{Segments: 2}, 10)
			g := newGate(t, "look")
			slow := through(t, s, g.wrap)
			cause := errors.New("the user has gone")
			ctx, cancel := context.WithCancelCause(t.Context())
			told := make(chan error, 1)
			go func() { told <- call(ctx, slow) }()
			<-g.arrived
			cancel(cause)
			within(t, name, func() {
				err := <-told
				for _, want := range []error{ErrNotDone, context.Canceled, cause} {
					if !errors.Is(err, want) {
						t.Errorf("%v is not %v", err, want)
					}
				}
			})
			g.release()
			require.Equal(t, Books{Loaded: 10, Left: 10}, audited(t, s))
		})
	}
}

// TestDeadlineOfNothingIsDropped: a hand in the data must not keep a segment from working.
func TestDeadlineOfNothingIsDropped(t *testing.T) {
	t.Parallel()
	server := redistest.Shared(t)
	s := loaded(t, Config{Segments: 1}, 10)
	_, err := s.Reserve(t.Context(), Order{ID: "a", Quantity: 1}, reservedFor)
	require.NoError(t, err)
	server.Do(t, "ZADD", s.homes[0].keys.due, "1", "nothing")
	require.Equal(t, Books{Loaded: 10, Left: 9, Reserved: 1}, audited(t, s))
	_, err = s.Deduct(t.Context(), Order{ID: "b", Quantity: 1})
	require.NoError(t, err)
	m := server.Do(t, "ZCOUNT", s.homes[0].keys.due, "-inf", "2")
	left, err := m.AsInt64()
	require.NoError(t, err)
	require.Zero(t, left)
}
