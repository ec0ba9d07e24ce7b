package coordinator

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math"
	"runtime"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/go-leasehold/leasehold/lease"
	"github.com/go-leasehold/leasehold/telemetry"
)

// Bad input is refused with an error that says the value and the limit, before
// anything is sent.

func TestOptionsHaveLimits(t *testing.T) {
	bad := map[string]struct {
		opt  Option
		says []string
	}{
		"TTL under":              {WithTTL(99 * time.Millisecond), []string{"WithTTL", "99ms", "100ms", "24h"}},
		"TTL zero":               {WithTTL(0), []string{"WithTTL", "0s", "100ms"}},
		"TTL negative":           {WithTTL(-1), []string{"WithTTL", "-1ns", "100ms"}},
		"TTL over":               {WithTTL(25 * time.Hour), []string{"WithTTL", "25h", "24h"}},
		"TTL far over":           {WithTTL(math.MaxInt64), []string{"WithTTL", "24h"}},
		"retention":              {WithRetention(-time.Second), []string{"WithRetention", "-1s"}},
		"budget zero":            {WithHandoff(0, time.Second), []string{"WithHandoff", "0", "1", "65536"}},
		"budget over":            {WithHandoff(65537, time.Second), []string{"WithHandoff", "65537", "65536"}},
		"slice":                  {WithHandoff(1, -1), []string{"WithHandoff", "-1ns"}},
		"logger":                 {WithLogger(nil), []string{"WithLogger", "nil"}},
		"waiters":                {WithMaxWaiters(-1), []string{"WithMaxWaiters", "-1"}},
		"unavailable":            {WithUnavailableAfter(-1), []string{"WithUnavailableAfter", "-1ns"}},
		"token retention":        {WithTokenRetention(999 * time.Millisecond), []string{"WithTokenRetention", "999ms"}},
		"prefix with open brace": {WithKeyPrefix("a{b"), []string{"WithKeyPrefix", "a{b"}},
		"prefix with end brace":  {WithKeyPrefix("a}b"), []string{"WithKeyPrefix", "a}b"}},
		"prefix with empty tag":  {WithKeyPrefix("a{}b"), []string{"WithKeyPrefix", "a{}b"}},
		"prefix turned round":    {WithKeyPrefix("}a{"), []string{"WithKeyPrefix", "}a{"}},
		"prefix with two tags":   {WithKeyPrefix("{a}{b}"), []string{"WithKeyPrefix", "{a}{b}"}},
		"trace URL":              {WithTelemetry(telemetry.Config{TraceURL: "http://t/"}), []string{"WithTelemetry", "http://t/", "{trace}"}},
	}
	for name, b := range bad {
		t.Run(name, func(t *testing.T) {
			_, err := configure([]Option{b.opt})
			require.ErrorIs(t, err, ErrInvalid)
			for _, s := range b.says {
				require.ErrorContains(t, err, s)
			}
			opened := &neverOpened{}
			_, err = NewWithStore(opened, b.opt)
			require.ErrorIs(t, err, ErrInvalid)
		})
	}
	_, err := configure([]Option{bad["trace URL"].opt})
	require.ErrorIs(t, err, telemetry.ErrConfig)
	for name, opt := range map[string]Option{
		"TTL at the floor": WithTTL(MinTTL), "TTL at the ceiling": func(c *config) { c.ttl, c.tokenRetention = MaxTTL, MaxTTL },
		"no retention": WithRetention(0), "budget 1": WithHandoff(1, 0), "budget 65536": WithHandoff(65536, 0),
		"no limit of waiters": WithMaxWaiters(0), "waits for ever": WithUnavailableAfter(0),
		"prefix": WithKeyPrefix(""), "prefix with a tag": WithKeyPrefix("a{b}c"), "huge": WithRetention(math.MaxInt64),
	} {
		t.Run(name, func(t *testing.T) {
			_, err := configure([]Option{opt})
			require.NoError(t, err)
		})
	}
}

// neverOpened panics when it is used.
type neverOpened struct{ lease.Store }

func TestCallsHaveLimits(t *testing.T) {
	scripted(t, func(t *testing.T, s *script, c *Coordinator) {
		ctx := t.Context()
		calls := map[string]func() error{
			"empty key":           func() error { _, err := c.Mutex("").Lock(ctx); return err },
			"65537":               func() error { _, err := c.Mutex(strings.Repeat("x", MaxKey+1)).TryLock(ctx); return err },
			"TTL(99ms)":           func() error { _, err := c.Mutex("k", TTL(99*time.Millisecond)).Lock(ctx); return err },
			"TTL(24h0m0.":         func() error { _, err := c.Mutex("k", TTL(MaxTTL+1)).Lock(ctx); return err },
			"MaxHold(0s)":         func() error { _, err := c.Mutex("k", MaxHold(0)).Lock(ctx); return err },
			"MaxHold(-1ns)":       func() error { _, err := c.Mutex("k", MaxHold(-1)).TryLock(ctx); return err },
			"EndWith(nil)":        func() error { return c.Mutex("k", EndWith(nil)).Do(ctx, nil) }, //nolint:staticcheck // tested
			"context is nil":      func() error { _, err := c.Mutex("k").Lock(nil); return err },   //nolint:staticcheck // tested
			"TryLockFor(-1ns)":    func() error { _, err := c.Mutex("k").TryLockFor(ctx, -1); return err },
			"without a key":       func() error { _, err := c.LockAll(ctx); return err },
			"the key is empty":    func() error { _, err := c.LockAll(ctx, "a", ""); return err },
			"inspect: empty":      func() error { _, err := c.Inspect(ctx, ""); return err },
			"force: empty":        func() error { return c.ForceUnlock(ctx, "") },
			"inspect: nil":        func() error { _, err := c.Inspect(nil, "k"); return err }, //nolint:staticcheck // tested
			"force: nil":          func() error { return c.ForceUnlock(nil, "k") },            //nolint:staticcheck // tested
			"check: nil":          func() error { _, err := c.Check(nil); return err },        //nolint:staticcheck // tested
			"LockAll: nil":        func() error { _, err := c.LockAll(nil, "k"); return err }, //nolint:staticcheck // tested
			"the first one tells": func() error { _, err := c.Mutex("k", MaxHold(-7), TTL(1)).Lock(ctx); return err },
		}
		says := map[string]string{
			"empty key": "the key is empty", "inspect: empty": "empty", "force: empty": "empty",
			"inspect: nil": "nil", "force: nil": "nil", "check: nil": "nil", "LockAll: nil": "nil", "the first one tells": "-7ns",
		}
		for name, f := range calls {
			err := f()
			require.ErrorIs(t, err, ErrInvalid, name)
			if text, ok := says[name]; ok {
				name = text
			}
			require.ErrorContains(t, err, name)
			require.Less(t, len(err.Error()), 1000, "a long key is not told in full")
		}
		s.quiet(0)
		require.Zero(t, c.live.Load())
		for _, key := range []string{"x", "\x00", strings.Repeat("x", MaxKey), "a b:{c}\xff"} {
			unlock(t, lockOf(t, c.Mutex(key)).holdsAfter(s))
			require.Equal(t, key, s.after(50*time.Millisecond, lease.Release).Key)
		}
	})
}

func TestStoreThatDoesNotOpen(t *testing.T) {
	scripted(t, func(t *testing.T, s *script, _ *Coordinator) {
		c, err := NewWithStore(&unopened{})
		require.Nil(t, c)
		require.ErrorIs(t, err, ErrUnavailable)
		require.ErrorIs(t, err, errStore)
	})
}

type unopened struct{ lease.Store }

func (*unopened) Open(context.Context, string, lease.Sink) (lease.Capabilities, error) {
	return lease.Capabilities{}, errStore
}

func (*unopened) Close(context.Context) error { return nil }

func TestEventsDuringOpenAreIgnored(t *testing.T) {
	scripted(t, func(t *testing.T, s *script, _ *Coordinator) {
		early := &early{script: s}
		c, err := NewWithStore(early)
		require.NoError(t, err)
		s.quiet(time.Second)
		require.NoError(t, c.Close(t.Context()))
		s.closed = false
	})
}

type early struct{ *script }

func (e *early) Open(_ context.Context, _ string, sink lease.Sink) (lease.Capabilities, error) {
	for _, typ := range []lease.EventType{lease.Granted, lease.Wanted, lease.Changed, lease.ChangedAll, lease.Connected} {
		sink(lease.Event{Type: typ, Key: "k", Ticket: 1})
	}
	return lease.Capabilities{}, nil
}

// The errors of a wait.

func TestWaitErrorIsOursAndTheContexts(t *testing.T) {
	cause := errors.New("the request was cancelled")
	ends := map[string]struct {
		end func(context.Context) (context.Context, context.CancelFunc)
		is  []error
	}{
		"cancelled": {context.WithCancel, []error{context.Canceled}},
		"deadline": {func(ctx context.Context) (context.Context, context.CancelFunc) {
			return context.WithTimeout(ctx, time.Second)
		}, []error{context.DeadlineExceeded}},
		"cause": {func(ctx context.Context) (context.Context, context.CancelFunc) {
			ctx, cancel := context.WithCancelCause(ctx)
			return ctx, func() { cancel(cause) }
		}, []error{context.Canceled, cause}},
		"deadline with cause": {func(ctx context.Context) (context.Context, context.CancelFunc) {
			return context.WithTimeoutCause(ctx, time.Second, cause)
		}, []error{context.DeadlineExceeded, cause}},
	}
	for name, e := range ends {
		t.Run(name, func(t *testing.T) {
			scripted(t, func(t *testing.T, s *script, c *Coordinator) {
				ctx, cancel := e.end(t.Context())
				defer cancel()
				a := begin(t, func() (*Hold, error) { return c.Mutex("k").Lock(ctx) })
				s.next(lease.Acquire).waits()
				if _, timed := ctx.Deadline(); timed {
					time.Sleep(time.Second)
				} else {
					cancel()
				}
				w := a.fails(ErrNotAcquired)
				for _, is := range e.is {
					require.ErrorIs(t, a.err, is)
				}
				require.NotErrorIs(t, a.err, ErrUnavailable)
				require.Equal(t, "k", w.Key)
				require.Equal(t, "other:1", w.Holder)
				require.Equal(t, a.took, w.Waited)
			})
		})
	}
	long := &WaitError{Key: strings.Repeat("x", 1000), Err: ErrNotAcquired}
	require.Less(t, len(long.Error()), 300)
	require.Contains(t, long.Error(), "1000 bytes")
}

// A hold that is dropped.

func TestAbandonedHoldIsLogged(t *testing.T) {
	for _, debug := range []bool{false, true} {
		t.Run(fmt.Sprintf("debug=%v", debug), func(t *testing.T) {
			var log lines
			opts := []Option{WithLogger(slog.New(slog.NewTextHandler(&log, nil)))}
			if debug {
				opts = append(opts, WithDebug())
			}
			s := &script{t: t, flying: make(map[string]*sent), arrived: make(chan struct{}, 1), obeying: true}
			c, err := NewWithStore(s, opts...)
			require.NoError(t, err)
			drop(t, c)
			collect(t, func() bool { return strings.Contains(log.String(), "garbage-collected") })
			require.Contains(t, log.String(), "dropped")
			if debug {
				require.Contains(t, log.String(), "coordinator.drop")
			}
			require.EqualValues(t, 1, c.Snapshot().Stats.Abandoned)
			ctx, cancel := context.WithTimeout(t.Context(), time.Millisecond)
			defer cancel()
			require.NoError(t, c.Close(ctx))
		})
	}
}

func TestAbandonedHoldInABubbleIsLogged(t *testing.T) {
	var log lines
	scripted(t, func(t *testing.T, s *script, c *Coordinator) {
		s.obey()
		drop(t, c)
		for range 1000 { // its clean-up runs on the runtime's own goroutine
			time.Sleep(watchEvery)
			if runtime.GC(); c.Snapshot().Stats.Abandoned > 0 {
				break
			}
		}
		time.Sleep(watchEvery)
		synctest.Wait()
		require.Contains(t, log.String(), "garbage-collected")
	}, WithLogger(slog.New(slog.NewTextHandler(&log, nil))))
}

// TestCallsBehindOthersSendNothing: whoever comes while others wait for a lease that serves it as well waits with them, in
// order, whether that is asked for yet or stands in the queue, and is asked for again when they have gone.
func TestCallsBehindOthersSendNothing(t *testing.T) {
	scripted(t, func(t *testing.T, s *script, c *Coordinator) {
		m := c.Mutex("k")
		first, leave := context.WithCancel(t.Context())
		a := begin(t, func() (*Hold, error) { return m.Lock(first) })
		q := s.next(lease.Acquire)
		b := lockOf(t, m)
		s.quiet(0)
		q.waits()
		d := lockOf(t, m)
		s.quiet(0)
		try := tryOf(t, m) // is answered: others wait
		try.fails(ErrNotAcquired)
		leave()
		a.fails(context.Canceled)
		s.tell(lease.Event{Type: lease.Granted, Key: "k", Ticket: q.Ticket, First: 1001, Last: 1100})
		d.waits()
		unlock(t, b.holds())
		unlock(t, d.holds())
	})
	scripted(t, func(t *testing.T, s *script, c *Coordinator) {
		try := tryOf(t, c.Mutex("k"))
		q := s.next(lease.Acquire)
		require.True(t, q.Ask)
		q.waits()
		a := lockOf(t, c.Mutex("k")) // the ticket only asks for an answer: it has to stand in the queue
		s.emit(lease.InUse, "k", q.Ticket)
		try.fails(ErrNotAcquired)
		a.waits()
		s.tell(lease.Event{Type: lease.Granted, Key: "k", Ticket: q.Ticket, First: 1001, Last: 1100})
		unlock(t, a.holds())
	})
}
