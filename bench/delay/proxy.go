// Package delay adds a network delay to the way to a server: a TCP proxy that gives every piece of data on after half of a
// round trip, in both directions, without changing how much can be under way.
package delay

import (
	"errors"
	"fmt"
	"io"
	"net"
	"slices"
	"sync"
	"time"
)

// Proxy listens on a free port of 127.0.0.1 and forwards connections. Its methods may be called from any goroutine.
type Proxy struct {
	listener net.Listener
	target   string
	half     time.Duration
	wg       sync.WaitGroup

	mu    sync.Mutex
	conns map[net.Conn]struct{} // guarded by mu; nil once closed
}

// Listen starts a proxy that adds roundTrip to each round trip to target.
func Listen(target string, roundTrip time.Duration) (*Proxy, error) {
	if roundTrip < 0 {
		return nil, fmt.Errorf("delay: a round trip of %v: it can't be below zero", roundTrip)
	}
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, fmt.Errorf("delay: %w", err)
	}
	p := &Proxy{listener: listener, target: target, half: roundTrip / 2, conns: map[net.Conn]struct{}{}}
	p.wg.Go(p.accept)
	return p, nil
}

// Addr returns host:port.
func (p *Proxy) Addr() string { return p.listener.Addr().String() }

// Close ends all connections and waits for all goroutines.
func (p *Proxy) Close() error {
	err := p.listener.Close()
	p.mu.Lock()
	for conn := range p.conns {
		_ = conn.Close() // it is to end, however
	}
	p.conns = nil
	p.mu.Unlock()
	p.wg.Wait()
	return err
}

func (p *Proxy) accept() {
	for {
		client, err := p.listener.Accept()
		if errors.Is(err, net.ErrClosed) {
			return
		}
		if err != nil { // that client sees it; what is short may be there again in a moment
			SleepUntil(time.Now().Add(time.Millisecond))
			continue
		}
		p.wg.Go(func() { p.serve(client) })
	}
}

// keep notes connections, so that Close ends them; false once it has.
func (p *Proxy) keep(conns ...net.Conn) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.conns == nil {
		return false
	}
	for _, conn := range conns {
		p.conns[conn] = struct{}{}
	}
	return true
}

func (p *Proxy) serve(client net.Conn) {
	defer func() { _ = client.Close() }() // both ends are done with it
	server, err := net.Dial("tcp", p.target)
	if err != nil {
		return // the client sees its end
	}
	defer func() { _ = server.Close() }() // the same
	if !p.keep(client, server) {
		return
	}
	var wg sync.WaitGroup
	wg.Go(func() { p.forward(client, server) })
	wg.Go(func() { p.forward(server, client) })
	wg.Wait()
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.conns, client)
	delete(p.conns, server)
}

// piece is data under way.
type piece struct {
	data []byte
	due  time.Time
}

// underWay is how many pieces may be on the way in one direction. What is more waits in the sender's socket.
const underWay = 4096

// forward gives on what one end sends, when it is due, and its end, too: the other direction may go on behind that.
func (p *Proxy) forward(from, to net.Conn) {
	pieces := make(chan piece, underWay)
	var broken error // how reading ended, if not by its end
	var wg sync.WaitGroup
	wg.Go(func() {
		defer close(pieces)
		buffer := make([]byte, 64<<10)
		for {
			n, err := from.Read(buffer)
			if n > 0 {
				pieces <- piece{slices.Clone(buffer[:n]), time.Now().Add(p.half)}
			}
			if errors.Is(err, io.EOF) {
				return
			}
			if err != nil {
				broken = err
				return
			}
		}
	})
	failed := false
	for piece := range pieces {
		if failed {
			continue // the reader must not be stuck
		}
		SleepUntil(piece.due)
		if _, err := to.Write(piece.data); err != nil {
			failed = true
			_ = from.Close() // ends the reader
		}
	}
	wg.Wait()
	if half, ok := to.(interface{ CloseWrite() error }); ok && broken == nil {
		_ = half.CloseWrite() // it may be closed already
		return
	}
	_ = to.Close() // who is broken gets nothing through either way
}
