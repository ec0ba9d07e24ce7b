package rwlock_test

import (
	"log/slog"
	"math"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/go-leasehold/leasehold/coordinator"
	"github.com/go-leasehold/leasehold/coordinator/coordinatortest"
	"github.com/go-leasehold/leasehold/rwlock"
)

// FuzzHandles: key, options and times are refused by every call in the same words, or readers stand beside each other, writers alone,
// and another key is another lock.
func FuzzHandles(f *testing.F) {
	const second = int64(time.Second)
	for _, key := range []string{"k", "", "~", "\x00\xff", "a}b{c", "k:write", strings.Repeat("k", coordinator.MaxKey), strings.Repeat("k", coordinator.MaxKey+1)} {
		f.Add(key, "other", second, second, second)
		f.Add("other", key, second, second, second)
	}
	for _, d := range []time.Duration{0, -1, 1, 99 * time.Millisecond, 100 * time.Millisecond, coordinator.MaxTTL, coordinator.MaxTTL + 1, math.MaxInt64, math.MinInt64} {
		f.Add("k", "x", int64(d), second, second)
		f.Add("k", "x", second, int64(d), second)
		f.Add("k", "x", second, second, int64(d))
	}
	f.Fuzz(func(t *testing.T, key, otherKey string, ttl, maxHold, wait int64) {
		opts := []coordinator.MutexOption{coordinator.TTL(time.Duration(ttl)), coordinator.MaxHold(time.Duration(maxHold))}
		good := key != "" && len(key) <= coordinator.MaxKey && time.Duration(ttl) >= coordinator.MinTTL && time.Duration(ttl) <= coordinator.MaxTTL && maxHold > 0
		synctest.Test(t, func(t *testing.T) {
			world := coordinatortest.New(t, coordinator.WithLogger(slog.New(slog.DiscardHandler)))
			l := rwlock.New(world.Coordinator, key, opts...)
			if !good {
				_, first := l.RLock(t.Context())
				require.ErrorIs(t, first, coordinator.ErrInvalid)
				for name, call := range calls(l) {
					require.EqualError(t, call(t.Context()), first.Error(), name)
				}
				require.Zero(t, world.Coordinator.Snapshot().Stats.Commands)
				return
			}
			theirs := rwlock.New(world.Another(), key, coordinator.TTL(time.Minute))
			one, err := l.RLock(t.Context())
			require.NoError(t, err)
			two, err := theirs.RLock(t.Context())
			require.NoError(t, err)
			began, limit := time.Now(), time.Duration(wait)%(5*time.Minute)
			_, err = theirs.TryLockFor(t.Context(), limit)
			switch {
			case limit < 0:
				require.ErrorIs(t, err, coordinator.ErrInvalid)
			default:
				require.ErrorIs(t, err, coordinator.ErrNotAcquired)
				require.GreaterOrEqual(t, time.Since(began), limit)
			}
			if time.Since(began) < time.Duration(maxHold) {
				require.NoError(t, one.Unlock())
			} else {
				require.ErrorIs(t, one.Unlock(), coordinator.ErrHoldExpired)
			}
			require.NoError(t, two.Unlock())
			if otherKey == key || otherKey == "" || len(otherKey) > coordinator.MaxKey {
				return
			}
			w, err := theirs.Lock(t.Context())
			require.NoError(t, err)
			apart, err := rwlock.New(world.Coordinator, otherKey).TryLock(t.Context())
			require.NoError(t, err, "%q is in the way of %q", key, otherKey)
			require.NoError(t, apart.Unlock())
			require.NoError(t, w.Unlock())
		})
	})
}
