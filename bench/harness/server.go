package harness

import (
	"bufio"
	"context"
	"fmt"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/redis/rueidis"

	"github.com/go-leasehold/leasehold/internal/redistest"
)

// Server is the Redis that is measured: one of our own, or one that somebody else runs.
type Server struct {
	Addr    string
	Version string
	own     *redistest.Server // nil for one of somebody else's
	dir     string
	admin   rueidis.Client
}

// StartServer starts a redis-server that keeps nothing on disk.
func StartServer() (*Server, error) {
	dir, err := os.MkdirTemp("", "leasehold-bench")
	if err != nil {
		return nil, err
	}
	own, err := redistest.Launch(dir)
	if err != nil {
		_ = os.RemoveAll(dir) // it is empty
		return nil, err
	}
	s := &Server{Addr: own.Addr(), own: own, dir: dir}
	if err := s.connect(); err != nil {
		s.Close()
		return nil, err
	}
	return s, nil
}

// ConnectServer takes part of a server that runs already. It is neither flushed nor stopped.
func ConnectServer(addr string) (*Server, error) {
	s := &Server{Addr: addr}
	if err := s.connect(); err != nil {
		return nil, fmt.Errorf("redis at %s: %w", addr, err)
	}
	return s, nil
}

func (s *Server) connect() error {
	option := rueidis.ClientOption{InitAddress: []string{s.Addr}, DisableCache: true, PipelineMultiplex: -1, ForceSingleClient: true}
	option.Dialer.KeepAlive = -1 // no PING in the background, which would be counted
	client, err := rueidis.NewClient(option)
	if err != nil {
		return err
	}
	s.admin = client
	info, err := s.info(context.Background(), "server")
	if err != nil {
		return err
	}
	s.Version = info.fields["redis_version"]
	return nil
}

// Close ends the server if it is our own.
func (s *Server) Close() {
	if s.admin != nil {
		s.admin.Close()
	}
	if s.own != nil {
		s.own.Stop()
		_ = os.RemoveAll(s.dir) // nothing in it is of use
	}
}

// Do runs one command, as an operator would.
func (s *Server) Do(ctx context.Context, args ...string) error {
	err := s.admin.Do(ctx, s.admin.B().Arbitrary(args...).Build()).Error()
	if rueidis.IsRedisNil(err) {
		return nil
	}
	return err
}

// Forget deletes what a scenario left behind, if the server is our own. Elsewhere it expires.
func (s *Server) Forget(ctx context.Context) error {
	if s.own == nil {
		return nil
	}
	return s.Do(ctx, "FLUSHALL")
}

// Reading is what the server has done until now.
type Reading struct {
	At       time.Time
	Commands float64       // that it ran, calls inside of scripts counted
	Bytes    float64       // to and from clients
	CPU      float64       // microseconds
	Memory   float64       // bytes in use
	Took     time.Duration // of Since: from one reading to the other
	own      float64       // bytes of this reading, which the next one has in it
}

// Read takes a reading. It costs the server one command.
func (s *Server) Read(ctx context.Context) (Reading, error) {
	info, err := s.info(ctx, "default")
	if err != nil {
		return Reading{}, err
	}
	r := Reading{At: time.Now(), own: float64(info.size)}
	for field, to := range map[string]*float64{
		"total_commands_processed": &r.Commands, "used_memory": &r.Memory,
	} {
		if *to, err = info.number(field); err != nil {
			return Reading{}, err
		}
	}
	for _, field := range []string{"total_net_input_bytes", "total_net_output_bytes"} {
		n, err := info.number(field)
		if err != nil {
			return Reading{}, err
		}
		r.Bytes += n
	}
	for _, field := range []string{"used_cpu_sys", "used_cpu_user"} {
		n, err := info.number(field)
		if err != nil {
			return Reading{}, err
		}
		r.CPU += n * 1e6
	}
	return r, nil
}

// Since returns what the server did from an earlier reading to this one, that reading itself left out.
func (r Reading) Since(before Reading) Reading {
	return Reading{
		At: r.At, Commands: r.Commands - before.Commands - 1, Bytes: r.Bytes - before.Bytes - before.own,
		CPU: r.CPU - before.CPU, Memory: r.Memory - before.Memory, Took: r.At.Sub(before.At),
	}
}

type infoText struct {
	fields map[string]string
	size   int // bytes that asking for it took
}

func (i infoText) number(field string) (float64, error) {
	n, err := strconv.ParseFloat(i.fields[field], 64)
	if err != nil {
		return 0, fmt.Errorf("INFO: %s is %q, which is no number", field, i.fields[field])
	}
	return n, nil
}

func (s *Server) info(ctx context.Context, section string) (infoText, error) {
	text, err := s.admin.Do(ctx, s.admin.B().Info().Section(section).Build()).ToString()
	if err != nil {
		return infoText{}, fmt.Errorf("INFO %s: %w", section, err)
	}
	info := infoText{fields: map[string]string{}, size: infoSize(section, text)}
	for lines := bufio.NewScanner(strings.NewReader(text)); lines.Scan(); {
		if field, value, ok := strings.Cut(lines.Text(), ":"); ok {
			info.fields[field] = value
		}
	}
	return info, nil
}

// infoSize is how many bytes it takes to ask for INFO and to get it. The kind of a verbatim string is in its text.
func infoSize(section, text string) int {
	request := fmt.Sprintf("*2\r\n$4\r\nINFO\r\n$%d\r\n%s\r\n", len(section), section)
	reply := fmt.Sprintf("=%d\r\n%s\r\n", len(text), text)
	return len(request) + len(reply)
}
