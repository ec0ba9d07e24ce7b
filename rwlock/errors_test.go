package rwlock_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/go-leasehold/leasehold/coordinator"
	"github.com/go-leasehold/leasehold/coordinator/coordinatortest"
	"github.com/go-leasehold/leasehold/rwlock"
)

// waitError requires that a wait failed, and returns what it says.
func waitError(t testing.TB, err error) *coordinator.WaitError {
	t.Helper()
	var w *coordinator.WaitError
	require.ErrorAs(t, err, &w)
	require.Equal(t, "k", w.Key)
	require.ErrorContains(t, err, `"k"`)
	return w
}

// A wait that fails names the key, the holder and the time, and is the context's error as well as ours.
func TestWaitErrorNamesKeyHolderAndTime(t *testing.T) {
	bubble(t, func(t *testing.T, h *coordinatortest.Harness) {
		l := rwlock.New(h.Coordinator, "k")
		for _, as := range []coordinatortest.As{coordinatortest.AsWriter, coordinatortest.AsReader} {
			release := h.HoldElsewhere("k", 0, as)
			holder := inspect(t, h.Coordinator, "k").Holders[0].Owner
			ways := []func(context.Context) (rwlock.Hold, error){l.Lock}
			if as == coordinatortest.AsWriter {
				ways = append(ways, l.RLock)
			}
			for _, lock := range ways {
				ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
				_, err := lock(ctx)
				cancel()
				require.ErrorIs(t, err, coordinator.ErrNotAcquired)
				require.ErrorIs(t, err, context.DeadlineExceeded)
				require.NotErrorIs(t, err, coordinator.ErrUnavailable)
				w := waitError(t, err)
				require.Equal(t, holder, w.Holder)
				require.Equal(t, time.Minute, w.Waited)
				require.ErrorContains(t, err, holder)

				reason := errors.New("the user left")
				cancelled, leave := context.WithCancelCause(t.Context())
				time.AfterFunc(time.Second, func() { leave(reason) })
				_, err = lock(cancelled)
				require.ErrorIs(t, err, coordinator.ErrNotAcquired)
				require.ErrorIs(t, err, context.Canceled)
				require.ErrorIs(t, err, reason)
			}
			_, err := l.TryLock(t.Context())
			require.ErrorIs(t, err, coordinator.ErrNotAcquired)
			require.Equal(t, holder, waitError(t, err).Holder)
			release()
		}
	})
}

// The holder may be the process itself.
func TestWaitErrorBehindTheProcessItself(t *testing.T) {
	bubble(t, func(t *testing.T, h *coordinatortest.Harness) {
		l := rwlock.New(h.Coordinator, "k")
		r := passing(t, h.Coordinator, l)
		_, err := l.TryLock(t.Context())
		require.ErrorIs(t, err, coordinator.ErrNotAcquired)
		require.Equal(t, keyOf(t, h.Coordinator).Owner, waitError(t, err).Holder)
		unlock(t, r)
		w := write(t, l)
		for _, try := range []func(context.Context) (rwlock.Hold, error){l.TryLock, l.TryRLock} {
			_, err = try(t.Context())
			require.ErrorIs(t, err, coordinator.ErrNotAcquired)
			require.Equal(t, keyOf(t, h.Coordinator).Owner, waitError(t, err).Holder)
		}
		unlock(t, w)
	})
}

// Who reads and asks to write gets ErrUpgrade at once, whichever way it asks, and reads on.
func TestUpgradeIsRefusedAtOnce(t *testing.T) {
	bubble(t, func(t *testing.T, h *coordinatortest.Harness) {
		l := rwlock.New(h.Coordinator, "k")
		began := time.Now()
		fixed := coordinator.WithOwner(t.Context())
		underOwner, err := l.RLock(fixed)
		require.NoError(t, err)
		passed := passing(t, h.Coordinator, l)
		for _, ctx := range []context.Context{fixed, underOwner.Context(), passed.Context(), context.WithoutCancel(passed.Context())} {
			for use, call := range calls(l) {
				if err := call(ctx); use == "RLock" || use == "TryRLock" || use == "TryRLockFor" || use == "Read" {
					require.NoError(t, err, use)
				} else {
					require.ErrorIs(t, err, coordinator.ErrUpgrade, use)
					require.NotErrorIs(t, err, coordinator.ErrNotAcquired, use)
					waitError(t, err)
				}
			}
		}
		require.Zero(t, time.Since(began))
		require.True(t, passed.Valid())
		require.Equal(t, 1, underOwner.Count())
		unlock(t, passed, underOwner)
		unlock(t, write(t, l))
		_, err = l.RLock(fixed) // the owner is inside nowhere now
		require.NoError(t, err)
	})
}

// The store is away.
func TestStoreUnavailable(t *testing.T) {
	bubble(t, func(t *testing.T, h *coordinatortest.Harness) {
		l := rwlock.New(h.Coordinator, "k")
		unplugged := errors.New("unplugged")
		restore := h.Outage(unplugged)
		for use, call := range calls(l) {
			began := time.Now()
			err := call(t.Context())
			require.ErrorIs(t, err, coordinator.ErrUnavailable, use)
			require.ErrorIs(t, err, unplugged, use)
			require.NotErrorIs(t, err, coordinator.ErrNotAcquired, use)
			waitError(t, err)
			if use == "TryRLock" || use == "TryLock" {
				require.Zero(t, time.Since(began), use)
			} else {
				require.InDelta(t, 5*time.Second, time.Since(began), float64(time.Second), use)
			}
		}
		restore()
		unlock(t, read(t, l))

		// What a process has it may use for as long as it lasts, without the store.
		r := passing(t, h.Coordinator, l)
		restore = h.Outage(unplugged)
		beside := read(t, l)
		unlock(t, r, beside)
		restore()
	}, coordinator.WithSharedRetention(time.Hour))
}

func TestTooManyWaiters(t *testing.T) {
	bubble(t, func(t *testing.T, h *coordinatortest.Harness) {
		release := h.HoldElsewhere("k", 0, coordinatortest.AsWriter)
		l := rwlock.New(h.Coordinator, "k")
		waiting := []*pending{begin(t, l.RLock), begin(t, l.RLock)}
		synctest.Wait()
		for _, lock := range []func(context.Context) (rwlock.Hold, error){l.RLock, l.Lock} {
			_, err := lock(t.Context())
			require.ErrorIs(t, err, coordinator.ErrTooManyWaiters)
			waitError(t, err)
		}
		release()
		unlock(t, waiting[0].granted(t), waiting[1].granted(t))
	}, coordinator.WithMaxWaiters(2))
}
