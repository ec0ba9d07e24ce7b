package harness

import (
	"context"
	"errors"
	"net"
	"sync/atomic"
	"syscall"
)

// Wire counts what this process sends to Redis and gets from it.
type Wire struct {
	Commands    atomic.Int64
	Written     atomic.Int64 // bytes
	Read        atomic.Int64 // bytes
	Connections atomic.Int64 // that were opened
}

// Dial connects to addr, through a connection that is counted.
func (w *Wire) Dial(ctx context.Context, addr string) (net.Conn, error) {
	var dialer net.Dialer
	conn, err := dialer.DialContext(ctx, "tcp", addr)
	if err != nil {
		return nil, err
	}
	w.Connections.Add(1)
	return &countedConn{Conn: conn, wire: w}, nil
}

// countedConn is a connection whose writes are read for commands. One goroutine writes at a time, as clients of Redis do.
type countedConn struct {
	net.Conn
	wire *Wire
	scan scanner
}

// Write counts first, so that who has the answer finds it counted: clients write on a goroutine of their own. What a
// broken connection did not take was sent all the same, as far as the client knows, but for its bytes.
func (c *countedConn) Write(b []byte) (int, error) {
	c.wire.Written.Add(int64(len(b)))
	if commands := c.scan.commands(b); commands > 0 {
		c.wire.Commands.Add(commands)
	}
	n, err := c.Conn.Write(b)
	c.wire.Written.Add(int64(n - len(b)))
	return n, err
}

func (c *countedConn) Read(b []byte) (int, error) {
	n, err := c.Conn.Read(b)
	c.wire.Read.Add(int64(n))
	return n, err
}

// SyscallConn is for clients that look whether an idle connection is still there.
func (c *countedConn) SyscallConn() (syscall.RawConn, error) {
	conn, ok := c.Conn.(syscall.Conn)
	if !ok {
		return nil, errors.New("the connection has no descriptor")
	}
	return conn.SyscallConn()
}

// scanner counts the commands in a stream, which may be cut anywhere. It reads headers and skips what they announce:
//
//	*2 $3 GET $1 k
type scanner struct {
	state  scanState
	number int64 // that is being read
	args   int64 // that are still to come
	skip   int64 // bytes of an argument, and of its end, that are still to come
}

type scanState byte

const (
	atCommand scanState = iota // before "*"
	inCount                    // in the number after "*"
	atLength                   // before "$"
	inLength                   // in the number after "$"
	inText                     // in an argument
)

// commands returns how many commands end in b.
func (s *scanner) commands(b []byte) (ended int64) {
	for i := 0; i < len(b); {
		if s.state == inText {
			n := min(s.skip, int64(len(b)-i))
			s.skip -= n
			i += int(n)
			if s.skip == 0 && s.args == 0 {
				s.state = atCommand
				ended++
			} else if s.skip == 0 {
				s.state = atLength
			}
			continue
		}
		s.header(b[i])
		i++
	}
	return ended
}

// longest is more than any number that Redis takes. What is above it is no command of a client.
const longest = int64(1) << 40

// header reads one byte of a header.
func (s *scanner) header(c byte) {
	switch {
	case s.state == atCommand && c == '*':
		s.state, s.number = inCount, 0
	case s.state == atLength && c == '$':
		s.state, s.number = inLength, 0
	case c >= '0' && c <= '9' && s.number < longest:
		s.number = s.number*10 + int64(c-'0')
	case c == '\n' && s.state == inCount && s.number == 0: // nothing, which Redis passes over
		s.state = atCommand
	case c == '\n' && s.state == inCount:
		s.state, s.args = atLength, s.number
	case c == '\n' && s.state == inLength:
		const end = 2 // "\r\n"
		s.state, s.skip, s.args = inText, s.number+end, s.args-1
	}
}
