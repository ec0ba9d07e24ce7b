package faults

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/go-leasehold/leasehold/internal/redistest"
)

func TestClockOfAServerIsStepped(t *testing.T) { //nolint:paralleltest // it sets the environment
	clock := NewClock(t)
	server := redistest.Start(t)
	off := func() time.Duration {
		message := server.Do(t, "TIME")
		values, err := message.AsStrSlice()
		require.NoError(t, err)
		seconds, err := time.ParseDuration(values[0] + "s")
		require.NoError(t, err)
		return time.Until(time.Unix(int64(seconds/time.Second), 0))
	}
	require.InDelta(t, 0, off().Seconds(), 5)
	server.Do(t, "SET", "k", "v", "PX", "60000")
	clock.Step(t, -time.Hour)
	require.InDelta(t, -3600, off().Seconds(), 30)
	message := server.Do(t, "PTTL", "k")
	left, err := message.AsInt64()
	require.NoError(t, err)
	require.Greater(t, left, int64(3600_000))
	clock.Step(t, time.Hour+90*time.Second)
	require.InDelta(t, 90, off().Seconds(), 30)
	message = server.Do(t, "EXISTS", "k")
	left, err = message.AsInt64()
	require.NoError(t, err)
	require.Zero(t, left)
}
