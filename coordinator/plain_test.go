package coordinator

import (
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/rueidis"
	"github.com/stretchr/testify/require"

	"github.com/go-leasehold/leasehold/internal/redistest"
	"github.com/go-leasehold/leasehold/lease/memlease"
)

func TestWatchTellsOfAChangeByPlain(t *testing.T) {
	s := redistest.Start(t)
	c := redisProcess(t, s)
	plain, err := c.Plain()
	require.NoError(t, err)
	var calls atomic.Int64
	called := make(chan struct{}, 10)
	stop, err := c.Watch("k", func() { calls.Add(1); called <- struct{}{} })
	require.NoError(t, err)
	defer stop()
	set := func() {
		require.NoError(t, plain.Do(t.Context(), plain.B().Set().Key("k").Value("1").Build()).Error())
	}
	set()
	results, err := c.Tracked(t.Context(), plain.B().Get().Key("k").Build(), plain.B().Get().Key("other").Build())
	require.NoError(t, err)
	require.Len(t, results, 2)
	value, err := results[0].ToString()
	require.NoError(t, err)
	require.Equal(t, "1", value)
	require.True(t, rueidis.IsRedisNil(results[1].Error()))
	require.Zero(t, calls.Load(), "nobody had read it when it was changed")
	set()
	select {
	case <-called:
	case <-time.After(10 * time.Second):
		require.Fail(t, "not told")
	}
	set()
	require.EqualValues(t, 1, calls.Load(), "one change is told of")
}

func TestOtherStoresNeedRedis(t *testing.T) {
	c, err := NewWithStore(memlease.NewServer().Store())
	require.NoError(t, err)
	defer func() { require.NoError(t, c.Close(t.Context())) }()
	_, err = c.Plain()
	require.ErrorIs(t, err, ErrNeedsRedis)
	require.ErrorContains(t, err, "memlease")
	_, err = c.Watch("k", func() {})
	require.ErrorIs(t, err, ErrNeedsRedis)
	_, err = c.Tracked(t.Context())
	require.ErrorIs(t, err, ErrNeedsRedis)
}
