package coordinatortest_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/go-leasehold/leasehold/coordinator"
	"github.com/go-leasehold/leasehold/coordinator/coordinatortest"
	"github.com/go-leasehold/leasehold/lease"
)

var errAway = errors.New("away")

// bubble runs a test in virtual time.
func bubble(t *testing.T, test func(t *testing.T, h *coordinatortest.Harness), opts ...coordinator.Option) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) { test(t, coordinatortest.New(t, opts...)) })
}

func lock(t *testing.T, c *coordinator.Coordinator) *coordinator.Hold {
	t.Helper()
	hold, err := c.Mutex("k").Lock(t.Context())
	require.NoError(t, err)
	return hold
}

func TestLoseIsNoticedAtOnce(t *testing.T) {
	bubble(t, func(t *testing.T, h *coordinatortest.Harness) {
		hold := lock(t, h.Coordinator)
		time.Sleep(time.Second)
		require.True(t, hold.Valid())
		h.Lose("k")
		synctest.Wait()
		require.ErrorIs(t, hold.Err(), coordinator.ErrLeaseLost)
		<-hold.Context().Done()
		require.ErrorIs(t, context.Cause(hold.Context()), coordinator.ErrLeaseLost)
		require.ErrorIs(t, hold.Unlock(), coordinator.ErrLeaseLost)
		require.NoError(t, lock(t, h.Coordinator).Unlock())
	})
}

func TestLoseOfAYoungHoldIsNoticedSoon(t *testing.T) {
	bubble(t, func(t *testing.T, h *coordinatortest.Harness) {
		hold := lock(t, h.Coordinator)
		h.Lose("k")
		start := time.Now()
		<-hold.Context().Done()
		require.LessOrEqual(t, time.Since(start), 200*time.Millisecond)
	})
}

func TestLoseAll(t *testing.T) {
	bubble(t, func(t *testing.T, h *coordinatortest.Harness) {
		holds, err := h.Coordinator.LockAll(t.Context(), "a", "b")
		require.NoError(t, err)
		time.Sleep(time.Second)
		h.LoseAll()
		<-holds.Context().Done()
		require.ErrorIs(t, context.Cause(holds.Context()), coordinator.ErrLeaseLost)
	})
}

func TestHoldElsewhereKeepsOthersOut(t *testing.T) {
	bubble(t, func(t *testing.T, h *coordinatortest.Harness) {
		release := h.HoldElsewhere("k", 0)
		_, err := h.Coordinator.Mutex("k").TryLock(t.Context())
		require.ErrorIs(t, err, coordinator.ErrNotAcquired)
		_, err = h.Coordinator.Mutex("k").TryLockFor(t.Context(), time.Hour)
		require.ErrorIs(t, err, coordinator.ErrNotAcquired)

		time.AfterFunc(time.Minute, release)
		start := time.Now()
		hold := lock(t, h.Coordinator)
		require.Equal(t, time.Minute, time.Since(start))
		release() // again, without harm
		require.NoError(t, hold.Unlock())
	})
}

func TestHoldElsewhereWithTTLCrashes(t *testing.T) {
	bubble(t, func(t *testing.T, h *coordinatortest.Harness) {
		h.HoldElsewhere("k", time.Minute)
		start := time.Now()
		hold := lock(t, h.Coordinator)
		require.InDelta(t, time.Minute, time.Since(start), float64(50*time.Millisecond))
		require.NoError(t, hold.Unlock())
	})
}

func TestHoldElsewhereTakesWhatIsMerelyKept(t *testing.T) {
	bubble(t, func(t *testing.T, h *coordinatortest.Harness) {
		require.NoError(t, lock(t, h.Coordinator).Unlock())
		start := time.Now()
		h.HoldElsewhere("k", 0)
		require.Less(t, time.Since(start), time.Second)
	}, coordinator.WithRetention(time.Hour))
}

func TestContenderIsServedInItsTurn(t *testing.T) {
	bubble(t, func(t *testing.T, h *coordinatortest.Harness) {
		hold := lock(t, h.Coordinator)
		c := h.Contend("k")
		synctest.Wait()
		select {
		case <-c.Granted():
			require.Fail(t, "granted while it is held")
		default:
		}
		require.NoError(t, hold.Unlock())
		<-c.Granted()
		c.Release()
		require.NoError(t, lock(t, h.Coordinator).Unlock())

		hold = lock(t, h.Coordinator)
		h.Contend("k").Release() // withdrawn: nobody waits
		info, err := h.Coordinator.Inspect(t.Context(), "k")
		require.NoError(t, err)
		require.Empty(t, info.Waiters)
		require.NoError(t, hold.Unlock())
	})
}

func TestContenderOutlivesAnOutage(t *testing.T) {
	bubble(t, func(t *testing.T, h *coordinatortest.Harness) {
		release := h.HoldElsewhere("k", 0)
		c := h.Contend("k")
		other := h.Contend("k")
		restore := h.Outage(errAway)
		release() // nobody can be told
		synctest.Wait()
		time.Sleep(time.Second)
		restore()
		<-c.Granted()
		c.Release()
		<-other.Granted()
		other.Release()
	})
}

func TestContendersReadAndWrite(t *testing.T) {
	bubble(t, func(t *testing.T, h *coordinatortest.Harness) {
		first := h.HoldElsewhere("k", 0, coordinatortest.AsReader)
		second := h.HoldElsewhere("k", 0, coordinatortest.AsReader)
		writer := h.Contend("k", coordinatortest.AsWriter)
		_, err := h.Coordinator.Mutex("k").TryLock(t.Context())
		require.ErrorIs(t, err, coordinator.ErrKind)
		first()
		second()
		<-writer.Granted()
		info, err := h.Server.Inspect("k")
		require.NoError(t, err)
		require.Equal(t, lease.Exclusive, info.Holders[0].Mode)
	})
}

func TestOutage(t *testing.T) {
	bubble(t, func(t *testing.T, h *coordinatortest.Harness) {
		hold := lock(t, h.Coordinator)
		restore := h.Outage(errAway)
		_, err := h.Coordinator.Mutex("other").TryLock(t.Context())
		require.ErrorIs(t, err, coordinator.ErrUnavailable)
		require.ErrorIs(t, err, errAway)
		time.Sleep(10 * time.Second)
		require.True(t, hold.Valid(), "its TTL is longer than that")
		restore()
		time.Sleep(time.Minute)
		require.True(t, hold.Valid(), "it was renewed in time")

		defer h.Outage(errAway)()
		<-hold.Context().Done()
		require.ErrorIs(t, hold.Err(), coordinator.ErrLeaseLost)
	})
}

func TestCutOffLeavesOthersAlone(t *testing.T) {
	bubble(t, func(t *testing.T, h *coordinatortest.Harness) {
		other := h.Another()
		hold := lock(t, h.Coordinator)
		restore := h.CutOff(errAway)
		next := lock(t, other)
		require.False(t, hold.Valid(), "lost before the other had it")
		require.Greater(t, next.Token(), hold.Token())
		require.NoError(t, next.Unlock())
		restore()
		time.Sleep(time.Second) // until the coordinator asks again
		require.NoError(t, lock(t, h.Coordinator).Unlock())
	})
}

func TestCrashedCoordinatorsKeysComeFree(t *testing.T) {
	bubble(t, func(t *testing.T, h *coordinatortest.Harness) {
		other := h.Another()
		lock(t, h.Coordinator)
		h.Crash()
		start := time.Now()
		require.NoError(t, lock(t, other).Unlock())
		require.LessOrEqual(t, time.Since(start), 31*time.Second)
	})
}

func TestWorksInRealTime(t *testing.T) {
	t.Parallel()
	h := coordinatortest.New(t, coordinator.WithTTL(300*time.Millisecond))
	hold := lock(t, h.Coordinator)
	h.Lose("k")
	<-hold.Context().Done()
	require.ErrorIs(t, hold.Err(), coordinator.ErrLeaseLost)
	release := h.HoldElsewhere("k", 0)
	go release()
	require.NoError(t, lock(t, h.Coordinator).Unlock())
}

func TestStartPanicsWhereNewFails(t *testing.T) {
	require.Panics(t, func() { coordinatortest.Start(coordinator.WithTTL(-1)) })
	h := coordinatortest.Start()
	defer h.Close()
	require.Panics(t, func() { h.Another(coordinator.WithTTL(-1)) })
	h.HoldElsewhere("k", 0, coordinatortest.AsReader)
	require.Panics(t, func() { h.HoldElsewhere("k", 0) }, "it is in use as a read/write lock")
}
