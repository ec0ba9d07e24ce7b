package coordinator

import (
	"context"
	"log/slog"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/go-leasehold/leasehold/lease"
)

// attempt is a call to lock that runs in a goroutine of its own.
type attempt struct {
	t    *testing.T
	hold *Hold
	err  error
	took time.Duration
	done atomic.Bool // the others may be read
}

// begin calls lock in a goroutine and returns when it holds, failed, or waits.
func begin(t *testing.T, lock func() (*Hold, error)) *attempt {
	t.Helper()
	a := &attempt{t: t}
	t.Cleanup(func() { runtime.KeepAlive(a) }) // a hold that is dropped is told as a mistake
	go func() {
		at := time.Now()
		a.hold, a.err = lock()
		a.took = time.Since(at)
		a.done.Store(true)
	}()
	synctest.Wait()
	return a
}

func lockOf(t *testing.T, m *Mutex) *attempt {
	t.Helper()
	return begin(t, func() (*Hold, error) { return m.Lock(t.Context()) })
}

func tryOf(t *testing.T, m *Mutex) *attempt {
	t.Helper()
	return begin(t, func() (*Hold, error) { return m.TryLock(t.Context()) })
}

// shared asks for a hold beside other readers.
func shared(t *testing.T, c *Coordinator, how call) *attempt {
	t.Helper()
	return rwOf(t, c, lease.Shared, how)
}

// acquire asks for a hold of any kind and mode by a handle that is made for this call.
func acquire(ctx context.Context, c *Coordinator, key string, kind lease.Kind, mode lease.Mode, conf *mutexConfig, how call) (*Hold, error) {
	return (&handle{c: c, key: key, kind: kind, conf: *conf}).acquire(ctx, mode, &how)
}

// rwOf asks for a hold of a read/write lock.
func rwOf(t *testing.T, c *Coordinator, mode lease.Mode, how call) *attempt {
	t.Helper()
	conf := &mutexConfig{ttl: c.conf.ttl}
	return begin(t, func() (*Hold, error) {
		return acquire(t.Context(), c, "k", lease.ReadWrite, mode, conf, how)
	})
}

// holds returns the hold that the call has by now.
func (a *attempt) holds() *Hold {
	a.t.Helper()
	synctest.Wait()
	require.True(a.t, a.done.Load(), "it still waits")
	require.NoError(a.t, a.err)
	return a.hold
}

// waits makes sure that the call is still waiting.
func (a *attempt) waits() {
	a.t.Helper()
	synctest.Wait()
	require.False(a.t, a.done.Load(), "it does not wait any more: %v", a.err)
}

// fails makes sure that the call has failed with that error.
func (a *attempt) fails(target error) *WaitError {
	a.t.Helper()
	synctest.Wait()
	require.True(a.t, a.done.Load(), "it still waits")
	require.ErrorIs(a.t, a.err, target)
	var w *WaitError
	require.ErrorAs(a.t, a.err, &w)
	return w
}

// unlock ends a hold that is safe.
func unlock(t *testing.T, h *Hold) {
	t.Helper()
	require.NoError(t, h.Unlock())
	synctest.Wait()
}

// endsIn makes sure that the hold's context ends in exactly d from now.
func endsIn(t *testing.T, h *Hold, d time.Duration, cause error) {
	t.Helper()
	ctx, begin := h.Context(), time.Now()
	time.Sleep(d - 1)
	synctest.Wait()
	require.NoError(t, ctx.Err(), "it ended before %v", d)
	require.True(t, h.Valid())
	time.Sleep(time.Nanosecond)
	synctest.Wait()
	require.ErrorIs(t, context.Cause(ctx), cause)
	require.False(t, h.Valid())
	require.Equal(t, d, time.Since(begin))
}

// hangingLogger returns a logger whose first line does not end before hang.
func hangingLogger(hang <-chan struct{}) *slog.Logger {
	return slog.New(slog.NewTextHandler(writerFunc(func(p []byte) (int, error) { <-hang; return len(p), nil }), nil))
}

type writerFunc func([]byte) (int, error)

func (w writerFunc) Write(p []byte) (int, error) { return w(p) }

// lines is where a logger writes.
type lines struct {
	mu sync.Mutex
	b  strings.Builder
}

func (l *lines) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(p)
}

func (l *lines) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.String()
}

// drop locks and forgets the hold.
func drop(t *testing.T, c *Coordinator) {
	t.Helper()
	_, err := c.Mutex("dropped").Lock(t.Context())
	require.NoError(t, err)
}

// collect collects garbage until something is seen. It is for the one thing
// that virtual time can't show.
func collect(t *testing.T, seen func() bool) {
	t.Helper()
	require.Eventually(t, func() bool { runtime.GC(); return seen() }, 10*time.Second, 20*time.Millisecond)
}

// holdsAfter grants the acquire that was just sent.
func (a *attempt) holdsAfter(s *script) *Hold {
	a.t.Helper()
	s.next(lease.Acquire).held(1, 100)
	return a.holds()
}

// waitOver makes sure that the call waits no longer.
func (a *attempt) waitOver() {
	a.t.Helper()
	synctest.Wait()
	require.True(a.t, a.done.Load(), "it still waits")
}
