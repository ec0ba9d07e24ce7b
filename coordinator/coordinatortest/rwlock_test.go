package coordinatortest_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/go-leasehold/leasehold/coordinator"
	"github.com/go-leasehold/leasehold/coordinator/coordinatortest"
	"github.com/go-leasehold/leasehold/lease"
	"github.com/go-leasehold/leasehold/rwlock"
)

// holdTo returns a hold to read or to write. A reader has come in without asking the key's actor, as readers do that are
// close upon each other.
func holdTo(t *testing.T, c *coordinator.Coordinator, mode lease.Mode) rwlock.Hold {
	t.Helper()
	l := rwlock.New(c, "k")
	if mode == lease.Exclusive {
		h, err := l.Lock(t.Context())
		require.NoError(t, err)
		return h
	}
	for range 1000 {
		h, err := l.RLock(t.Context())
		require.NoError(t, err)
		if c.Snapshot().Keys[0].Readers == 1 {
			return h
		}
		require.NoError(t, h.Unlock())
	}
	require.Fail(t, "no reader passes")
	return rwlock.Hold{}
}

// readingAndWriting runs a test for holds of either mode.
func readingAndWriting(t *testing.T, test func(t *testing.T, h *coordinatortest.Harness, mode lease.Mode)) {
	t.Helper()
	for _, mode := range []lease.Mode{lease.Shared, lease.Exclusive} {
		t.Run(mode.String(), func(t *testing.T) {
			bubble(t, func(t *testing.T, h *coordinatortest.Harness) { test(t, h, mode) })
		})
	}
}

func TestReadAndWriteHoldsAreLost(t *testing.T) {
	readingAndWriting(t, func(t *testing.T, h *coordinatortest.Harness, mode lease.Mode) {
		for _, lose := range []func(){func() { h.Lose("k") }, h.LoseAll} {
			young, start := holdTo(t, h.Coordinator, mode), time.Now()
			lose()
			ctx := young.Context()
			<-ctx.Done()
			require.LessOrEqual(t, time.Since(start), 200*time.Millisecond)
			require.ErrorIs(t, context.Cause(ctx), coordinator.ErrLeaseLost)
			require.ErrorIs(t, young.Unlock(), coordinator.ErrLeaseLost)

			old := holdTo(t, h.Coordinator, mode)
			time.Sleep(time.Second)
			require.True(t, old.Valid())
			lose()
			synctest.Wait()
			require.ErrorIs(t, old.Err(), coordinator.ErrLeaseLost, "at once, though its context was not asked for")
			require.ErrorIs(t, old.Unlock(), coordinator.ErrLeaseLost)
			require.NoError(t, holdTo(t, h.Coordinator, mode).Unlock())
		}
	})
}

func TestReadAndWriteHoldsCutOff(t *testing.T) {
	readingAndWriting(t, func(t *testing.T, h *coordinatortest.Harness, mode lease.Mode) {
		hold, other := holdTo(t, h.Coordinator, mode), h.Another()
		restore := h.CutOff(errAway)
		next := holdTo(t, other, lease.Exclusive)
		require.ErrorIs(t, hold.Err(), coordinator.ErrLeaseLost, "before the other had it")
		require.Greater(t, next.Token(), hold.Token())
		require.NoError(t, next.Unlock())
		restore()
		time.Sleep(time.Second) // until the coordinator asks again
		require.NoError(t, holdTo(t, h.Coordinator, mode).Unlock())
	})
}

func TestReadAndWriteHoldsOutliveAnOutage(t *testing.T) {
	readingAndWriting(t, func(t *testing.T, h *coordinatortest.Harness, mode lease.Mode) {
		hold := holdTo(t, h.Coordinator, mode)
		restore := h.Outage(errAway)
		time.Sleep(10 * time.Second)
		restore()
		time.Sleep(2 * time.Minute)
		require.NoError(t, hold.Unlock())

		hold = holdTo(t, h.Coordinator, mode)
		defer h.Outage(errAway)()
		ctx := hold.Context()
		<-ctx.Done()
		require.ErrorIs(t, hold.Err(), coordinator.ErrLeaseLost)
	})
}

func TestCrashedReadersAndWritersKeysComeFree(t *testing.T) {
	readingAndWriting(t, func(t *testing.T, h *coordinatortest.Harness, mode lease.Mode) {
		holdTo(t, h.Coordinator, mode)
		other := h.Another()
		h.Crash()
		start := time.Now()
		require.NoError(t, holdTo(t, other, lease.Exclusive).Unlock())
		require.Greater(t, time.Since(start), 20*time.Second)
		require.LessOrEqual(t, time.Since(start), 31*time.Second)
	})
}

func TestHoldElsewhereReads(t *testing.T) {
	bubble(t, func(t *testing.T, h *coordinatortest.Harness) {
		beside := holdTo(t, h.Coordinator, lease.Shared)
		release := h.HoldElsewhere("k", 0, coordinatortest.AsReader)
		require.True(t, beside.Valid())
		info, err := h.Coordinator.Inspect(t.Context(), "k")
		require.NoError(t, err)
		require.Len(t, info.Holders, 2)
		require.NoError(t, beside.Unlock())
		require.NoError(t, holdTo(t, h.Coordinator, lease.Shared).Unlock())

		start := time.Now()
		time.AfterFunc(time.Minute, release)
		require.NoError(t, holdTo(t, h.Coordinator, lease.Exclusive).Unlock())
		require.Equal(t, time.Minute, time.Since(start))

		h.HoldElsewhere("k", time.Minute, coordinatortest.AsReader) // it crashes
		start = time.Now()
		require.NoError(t, holdTo(t, h.Coordinator, lease.Exclusive).Unlock())
		require.InDelta(t, time.Minute, time.Since(start), float64(50*time.Millisecond))
	})
}

func TestHoldElsewhereWrites(t *testing.T) {
	bubble(t, func(t *testing.T, h *coordinatortest.Harness) {
		require.NoError(t, holdTo(t, h.Coordinator, lease.Shared).Unlock())
		release := h.HoldElsewhere("k", 0, coordinatortest.AsWriter) // takes what is merely kept
		_, err := rwlock.New(h.Coordinator, "k").TryRLock(t.Context())
		require.ErrorIs(t, err, coordinator.ErrNotAcquired)
		start := time.Now()
		time.AfterFunc(time.Minute, release)
		require.NoError(t, holdTo(t, h.Coordinator, lease.Shared).Unlock())
		require.Equal(t, time.Minute, time.Since(start))
		_, err = h.Coordinator.Mutex("k").TryLock(t.Context())
		require.NoError(t, err, "nobody is inside: it may become a mutex")
	}, coordinator.WithSharedRetention(time.Hour))
}

func TestContendersTakeTurnsWithReadersAndWriters(t *testing.T) {
	bubble(t, func(t *testing.T, h *coordinatortest.Harness) {
		l := rwlock.New(h.Coordinator, "k")
		reader := holdTo(t, h.Coordinator, lease.Shared)
		writer := h.Contend("k", coordinatortest.AsWriter)
		synctest.Wait()
		_, err := l.TryRLock(t.Context())
		require.ErrorIs(t, err, coordinator.ErrNotAcquired, "a writer waits")
		other := h.Contend("k", coordinatortest.AsReader)
		require.NoError(t, reader.Unlock())
		<-writer.Granted()
		writer.Release()
		<-other.Granted()
		other.Release()

		// A writer here lets a reader elsewhere in with its downgrade, and a writer elsewhere when it is out.
		w := holdTo(t, h.Coordinator, lease.Exclusive)
		writer, other = h.Contend("k", coordinatortest.AsWriter), h.Contend("k", coordinatortest.AsReader)
		r, err := w.Downgrade()
		require.NoError(t, err)
		<-other.Granted()
		other.Release()
		synctest.Wait()
		select {
		case <-writer.Granted():
			require.Fail(t, "a writer beside a reader")
		default:
		}
		require.NoError(t, r.Unlock())
		<-writer.Granted()
		writer.Release()

		r = holdTo(t, h.Coordinator, lease.Shared)
		h.Contend("k", coordinatortest.AsWriter).Release() // it gives up, and nobody waits
		time.Sleep(time.Minute)                            // a renewal tells
		again, err := l.TryRLock(t.Context())
		require.NoError(t, err)
		require.NoError(t, again.Unlock())
		require.NoError(t, r.Unlock())
	})
}
