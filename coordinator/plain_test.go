package coordinator

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/rueidis"
	"github.com/stretchr/testify/require"

	"github.com/go-leasehold/leasehold/internal/faults"
	"github.com/go-leasehold/leasehold/internal/redistest"
	"github.com/go-leasehold/leasehold/lease/memlease"
	"github.com/go-leasehold/leasehold/lease/redislease"
	"github.com/go-leasehold/leasehold/telemetry"
)

// plainHangs bounds what should come at once.
const plainHangs = 20 * time.Second

func TestPlainIsSharedAndClosed(t *testing.T) {
	s := redistest.Alone(t)
	c, err := New(s.Option())
	require.NoError(t, err)
	clients := make(chan rueidis.Client, 16)
	for range cap(clients) {
		go func() {
			plain, err := c.Plain()
			if err != nil {
				t.Error(err)
			}
			clients <- plain
		}()
	}
	plain := <-clients
	for range cap(clients) - 1 {
		require.Same(t, plain, <-clients)
	}
	get := plain.B().Get().Key("k").Build().Pin()
	require.True(t, rueidis.IsRedisNil(plain.Do(t.Context(), get).Error()))
	require.NoError(t, c.Close(t.Context()))
	require.Error(t, plain.Do(t.Context(), get).Error())
	_, err = c.Plain()
	require.ErrorIs(t, err, ErrClosed)
	_, err = c.Watch("k", func() {})
	require.ErrorIs(t, err, ErrClosed)
	_, err = c.Tracked(t.Context(), get)
	require.ErrorIs(t, err, ErrClosed)
}

// TestPlainWhileClosing: refused to who asks, and open for who has it, as long as a hold lasts.
func TestPlainWhileClosing(t *testing.T) {
	s := redistest.Alone(t)
	c, err := New(s.Option())
	require.NoError(t, err)
	plain, err := c.Plain()
	require.NoError(t, err)
	hold, err := c.Mutex("k").Lock(t.Context())
	require.NoError(t, err)
	closed := make(chan error, 1)
	ctx, cancel := context.WithTimeout(context.Background(), plainHangs)
	defer cancel()
	go func() { closed <- c.Close(ctx) }()
	require.Eventually(t, c.closing.Load, plainHangs, time.Millisecond)
	_, err = c.Plain()
	require.ErrorIs(t, err, ErrClosed)
	_, err = c.Watch("k", func() {})
	require.ErrorIs(t, err, ErrClosed)
	for range 10 {
		require.NoError(t, plain.Do(t.Context(), plain.B().Incr().Key("n").Build()).Error())
	}
	require.NoError(t, hold.Unlock())
	require.NoError(t, <-closed)
	require.Empty(t, s.Keys(t, "lock:k"), "it was handed over")
}

// TestCloseWhilePlainDials: into a network that has gone.
func TestCloseWhilePlainDials(t *testing.T) {
	s := redistest.Start(t)
	proxy := faults.NewProxy(t, s.Addr())
	option := s.Option()
	option.InitAddress = []string{proxy.Addr()}
	option.Dialer.Timeout, option.ConnWriteTimeout = time.Hour, time.Hour
	c, err := New(option)
	require.NoError(t, err)
	accepted := proxy.Accepted()
	proxy.BlackHole(true)
	failed := make(chan error, 1)
	go func() {
		_, err := c.Plain()
		failed <- err
	}()
	require.Eventually(t, func() bool { return proxy.Accepted() > accepted }, plainHangs, time.Millisecond)
	ctx, cancel := context.WithTimeout(context.Background(), 100*time.Millisecond)
	defer cancel()
	start := time.Now()
	_ = c.Close(ctx) // it says that it had to cut something, or not
	require.ErrorIs(t, <-failed, ErrClosed)
	require.Less(t, time.Since(start), plainHangs)
}

func TestPlainThatCannotDialIsUnavailable(t *testing.T) {
	s := redistest.Start(t)
	proxy := faults.NewProxy(t, s.Addr())
	option := s.Option()
	option.InitAddress = []string{proxy.Addr()}
	c, err := New(option)
	require.NoError(t, err)
	proxy.Refuse(true)
	_, err = c.Plain()
	require.ErrorIs(t, err, ErrUnavailable)
	require.ErrorContains(t, err, "the server is down")
	proxy.Refuse(false)
	_, err = c.Plain()
	require.NoError(t, err)
	require.NoError(t, c.Close(t.Context()))
}

func TestWatchTellsOfAChangeByPlain(t *testing.T) {
	s := redistest.Alone(t)
	c := redisProcess(t, s)
	plain, err := c.Plain()
	require.NoError(t, err)
	var calls atomic.Int64
	stop, err := c.Watch("k", func() { calls.Add(1) })
	require.NoError(t, err)
	set := func() {
		t.Helper()
		require.NoError(t, plain.Do(t.Context(), plain.B().Set().Key("k").Value("1").Build()).Error())
		_, err := c.Inspect(t.Context(), "k") // on the connection on which it would be told
		require.NoError(t, err)
	}
	set()
	get := plain.B().Get().Key("k").Build().Pin()
	results, err := c.Tracked(t.Context(), get, plain.B().Get().Key("other").Build())
	require.NoError(t, err)
	require.Len(t, results, 2)
	value, err := results[0].ToString()
	require.NoError(t, err)
	require.Equal(t, "1", value)
	require.True(t, rueidis.IsRedisNil(results[1].Error()))
	require.Zero(t, calls.Load(), "nobody had read it when it was changed")
	set()
	set()
	require.EqualValues(t, 1, calls.Load(), "one change is told of")
	stop()
	_, err = c.Tracked(t.Context(), get)
	require.NoError(t, err)
	set()
	require.EqualValues(t, 1, calls.Load())
}

func TestOtherStoresNeedRedis(t *testing.T) {
	server := redistest.Alone(t)
	refusing := func(change func(*rueidis.ClientOption)) *Coordinator {
		option := server.Option()
		change(&option)
		c, err := New(option, WithLogger(quiet))
		require.NoError(t, err)
		return c
	}
	memory, err := NewWithStore(memlease.NewServer().Store())
	require.NoError(t, err)
	for text, c := range map[string]*Coordinator{
		"memlease.Store":           memory,
		"speaks RESP2":             refusing(func(o *rueidis.ClientOption) { o.AlwaysRESP2 = true }),
		"ClientOption.DisableCach": refusing(func(o *rueidis.ClientOption) { o.DisableCache = true }),
	} {
		_, err := c.Watch("k", func() {})
		require.ErrorIs(t, err, ErrNeedsRedis)
		require.ErrorContains(t, err, text)
		_, err = c.Tracked(t.Context())
		require.ErrorIs(t, err, ErrNeedsRedis)
		require.ErrorContains(t, err, text)
		_, err = c.Plain()
		if c == memory {
			require.ErrorIs(t, err, ErrNeedsRedis)
			require.ErrorContains(t, err, text)
		} else {
			require.NoError(t, err)
		}
		require.NoError(t, c.Close(t.Context()))
	}
}

func TestBadArgumentsOfWatchAndTracked(t *testing.T) {
	c := redisProcess(t, redistest.Alone(t))
	plain, err := c.Plain()
	require.NoError(t, err)
	_, err = c.Watch("k", nil)
	require.ErrorIs(t, err, ErrInvalid)
	_, err = c.Tracked(nil) //nolint:staticcheck // what is tested is that it is refused
	require.ErrorIs(t, err, ErrInvalid)
	_, err = c.Tracked(t.Context(), plain.B().Get().Key("k").Build(), plain.B().Incr().Key("k").Build())
	require.ErrorIs(t, err, ErrInvalid)
	require.ErrorContains(t, err, "command 1 is not marked as a read")

	ctx, cancel := context.WithCancelCause(t.Context())
	cancel(errors.New("the test's"))
	_, err = c.Tracked(ctx, plain.B().Get().Key("k").Build())
	require.ErrorIs(t, err, ErrUnavailable)
	require.ErrorIs(t, err, context.Canceled)
}

func TestSettingsAreWhatWasAskedFor(t *testing.T) {
	server := redistest.Alone(t)
	store, err := redislease.New(server.Option(), redislease.Config{Prefix: "own:"})
	require.NoError(t, err)
	opts := []Option{
		WithKeyPrefix("mine:"), WithTTL(7 * time.Second), WithRetention(time.Second),
		WithUnavailableAfter(3 * time.Second), WithMaxWaiters(5), WithTelemetry(telemetry.Config{WaitAlarm: time.Minute, Roots: -1}),
	}
	byOption, err := New(server.Option(), opts...)
	require.NoError(t, err)
	byHand, err := NewWithStore(store, opts...)
	require.NoError(t, err)
	memory, err := NewWithStore(memlease.NewServer().Store(), opts...)
	require.NoError(t, err)
	byDefault, err := NewWithStore(memlease.NewServer().Store())
	require.NoError(t, err)
	for c, prefix := range map[*Coordinator]string{byOption: "mine:", byHand: "own:", memory: "mine:"} {
		settings := c.Settings()
		settings.Logger = nil
		require.Equal(t, Settings{
			KeyPrefix: prefix, TTL: 7 * time.Second, Retention: time.Second, UnavailableAfter: 3 * time.Second, MaxWaiters: 5,
			Telemetry: telemetry.Config{HoldAlarm: telemetry.DefaultHoldAlarm, WaitAlarm: time.Minute},
		}, settings)
		require.NoError(t, c.Close(t.Context()))
	}
	require.Equal(t, redislease.DefaultPrefix, byDefault.Settings().KeyPrefix)
	require.NoError(t, byDefault.Close(t.Context()))
}

// TestLoggerOfSettingsNeverBlocks: however long the user's handler takes.
func TestLoggerOfSettingsNeverBlocks(t *testing.T) {
	hang := make(chan struct{})
	c, err := NewWithStore(memlease.NewServer().Store(), WithLogger(hangingLogger(hang)))
	require.NoError(t, err)
	logger := c.Settings().Logger.With("a", 1).WithGroup("g")
	for range 1000 { // it hangs in the first
		logger.Warn("a line")
	}
	require.NoError(t, c.Close(t.Context()))
	logger.Warn("after the end")
	close(hang)
}
