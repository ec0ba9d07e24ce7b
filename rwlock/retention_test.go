package rwlock_test

import (
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

// kept says whether somebody has the key in the store.
func kept(t testing.TB, h *coordinatortest.Harness) bool {
	t.Helper()
	synctest.Wait()
	info, err := h.Server.Inspect("k")
	require.NoError(t, err)
	return len(info.Holders) > 0
}

// An idle read lease is kept for its retention, whichever way its readers came, and no longer.
func TestIdleReadLeaseIsKeptForItsRetention(t *testing.T) {
	for retention, opts := range map[time.Duration][]coordinator.Option{
		50 * time.Millisecond: nil,
		7 * time.Second:       {coordinator.WithRetention(7 * time.Second)},
		5 * time.Second:       {coordinator.WithRetention(time.Hour), coordinator.WithSharedRetention(5 * time.Second)},
		time.Hour:             {coordinator.WithRetention(0), coordinator.WithSharedRetention(time.Hour)},
	} {
		t.Run(retention.String(), func(t *testing.T) {
			bubble(t, func(t *testing.T, h *coordinatortest.Harness) {
				l := rwlock.New(h.Coordinator, "k")
				unlock(t, read(t, l))
				time.Sleep(retention - 1)
				require.True(t, kept(t, h))
				time.Sleep(time.Nanosecond)
				require.False(t, kept(t, h))

				// Those that pass without asking are looked for once in a retention: so it may last two.
				unlock(t, passing(t, h.Coordinator, l))
				time.Sleep(retention - 1)
				require.True(t, kept(t, h))
				time.Sleep(retention + 1)
				require.False(t, kept(t, h))
				require.Empty(t, h.Coordinator.Snapshot().Keys)
			}, opts...)
		})
	}
}

// A retention of its own counts for read leases only.
func TestSharedRetentionIsNotForWriteLeases(t *testing.T) {
	bubble(t, func(t *testing.T, h *coordinatortest.Harness) {
		l := rwlock.New(h.Coordinator, "k")
		unlock(t, write(t, l))
		require.False(t, kept(t, h))
		r, err := write(t, l).Downgrade()
		require.NoError(t, err)
		unlock(t, r)
		require.True(t, kept(t, h), "it is a read lease now")
		time.Sleep(time.Second)
		require.False(t, kept(t, h))
	}, coordinator.WithRetention(0), coordinator.WithSharedRetention(time.Second))

	bubble(t, func(t *testing.T, h *coordinatortest.Harness) {
		l := rwlock.New(h.Coordinator, "k")
		for range 3 {
			unlock(t, read(t, l), read(t, l))
			require.False(t, kept(t, h))
		}
		require.Zero(t, h.Coordinator.Snapshot().Stats.Passed, "each one tells that it goes")
		unlock(t, write(t, l))
		require.True(t, kept(t, h))
	}, coordinator.WithRetention(time.Hour), coordinator.WithSharedRetention(0))
}

// A lease that is kept reads for an hour at the price of its renewals.
func TestKeptReadLeaseCostsItsRenewalsOnly(t *testing.T) {
	bubble(t, func(t *testing.T, h *coordinatortest.Harness) {
		l := rwlock.New(h.Coordinator, "k")
		for began := time.Now(); time.Since(began) < time.Hour; time.Sleep(time.Second) {
			unlock(t, read(t, l))
		}
		synctest.Wait()
		stats := h.Coordinator.Snapshot().Stats
		require.EqualValues(t, 3600, stats.Grants)
		require.EqualValues(t, 1, stats.Leases)
		require.Equal(t, stats.Renewals+1, stats.Commands)
		// One in each third of 30 s, and two: the look at a lease that is in use for 100 ms.
		require.InDelta(t, 360, float64(stats.Renewals), 2)
	}, coordinator.WithSharedRetention(time.Hour))
}

// Whoever wants to write has an idle read lease at once, from all processes that keep one.
func TestKeptReadLeaseIsGivenUpAtOnceOnAWant(t *testing.T) {
	bubble(t, func(t *testing.T, h *coordinatortest.Harness) {
		began := time.Now()
		for _, c := range []*coordinator.Coordinator{h.Coordinator, h.Another(coordinator.WithSharedRetention(time.Hour))} {
			unlock(t, passing(t, c, rwlock.New(c, "k")))
		}
		require.True(t, kept(t, h))
		w := write(t, rwlock.New(h.Another(), "k"))
		unlock(t, w)
		require.Zero(t, time.Since(began))
		synctest.Wait()
		require.Empty(t, h.Coordinator.Snapshot().Keys)

		// TryLock too: what is merely kept is not held.
		unlock(t, passing(t, h.Coordinator, rwlock.New(h.Coordinator, "k")))
		w, err := rwlock.New(h.Another(), "k").TryLock(t.Context())
		require.NoError(t, err)
		unlock(t, w)
		require.Zero(t, time.Since(began))

		// A writer of the process itself needs another lease, and has it as soon.
		l := rwlock.New(h.Coordinator, "k")
		unlock(t, passing(t, h.Coordinator, l))
		unlock(t, write(t, l))
		require.Zero(t, time.Since(began))
		require.Equal(t, lease.Exclusive, keyOf(t, h.Coordinator).Mode)
	}, coordinator.WithSharedRetention(time.Hour))
}

// The same on Redis, where leases of an hour could not come free in another way.
func TestKeptReadLeasesAreGivenUpOnRedis(t *testing.T) {
	t.Parallel()
	s := redistest.Alone(t)
	hours := []coordinator.Option{coordinator.WithTTL(time.Hour), coordinator.WithSharedRetention(24 * time.Hour), coordinator.WithRetention(24 * time.Hour)}
	a, b, d := process(t, s, hours...), process(t, s, hours...), process(t, s, hours...)
	for range 5 {
		for _, c := range []*coordinator.Coordinator{a, b} {
			unlock(t, passing(t, c, rwlock.New(c, "k")))
			require.Equal(t, "held", keyOf(t, c).Phase)
		}
		require.Len(t, fields(t, s, "k"), 3)
		w := begin(t, rwlock.New(d, "k").Lock).granted(t)
		require.Len(t, fields(t, s, "k"), 2)
		unlock(t, w)
		// A write lease that is merely kept is given up for readers.
		unlock(t, begin(t, rwlock.New(a, "k").RLock).granted(t))
	}
}
