package faulttest

import (
	"context"
	"log/slog"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/redis/rueidis"
	"github.com/stretchr/testify/require"

	"github.com/go-leasehold/leasehold/coordinator"
	"github.com/go-leasehold/leasehold/internal/childproc"
	"github.com/go-leasehold/leasehold/internal/redistest"
	"github.com/go-leasehold/leasehold/lease"
)

// hangs is how long a test waits for what has to happen: so long that only a hang reaches it.
const hangs = 20 * time.Second

// process returns a coordinator on the server (or proxy) at addr: what another process is to the lock. It is
// closed when the test ends, and must be able to hand everything over then.
func process(t testing.TB, addr string, opts ...coordinator.Option) *coordinator.Coordinator {
	t.Helper()
	c := cutOff(t, addr, opts...)
	t.Cleanup(func() { require.NoError(t, shut(c)) })
	return c
}

// cutOff is process for one that may have no server when the test ends.
func cutOff(t testing.TB, addr string, opts ...coordinator.Option) *coordinator.Coordinator {
	t.Helper()
	log := &childproc.Tail{}
	quiet := coordinator.WithLogger(slog.New(slog.NewTextHandler(log, nil)))
	c, err := coordinator.New(at(addr), append([]coordinator.Option{quiet}, opts...)...)
	require.NoError(t, err)
	t.Cleanup(func() {
		_ = shut(c) // whatever it can still hand over
		if t.Failed() && log.String() != "" {
			t.Logf("log of %s:\n%s", c.ID(), log)
		}
	})
	return c
}

func at(addr string) rueidis.ClientOption { return rueidis.ClientOption{InitAddress: []string{addr}} }

func shut(c *coordinator.Coordinator) error {
	ctx, cancel := context.WithTimeout(context.Background(), hangs/2)
	defer cancel()
	return c.Close(ctx)
}

// take locks, and fails the test where that does not work.
func take(t testing.TB, m *coordinator.Mutex) *coordinator.Hold {
	t.Helper()
	hold, err := m.TryLockFor(t.Context(), hangs) // a context with a limit would end the hold's with it
	require.NoError(t, err)
	return hold
}

// outcome is what a call to lock came to.
type outcome struct {
	hold *coordinator.Hold
	err  error
	at   time.Time // when it returned
}

// lockLater locks in a goroutine of its own.
func lockLater(ctx context.Context, m *coordinator.Mutex) <-chan outcome {
	done := make(chan outcome, 1)
	go func() { // ends with ctx at the latest
		hold, err := m.Lock(ctx)
		done <- outcome{hold, err, time.Now()}
	}()
	return done
}

// await receives, and fails the test if nothing comes within limit.
func await[T any](t testing.TB, from <-chan T, limit time.Duration, what string) T {
	t.Helper()
	timer := time.NewTimer(limit)
	defer timer.Stop()
	select {
	case v := <-from:
		return v
	case <-timer.C:
		require.FailNow(t, "too late", "%s: not within %v", what, limit)
		panic("unreachable")
	}
}

// within runs fn and fails the test if it has not returned in time.
func within(t testing.TB, limit time.Duration, what string, fn func()) {
	t.Helper()
	done := make(chan struct{}, 1)
	go func() { // stays only where the test fails for it
		fn()
		done <- struct{}{}
	}()
	await(t, done, limit, what)
}

// eventually waits until cond holds.
func eventually(t testing.TB, limit time.Duration, what string, cond func() bool) {
	t.Helper()
	for deadline := time.Now().Add(limit); !cond(); time.Sleep(2 * time.Millisecond) {
		if time.Now().After(deadline) {
			require.FailNow(t, "too late", "%s: not within %v", what, limit)
		}
	}
}

// inspect asks Redis who has a key. An answer has to come within a third of the lease, which may be missed on a
// machine that stalls, so it asks more than once.
func inspect(t testing.TB, c *coordinator.Coordinator, key string) lease.Info {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), hangs)
	defer cancel()
	info, err := c.Inspect(ctx, key)
	for tries := 0; err != nil && tries < 5; tries++ {
		info, err = c.Inspect(ctx, key)
	}
	require.NoError(t, err)
	return info
}

// holderOf returns the id of the coordinator that has the key in Redis, or "".
func holderOf(t testing.TB, c *coordinator.Coordinator, key string) string {
	t.Helper()
	holders := inspect(t, c, key).Holders
	if len(holders) == 0 {
		return ""
	}
	require.Len(t, holders, 1)
	id, _, ok := lease.ParseOwner(holders[0].Owner)
	require.True(t, ok, holders[0].Owner)
	return id
}

// awaitQueue waits until n processes are in Redis's queue of the key.
func awaitQueue(t testing.TB, c *coordinator.Coordinator, key string, n int) {
	t.Helper()
	eventually(t, hangs, "processes in the queue", func() bool { return len(inspect(t, c, key).Waiters) == n })
}

// localWaiters is how many calls wait for the key in the process.
func localWaiters(c *coordinator.Coordinator, key string) int {
	for _, k := range c.Snapshot().Keys {
		if k.Key == key {
			return len(k.Waiters)
		}
	}
	return 0
}

// pttl is the time to live of a name in Redis: negative where it has none, or is not there.
func pttl(t testing.TB, s *redistest.Server, name string) time.Duration {
	t.Helper()
	message := s.Do(t, "PTTL", name)
	ms, err := message.AsInt64()
	require.NoError(t, err)
	return time.Duration(ms) * time.Millisecond
}

// owners are the fields of a held mutex in Redis: the names of who has it.
func owners(t testing.TB, s *redistest.Server, key string) []string {
	t.Helper()
	message := s.Do(t, "HKEYS", "lock:"+key)
	names, err := message.AsStrSlice()
	require.NoError(t, err)
	return names
}

// leftovers are all names under the default prefix but the token counters.
func leftovers(t testing.TB, s *redistest.Server) []string {
	t.Helper()
	return slices.DeleteFunc(s.Keys(t, "lock:*"), func(name string) bool { return strings.HasPrefix(name, "lock:~token") })
}

// stats are the numbers of a coordinator so far.
func stats(c *coordinator.Coordinator) coordinator.Stats { return c.Snapshot().Stats }
