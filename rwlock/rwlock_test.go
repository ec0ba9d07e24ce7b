package rwlock_test

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/go-leasehold/leasehold/coordinator"
	"github.com/go-leasehold/leasehold/internal/redistest"
	"github.com/go-leasehold/leasehold/rwlock"
)

// process returns a coordinator on the server.
func process(t testing.TB, s *redistest.Server, opts ...coordinator.Option) *coordinator.Coordinator {
	t.Helper()
	c, err := coordinator.New(s.Option(), opts...)
	require.NoError(t, err)
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
		defer cancel()
		require.NoError(t, c.Close(ctx))
	})
	return c
}

func TestReadersOfAProcessCostNoCommandAfterTheFirst(t *testing.T) {
	ctx := t.Context()
	s := redistest.Start(t)
	c := process(t, s, coordinator.WithSharedRetention(time.Hour))
	l := rwlock.New(c, "k")
	for range 3 {
		h, err := l.RLock(ctx)
		require.NoError(t, err)
		require.NoError(t, h.Unlock())
	}
	before := c.Snapshot().Stats
	for range 1000 {
		h, err := l.RLock(ctx)
		require.NoError(t, err)
		require.NotZero(t, h.Token())
		require.Equal(t, 1, h.Count())
		require.NoError(t, h.Err())
		require.NoError(t, h.Unlock())
		require.ErrorIs(t, h.Unlock(), coordinator.ErrNotHeld)
	}
	after := c.Snapshot().Stats
	require.Equal(t, before.Commands, after.Commands)
	require.EqualValues(t, 1000, after.Passed-before.Passed)
	require.EqualValues(t, 1000, after.Grants-before.Grants)
	w, err := l.Lock(ctx)
	require.NoError(t, err)
	r, err := w.Downgrade()
	require.NoError(t, err)
	require.ErrorIs(t, w.Unlock(), coordinator.ErrNotHeld)
	r2, err := rwlock.New(process(t, s), "k").RLock(ctx)
	require.NoError(t, err)
	require.NoError(t, r2.Unlock())
	require.NoError(t, r.Unlock())
}

func TestWriterEntersAgainstSteadyReaders(t *testing.T) {
	ctx := t.Context()
	s := redistest.Start(t)
	stop := make(chan struct{})
	done := make(chan struct{})
	n := 0
	for range 3 {
		l := rwlock.New(process(t, s, coordinator.WithSharedRetention(time.Hour)), "k")
		for range 4 {
			n++
			go func() {
				defer func() { done <- struct{}{} }()
				for {
					select {
					case <-stop:
						return
					default:
					}
					h, err := l.RLock(ctx)
					if err != nil {
						t.Error(err)
						return
					}
					time.Sleep(100 * time.Microsecond) // readers that spin would leave the writer no processor
					if err := h.Unlock(); err != nil {
						t.Error(err)
						return
					}
				}
			}()
		}
	}
	l := rwlock.New(process(t, s), "k")
	for range 100 {
		w, err := l.Lock(ctx)
		require.NoError(t, err)
		require.NoError(t, w.Unlock())
		time.Sleep(time.Millisecond)
	}
	close(stop)
	for range n {
		<-done
	}
}
