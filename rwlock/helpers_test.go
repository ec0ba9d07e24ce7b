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

// patience is how long a test waits for what must come. It is reached only where something hangs.
const patience = 30 * time.Second

// process returns a coordinator on the server.
func process(t testing.TB, s *redistest.Server, opts ...coordinator.Option) *coordinator.Coordinator {
	t.Helper()
	c, err := coordinator.New(s.Option(), opts...)
	require.NoError(t, err)
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
		defer cancel()
		require.NoError(t, c.Close(ctx))
	})
	return c
}

// bubble runs a test in virtual time, on a server in memory that answers at once.
func bubble(t *testing.T, test func(t *testing.T, h *coordinatortest.Harness), opts ...coordinator.Option) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) { test(t, coordinatortest.New(t, opts...)) })
}

func read(t testing.TB, l *rwlock.Lock) rwlock.Hold {
	t.Helper()
	h, err := l.RLock(t.Context())
	require.NoError(t, err)
	return h
}

func write(t testing.TB, l *rwlock.Lock) rwlock.Hold {
	t.Helper()
	h, err := l.Lock(t.Context())
	require.NoError(t, err)
	return h
}

func unlock(t testing.TB, holds ...rwlock.Hold) {
	t.Helper()
	for _, h := range holds {
		require.NoError(t, h.Unlock())
	}
}

// passing returns a read hold that came in by the short way, without asking the key's actor. It is opened by two reads
// that are close upon each other.
func passing(t testing.TB, c *coordinator.Coordinator, l *rwlock.Lock) rwlock.Hold {
	t.Helper()
	for range 10_000 {
		before := c.Snapshot().Stats.Passed
		h := read(t, l)
		if c.Snapshot().Stats.Passed > before {
			return h
		}
		unlock(t, h)
	}
	require.Fail(t, "no read passes")
	return rwlock.Hold{}
}

// pending is a call that locks, in a goroutine of its own.
type pending struct {
	done   chan struct{}
	cancel context.CancelFunc
	hold   rwlock.Hold
	err    error
}

// begin begins a call; its context ends with the test.
func begin(t testing.TB, lock func(context.Context) (rwlock.Hold, error)) *pending {
	p := &pending{done: make(chan struct{})}
	var ctx context.Context
	ctx, p.cancel = context.WithCancel(t.Context())
	go func() {
		defer close(p.done)
		p.hold, p.err = lock(ctx)
	}()
	return p
}

// waits requires that the call still waits.
func (p *pending) waits(t testing.TB) {
	t.Helper()
	select {
	case <-p.done:
		require.Fail(t, "the call does not wait any more", "error: %v", p.err)
	default:
	}
}

// result waits for the call's end.
func (p *pending) result(t testing.TB) (rwlock.Hold, error) {
	t.Helper()
	timeout := time.NewTimer(patience)
	defer timeout.Stop()
	select {
	case <-p.done:
	case <-timeout.C:
		require.Fail(t, "the call still waits")
	}
	return p.hold, p.err
}

// granted waits for the call's hold.
func (p *pending) granted(t testing.TB) rwlock.Hold {
	t.Helper()
	h, err := p.result(t)
	require.NoError(t, err)
	return h
}

// eventually waits until a condition holds.
func eventually(t testing.TB, what string, condition func() bool) {
	t.Helper()
	for deadline := time.Now().Add(patience); !condition(); time.Sleep(time.Millisecond) {
		require.True(t, time.Now().Before(deadline), "in vain: %s", what)
	}
}

// inspect says who has the key and who waits, in the store.
func inspect(t testing.TB, c *coordinator.Coordinator, key string) lease.Info {
	t.Helper()
	info, err := c.Inspect(t.Context(), key)
	require.NoError(t, err)
	return info
}

// queued waits until that many processes wait in the store.
func queued(t testing.TB, c *coordinator.Coordinator, key string, n int) {
	t.Helper()
	eventually(t, "processes in the queue", func() bool { return len(inspect(t, c, key).Waiters) == n })
}

// keyOf returns what the process has of its one key.
func keyOf(t testing.TB, c *coordinator.Coordinator) coordinator.KeySnapshot {
	t.Helper()
	keys := c.Snapshot().Keys
	require.Len(t, keys, 1)
	return keys[0]
}

// waiters waits until that many calls wait in the process for its one key.
func waiters(t testing.TB, c *coordinator.Coordinator, n int) {
	t.Helper()
	eventually(t, "calls that wait", func() bool {
		keys := c.Snapshot().Keys
		return len(keys) == 1 && len(keys[0].Waiters) == n
	})
}

// wanted waits until the process has heard that another waits for its one key.
func wanted(t testing.TB, c *coordinator.Coordinator) {
	t.Helper()
	eventually(t, "a want", func() bool { return keyOf(t, c).Wanted })
}

// fields returns the lock as it stands in Redis.
func fields(t testing.TB, s *redistest.Server, key string) map[string]string {
	t.Helper()
	m := s.Do(t, "HGETALL", "lock:"+key)
	f, err := m.AsStrMap()
	require.NoError(t, err)
	return f
}

// sent is what the process has sent but for renewals, which come when they come.
func sent(c *coordinator.Coordinator) uint64 {
	s := c.Snapshot().Stats
	return s.Commands - s.Renewals
}
