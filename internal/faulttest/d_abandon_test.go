package faulttest

import (
	"context"
	"errors"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/go-leasehold/leasehold/coordinator"
	"github.com/go-leasehold/leasehold/internal/faults"
	"github.com/go-leasehold/leasehold/internal/redistest"
)

// errDone ends the contexts that own holds here.
var errDone = errors.New("the request is done")

// D4: the work ends without Unlock, or never ends, in a process that lives on. The end of what owns the hold frees
// the lock and ends renewal; a hung worker loses it at its MaxHold, and is told.
func TestRenewalFollowsTheWorkNotTheProcess(t *testing.T) {
	t.Parallel()
	for name, abandon := range map[string]func(t *testing.T, c *coordinator.Coordinator, key string) (*coordinator.Hold, error){
		"the work panics under Do":             panicUnderDo,
		"the work hangs under Do":              hangUnderDo,
		"the goroutine panics":                 panicInGoroutine,
		"the goroutine returns without Unlock": returnWithoutUnlock,
		"the goroutine hangs":                  hang,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			const ttl = 3 * time.Second
			server := redistest.Shared(t)
			key := redistest.Prefix(t) + "k"
			proxy := faults.NewProxy(t, server.Addr())
			net := listen(proxy)
			c := steady(t, proxy.Addr(), ours(ttl)...)
			other := steady(t, server.Addr(), ours(ttl)...)

			hold, why := abandon(t, c, key)
			// The process lives on, so without a release it would be renewed for ever.
			next := take(t, other.Mutex(key))
			if hold != nil {
				require.Greater(t, next.Token(), hold.Token())
				require.ErrorIs(t, context.Cause(hold.Context()), why)
				require.ErrorIs(t, hold.Err(), coordinator.ErrHoldExpired)
				require.ErrorIs(t, hold.Unlock(), coordinator.ErrHoldExpired)
			}
			require.True(t, next.Valid())
			eventually(t, hangs, "nothing left to do", func() bool { return len(c.Snapshot().Keys) == 0 })
			staysQuiet(t, net, ttl/2, takes, "a command for a lock that nobody works under")
			require.True(t, next.Valid(), "the late Unlock touched somebody else's hold")
			require.NoError(t, next.Unlock())
		})
	}
}

func panicUnderDo(t *testing.T, c *coordinator.Coordinator, key string) (*coordinator.Hold, error) {
	require.PanicsWithValue(t, "no luck", func() {
		_ = c.Mutex(key).Do(t.Context(), func(context.Context) error { panic("no luck") })
	})
	return nil, nil
}

// hangUnderDo leaves work behind that does not look at its context; Do's own context ends.
func hangUnderDo(t *testing.T, c *coordinator.Coordinator, key string) (*coordinator.Hold, error) {
	ctx, cancel := context.WithCancel(t.Context())
	working, stuck := make(chan struct{}), make(chan struct{})
	done := make(chan error, 1)
	go func() { // ends with stuck
		done <- c.Mutex(key).Do(ctx, func(context.Context) error {
			close(working)
			<-stuck
			return nil
		})
	}()
	await(t, working, hangs, "the work's begin")
	cancel()
	t.Cleanup(func() {
		close(stuck)
		err := await(t, done, hangs, "Do's end")
		require.ErrorIs(t, err, coordinator.ErrHoldExpired, "Do tells that the work was not protected to its end")
		require.ErrorIs(t, err, context.Canceled)
	})
	return nil, nil
}

func panicInGoroutine(t *testing.T, c *coordinator.Coordinator, key string) (*coordinator.Hold, error) {
	holds := make(chan *coordinator.Hold, 1)
	go func() {
		defer func() { _ = recover() }() // as a server does for each request
		ctx, cancel := context.WithCancelCause(context.Background())
		defer cancel(errDone)
		hold, err := c.Mutex(key, coordinator.EndWith(ctx)).Lock(context.Background())
		if err != nil {
			t.Error(err)
		}
		holds <- hold
		panic("no luck")
	}()
	return await(t, holds, hangs, "the hold"), errDone
}

func returnWithoutUnlock(t *testing.T, c *coordinator.Coordinator, key string) (*coordinator.Hold, error) {
	ctx, cancel := context.WithCancelCause(context.Background())
	hold := grab(t, c.Mutex(key, coordinator.EndWith(ctx)))
	cancel(errDone)
	return hold, errDone
}

func hang(t *testing.T, c *coordinator.Coordinator, key string) (*coordinator.Hold, error) {
	hold := grab(t, c.Mutex(key, coordinator.MaxHold(500*time.Millisecond)))
	require.NoError(t, hold.Extend(700*time.Millisecond), "it reports progress once, and then hangs")
	require.ErrorIs(t, ended(t, hold, hangs), coordinator.ErrHoldExpired)
	return hold, coordinator.ErrHoldExpired
}

// D4: a hold that nobody can unlock any more, since it was dropped, is told to the operator, with the place.
func TestForgottenHoldIsReported(t *testing.T) {
	t.Parallel()
	server := redistest.Shared(t)
	key := redistest.Prefix(t) + "k"
	log, logged := logTo()
	c := steady(t, server.Addr(), ours(time.Second, coordinator.WithDebug(), logged)...)
	forget(t, c, key)
	eventually(t, hangs, "the log line", func() bool {
		runtime.GC()
		return strings.Contains(log.String(), "garbage-collected")
	})
	require.Contains(t, log.String(), key)
	require.Contains(t, log.String(), "d_abandon_test.go")
	require.EqualValues(t, 1, stats(c).Abandoned)
	require.NoError(t, c.ForceUnlock(t.Context(), key), "the way out for an operator")
	eventually(t, hangs, "the lease given up", func() bool { return !exists(t, server, key) })
}

//go:noinline
func forget(t *testing.T, c *coordinator.Coordinator, key string) {
	hold, err := c.Mutex(key).Lock(t.Context())
	require.NoError(t, err)
	require.Positive(t, hold.Token())
}
