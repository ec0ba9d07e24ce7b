package rwlock_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/go-leasehold/leasehold/coordinator"
	"github.com/go-leasehold/leasehold/coordinator/coordinatortest"
	"github.com/go-leasehold/leasehold/internal/redistest"
	"github.com/go-leasehold/leasehold/lease"
	"github.com/go-leasehold/leasehold/rwlock"
)

// The lease stays the same in Redis, readers of other processes come in, and writers stay out, those of this process
// too, until the last reader is out.
func TestDowngradeLetsReadersInEverywhereAndWritersNowhere(t *testing.T) {
	t.Parallel()
	s := redistest.Alone(t)
	a, b, d := process(t, s), process(t, s), process(t, s)
	la, lb, ld := rwlock.New(a, "k"), rwlock.New(b, "k"), rwlock.New(d, "k")
	w := write(t, la)
	owner := keyOf(t, a).Owner
	require.Equal(t, map[string]string{"mode": "write", owner + ":write": "1"}, fields(t, s, "k"))
	reader := begin(t, lb.RLock)
	queued(t, a, "k", 1)
	writer := begin(t, ld.Lock)
	queued(t, a, "k", 2)
	local := begin(t, la.Lock)
	waiters(t, a, 1)

	r, err := w.Downgrade()
	require.NoError(t, err)
	require.NoError(t, r.Err())
	rb := reader.granted(t)
	require.Equal(t, map[string]string{"mode": "read", owner: "1", keyOf(t, b).Owner: "1"}, fields(t, s, "k"))
	require.Equal(t, lease.Shared, keyOf(t, a).Mode)
	require.Equal(t, w.Token(), r.Token())
	require.Greater(t, rb.Token(), w.Token())
	writer.waits(t)
	local.waits(t)
	unlock(t, r)
	writer.waits(t)
	unlock(t, rb)
	wd := writer.granted(t)
	require.Greater(t, wd.Token(), rb.Token())
	local.waits(t)
	unlock(t, wd)
	wa := local.granted(t)
	require.Greater(t, wa.Token(), wd.Token())
	unlock(t, wa)
}

// A key that nobody else wants is downgraded in Redis as well: whoever comes later may read at once.
func TestDowngradeIsToldThoughNobodyWaits(t *testing.T) {
	t.Parallel()
	s := redistest.Alone(t)
	a, b := process(t, s), process(t, s)
	w := write(t, rwlock.New(a, "k"))
	owner := keyOf(t, a).Owner
	r, err := w.Downgrade()
	require.NoError(t, err)
	eventually(t, "mode read", func() bool { return fields(t, s, "k")["mode"] == "read" })
	require.Equal(t, map[string]string{"mode": "read", owner: "1"}, fields(t, s, "k"))
	other, err := rwlock.New(b, "k").TryRLock(t.Context())
	require.NoError(t, err)
	_, err = rwlock.New(b, "k").TryLock(t.Context())
	require.ErrorIs(t, err, coordinator.ErrNotAcquired)
	unlock(t, r, other)
}

// Readers of the process itself need not wait for Redis.
func TestDowngradeLetsReadersOfItsProcessInAtOnce(t *testing.T) {
	bubble(t, func(t *testing.T, h *coordinatortest.Harness) {
		l := rwlock.New(h.Coordinator, "k")
		w := write(t, l)
		first, second := begin(t, l.RLock), begin(t, l.RLock)
		waiters(t, h.Coordinator, 2)
		restore := h.Outage(context.DeadlineExceeded)
		r, err := w.Downgrade()
		require.NoError(t, err)
		third, err := l.TryRLock(t.Context())
		require.NoError(t, err)
		unlock(t, first.granted(t), second.granted(t), third, r)
		restore()
	})
}

// What is over is over, and what it had goes on.
func TestDowngradedHoldIsOver(t *testing.T) {
	bubble(t, func(t *testing.T, h *coordinatortest.Harness) {
		type value struct{}
		l := rwlock.New(h.Coordinator, "k")
		w, err := l.Lock(context.WithValue(t.Context(), value{}, "v"))
		require.NoError(t, err)
		before := w.Context()
		require.NoError(t, before.Err())
		r, err := w.Downgrade()
		require.NoError(t, err)

		require.ErrorIs(t, before.Err(), context.Canceled)
		require.ErrorIs(t, context.Cause(before), coordinator.ErrReleased)
		require.ErrorIs(t, w.Err(), coordinator.ErrNotHeld)
		require.False(t, w.Valid())
		require.Zero(t, w.Count())
		require.ErrorIs(t, w.Unlock(), coordinator.ErrNotHeld)
		require.ErrorIs(t, w.Extend(time.Second), coordinator.ErrNotHeld)
		_, err = w.Downgrade()
		require.ErrorIs(t, err, coordinator.ErrNotHeld)

		require.Equal(t, "k", r.Key())
		require.Equal(t, w.Token(), r.Token())
		writes, reads := r.Counts()
		require.Equal(t, []int{0, 1}, []int{writes, reads})
		require.NoError(t, r.Context().Err())
		require.Equal(t, "v", r.Context().Value(value{}))
		require.Same(t, r.Hold, coordinator.HoldFrom(r.Context()))
		_, err = r.Downgrade()
		require.ErrorIs(t, err, coordinator.ErrNotExclusive)
		require.NoError(t, r.Err(), "asking did no harm")

		// The owner is the same, whichever context it comes with.
		for _, ctx := range []context.Context{context.WithoutCancel(before), r.Context()} {
			again, err := l.RLock(ctx)
			require.NoError(t, err)
			require.Equal(t, w.Token(), again.Token())
			require.Equal(t, 2, r.Count())
			_, err = l.Lock(ctx)
			require.ErrorIs(t, err, coordinator.ErrUpgrade)
			unlock(t, again)
		}
		unlock(t, r)
		require.ErrorIs(t, context.Cause(r.Context()), coordinator.ErrReleased)
		_, err = r.Downgrade()
		require.ErrorIs(t, err, coordinator.ErrNotHeld)
	})
}

// Where the owner writes more than once, the key stays locked for writing until the last of them is over.
func TestDowngradeOfOneOfSeveralWrites(t *testing.T) {
	bubble(t, func(t *testing.T, h *coordinatortest.Harness) {
		l := rwlock.New(h.Coordinator, "k")
		outer := write(t, l)
		inner, err := l.Lock(outer.Context())
		require.NoError(t, err)
		r, err := inner.Downgrade()
		require.NoError(t, err)
		writes, reads := outer.Counts()
		require.Equal(t, []int{1, 1}, []int{writes, reads})
		stranger := begin(t, l.RLock)
		synctest.Wait()
		stranger.waits(t)
		again, err := l.Lock(outer.Context()) // it writes still
		require.NoError(t, err)
		unlock(t, again, outer)
		unlock(t, stranger.granted(t))
		synctest.Wait()
		require.Equal(t, lease.Shared, inspect(t, h.Coordinator, "k").Holders[0].Mode)
		unlock(t, r)
	})
}

// Where the owner of a write reads as well, its last write's Unlock is a downgrade.
func TestUnlockOfTheWriteUnderARead(t *testing.T) {
	bubble(t, func(t *testing.T, h *coordinatortest.Harness) {
		l := rwlock.New(h.Coordinator, "k")
		w := write(t, l)
		r, err := l.RLock(w.Context())
		require.NoError(t, err)
		require.Equal(t, w.Token(), r.Token())
		require.Equal(t, 2, r.Count())
		_, err = r.Downgrade()
		require.ErrorIs(t, err, coordinator.ErrNotExclusive)
		other := begin(t, rwlock.New(h.Another(), "k").RLock)
		synctest.Wait()
		other.waits(t)
		unlock(t, w)
		synctest.Wait()
		unlock(t, other.granted(t))
		_, err = rwlock.New(h.Another(), "k").TryLock(t.Context())
		require.ErrorIs(t, err, coordinator.ErrNotAcquired)
		unlock(t, r)
	})
}

// A downgrade that comes too late says what Unlock would.
func TestDowngradeOfAHoldThatWasLost(t *testing.T) {
	bubble(t, func(t *testing.T, h *coordinatortest.Harness) {
		l := rwlock.New(h.Coordinator, "k")
		w := write(t, l)
		h.Lose("k")
		time.Sleep(time.Second)
		_, err := w.Downgrade()
		require.ErrorIs(t, err, coordinator.ErrLeaseLost)
		require.ErrorIs(t, w.Unlock(), coordinator.ErrLeaseLost)

		w = write(t, rwlock.New(h.Coordinator, "k", coordinator.MaxHold(time.Second)))
		time.Sleep(time.Second)
		_, err = w.Downgrade()
		require.ErrorIs(t, err, coordinator.ErrHoldExpired)

		w = write(t, l)
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		require.NoError(t, h.Coordinator.Close(ctx))
		_, err = w.Downgrade()
		require.ErrorIs(t, err, coordinator.ErrClosed)
	})
}

// The limits of the write go on for the read.
func TestDowngradeKeepsMaxHoldAndEndWith(t *testing.T) {
	bubble(t, func(t *testing.T, h *coordinatortest.Harness) {
		request, hangUp := context.WithCancel(t.Context())
		limited := rwlock.New(h.Coordinator, "k", coordinator.MaxHold(time.Minute), coordinator.EndWith(request))
		w := write(t, limited)
		time.Sleep(30 * time.Second)
		r, err := w.Downgrade()
		require.NoError(t, err)
		ctx := r.Context()
		begun := time.Now()
		<-ctx.Done()
		require.Equal(t, 30*time.Second, time.Since(begun))
		require.ErrorIs(t, context.Cause(ctx), coordinator.ErrHoldExpired)

		r, err = write(t, limited).Downgrade()
		require.NoError(t, err)
		require.NoError(t, r.Extend(time.Hour))
		time.Sleep(30 * time.Minute)
		require.True(t, r.Valid())
		ctx = r.Context()
		hangUp()
		<-ctx.Done()
		require.ErrorIs(t, context.Cause(ctx), coordinator.ErrHoldExpired)
		require.ErrorIs(t, context.Cause(ctx), context.Canceled)
		unlock(t, write(t, rwlock.New(h.Another(), "k")))
		require.ErrorIs(t, r.Unlock(), coordinator.ErrHoldExpired)
	})
}
