package devredis

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"runtime"
	"strconv"
	"sync"
	"time"
)

const (
	// startTries is how often another port is tried after one that somebody else took first.
	startTries = 5
	// outputLimit is how much of a server's output is kept for the message of a failed start.
	outputLimit = 16 << 10
)

// startRedisServer starts a redis-server on a free port, with its files in a directory that goes with it.
func startRedisServer(ctx context.Context, binary string) (*Server, error) {
	dir, err := os.MkdirTemp("", "devredis")
	if err != nil {
		return nil, fmt.Errorf("start redis-server: %w", err)
	}
	for range startTries {
		var s *Server
		if s, err = tryRedisServer(ctx, binary, dir); err == nil {
			return s, nil
		}
		if ctx.Err() != nil {
			break
		}
	}
	return nil, errors.Join(err, os.RemoveAll(dir))
}

func tryRedisServer(ctx context.Context, binary, dir string) (*Server, error) {
	port, err := freePort()
	if err != nil {
		return nil, err
	}
	out := &output{ready: make(chan struct{})}
	cmd := exec.Command(binary, "--port", strconv.Itoa(port), "--bind", "127.0.0.1", "--save", "", "--appendonly", "no",
		"--dir", dir, "--daemonize", "no", "--loglevel", "notice")
	cmd.Stdout, cmd.Stderr, cmd.WaitDelay = out, out, time.Second
	ended, err := start(cmd)
	if err != nil {
		return nil, err
	}
	stop := func() {
		_ = cmd.Process.Kill() // there is nothing to save; ended tells when it is gone
		<-ended
	}
	select {
	case <-out.ready:
	case <-ended:
		return nil, fmt.Errorf("redis-server ended as it was started:\n%s", out)
	case <-ctx.Done():
		stop()
		return nil, fmt.Errorf("start redis-server: %w", context.Cause(ctx))
	}
	addr := net.JoinHostPort("127.0.0.1", strconv.Itoa(port))
	return &Server{Kind: RedisServer, addr: addr, close: func() error {
		stop()
		return os.RemoveAll(dir)
	}}, nil
}

// start starts cmd so that it dies with this process, but not of a Ctrl-C meant for it, and returns a channel
// that is closed at its end. The kernel takes the end of the thread that forked for the parent's, so one
// goroutine keeps that thread until then.
func start(cmd *exec.Cmd) (<-chan struct{}, error) {
	tie(cmd)
	ended := make(chan struct{})
	started := make(chan error, 1)
	go func() {
		defer close(ended)
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		if err := cmd.Start(); err != nil {
			started <- fmt.Errorf("start redis-server: %w", err)
			return
		}
		started <- nil
		_ = cmd.Wait() // how a killed server ended says nothing
	}()
	return ended, <-started
}

// output keeps what a server says until it says that it is ready.
type output struct {
	ready chan struct{}

	mu   sync.Mutex
	text []byte
	said bool
}

// readyText is what every version since 6.0 logs once clients can connect.
var readyText = []byte("Ready to accept connections")

func (o *output) Write(p []byte) (int, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.said || len(o.text) > outputLimit {
		return len(p), nil
	}
	o.text = append(o.text, p...)
	if bytes.Contains(o.text, readyText) {
		o.said = true
		close(o.ready)
	}
	return len(p), nil
}

func (o *output) String() string {
	o.mu.Lock()
	defer o.mu.Unlock()
	return string(o.text)
}

func freePort() (int, error) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return 0, fmt.Errorf("find a free port: %w", err)
	}
	port := listener.Addr().(*net.TCPAddr).Port
	return port, listener.Close()
}
