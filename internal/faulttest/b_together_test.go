package faulttest

import (
	"context"
	"errors"
	"log/slog"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/go-leasehold/leasehold/coordinator"
	"github.com/go-leasehold/leasehold/internal/faults"
	"github.com/go-leasehold/leasehold/internal/redistest"
)

// B7: a lease is lost, unlocked twice, closed under its waiters, who are cancelled, all in the same instant.
func TestLossUnlockCloseAndCancellationAtOnceNeverHang(t *testing.T) {
	t.Parallel()
	s := redistest.Start(t)
	operator := process(t, s.Addr())
	for range rounds(60, 10_000) {
		allAtOnce(t, s, operator)
	}
	require.Empty(t, leftovers(t, s))
}

func allAtOnce(t *testing.T, s *redistest.Server, operator *coordinator.Coordinator) {
	t.Helper()
	c := cutOff(t, s.Addr(), coordinator.WithRetention(0))
	hold := take(t, c.Mutex("k"))
	held := hold.Context()
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	waiters := []<-chan error{comeAndGo(ctx, c, "k"), comeAndGo(ctx, c, "k")}
	eventually(t, hangs, "both wait", func() bool { return localWaiters(c, "k") == 2 })

	var unlocks [2]error
	var together sync.WaitGroup
	start := make(chan struct{})
	for _, act := range []func(){
		func() { unlocks[0] = hold.Unlock() },
		func() { unlocks[1] = hold.Unlock() },
		func() {
			if err := operator.ForceUnlock(context.Background(), "k"); err != nil {
				t.Error(err)
			}
		},
		func() {
			if err := shut(c); err != nil {
				t.Error(err)
			}
		},
		cancel,
	} {
		together.Go(func() {
			<-start
			act()
		})
	}
	close(start)
	within(t, hangs, "every call returns", together.Wait)
	for _, w := range waiters {
		err := await(t, w, hangs, "the waiter")
		require.True(t, oneOf(err, nil, context.Canceled, coordinator.ErrClosed, coordinator.ErrLeaseLost), "%v", err)
	}
	requireOneUnlock(t, unlocks[:])
	require.Error(t, context.Cause(held))
	require.NoError(t, shut(c), "closing again is harmless")
	_, err := c.Mutex("k").TryLock(t.Context())
	require.ErrorIs(t, err, coordinator.ErrClosed)
}

// comeAndGo locks and unlocks at once, in a goroutine of its own, and tells what the last of both said.
func comeAndGo(ctx context.Context, c *coordinator.Coordinator, key string) <-chan error {
	done := make(chan error, 1)
	go func() { // ends with ctx at the latest
		hold, err := c.Mutex(key).Lock(ctx)
		if err == nil {
			err = hold.Unlock()
		}
		done <- err
	}()
	return done
}

// oneOf says whether an error is one of some kinds.
func oneOf(err error, kinds ...error) bool {
	return slices.ContainsFunc(kinds, func(kind error) bool { return errors.Is(err, kind) })
}

// requireOneUnlock wants one end of the hold: at most one Unlock that is content, and the other reasons typed.
func requireOneUnlock(t *testing.T, errs []error) {
	t.Helper()
	content := 0
	for _, err := range errs {
		if err == nil {
			content++
			continue
		}
		require.True(t, oneOf(err, coordinator.ErrNotHeld, coordinator.ErrLeaseLost, coordinator.ErrClosed), "%v", err)
	}
	require.LessOrEqual(t, content, 1)
}

// stuckLogger is a logger that never returns, from the moment on at which it is armed.
type stuckLogger struct {
	slog.Handler
	armed   chan struct{}
	release chan struct{}
	stuck   chan struct{} // has a value for each call that is stuck
}

func newStuckLogger(t *testing.T) *stuckLogger {
	t.Helper()
	l := &stuckLogger{
		Handler: slog.DiscardHandler, armed: make(chan struct{}), release: make(chan struct{}), stuck: make(chan struct{}, 1000),
	}
	t.Cleanup(func() { close(l.release) })
	return l
}

func (l *stuckLogger) Enabled(context.Context, slog.Level) bool { return true }
func (l *stuckLogger) WithAttrs([]slog.Attr) slog.Handler       { return l }
func (l *stuckLogger) WithGroup(string) slog.Handler            { return l }

func (l *stuckLogger) Handle(context.Context, slog.Record) error {
	select {
	case <-l.armed:
	default:
		return nil
	}
	l.stuck <- struct{}{}
	<-l.release
	return nil
}

// userCodeThatSleeps returns a coordinator behind a proxy whose user's callbacks, of loss and of logging, never
// return, and the channel that tells of a logger that is stuck.
func userCodeThatSleeps(t *testing.T, s *redistest.Server) (*coordinator.Coordinator, *faults.Proxy, *stuckLogger) {
	t.Helper()
	proxy := faults.NewProxy(t, s.Addr())
	logger := newStuckLogger(t)
	c, err := coordinator.New(at(proxy.Addr()), coordinator.WithLogger(slog.New(logger)))
	require.NoError(t, err)
	hold := take(t, c.Mutex("lost"))
	context.AfterFunc(hold.Context(), func() { <-logger.release })
	close(logger.armed)
	require.NoError(t, process(t, s.Addr()).ForceUnlock(t.Context(), "lost"))
	await(t, hold.Context().Done(), hangs, "the signal")
	require.ErrorIs(t, hold.Unlock(), coordinator.ErrLeaseLost)
	return c, proxy, logger
}

// B7: a callback and a logger that sleep for ever hold nobody up: not other keys, not the way back to the server.
func TestUserCodeThatNeverReturnsDelaysNobody(t *testing.T) {
	t.Parallel()
	s := redistest.Start(t)
	c, proxy, logger := userCodeThatSleeps(t, s)
	await(t, logger.stuck, hangs, "the line about the loss")
	within(t, soon, "the key itself goes on", func() { lockOnce(t, c, "lost") })
	within(t, soon, "other keys go on", func() { lockOnce(t, c, "other") })
	begin := time.Now()
	proxy.Reset()
	within(t, soon, "the way back", func() { lockOnce(t, c, "behind the reset") })
	require.Less(t, time.Since(begin), soon)
	hearsOfGrants(t, s, c)
	closesInTime(t, c)
}

// hearsOfGrants wants a key that another process passes on to come in by message. A look may be first, so there are
// some rounds.
func hearsOfGrants(t *testing.T, s *redistest.Server, c *coordinator.Coordinator) {
	t.Helper()
	rival := process(t, s.Addr(), coordinator.WithRetention(0))
	before := stats(c).Handoffs
	for range 5 {
		hold := take(t, rival.Mutex("contended"))
		waiting := lockLater(t.Context(), c.Mutex("contended"))
		awaitQueue(t, rival, "contended", 1)
		require.NoError(t, hold.Unlock())
		got := await(t, waiting, soon, "the grant")
		require.NoError(t, got.err)
		require.NoError(t, got.hold.Unlock())
	}
	require.Greater(t, stats(c).Handoffs, before, "no grant came in by message")
}

// lockOnce may run in a goroutine of its own.
func lockOnce(t *testing.T, c *coordinator.Coordinator, key string) {
	hold, err := c.Mutex(key).Lock(context.Background())
	if err == nil {
		err = hold.Unlock()
	}
	if err != nil {
		t.Error(err)
	}
}

// closesInTime wants Close to return, with the user's code still asleep.
func closesInTime(t *testing.T, c *coordinator.Coordinator) {
	t.Helper()
	within(t, soon, "Close returns", func() {
		ctx, cancel := context.WithTimeout(context.Background(), time.Second)
		defer cancel()
		_ = c.Close(ctx) // that it could not write its last lines may be said
	})
}
