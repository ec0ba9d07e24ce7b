package redistest

import (
	"bufio"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"strconv"
	"strings"
	"time"
)

// probeLimit bounds one INFO of Commands.
const probeLimit = 10 * time.Second

// probeConn is a bare connection for INFO. A rueidis client is too talkative for it: its hello, its names and
// its pings would be counted among the commands that Commands is to count.
type probeConn struct {
	conn   net.Conn
	reader *bufio.Reader
	sent   int64 // commands of ours that the server has counted
}

// askPid asks whoever listens at the server's address for its process id.
func (s *Server) askPid(deadline time.Time) (int, error) {
	var p probeConn
	defer p.close()
	if err := p.open(s, deadline); err != nil {
		return 0, err
	}
	info, err := p.info("server", deadline)
	if err != nil {
		return 0, err
	}
	return infoField[int](info, "process_id")
}

func (p *probeConn) open(s *Server, deadline time.Time) error {
	conn, err := net.DialTimeout("tcp", s.Addr(), time.Until(deadline))
	if err != nil {
		return err
	}
	if s.secret != nil {
		conn = tls.Client(conn, s.secret)
	}
	password := s.password()
	p.conn, p.reader, p.sent = conn, bufio.NewReader(conn), 0
	if password == "" {
		return nil
	}
	if _, err := p.ask(deadline, "AUTH", password); err != nil {
		return err
	}
	p.sent++
	return nil
}

func (p *probeConn) close() {
	if p.conn != nil {
		_ = p.conn.Close() // nothing is written any more, so nothing can be lost
	}
	p.conn, p.reader = nil, nil
}

func (p *probeConn) info(section string, deadline time.Time) (string, error) {
	return p.ask(deadline, "INFO", section)
}

// ask sends one command and reads a one-line or a bulk reply.
func (p *probeConn) ask(deadline time.Time, args ...string) (string, error) {
	if err := p.conn.SetDeadline(deadline); err != nil {
		return "", err
	}
	var b strings.Builder
	fmt.Fprintf(&b, "*%d\r\n", len(args))
	for _, arg := range args {
		fmt.Fprintf(&b, "$%d\r\n%s\r\n", len(arg), arg)
	}
	if _, err := io.WriteString(p.conn, b.String()); err != nil {
		return "", err
	}
	line, err := p.reader.ReadString('\n')
	if err != nil {
		return "", err
	}
	line = strings.TrimSuffix(line, "\r\n")
	switch {
	case strings.HasPrefix(line, "-"):
		return "", errors.New(line[1:])
	case strings.HasPrefix(line, "$"):
		size, err := strconv.Atoi(line[1:])
		if err != nil {
			return "", fmt.Errorf("bulk length %q: %w", line, err)
		}
		body := make([]byte, size+len("\r\n"))
		if _, err := io.ReadFull(p.reader, body); err != nil {
			return "", err
		}
		return string(body[:size]), nil
	default:
		return line[1:], nil
	}
}

// infoField reads one number out of INFO's text.
func infoField[T int | int64](info, name string) (T, error) {
	for line := range strings.Lines(info) {
		if value, ok := strings.CutPrefix(line, name+":"); ok {
			n, err := strconv.ParseInt(strings.TrimSpace(value), 10, 64)
			return T(n), err
		}
	}
	return 0, fmt.Errorf("no %s in INFO", name)
}
