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

// limited is a way to ask that waits at most d.
type limited func(ctx context.Context, d time.Duration) (rwlock.Hold, error)

func TestTryForWaitsAsLongAsItSays(t *testing.T) {
	for name, test := range map[string]struct {
		try      func(l *rwlock.Lock) limited
		inTheWay coordinatortest.As
	}{
		"to read beside a writer":  {func(l *rwlock.Lock) limited { return l.TryRLockFor }, coordinatortest.AsWriter},
		"to write beside a writer": {func(l *rwlock.Lock) limited { return l.TryLockFor }, coordinatortest.AsWriter},
		"to write beside a reader": {func(l *rwlock.Lock) limited { return l.TryLockFor }, coordinatortest.AsReader},
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T, h *coordinatortest.Harness) {
				try := test.try(rwlock.New(h.Coordinator, "k"))
				release := h.HoldElsewhere("k", 0, test.inTheWay)
				began := time.Now()
				_, err := try(t.Context(), time.Minute)
				require.ErrorIs(t, err, coordinator.ErrNotAcquired)
				require.NotErrorIs(t, err, context.DeadlineExceeded, "the limit is not the context's")
				require.Equal(t, time.Minute, time.Since(began))
				synctest.Wait()
				require.Empty(t, inspect(t, h.Coordinator, "k").Waiters)

				began = time.Now()
				_, err = try(t.Context(), 0)
				require.ErrorIs(t, err, coordinator.ErrNotAcquired)
				require.Less(t, time.Since(began), time.Second, "no longer than for an answer")

				began = time.Now()
				ctx, cancel := context.WithTimeout(t.Context(), time.Second)
				defer cancel()
				_, err = try(ctx, time.Minute)
				require.ErrorIs(t, err, coordinator.ErrNotAcquired)
				require.ErrorIs(t, err, context.DeadlineExceeded)
				require.Equal(t, time.Second, time.Since(began))

				time.AfterFunc(time.Second, release)
				hold, err := try(t.Context(), time.Minute)
				require.NoError(t, err)
				require.Equal(t, 2*time.Second, time.Since(began))
				work := hold.Context()
				time.Sleep(time.Hour)
				require.NoError(t, work.Err(), "the limit is no part of the hold")
				unlock(t, hold)
				hold, err = try(t.Context(), 0)
				require.NoError(t, err)
				unlock(t, hold)
			})
		})
	}
}

// A limit counts in the process as well, behind a hold of its own; the readers that waited behind a writer that went
// away come in when it goes.
func TestTryForBehindTheProcessItself(t *testing.T) {
	bubble(t, func(t *testing.T, h *coordinatortest.Harness) {
		l := rwlock.New(h.Coordinator, "k")
		inside := passing(t, h.Coordinator, l)
		began := time.Now()
		writer := begin(t, func(ctx context.Context) (rwlock.Hold, error) { return l.TryLockFor(ctx, time.Minute) })
		synctest.Wait()
		short := begin(t, func(ctx context.Context) (rwlock.Hold, error) { return l.TryRLockFor(ctx, time.Second) })
		long := begin(t, func(ctx context.Context) (rwlock.Hold, error) { return l.TryRLockFor(ctx, time.Hour) })
		_, err := short.result(t)
		require.ErrorIs(t, err, coordinator.ErrNotAcquired)
		require.Equal(t, time.Second, time.Since(began))
		<-long.done
		require.Equal(t, time.Minute, time.Since(began), "the writer has gone")
		_, err = writer.result(t)
		require.ErrorIs(t, err, coordinator.ErrNotAcquired)
		unlock(t, long.granted(t), inside)
	})
}

// MaxHold ends one reader, not those beside it.
func TestMaxHoldEndsOneReaderOfSeveral(t *testing.T) {
	bubble(t, func(t *testing.T, h *coordinatortest.Harness) {
		l := rwlock.New(h.Coordinator, "k")
		began := time.Now()
		beside := passing(t, h.Coordinator, l)
		short := read(t, rwlock.New(h.Coordinator, "k", coordinator.MaxHold(time.Minute)))
		long := read(t, rwlock.New(h.Coordinator, "k", coordinator.MaxHold(time.Hour)))
		require.ErrorIs(t, beside.Extend(time.Hour), coordinator.ErrNoMaxHold)
		time.Sleep(30 * time.Second)
		require.NoError(t, short.Extend(time.Minute))
		ctx := short.Context()
		<-ctx.Done()
		require.Equal(t, 90*time.Second, time.Since(began))
		require.ErrorIs(t, context.Cause(ctx), coordinator.ErrHoldExpired)
		require.ErrorIs(t, short.Unlock(), coordinator.ErrHoldExpired)
		require.ErrorIs(t, short.Extend(time.Minute), coordinator.ErrHoldExpired)
		require.True(t, beside.Valid())
		require.True(t, long.Valid())

		// The next writer has it when the last of them has ended.
		writer := begin(t, rwlock.New(h.Another(), "k").Lock)
		unlock(t, beside)
		<-writer.done
		w := writer.granted(t)
		require.Equal(t, time.Hour, time.Since(began))
		require.ErrorIs(t, long.Err(), coordinator.ErrHoldExpired)
		require.Greater(t, w.Token(), long.Token())
		unlock(t, w)
	})
}

// After a hold that ended under its work nobody has its token: what it still writes can be told from what is new.
func TestMaxHoldEndsAWriter(t *testing.T) {
	bubble(t, func(t *testing.T, h *coordinatortest.Harness) {
		began := time.Now()
		w := write(t, rwlock.New(h.Coordinator, "k", coordinator.MaxHold(time.Minute)))
		r := read(t, rwlock.New(h.Coordinator, "k"))
		require.Equal(t, time.Minute, time.Since(began))
		require.ErrorIs(t, w.Unlock(), coordinator.ErrHoldExpired)
		require.Greater(t, r.Token(), w.Token())
		unlock(t, r)
		require.EqualValues(t, 1, h.Coordinator.Snapshot().Stats.Expired)
	})
}

func TestEndWithEndsReadsAndWrites(t *testing.T) {
	for _, way := range []func(*rwlock.Lock) func(context.Context) (rwlock.Hold, error){
		func(l *rwlock.Lock) func(context.Context) (rwlock.Hold, error) { return l.RLock },
		func(l *rwlock.Lock) func(context.Context) (rwlock.Hold, error) { return l.Lock },
	} {
		bubble(t, func(t *testing.T, h *coordinatortest.Harness) {
			hangsUp := errors.New("it hung up")
			request, hangUp := context.WithCancelCause(t.Context())
			lock := way(rwlock.New(h.Coordinator, "k", coordinator.EndWith(request)))
			unlock(t, read(t, rwlock.New(h.Coordinator, "k")), read(t, rwlock.New(h.Coordinator, "k")))
			hold, err := lock(t.Context())
			require.NoError(t, err)
			ctx := hold.Context()
			next := begin(t, rwlock.New(h.Another(), "k").Lock)
			synctest.Wait()
			next.waits(t)
			hangUp(hangsUp)
			w := next.granted(t)
			for _, err := range []error{context.Cause(ctx), hold.Err(), hold.Unlock()} {
				require.ErrorIs(t, err, coordinator.ErrHoldExpired)
				require.ErrorIs(t, err, hangsUp)
			}
			unlock(t, w)
			_, err = lock(t.Context())
			require.ErrorIs(t, err, coordinator.ErrNotAcquired, "its request is over")
			require.ErrorIs(t, err, hangsUp)
		})
	}
}

// The end of Lock's context ends the hold's context, and not the hold.
func TestEndOfTheCallersContextIsNotTheHolds(t *testing.T) {
	bubble(t, func(t *testing.T, h *coordinatortest.Harness) {
		l := rwlock.New(h.Coordinator, "k")
		unlock(t, passing(t, h.Coordinator, l))
		for _, lock := range []func(context.Context) (rwlock.Hold, error){l.RLock, l.Lock} {
			ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
			hold, err := lock(ctx)
			require.NoError(t, err)
			time.Sleep(time.Hour)
			require.NoError(t, hold.Err())
			require.ErrorIs(t, hold.Context().Err(), context.DeadlineExceeded)
			_, err = rwlock.New(h.Another(), "k").TryLock(t.Context())
			require.ErrorIs(t, err, coordinator.ErrNotAcquired)
			unlock(t, hold)
			cancel()
			_, err = lock(ctx)
			require.ErrorIs(t, err, coordinator.ErrNotAcquired)
			require.ErrorIs(t, err, context.DeadlineExceeded, "and it opens nothing any more")
		}
	})
}

// The end of their context frees the lock under Read and Write, though the work goes on.
func TestReadAndWriteEndWithTheirContext(t *testing.T) {
	bubble(t, func(t *testing.T, h *coordinatortest.Harness) {
		l, other := rwlock.New(h.Coordinator, "k"), rwlock.New(h.Another(), "k")
		for _, do := range []func(context.Context, func(context.Context) error) error{l.Read, l.Write} {
			began := time.Now()
			ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
			err := do(ctx, func(ctx context.Context) error {
				hold := coordinator.HoldFrom(ctx)
				require.True(t, hold.Valid())
				<-ctx.Done()
				w := write(t, other)
				require.Greater(t, w.Token(), hold.Token())
				unlock(t, w)
				return ctx.Err()
			})
			cancel()
			require.ErrorIs(t, err, context.DeadlineExceeded)
			require.ErrorIs(t, err, coordinator.ErrHoldExpired)
			require.Equal(t, time.Minute, time.Since(began))
			require.Panics(t, func() { _ = do(t.Context(), func(context.Context) error { panic("out of paper") }) })
			unlock(t, write(t, other))
			require.Equal(t, time.Minute, time.Since(began), "it was unlocked")
		}
	})
}

// A call that is given up leaves nothing behind, and those behind it go on.
func TestCancelledCallsLeaveTheQueue(t *testing.T) {
	bubble(t, func(t *testing.T, h *coordinatortest.Harness) {
		l := rwlock.New(h.Coordinator, "k")
		writes := h.HoldElsewhere("k", 0, coordinatortest.AsWriter)
		calls := []*pending{begin(t, l.RLock), begin(t, l.Lock), begin(t, l.RLock)}
		synctest.Wait()
		require.Len(t, keyOf(t, h.Coordinator).Waiters, 3)
		for _, p := range calls {
			p.cancel()
			_, err := p.result(t)
			require.ErrorIs(t, err, coordinator.ErrNotAcquired)
			require.ErrorIs(t, err, context.Canceled)
		}
		synctest.Wait()
		require.Empty(t, inspect(t, h.Coordinator, "k").Waiters)
		require.Empty(t, h.Coordinator.Snapshot().Keys)
		writes()
	})
}

// A writer that is given up is nobody to wait for: those that came to read behind it come in beside the readers inside.
func TestReadersNeedNotWaitForAWriterThatHasGone(t *testing.T) {
	bubble(t, func(t *testing.T, h *coordinatortest.Harness) {
		l := rwlock.New(h.Coordinator, "k")
		reads := h.HoldElsewhere("k", 0, coordinatortest.AsReader)
		writer := begin(t, l.Lock)
		synctest.Wait()
		behind := begin(t, l.RLock)
		synctest.Wait()
		require.Len(t, inspect(t, h.Coordinator, "k").Waiters, 1)
		behind.waits(t)
		writer.cancel()
		_, err := writer.result(t)
		require.ErrorIs(t, err, context.Canceled)
		r := behind.granted(t) // beside the other reader
		reads()
		unlock(t, r)

	})
}

// Close refuses who waits, at once; who is inside may finish, until Close's context ends.
func TestCloseWithReadersAndWritersInside(t *testing.T) {
	enter := map[string]func(t *testing.T, h *coordinatortest.Harness) rwlock.Hold{
		"a reader": func(t *testing.T, h *coordinatortest.Harness) rwlock.Hold {
			return passing(t, h.Coordinator, rwlock.New(h.Coordinator, "k"))
		},
		"an ordinary reader": func(t *testing.T, h *coordinatortest.Harness) rwlock.Hold {
			return read(t, rwlock.New(h.Coordinator, "k", coordinator.MaxHold(24*time.Hour)))
		},
		"a writer": func(t *testing.T, h *coordinatortest.Harness) rwlock.Hold {
			return write(t, rwlock.New(h.Coordinator, "k"))
		},
	}
	for way, enter := range enter {
		for limit, closed := range map[time.Duration]bool{time.Minute: true, time.Hour: false} {
			t.Run(way+"/"+limit.String(), func(t *testing.T) {
				bubble(t, func(t *testing.T, h *coordinatortest.Harness) {
					l := rwlock.New(h.Coordinator, "k")
					hold := enter(t, h)
					writer := begin(t, l.Lock)
					waiters(t, h.Coordinator, 1)
					reader := begin(t, l.RLock)
					waiters(t, h.Coordinator, 2)
					began := time.Now()
					ctx, cancel := context.WithTimeout(t.Context(), limit)
					defer cancel()
					end := make(chan error, 1)
					go func() { end <- h.Coordinator.Close(ctx) }()
					synctest.Wait()
					for _, p := range []*pending{writer, reader, begin(t, l.RLock), begin(t, l.TryRLock), begin(t, l.Lock)} {
						_, err := p.result(t)
						require.ErrorIs(t, err, coordinator.ErrClosed)
					}
					require.Zero(t, time.Since(began))
					require.NoError(t, hold.Err())
					var freed time.Duration
					if closed { // nobody unlocks
						require.NoError(t, <-end)
						freed = limit
						require.ErrorIs(t, context.Cause(hold.Context()), coordinator.ErrClosed)
						require.ErrorIs(t, hold.Unlock(), coordinator.ErrClosed)
					} else {
						freed = time.Minute
						time.Sleep(freed)
						unlock(t, hold)
						require.NoError(t, <-end)
					}
					unlock(t, write(t, rwlock.New(h.Another(), "k")))
					require.Equal(t, freed, time.Since(began), "it was handed over")
				})
			})
		}
	}
}
