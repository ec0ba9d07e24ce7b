package faulttest

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/go-leasehold/leasehold/coordinator"
	"github.com/go-leasehold/leasehold/internal/faults"
	"github.com/go-leasehold/leasehold/internal/redistest"
)

// E3: one shared Mutex. The first goroutine overruns its limit, the second acquires, the first unlocks late. It is
// told, and the second's hold is left alone.
func TestLateUnlockOfASharedMutexSparesTheNextHold(t *testing.T) {
	t.Parallel()
	server := redistest.Shared(t)
	key := redistest.Prefix(t) + "k"
	c := steady(t, server.Addr(), ours(5*time.Second)...)
	other := steady(t, server.Addr(), ours(5*time.Second)...)
	for name, scenario := range map[string]struct {
		m    *coordinator.Mutex
		lose func(first *coordinator.Hold)
		want error
	}{
		"expired": {c.Mutex(key, coordinator.MaxHold(100*time.Millisecond)), func(*coordinator.Hold) {}, coordinator.ErrHoldExpired},
		"lost": {c.Mutex(key), func(*coordinator.Hold) {
			require.NoError(t, other.ForceUnlock(t.Context(), key))
		}, coordinator.ErrLeaseLost},
	} {
		first := grab(t, scenario.m)
		waits := lockLater(context.Background(), c.Mutex(key))
		eventually(t, hangs, "the second waiting", func() bool { return localWaiters(c, key) == 1 })
		scenario.lose(first)
		second := await(t, waits, hangs, "the second's grant")
		require.NoError(t, second.err, name)
		require.ErrorIs(t, ended(t, first, hangs), scenario.want, name)
		require.ErrorIs(t, first.Unlock(), scenario.want, name)
		require.Greater(t, second.hold.Token(), first.Token(), name)
		require.NoError(t, second.hold.Err(), name)
		busy(t, other, key)
		require.NoError(t, second.hold.Unlock(), name)
		free(t, other, key)
	}
}

// E3: a hold is locked in one goroutine and unlocked in another, and a goroutine that has the lock does not enter
// again without saying who it is.
func TestOwnerIsTheHoldNotTheGoroutine(t *testing.T) {
	t.Parallel()
	server := redistest.Shared(t)
	key := redistest.Prefix(t) + "k"
	c := steady(t, server.Addr(), ours(5*time.Second)...)
	other := steady(t, server.Addr(), ours(5*time.Second)...)
	m := c.Mutex(key)

	got := await(t, lockLater(context.Background(), m), hangs, "the lock")
	require.NoError(t, got.err)
	unlocked := make(chan error, 1)
	go func() { unlocked <- got.hold.Unlock() }()
	require.NoError(t, await(t, unlocked, hangs, "Unlock elsewhere"))
	free(t, other, key)

	hold := grab(t, m)
	again, _, err := try(t, m)
	require.ErrorIs(t, err, coordinator.ErrNotAcquired, "the same goroutine and the same Mutex are no identity")
	require.Nil(t, again)
	require.Equal(t, 1, hold.Count())
	require.NoError(t, hold.Unlock())
}

// E4: an owner locks twice and unlocks once. Nobody else gets in before the second unlock; without an owner the
// second lock is an error that says who has it, not a silent deadlock.
func TestInnerUnlockDoesNotFreeTheOuterLock(t *testing.T) {
	t.Parallel()
	server := redistest.Shared(t)
	addr := server.Addr()
	child := startPeer(t, addr, addr, 5*time.Second)
	c := steady(t, addr, ours(5*time.Second)...)
	for name, owner := range map[string]func(outer *coordinator.Hold) context.Context{
		"by the hold's context": func(outer *coordinator.Hold) context.Context { return outer.Context() },
		"by WithOwner":          nil,
	} {
		key := redistest.Prefix(t) + "k"
		m := c.Mutex(key)
		ctx := coordinator.WithOwner(context.Background())
		outer, err := m.Lock(ctx)
		require.NoError(t, err)
		if owner != nil {
			ctx = owner(outer)
		}
		var inner *coordinator.Hold
		within(t, hangs, "re-entry", func() {
			if inner, err = m.Lock(ctx); err != nil {
				t.Error(err)
			}
		})
		require.NotNil(t, inner)
		require.Equal(t, 2, inner.Count(), name)
		require.Equal(t, outer.Token(), inner.Token(), name)

		require.NoError(t, inner.Unlock())
		require.ErrorIs(t, inner.Unlock(), coordinator.ErrNotHeld)
		require.Equal(t, 1, outer.Count(), name)
		require.NoError(t, outer.Err(), name)
		require.Equal(t, key+" busy", child.ask(t, "try "+key, "refused"), name)
		require.NoError(t, outer.Unlock())
		require.Greater(t, child.take(t, key), outer.Token(), name)
		require.Equal(t, key+" ok", child.ask(t, "unlock "+key, "unlocked"))
	}
}

// E4: locking again without an owner does not deadlock in silence.
func TestSecondLockWithoutAnOwnerSaysWhoHasIt(t *testing.T) {
	t.Parallel()
	server := redistest.Shared(t)
	key := redistest.Prefix(t) + "k"
	c := steady(t, server.Addr(), ours(5*time.Second)...)
	m := c.Mutex(key)
	hold := grab(t, m)
	ctx, cancel := context.WithTimeout(context.Background(), 100*time.Millisecond)
	defer cancel()
	var again *coordinator.Hold
	var err error
	within(t, slack, "the second Lock", func() { again, err = m.Lock(ctx) })
	require.Nil(t, again)
	require.ErrorIs(t, err, coordinator.ErrNotAcquired)
	require.ErrorIs(t, err, context.DeadlineExceeded)
	var wait *coordinator.WaitError
	require.ErrorAs(t, err, &wait)
	require.Equal(t, key, wait.Key)
	require.Contains(t, wait.Holder, c.ID(), "it is held by ourselves")
	require.NoError(t, hold.Unlock())
}

// E6: clean-up code that unlocks whatever there is. Without a hold there is nothing to unlock; a lease that ran out,
// one that was taken over, and a second unlock are told apart.
func TestUnlockTellsNothingExpiredTakenAndTwiceApart(t *testing.T) {
	t.Parallel()
	const ttl = 1500 * time.Millisecond
	server := redistest.Start(t)
	proxy := faults.NewProxy(t, server.Addr())
	c := steady(t, proxy.Addr(), ours(ttl)...)
	other := steady(t, server.Addr(), ours(ttl)...)

	held := grab(t, other.Mutex("busy"))
	nothing, _, err := try(t, c.Mutex("busy"))
	require.ErrorIs(t, err, coordinator.ErrNotAcquired)
	require.Nil(t, nothing)
	require.NotPanics(t, func() { err = nothing.Unlock() })
	require.ErrorIs(t, err, coordinator.ErrNotHeld)
	require.False(t, nothing.Valid())
	require.NoError(t, held.Err(), "no hold, no unlock")
	require.NoError(t, held.Unlock())

	twice := grab(t, c.Mutex("twice"))
	require.NoError(t, twice.Unlock())
	second := twice.Unlock()
	require.ErrorIs(t, second, coordinator.ErrNotHeld)

	taken := grab(t, c.Mutex("taken"))
	require.NoError(t, other.ForceUnlock(t.Context(), "taken"))
	by := take(t, other.Mutex("taken"))
	require.ErrorIs(t, ended(t, taken, hangs), coordinator.ErrLeaseLost)
	takenOver := taken.Unlock()
	require.ErrorIs(t, takenOver, coordinator.ErrLeaseLost)
	require.NoError(t, by.Err())
	busy(t, c, "taken")
	require.NoError(t, by.Unlock())

	alone := grab(t, c.Mutex("alone"))
	proxy.BlackHole(true)
	require.ErrorIs(t, ended(t, alone, ttl+slack), coordinator.ErrLeaseLost)
	var expired error
	within(t, slack, "Unlock after expiry", func() { expired = alone.Unlock() })
	require.ErrorIs(t, expired, coordinator.ErrLeaseLost)
	proxy.BlackHole(false)

	require.NotErrorIs(t, second, coordinator.ErrLeaseLost)
	require.NotErrorIs(t, takenOver, coordinator.ErrNotHeld)
	require.NotErrorIs(t, expired, coordinator.ErrNotHeld)
	require.ErrorContains(t, expired, "not renewed within its time to live")
	require.ErrorContains(t, takenOver, "not ours any more")
	free(t, other, "alone")
}
