package faults

import (
	"errors"
	"io"
	"net"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/redis/rueidis"
	"github.com/stretchr/testify/require"

	"github.com/go-leasehold/leasehold/internal/redistest"
)

func TestProxyPassesEverythingUnchanged(t *testing.T) {
	t.Parallel()
	_, client := behind(t)
	key := redistest.Prefix(t) + "k"
	value := strings.Repeat("\r\n*$>", 100_000)
	require.NoError(t, do(t, client, "SET", key, value))
	require.Equal(t, value, get(t, key))
	text, err := client.Do(t.Context(), client.B().Get().Key(key).Build()).ToString()
	require.NoError(t, err)
	require.Equal(t, value, text)
}

func TestDelayIsAddedBothWaysAndIsNoLimitOnThroughput(t *testing.T) {
	t.Parallel()
	p, client := behind(t)
	require.NoError(t, do(t, client, "PING"))
	p.SetDelay(40*time.Millisecond, 20*time.Millisecond)
	start := time.Now()
	batch := make(rueidis.Commands, 500)
	for i := range batch {
		batch[i] = client.B().Ping().Build()
	}
	for _, r := range client.DoMulti(t.Context(), batch...) {
		require.NoError(t, r.Error())
	}
	require.GreaterOrEqual(t, time.Since(start), 60*time.Millisecond)
	require.Less(t, time.Since(start), 500*20*time.Millisecond, "one delay after another")
}

func TestJitterKeepsTheOrder(t *testing.T) {
	t.Parallel()
	p, client := behind(t)
	key := redistest.Prefix(t) + "k"
	p.SetDelay(time.Millisecond, time.Millisecond)
	p.SetJitter(5*time.Millisecond, 5*time.Millisecond)
	batch := make(rueidis.Commands, 200)
	for i := range batch {
		batch[i] = client.B().Rpush().Key(key).Element(strconv.Itoa(i)).Build()
	}
	start := time.Now()
	for i, r := range client.DoMulti(t.Context(), batch...) {
		n, err := r.AsInt64()
		require.NoError(t, err)
		require.EqualValues(t, i+1, n)
	}
	require.Greater(t, time.Since(start), 4*time.Millisecond, "of 200 messages one is late by more than that")
}

func TestThrottleBoundsTheBytes(t *testing.T) {
	t.Parallel()
	p, client := behind(t)
	key := redistest.Prefix(t) + "k"
	p.Throttle(100_000, 0)
	start := time.Now()
	require.NoError(t, do(t, client, "SET", key, strings.Repeat("x", 20_000)))
	require.Greater(t, time.Since(start), 200*time.Millisecond)
	p.Throttle(0, 100_000)
	start = time.Now()
	text, err := client.Do(t.Context(), client.B().Get().Key(key).Build()).ToString()
	require.NoError(t, err)
	require.Len(t, text, 20_000)
	require.Greater(t, time.Since(start), 200*time.Millisecond)
}

func TestHealEndsEverythingButHooks(t *testing.T) {
	t.Parallel()
	p, client := behind(t)
	require.NoError(t, do(t, client, "PING"))
	p.SetDelay(time.Hour, time.Hour)
	p.SetJitter(time.Hour, time.Hour)
	p.Throttle(1, 1)
	p.HalfOpen(true)
	p.Refuse(true)
	p.Swallow(Down, true)
	p.Hold(Up, true)
	p.Heal()
	require.NoError(t, do(t, client, "PING"))
	conn, err := net.Dial("tcp", p.Addr())
	require.NoError(t, err)
	require.NoError(t, conn.Close())
}

func TestBlackHoleHoldsUntilTheNetworkIsBack(t *testing.T) {
	t.Parallel()
	p, client := behind(t)
	key := redistest.Prefix(t) + "k"
	p.BlackHole(true)
	notWithin(t, client, "SET", key, "v")
	require.Empty(t, get(t, key))
	require.Equal(t, 1, p.Connections())
	p.BlackHole(false)
	require.NoError(t, do(t, client, "PING"))
	require.Equal(t, "v", get(t, key), "the command came late")
	require.Equal(t, 1, p.Accepted())
}

func TestHoldDownLetsTheServerRunTheCommand(t *testing.T) {
	t.Parallel()
	p, client := behind(t)
	key := redistest.Prefix(t) + "k"
	p.Hold(Down, true)
	notWithin(t, client, "SET", key, "v")
	require.Eventually(t, func() bool { return get(t, key) == "v" }, ExpectLimit, time.Millisecond)
	p.Hold(Down, false)
	require.NoError(t, do(t, client, "PING"))
}

func TestSwallowLosesForGoodAndCutsWhatLostSomething(t *testing.T) {
	t.Parallel()
	p, client := behind(t)
	quiet := through(t, p)
	key := redistest.Prefix(t) + "k"
	p.Swallow(Up, true)
	notWithin(t, client, "SET", key, "v")
	p.Swallow(Up, false)
	require.Eventually(t, func() bool { return do(t, client, "PING") == nil }, ExpectLimit, time.Millisecond)
	require.Empty(t, get(t, key), "it never came")
	require.NoError(t, do(t, quiet, "PING"))
	require.Equal(t, 3, p.Accepted(), "only the connection with a hole was replaced")
}

func TestHalfOpenAcceptsAndNeverAnswers(t *testing.T) {
	t.Parallel()
	p, client := behind(t)
	p.HalfOpen(true)
	conn, err := net.Dial("tcp", p.Addr())
	require.NoError(t, err)
	defer conn.Close() // it is cut already
	_, err = conn.Write([]byte("PING\r\n"))
	require.NoError(t, err)
	require.NoError(t, conn.SetReadDeadline(time.Now().Add(50*time.Millisecond)))
	_, err = conn.Read(make([]byte, 1))
	require.ErrorContains(t, err, "timeout")
	require.NoError(t, do(t, client, "PING"), "open connections are left alone")
	p.HalfOpen(false)
	require.NoError(t, conn.SetReadDeadline(time.Now().Add(ExpectLimit)))
	_, err = conn.Read(make([]byte, 1))
	require.ErrorIs(t, err, syscall.ECONNRESET)
}

func TestRefuseRefusesAndComesBackOnTheSamePort(t *testing.T) {
	t.Parallel()
	p, client := behind(t)
	p.Refuse(true)
	p.Refuse(true)
	_, err := net.Dial("tcp", p.Addr())
	require.ErrorIs(t, err, syscall.ECONNREFUSED)
	require.NoError(t, do(t, client, "PING"), "open connections are left alone")
	p.Refuse(false)
	p.Refuse(false)
	require.NoError(t, do(t, through(t, p), "PING"))
}

func TestResetCutsWithRST(t *testing.T) {
	t.Parallel()
	p, client := behind(t)
	conn, err := net.Dial("tcp", p.Addr())
	require.NoError(t, err)
	defer conn.Close() // it is cut already
	_, err = conn.Write([]byte("PING\r\n"))
	require.NoError(t, err)
	_, err = io.ReadFull(conn, make([]byte, len("+PONG\r\n")))
	require.NoError(t, err)
	p.Reset()
	_, err = conn.Read(make([]byte, 1))
	require.ErrorIs(t, err, syscall.ECONNRESET)
	require.Eventually(t, func() bool { return do(t, client, "PING") == nil }, ExpectLimit, time.Millisecond)
	require.Eventually(t, func() bool { return p.Connections() == 1 }, ExpectLimit, time.Millisecond)
}

func TestAbsentServerShowsAsACutConnection(t *testing.T) {
	t.Parallel()
	s := redistest.Start(t)
	s.Kill()
	p := NewProxy(t, s.Addr())
	conn, err := net.Dial("tcp", p.Addr())
	if err == nil { // the cut may come before or after
		_, err = conn.Read(make([]byte, 1))
		require.NoError(t, conn.Close())
	}
	require.True(t, errors.Is(err, syscall.ECONNRESET) || errors.Is(err, io.EOF), "%v", err)
}

// A client that dies right after its command has left: the server still gets it, even through a slow network.
func TestCommandOfADeadClientStillArrives(t *testing.T) {
	t.Parallel()
	p := NewProxy(t, redistest.Shared(t).Addr())
	p.Hold(Up, true)
	key := redistest.Prefix(t) + "k"
	conn, err := net.Dial("tcp", p.Addr())
	require.NoError(t, err)
	_, err = conn.Write([]byte("SET " + key + " v\r\n"))
	require.NoError(t, err)
	require.NoError(t, conn.Close())
	p.Hold(Up, false)
	require.Eventually(t, func() bool { return get(t, key) == "v" }, ExpectLimit, time.Millisecond)
	require.Eventually(t, func() bool { return p.Connections() == 0 }, ExpectLimit, time.Millisecond)
}

func TestServerThatDiesEndsTheConnections(t *testing.T) {
	t.Parallel()
	s := redistest.Start(t)
	p := NewProxy(t, s.Addr())
	client := through(t, p)
	require.NoError(t, do(t, client, "PING"))
	s.Kill()
	require.Error(t, do(t, client, "PING"))
	s.Restart()
	require.Eventually(t, func() bool { return do(t, client, "PING") == nil }, ExpectLimit, time.Millisecond)
}
