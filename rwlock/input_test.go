package rwlock_test

import (
	"context"
	"math"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/go-leasehold/leasehold/coordinator"
	"github.com/go-leasehold/leasehold/coordinator/coordinatortest"
	"github.com/go-leasehold/leasehold/internal/redistest"
	"github.com/go-leasehold/leasehold/rwlock"
)

// calls are all the ways to use a lock.
func calls(l *rwlock.Lock) map[string]func(ctx context.Context) error {
	nothing := func(context.Context) error { return nil }
	taken := func(h rwlock.Hold, err error) error {
		if err == nil {
			err = h.Unlock()
		}
		return err
	}
	return map[string]func(ctx context.Context) error{
		"RLock":       func(ctx context.Context) error { return taken(l.RLock(ctx)) },
		"TryRLock":    func(ctx context.Context) error { return taken(l.TryRLock(ctx)) },
		"TryRLockFor": func(ctx context.Context) error { return taken(l.TryRLockFor(ctx, time.Minute)) },
		"Lock":        func(ctx context.Context) error { return taken(l.Lock(ctx)) },
		"TryLock":     func(ctx context.Context) error { return taken(l.TryLock(ctx)) },
		"TryLockFor":  func(ctx context.Context) error { return taken(l.TryLockFor(ctx, time.Minute)) },
		"Read":        func(ctx context.Context) error { return l.Read(ctx, nothing) },
		"Write":       func(ctx context.Context) error { return l.Write(ctx, nothing) },
	}
}

// What is wrong with key and options is told when the lock is used, whichever way, in an error that names the value and
// the limit. Nothing is sent.
func TestBadKeyOrOptionIsToldByEveryUse(t *testing.T) {
	var none context.Context
	for name, bad := range map[string]struct {
		key  string
		opts []coordinator.MutexOption
		says []string
	}{
		"no key":          {key: "", says: []string{"the key is empty"}},
		"long key":        {key: strings.Repeat("k", coordinator.MaxKey+1), says: []string{"65537 bytes", "65536"}},
		"TTL 0":           {"k", []coordinator.MutexOption{coordinator.TTL(0)}, []string{"TTL(0s)", "100ms", "24h"}},
		"TTL below 0":     {"k", []coordinator.MutexOption{coordinator.TTL(-1)}, []string{"TTL(-1ns)", "100ms", "24h"}},
		"short TTL":       {"k", []coordinator.MutexOption{coordinator.TTL(99 * time.Millisecond)}, []string{"99ms", "100ms", "24h"}},
		"long TTL":        {"k", []coordinator.MutexOption{coordinator.TTL(24*time.Hour + 1)}, []string{"24h0m0.000000001s", "24h0m0s"}},
		"MaxHold 0":       {"k", []coordinator.MutexOption{coordinator.MaxHold(0)}, []string{"MaxHold(0s)", "positive"}},
		"MaxHold below 0": {"k", []coordinator.MutexOption{coordinator.MaxHold(math.MinInt64)}, []string{"MaxHold(-", "positive"}},
		"EndWith nil":     {"k", []coordinator.MutexOption{coordinator.EndWith(none)}, []string{"EndWith", "nil"}},
		"nil option":      {"k", []coordinator.MutexOption{nil}, []string{"MutexOption", "nil"}},
		"the first is told": {
			"k", []coordinator.MutexOption{coordinator.Fair(), coordinator.MaxHold(-1), nil, coordinator.TTL(0)},
			[]string{"MaxHold(-1ns)"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T, h *coordinatortest.Harness) {
				l := rwlock.New(h.Coordinator, bad.key, bad.opts...)
				require.Equal(t, bad.key, l.Key())
				for use, call := range calls(l) {
					err := call(t.Context())
					require.ErrorIs(t, err, coordinator.ErrInvalid, use)
					for _, s := range bad.says {
						require.ErrorContains(t, err, s, use)
					}
					require.Less(t, len(err.Error()), 500, "as long as the key")
				}
				// A mutex says the same.
				_, err := h.Coordinator.Mutex(bad.key, bad.opts...).Lock(t.Context())
				require.EqualError(t, err, calls(l)["RLock"](t.Context()).Error())
				require.Zero(t, h.Coordinator.Snapshot().Stats.Commands)
				require.Empty(t, h.Coordinator.Snapshot().Keys)
			})
		})
	}
}

// The same for arguments, also where the lease is here and readers pass without asking.
func TestBadArgumentsAreRefused(t *testing.T) {
	bubble(t, func(t *testing.T, h *coordinatortest.Harness) {
		l := rwlock.New(h.Coordinator, "k")
		var none context.Context
		refused := func() {
			before := h.Coordinator.Snapshot().Stats.Commands
			for use, call := range calls(l) {
				err := call(none)
				require.ErrorIs(t, err, coordinator.ErrInvalid, use)
				require.ErrorContains(t, err, "the context is nil", use)
			}
			_, err := l.TryRLockFor(t.Context(), -1)
			require.ErrorIs(t, err, coordinator.ErrInvalid)
			require.ErrorContains(t, err, "TryRLockFor(-1ns) is negative")
			_, err = l.TryLockFor(t.Context(), math.MinInt64)
			require.ErrorIs(t, err, coordinator.ErrInvalid)
			require.ErrorContains(t, err, "TryLockFor(-")
			err = l.Read(t.Context(), nil)
			require.ErrorIs(t, err, coordinator.ErrInvalid)
			require.ErrorContains(t, err, "Read without a function")
			err = l.Write(t.Context(), nil)
			require.ErrorIs(t, err, coordinator.ErrInvalid)
			require.ErrorContains(t, err, "Write without a function")
			require.Equal(t, before, h.Coordinator.Snapshot().Stats.Commands)
		}
		refused()
		inside := passing(t, h.Coordinator, l)
		refused()
		require.ErrorIs(t, inside.Extend(0), coordinator.ErrInvalid)
		require.ErrorIs(t, inside.Extend(-time.Second), coordinator.ErrInvalid)
		require.ErrorIs(t, inside.Extend(time.Second), coordinator.ErrNoMaxHold)
		require.True(t, inside.Valid())
		unlock(t, inside)
	}, coordinator.WithSharedRetention(time.Hour))
}

// Limits that are met are no error, on Redis either.
func TestGoodKeysAndOptions(t *testing.T) {
	t.Parallel()
	s := redistest.Alone(t)
	c := process(t, s)
	for _, key := range []string{"k", " ", "\x00", "a{b}c", "{}", "}{", "\xff\xfe", strings.Repeat("k", coordinator.MaxKey), "lock:~queue{k}k"} {
		for use, call := range calls(rwlock.New(c, key)) {
			require.NoError(t, call(t.Context()), use)
		}
	}
	for _, o := range []coordinator.MutexOption{
		coordinator.TTL(coordinator.MinTTL), coordinator.TTL(coordinator.MaxTTL), coordinator.MaxHold(math.MaxInt64),
		coordinator.EndWith(context.Background()), coordinator.Fair(), coordinator.Cached(),
	} {
		for use, call := range calls(rwlock.New(c, "options", o)) {
			require.NoError(t, call(t.Context()), use)
		}
	}
}

// The zero Hold is none. Where a nil *coordinator.Hold has an answer it has the same.
func TestZeroHold(t *testing.T) {
	var zero rwlock.Hold
	require.ErrorIs(t, zero.Unlock(), coordinator.ErrNotHeld)
	require.ErrorIs(t, zero.Err(), coordinator.ErrNotHeld)
	require.ErrorIs(t, zero.Extend(time.Second), coordinator.ErrNotHeld)
	require.False(t, zero.Valid())
	require.Zero(t, zero.Count())
	writes, reads := zero.Counts()
	require.Zero(t, writes+reads)
	next, err := zero.Downgrade()
	require.ErrorIs(t, err, coordinator.ErrNotHeld)
	require.Zero(t, next)

	// There is no key, token or context of nothing, here as there.
	var none *coordinator.Hold
	for _, ask := range []func(h *coordinator.Hold){
		func(h *coordinator.Hold) { _ = h.Key() },
		func(h *coordinator.Hold) { _ = h.Token() },
		func(h *coordinator.Hold) { _ = h.Context() },
	} {
		require.Panics(t, func() { ask(none) })
		require.Panics(t, func() { ask(zero.Hold) })
	}
}

// The Hold beside an error is zero, so that a deferred Unlock does no harm.
func TestHoldBesideAnErrorIsZero(t *testing.T) {
	bubble(t, func(t *testing.T, h *coordinatortest.Harness) {
		defer h.HoldElsewhere("k", 0, coordinatortest.AsWriter)()
		l := rwlock.New(h.Coordinator, "k")
		ended, cancel := context.WithCancel(t.Context())
		cancel()
		for _, ask := range []func() (rwlock.Hold, error){
			func() (rwlock.Hold, error) { return l.RLock(ended) },
			func() (rwlock.Hold, error) { return l.Lock(ended) },
			func() (rwlock.Hold, error) { return l.TryRLock(t.Context()) },
			func() (rwlock.Hold, error) { return l.TryLock(t.Context()) },
			func() (rwlock.Hold, error) { return l.TryRLockFor(t.Context(), 1) },
			func() (rwlock.Hold, error) { return l.TryLockFor(t.Context(), 1) },
			func() (rwlock.Hold, error) { return l.TryLockFor(t.Context(), -1) },
		} {
			hold, err := ask()
			require.Error(t, err)
			require.Zero(t, hold)
			require.ErrorIs(t, hold.Unlock(), coordinator.ErrNotHeld)
		}
	})
}

// A lock of no coordinator can't be made, as a mutex can't.
func TestNewWithoutACoordinator(t *testing.T) {
	var none *coordinator.Coordinator
	require.Panics(t, func() { none.Mutex("k") })
	require.Panics(t, func() { rwlock.New(none, "k") })
}

// Downgrade is for the write hold of a read/write lock alone.
func TestDowngradeOfAMutexHold(t *testing.T) {
	bubble(t, func(t *testing.T, h *coordinatortest.Harness) {
		hold, err := h.Coordinator.Mutex("k").Lock(t.Context())
		require.NoError(t, err)
		_, err = hold.Downgrade()
		require.ErrorIs(t, err, coordinator.ErrNotExclusive)
		require.NoError(t, hold.Unlock())
		_, err = hold.Downgrade()
		require.ErrorIs(t, err, coordinator.ErrNotHeld)

		for _, r := range []rwlock.Hold{read(t, rwlock.New(h.Coordinator, "r")), passing(t, h.Coordinator, rwlock.New(h.Coordinator, "p"))} {
			_, err = r.Downgrade()
			require.ErrorIs(t, err, coordinator.ErrNotExclusive)
			require.NoError(t, r.Err())
			unlock(t, r)
			_, err = r.Downgrade()
			require.ErrorIs(t, err, coordinator.ErrNotHeld)
		}
	})
}
