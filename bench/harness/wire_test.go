package harness

import (
	"bytes"
	"context"
	"crypto/tls"
	"fmt"
	"net"
	"testing"

	"github.com/redis/go-redis/v9"
	"github.com/redis/rueidis"
	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"
)

// encode is a command as clients send it.
func encode(args ...[]byte) []byte {
	var b bytes.Buffer
	fmt.Fprintf(&b, "*%d\r\n", len(args))
	for _, arg := range args {
		fmt.Fprintf(&b, "$%d\r\n%s\r\n", len(arg), arg)
	}
	return b.Bytes()
}

func TestScannerCountsHoweverTheStreamIsCut(t *testing.T) {
	argument := rapid.OneOf(
		rapid.SliceOfN(rapid.Byte(), 0, 40),
		rapid.Just([]byte("\r\n*3\r\n$")), rapid.Just([]byte("*1\r\n$4\r\nPING\r\n")), rapid.Just([]byte("\r\n")), rapid.Just([]byte{}),
	)
	rapid.Check(t, func(t *rapid.T) {
		commands := rapid.SliceOfN(rapid.SliceOfN(argument, 1, 12), 0, 20).Draw(t, "commands")
		var stream []byte
		for _, args := range commands {
			stream = append(stream, encode(args...)...)
		}
		var s scanner
		var counted int64
		for len(stream) > 0 {
			n := rapid.IntRange(1, len(stream)).Draw(t, "cut")
			counted += s.commands(stream[:n])
			stream = stream[n:]
		}
		require.EqualValues(t, len(commands), counted)
		require.Equal(t, atCommand, s.state)
	})
}

func TestScannerPassesOverWhatIsNoCommand(t *testing.T) {
	for name, stream := range map[string]string{
		"an empty one":            "*0\r\n",
		"a length without bounds": "*1\r\n$99999999999999999999999999\r\nPING\r\n",
		"a count without bounds":  "*99999999999999999999999999\r\n$4\r\nPING\r\n",
	} {
		t.Run(name, func(t *testing.T) {
			var s scanner
			require.Zero(t, s.commands([]byte(stream)))
		})
	}
	var s scanner
	require.EqualValues(t, 1, s.commands([]byte("*0\r\n*1\r\n$4\r\nPING\r\n")))
}

// Whatever comes, and however it is cut: there are no more commands than bytes, and the cut makes no difference.
func FuzzScanner(f *testing.F) {
	f.Add([]byte("*1\r\n$4\r\nPING\r\n"), 3)
	f.Add(encode([]byte("SET"), []byte("k"), []byte("\r\n*3\r\n$")), 17)
	f.Add([]byte("*0\r\n*2\r\n$-1\r\n$0\r\n\r\n"), 5)
	f.Fuzz(func(t *testing.T, stream []byte, cut int) {
		var whole, parts scanner
		want := whole.commands(stream)
		require.LessOrEqual(t, want, int64(len(stream)))
		if len(stream) > 0 {
			cut = int(uint(cut) % uint(len(stream)))
		} else {
			cut = 0
		}
		require.Equal(t, want, parts.commands(stream[:cut])+parts.commands(stream[cut:]))
		require.Equal(t, whole, parts)
	})
}

func startServer(t *testing.T) *Server {
	server, err := StartServer()
	require.NoError(t, err)
	t.Cleanup(server.Close)
	return server
}

func read(t *testing.T, s *Server) Reading {
	r, err := s.Read(t.Context())
	require.NoError(t, err)
	return r
}

// Readings leave themselves out, to the byte, and miss nothing.
func TestReadingsLeaveThemselvesOut(t *testing.T) {
	server := startServer(t)
	before := read(t, server)
	for range 5 {
		now := read(t, server)
		since := now.Since(before)
		require.Zero(t, since.Commands)
		require.Zero(t, since.Bytes)
		require.Positive(t, since.Took)
		before = now
	}
	conn := dialTo(t, &Wire{}, server.Addr)
	const pings = 7
	reply := make([]byte, len("+PONG\r\n"))
	for range pings {
		_, err := conn.Write([]byte("*1\r\n$4\r\nPING\r\n"))
		require.NoError(t, err)
		_, err = conn.Read(reply)
		require.NoError(t, err)
	}
	since := read(t, server).Since(before)
	require.InDelta(t, pings, since.Commands, 0)
	require.InDelta(t, pings*(len("*1\r\n$4\r\nPING\r\n")+len(reply)), since.Bytes, 0)
}

// What both clients do: SET, GET, 3 in a pipeline, MULTI, INCR, EXEC, and a script with calls inside.
const (
	runSent   = 9
	runInside = 3
	script    = `for i = 1, 3 do redis.call("INCR", KEYS[1]) end return 1`
)

// What the wire counted is what Redis says it got, by client and by kind of command; calls inside of scripts are Redis's only.
func TestWireCountsWhatRedisDoes(t *testing.T) {
	binary := string([]byte{0, 255, '\r', '\n'}) + "\r\n*3\r\n$"
	for name, open := range map[string]func(*testing.T, *Wire, string, string) func(){
		"rueidis": withRueidis, "go-redis": withGoRedis,
	} {
		t.Run(name, func(t *testing.T) {
			server, wire := startServer(t), &Wire{}
			do := open(t, wire, server.Addr, binary)
			do() // what a client says to introduce itself Redis may refuse, and does not count then
			require.Positive(t, wire.Connections.Load())
			before, sent, size := read(t, server), wire.Commands.Load(), wire.Written.Load()+wire.Read.Load()
			do()
			since := read(t, server).Since(before)
			require.InDelta(t, runSent, wire.Commands.Load()-sent, 0)
			require.InDelta(t, runSent+runInside, since.Commands, 0)
			require.InDelta(t, since.Bytes, wire.Written.Load()+wire.Read.Load()-size, 0)
		})
	}
}

func withRueidis(t *testing.T, w *Wire, addr, value string) func() {
	option := rueidis.ClientOption{InitAddress: []string{addr}, DisableCache: true, PipelineMultiplex: -1, DialCtxFn: func(
		ctx context.Context, addr string, _ *net.Dialer, _ *tls.Config,
	) (net.Conn, error) {
		return w.Dial(ctx, addr)
	}}
	c, err := rueidis.NewClient(option)
	require.NoError(t, err)
	t.Cleanup(c.Close)
	return func() { runRueidis(t, c, value) }
}

func runRueidis(t *testing.T, c rueidis.Client, value string) {
	ctx := t.Context()
	require.NoError(t, c.Do(ctx, c.B().Set().Key("k").Value(value).Build()).Error())
	got, err := c.Do(ctx, c.B().Get().Key("k").Build()).ToString()
	require.NoError(t, err)
	require.Equal(t, value, got)
	get := c.B().Get().Key("k").Build().Pin()
	for _, r := range c.DoMulti(ctx, get, get, get) {
		require.NoError(t, r.Error())
	}
	for _, r := range c.DoMulti(ctx, c.B().Multi().Build(), c.B().Incr().Key("n").Build(), c.B().Exec().Build()) {
		require.NoError(t, r.Error())
	}
	require.NoError(t, rueidis.NewLuaScript(script).Exec(ctx, c, []string{"n"}, nil).Error())
}

func withGoRedis(t *testing.T, w *Wire, addr, value string) func() {
	c := redis.NewClient(&redis.Options{Addr: addr, Dialer: func(ctx context.Context, _, addr string) (net.Conn, error) {
		return w.Dial(ctx, addr)
	}})
	t.Cleanup(func() { require.NoError(t, c.Close()) })
	return func() { runGoRedis(t, c, value) }
}

func runGoRedis(t *testing.T, c *redis.Client, value string) {
	ctx := t.Context()
	require.NoError(t, c.Set(ctx, "k", value, 0).Err())
	got, err := c.Get(ctx, "k").Result()
	require.NoError(t, err)
	require.Equal(t, value, got)
	_, err = c.Pipelined(ctx, func(p redis.Pipeliner) error {
		for range 3 {
			p.Get(ctx, "k")
		}
		return nil
	})
	require.NoError(t, err)
	_, err = c.TxPipelined(ctx, func(p redis.Pipeliner) error { p.Incr(ctx, "n"); return nil })
	require.NoError(t, err)
	require.NoError(t, redis.NewScript(script).Run(ctx, c, []string{"n"}).Err())
}

func TestDialTellsWhy(t *testing.T) {
	wire := &Wire{}
	_, err := wire.Dial(t.Context(), "127.0.0.1:1")
	require.ErrorContains(t, err, "127.0.0.1:1")
	require.Zero(t, wire.Connections.Load())
}
