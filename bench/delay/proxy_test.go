package delay

import (
	"bytes"
	"io"
	"math/rand/v2"
	"net"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"
)

type fataler interface {
	require.TestingT
	Cleanup(func())
}

// serve runs a server that does something with each connection, until the test ends.
func serve(t fataler, do func(*net.TCPConn)) (addr string) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	var wg sync.WaitGroup
	wg.Go(func() {
		for {
			conn, err := listener.Accept()
			if err != nil {
				return
			}
			wg.Go(func() {
				defer func() { _ = conn.Close() }()
				do(conn.(*net.TCPConn))
			})
		}
	})
	t.Cleanup(func() {
		_ = listener.Close()
		wg.Wait()
	})
	return listener.Addr().String()
}

func echo(conn *net.TCPConn) { _, _ = io.Copy(conn, conn) }

func listen(t fataler, target string, roundTrip time.Duration) *Proxy {
	p, err := Listen(target, roundTrip)
	require.NoError(t, err)
	t.Cleanup(func() { _ = p.Close() }) // some are closed already
	return p
}

func dial(t fataler, p *Proxy) *net.TCPConn {
	conn, err := net.Dial("tcp", p.Addr())
	require.NoError(t, err)
	t.Cleanup(func() { _ = conn.Close() })
	return conn.(*net.TCPConn)
}

func TestARoundTripTakesAtLeastWhatWasAskedFor(t *testing.T) {
	for _, roundTrip := range []time.Duration{0, 200 * time.Microsecond, 5 * time.Millisecond} {
		t.Run(roundTrip.String(), func(t *testing.T) {
			conn := dial(t, listen(t, serve(t, echo), roundTrip))
			buffer := make([]byte, 1)
			for range 10 {
				began := time.Now()
				_, err := conn.Write(buffer)
				require.NoError(t, err)
				_, err = io.ReadFull(conn, buffer)
				require.NoError(t, err)
				require.GreaterOrEqual(t, time.Since(began), roundTrip)
			}
		})
	}
}

func TestListenRefusesADelayBelowZero(t *testing.T) {
	_, err := Listen("127.0.0.1:1", -time.Millisecond)
	require.EqualError(t, err, "delay: a round trip of -1ms: it can't be below zero")
}

// What goes in comes out, on all connections at once and both ways at once, however it is cut.
func TestDataIsIntact(t *testing.T) {
	target := serve(t, echo)
	p := listen(t, target, time.Millisecond)
	rapid.Check(t, func(r *rapid.T) {
		var wg sync.WaitGroup
		for range rapid.IntRange(1, 3).Draw(r, "connections") {
			seed := rapid.Uint64().Draw(r, "seed")
			data := make([]byte, rapid.IntRange(0, 1<<15).Draw(r, "bytes"))
			random := rand.New(rand.NewPCG(seed, 0))
			for i := range data {
				data[i] = byte(random.Uint32())
			}
			most := rapid.IntRange(16, 1<<14).Draw(r, "at once")
			wg.Go(func() { exchange(t, p, data, most, random) })
		}
		wg.Wait()
	})
}

func TestMegabytesAreIntact(t *testing.T) {
	p := listen(t, serve(t, echo), time.Millisecond)
	random := rand.New(rand.NewPCG(1, 2))
	data := make([]byte, 8<<20)
	for i := range data {
		data[i] = byte(random.Uint32())
	}
	exchange(t, p, data, 1<<20, random)
}

// exchange sends data and gets it back.
func exchange(t *testing.T, p *Proxy, data []byte, most int, random *rand.Rand) {
	conn, err := net.Dial("tcp", p.Addr())
	if err != nil {
		t.Error(err)
		return
	}
	defer func() { _ = conn.Close() }()
	var wg sync.WaitGroup
	wg.Go(func() {
		for rest := data; len(rest) > 0; {
			n := min(len(rest), 1+random.IntN(most))
			if _, err := conn.Write(rest[:n]); err != nil {
				t.Error(err)
				return
			}
			rest = rest[n:]
		}
	})
	got := make([]byte, len(data))
	if _, err := io.ReadFull(conn, got); err != nil {
		t.Error(err)
	}
	wg.Wait()
	if !bytes.Equal(got, data) {
		t.Errorf("%d bytes came back as others", len(data))
	}
}

// A hundred requests that are sent one after the other, without waiting, are under way together: they take about one
// round trip, and far fewer than a hundred.
func TestRequestsOfAConnectionOverlap(t *testing.T) {
	const (
		roundTrip = 20 * time.Millisecond
		requests  = 100
	)
	conn := dial(t, listen(t, serve(t, echo), roundTrip))
	began := time.Now()
	for range requests {
		_, err := conn.Write([]byte{1})
		require.NoError(t, err)
		time.Sleep(10 * time.Microsecond) // pieces of their own
	}
	_, err := io.ReadFull(conn, make([]byte, requests))
	require.NoError(t, err)
	require.Less(t, time.Since(began), requests*roundTrip/2)
}

// A client that has sent all and says so gets what is still to come.
func TestHalfOfAConnectionMayEnd(t *testing.T) {
	conn := dial(t, listen(t, serve(t, func(conn *net.TCPConn) {
		text, _ := io.ReadAll(conn)
		_, _ = conn.Write(append(text, " and back"...))
	}), 2*time.Millisecond))
	_, err := conn.Write([]byte("there"))
	require.NoError(t, err)
	require.NoError(t, conn.CloseWrite())
	text, err := io.ReadAll(conn)
	require.NoError(t, err)
	require.Equal(t, "there and back", string(text))
}

func TestTheEndOfAServerReachesItsClients(t *testing.T) {
	for name, end := range map[string]func(*net.TCPConn){
		"it ends":   func(*net.TCPConn) {},
		"it resets": func(conn *net.TCPConn) { _ = conn.SetLinger(0) },
	} {
		t.Run(name, func(t *testing.T) {
			conn := dial(t, listen(t, serve(t, func(conn *net.TCPConn) {
				_, _ = conn.Read(make([]byte, 1))
				end(conn)
			}), time.Millisecond))
			_, err := conn.Write([]byte{1})
			require.NoError(t, err)
			_, err = conn.Read(make([]byte, 1))
			require.Error(t, err)
		})
	}
	t.Run("it was never there", func(t *testing.T) {
		listener, err := net.Listen("tcp", "127.0.0.1:0")
		require.NoError(t, err)
		require.NoError(t, listener.Close())
		_, err = dial(t, listen(t, listener.Addr().String(), 0)).Read(make([]byte, 1))
		require.Error(t, err)
	})
}

// Close ends connections of which nobody reads what was sent, and those that are idle; goleak sees that all goroutines end.
func TestCloseEndsEverything(t *testing.T) {
	silent := make(chan struct{})
	target := serve(t, func(*net.TCPConn) { <-silent })
	t.Cleanup(func() { close(silent) }) // before the server waits for its connections
	p := listen(t, target, time.Millisecond)
	full, idle := dial(t, p), dial(t, p)
	var wg sync.WaitGroup
	wg.Go(func() {
		for { // until it is closed, with no room left on the way
			if _, err := full.Write(make([]byte, 1<<20)); err != nil {
				return
			}
		}
	})
	time.Sleep(50 * time.Millisecond) // nothing depends on it: so more may be under way
	require.NoError(t, p.Close())
	wg.Wait()
	_, err := idle.Read(make([]byte, 1))
	require.Error(t, err)
	_, err = net.Dial("tcp", p.Addr())
	require.Error(t, err)
}
