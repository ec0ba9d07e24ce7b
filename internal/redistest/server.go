// Package redistest gives tests a real redis-server of their own.
//
// [Start] runs one for a single test, which may kill, pause and restart it; [Shared] runs one for a whole test
// binary, for tests that need no more than keys of their own ([Prefix]). The server is the redis-server found
// in PATH, listens on a free port of 127.0.0.1, keeps nothing on disk and dies with the test. A package that
// uses it ends its TestMain with [Main], which also looks for leaked goroutines.
package redistest

import (
	"crypto/tls"
	"fmt"
	"net"
	"os/exec"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/redis/rueidis"

	"github.com/go-leasehold/leasehold/internal/childproc"
)

const (
	// startLimit bounds the wait for a server's first answer; a loaded machine needs it long.
	startLimit = 20 * time.Second
	// busOffset is how far above its port a node of a cluster talks to the others.
	busOffset = 10000
	// startTries is how often another port is tried after one that somebody else took first.
	startTries = 20
)

// Server is a running redis-server. Its methods may be called from any goroutine, but for Kill, Restart,
// Pause and Resume, which one goroutine at a time may call. What can't be done panics, for the test would
// mean nothing after it.
type Server struct {
	binary string
	args   []string
	dir    string
	port   int
	secret *tls.Config // where it speaks TLS only
	config string      // a Sentinel's file; empty: it is none
	master string      // host:port of the one it starts as a replica of, if any
	whole  *Topology   // set: it stands for all of them, see [Shared]

	mu     sync.Mutex
	proc   *childproc.Process // nil while killed
	out    *childproc.Tail
	paused bool
	admin  rueidis.Client // for Do; nil until first used
	probes probeConn      // for Commands
}

// Start starts a redis-server with args beside the usual ones ("--maxmemory", "10mb") and kills it when the
// test ends. It fails the test when there is no redis-server in PATH.
func Start(t testing.TB, args ...string) *Server {
	t.Helper()
	s, err := Launch(t.TempDir(), args...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.Stop)
	return s
}

// Launch is [Start] without a test: whoever calls it also calls [Server.Stop]. The server works in dir, and listens on
// the first free port that nobody else takes in between.
func Launch(dir string, args ...string) (*Server, error) {
	return launchAt(dir, func(s *Server) { s.args = args })
}

// launchAt is Launch for a server that is made ready by a function.
func launchAt(dir string, ready func(*Server)) (*Server, error) {
	s, err := newServer(dir)
	if err != nil {
		return nil, err
	}
	ready(s)
	for range startTries {
		if s.port, err = freePort(); err != nil {
			return nil, err
		}
		if s.port > 65535-busOffset {
			continue // no port is left for the bus, if it is a node of a cluster
		}
		if err = s.run(); err == nil {
			return s, nil
		}
	}
	return nil, err
}

func newServer(dir string) (*Server, error) {
	binary, err := exec.LookPath("redis-server")
	if err != nil {
		return nil, fmt.Errorf("redistest: no redis-server in PATH: install it, or run `make test`, which does (%w)", err)
	}
	return &Server{binary: binary, dir: dir}, nil
}

// run starts the process on s.port and returns once it answers.
func (s *Server) run() error {
	out := &childproc.Tail{}
	cmd := exec.Command(s.binary, s.command()...)
	cmd.Stdout, cmd.Stderr = out, out
	proc, err := childproc.Start(cmd)
	if err != nil {
		return err
	}
	if err := s.awaitAnswer(proc); err != nil {
		proc.Kill()
		return fmt.Errorf("redistest: redis-server on port %d: %w; its last output:\n%s", s.port, err, out)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.proc, s.out, s.paused = proc, out, false
	return nil
}

// command is what the server is started with.
func (s *Server) command() []string {
	if s.config != "" {
		return []string{s.config, "--sentinel"}
	}
	port := []string{"--port", strconv.Itoa(s.port)}
	if s.secret != nil {
		port = []string{"--port", "0", "--tls-port", strconv.Itoa(s.port)}
	}
	args := append(port, "--bind", "127.0.0.1", "--save", "", "--appendonly", "no", "--dir", s.dir, "--daemonize", "no")
	if s.master != "" {
		host, port, _ := net.SplitHostPort(s.master) // of ours
		args = append(args, "--replicaof", host+" "+port)
	}
	return append(args, s.args...)
}

// awaitAnswer waits until the very process we started answers: another server on the port is not ours.
func (s *Server) awaitAnswer(proc *childproc.Process) error {
	deadline := time.Now().Add(startLimit)
	retry := time.NewTicker(2 * time.Millisecond)
	defer retry.Stop()
	for {
		pid, err := s.askPid(deadline)
		switch {
		case err == nil && pid == proc.Pid():
			return nil
		case err == nil:
			return fmt.Errorf("the port belongs to process %d", pid)
		case time.Now().After(deadline):
			return fmt.Errorf("no answer within %v: %w", startLimit, err)
		}
		select {
		case <-proc.Done():
			return fmt.Errorf("it ended: %w", proc.Wait())
		case <-retry.C:
		}
	}
}

// Addr returns host:port.
func (s *Server) Addr() string {
	s.requireOne("Addr")
	return net.JoinHostPort("127.0.0.1", strconv.Itoa(s.port))
}

// Option returns what a client needs to reach the server.
func (s *Server) Option() rueidis.ClientOption {
	if s.whole != nil {
		return s.whole.Option()
	}
	return rueidis.ClientOption{InitAddress: []string{s.Addr()}, Password: s.password(), TLSConfig: s.secret}
}

// password is the one set by "--requirepass", if any.
func (s *Server) password() string {
	for i, arg := range s.args {
		if value, ok := strings.CutPrefix(arg, "--requirepass "); ok {
			return value
		}
		if arg == "--requirepass" && i+1 < len(s.args) {
			return s.args[i+1]
		}
	}
	return ""
}

// Kill kills the server as a crash would (SIGKILL) and waits until it is gone. Everything in it is lost.
func (s *Server) Kill() {
	s.requireOne("Kill")
	s.mu.Lock()
	proc, admin := s.proc, s.admin
	s.proc, s.admin = nil, nil
	s.probes.close()
	s.mu.Unlock()
	if proc != nil {
		proc.Kill()
	}
	if admin != nil {
		admin.Close() // after the kill: closing a client of a paused server waits for its answer
	}
}

// Restart starts the server again on the same port, empty, and returns once it answers. A server that still
// runs is killed first.
func (s *Server) Restart() {
	s.Kill()
	if err := s.run(); err != nil {
		panic(err)
	}
}

// Pause freezes the server (SIGSTOP): connections stay open and nothing is answered, as on a hung machine.
func (s *Server) Pause() {
	s.requireOne("Pause")
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := s.running().Stop(); err != nil {
		panic(err)
	}
	s.paused = true
}

// Resume lets a frozen server go on.
func (s *Server) Resume() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := s.running().Cont(); err != nil {
		panic(err)
	}
	s.paused = false
}

// running returns the process; the caller holds mu.
func (s *Server) running() *childproc.Process {
	if s.proc == nil {
		panic("redistest: the server is not running")
	}
	return s.proc
}

// Pid returns the server's process id, zero while it is killed.
func (s *Server) Pid() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.proc == nil {
		return 0
	}
	return s.proc.Pid()
}

// Output returns the last lines the server wrote, for the message of a failed test.
func (s *Server) Output() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.out.String()
}

// Stop ends the server for good.
func (s *Server) Stop() {
	if s.whole != nil {
		s.whole.Stop()
		return
	}
	s.Kill()
}

// resumeIfPaused lets clients be closed in good order while a test left the server paused.
func (s *Server) resumeIfPaused() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.paused && s.proc != nil {
		_ = s.proc.Cont() // at the end of a test: the kill that follows needs no success here
		s.paused = false
	}
}

// freePort asks the system for a port nobody listens on.
func freePort() (int, error) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return 0, fmt.Errorf("redistest: no free port: %w", err)
	}
	port := listener.Addr().(*net.TCPAddr).Port
	if err := listener.Close(); err != nil {
		return 0, fmt.Errorf("redistest: free port: %w", err)
	}
	return port, nil
}
