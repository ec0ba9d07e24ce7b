package faulttest

import (
	"context"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/go-leasehold/leasehold/coordinator"
	"github.com/go-leasehold/leasehold/internal/faults"
	"github.com/go-leasehold/leasehold/internal/redistest"
	"github.com/go-leasehold/leasehold/lease"
	"github.com/go-leasehold/leasehold/lease/redislease"
	"github.com/go-leasehold/leasehold/rwlock"
)

// locking is a way to lock a read/write lock: a method of one.
type locking func(ctx context.Context) (rwlock.Hold, error)

// later locks in a goroutine of its own, with a context that never ends but with the test.
func later(ctx context.Context, lock locking) <-chan outcome {
	done := make(chan outcome, 1)
	go func() { // ends with ctx at the latest
		hold, err := lock(ctx)
		done <- outcome{hold.Hold, err, time.Now()}
	}()
	return done
}

// come locks, and fails the test where that does not work.
func come(t testing.TB, lock locking) rwlock.Hold {
	t.Helper()
	got := await(t, later(t.Context(), lock), hangs, "the lock")
	require.NoError(t, got.err)
	return rwlock.Hold{Hold: got.hold}
}

// goOn locks at once and unlocks: the way is free.
func goOn(t testing.TB, lock locking) {
	t.Helper()
	require.NoError(t, come(t, lock).Unlock())
}

// shutOut requires that a TryLock is refused.
func shutOut(t testing.TB, lock locking, why string) {
	t.Helper()
	hold, err := lock(t.Context())
	require.ErrorIs(t, err, coordinator.ErrNotAcquired, why)
	require.Nil(t, hold.Hold, why)
}

// holdersOf are the ids of the coordinators that have the key in Redis, sorted, with their mode.
func holdersOf(t testing.TB, c *coordinator.Coordinator, key string) []string {
	t.Helper()
	var ids []string
	for _, h := range inspect(t, c, key).Holders {
		id, _, ok := lease.ParseOwner(h.Owner)
		require.True(t, ok, h.Owner)
		ids = append(ids, id+" "+h.Mode.String())
	}
	slices.Sort(ids)
	return ids
}

func shares(p *reader) string { return p.id + " " + lease.Shared.String() }

// deadline is how long Redis will yet believe in the read lease of a process; ok says that it does.
func deadline(t testing.TB, s *redistest.Server, id, key string) (left time.Duration, ok bool) {
	t.Helper()
	for _, name := range s.Keys(t, "lock:~reader:"+id+":*lock:"+key) {
		if left := pttl(t, s, name); left >= 0 {
			return left, true
		}
	}
	return 0, false
}

// scriptNames learns by which name each script of a read/write lock is called: a downgrade has the arguments of a
// renewal. The server knows all of them then.
func scriptNames(t testing.TB, s *redistest.Server) map[lease.Op]string {
	t.Helper()
	proxy := faults.NewProxy(t, s.Addr())
	net := listen(proxy)
	store, err := redislease.New(at(proxy.Addr()), redislease.Config{TTL: 30 * time.Second})
	require.NoError(t, err)
	_, err = store.Open(t.Context(), "namer", func(lease.Event) {})
	require.NoError(t, err)
	key := redistest.Prefix(t) + "names"
	names := map[lease.Op]string{}
	for _, op := range []lease.Op{lease.Acquire, lease.Renew, lease.Downgrade, lease.Release} {
		r := lease.Request{Op: op, Key: key, Kind: lease.ReadWrite, Ticket: 1, Mode: lease.Exclusive, TTL: time.Minute}
		_, _ = send(store, r) // "done", of a release, is no error to mind
		named := net.all(both(about(key), faults.Is("evalsha")))
		require.NotEmpty(t, named)
		names[op] = named[len(named)-1].cmd[1]
	}
	require.NoError(t, store.Close(context.Background()))
	require.Len(t, slices.Compact(slices.Sorted(maps.Values(names))), 4, "four scripts")
	return names
}

// runs is a match for the commands that run the script of that name.
func runs(name string) func(cmd []string) bool {
	return func(cmd []string) bool { return len(cmd) > 1 && strings.EqualFold(cmd[0], "evalsha") && cmd[1] == name }
}

// renewedOnlyWhileHeld requires that no lease was renewed behind its release, in what passed so far.
func renewedOnlyWhileHeld(t testing.TB, w *wire) {
	t.Helper()
	released := map[string]bool{}
	for _, p := range w.all(func(cmd []string) bool { return verb(cmd) != "" }) {
		switch verb(p.cmd) {
		case "release":
			released[ownerIn(p.cmd)] = true
		case "renew":
			require.False(t, released[ownerIn(p.cmd)], "renewed after its release: %v", p.cmd)
		}
	}
}

// readersOf makes the settings of a reader that gives everything up at once.
func readersOf(addr string, ttl time.Duration) readerOrder { return readerOrder{Addr: addr, TTL: ttl} }

// mutexLocking is how to lock a mutex, in the form of a read/write lock.
func mutexLocking(m *coordinator.Mutex) locking {
	return func(ctx context.Context) (rwlock.Hold, error) {
		hold, err := m.Lock(ctx)
		return rwlock.Hold{Hold: hold}, err
	}
}

// letInAtOnce waits for the process that the last unlock, just now, let in: by a message, or by a look that was on its
// way in that very moment. A look by schedule would come a good part of a TTL later.
func letInAtOnce(t testing.TB, c *coordinator.Coordinator, waits <-chan outcome, ttl time.Duration) outcome {
	t.Helper()
	unlocked := time.Now()
	got := await(t, waits, hangs, "who waited")
	require.NoError(t, got.err)
	took := got.at.Sub(unlocked)
	require.True(t, stats(c).Handoffs == 1 || took < ttl/10, "not by a message, and after %v", took)
	return got
}
