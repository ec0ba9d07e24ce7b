package segment_test

import (
	"context"
	"strconv"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/go-leasehold/leasehold/coordinator"
	"github.com/go-leasehold/leasehold/coordinator/coordinatortest"
	"github.com/go-leasehold/leasehold/internal/redistest"
	"github.com/go-leasehold/leasehold/segment"
)

// lockPatience is how long a test waits for what must come. It is reached only where something hangs.
const lockPatience = 30 * time.Second

// lockProcess returns a coordinator on the server.
func lockProcess(t testing.TB, s *redistest.Server, opts ...coordinator.Option) *coordinator.Coordinator {
	t.Helper()
	c, err := coordinator.New(s.Option(), opts...)
	require.NoError(t, err)
	closesLocks(t, c)
	return c
}

func closesLocks(t testing.TB, c *coordinator.Coordinator) {
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), lockPatience)
		defer cancel()
		require.NoError(t, c.Close(ctx))
	})
}

// inMemory runs a test in virtual time, on a server in memory that answers at once.
func inMemory(t *testing.T, test func(t *testing.T, h *coordinatortest.Harness), opts ...coordinator.Option) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) { test(t, coordinatortest.New(t, opts...)) })
}

// note is the key that has the number of segments.
func note(name string) string { return "lock:~segments:" + name }

// keyIn returns a routing key of a segment.
func keyIn(l *segment.Locks, wanted int) string {
	for i := 0; ; i++ {
		if key := "user-" + strconv.Itoa(i); l.Segment(key) == wanted {
			return key
		}
	}
}

func take(t testing.TB, l *segment.Locks, routingKey string) *coordinator.Hold {
	t.Helper()
	h, err := l.Lock(t.Context(), routingKey)
	require.NoError(t, err)
	return h
}

func free(t testing.TB, holds ...*coordinator.Hold) {
	t.Helper()
	for _, h := range holds {
		require.NoError(t, h.Unlock())
	}
}

// uses are all the ways to lock.
func uses(l *segment.Locks) map[string]func(ctx context.Context) error {
	taken := func(h *coordinator.Hold, err error) error {
		if err == nil {
			err = h.Unlock()
		}
		return err
	}
	return map[string]func(ctx context.Context) error{
		"Lock":       func(ctx context.Context) error { return taken(l.Lock(ctx, "user")) },
		"TryLock":    func(ctx context.Context) error { return taken(l.TryLock(ctx, "user")) },
		"TryLockFor": func(ctx context.Context) error { return taken(l.TryLockFor(ctx, "user", time.Minute)) },
		"Do":         func(ctx context.Context) error { return l.Do(ctx, "user", func(context.Context) error { return nil }) },
		"LockAll": func(ctx context.Context) error {
			all, err := l.LockAll(ctx)
			if err == nil {
				err = all.Unlock()
			}
			return err
		},
	}
}

// soon waits until a condition holds.
func soon(t testing.TB, what string, condition func() bool) {
	t.Helper()
	for deadline := time.Now().Add(lockPatience); !condition(); time.Sleep(time.Millisecond) {
		require.True(t, time.Now().Before(deadline), "in vain: %s", what)
	}
}

// inside looks for those who are inside of the same thing at the same time.
type inside struct {
	mu     sync.Mutex
	of     map[string]int
	most   int
	visits int
}

// visit is a stay inside.
func (i *inside) visit(what string, stay func()) {
	i.mu.Lock()
	if i.of == nil {
		i.of = map[string]int{}
	}
	i.of[what]++
	i.visits++
	i.most = max(i.most, i.of[what])
	i.mu.Unlock()
	stay()
	i.mu.Lock()
	i.of[what]--
	i.mu.Unlock()
}

// about counts the commands of a proxy's clients that have a word in common.
type about struct {
	word string
	mu   sync.Mutex
	seen []string // the commands' names
}

func (a *about) count(cmd []string) {
	for _, word := range cmd[1:] {
		if strings.Contains(word, a.word) {
			a.mu.Lock()
			a.seen = append(a.seen, cmd[0])
			a.mu.Unlock()
			return
		}
	}
}

func (a *about) names() []string {
	a.mu.Lock()
	defer a.mu.Unlock()
	return append([]string(nil), a.seen...)
}

func (a *about) reset() {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.seen = nil
}
