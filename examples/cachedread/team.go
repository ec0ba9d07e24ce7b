package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"time"
)

// team is all servers.
type team struct {
	members []*member
}

// member is one server's process.
type member struct {
	cmd   *exec.Cmd
	in    io.WriteCloser
	give  *json.Encoder
	words chan word // closed at the end of its output
	addr  string
}

// startTeam starts the servers and waits until each listens.
func startTeam(ctx context.Context, s settings, redisAddr string) (*team, error) {
	binary, err := os.Executable()
	if err != nil {
		return nil, fmt.Errorf("start servers: %w", err)
	}
	t := &team{}
	for range s.processes {
		m, err := startMember(binary, redisAddr)
		if err != nil {
			return nil, errors.Join(err, t.close())
		}
		t.members = append(t.members, m)
	}
	words, err := t.answers(ctx)
	if err != nil {
		return nil, errors.Join(err, t.close())
	}
	for i, m := range t.members {
		m.addr = words[i].Addr
	}
	return t, nil
}

func startMember(binary, redisAddr string) (*member, error) {
	cmd := exec.Command(binary)
	cmd.Env = append(os.Environ(), workerVariable+"="+redisAddr)
	cmd.Stderr = os.Stderr
	in, err := cmd.StdinPipe()
	if err != nil {
		return nil, fmt.Errorf("start server: %w", err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		return nil, fmt.Errorf("start server: %w", err)
	}
	if err := cmd.Start(); err != nil {
		return nil, fmt.Errorf("start server: %w", err)
	}
	m := &member{cmd: cmd, in: in, give: json.NewEncoder(in), words: make(chan word, 1)}
	go m.read(out)
	return m, nil
}

// read passes on what the worker says.
func (m *member) read(out io.Reader) {
	defer close(m.words)
	decoder := json.NewDecoder(bufio.NewReader(out))
	for {
		var w word
		if decoder.Decode(&w) != nil {
			return
		}
		m.words <- w
	}
}

// next waits for the worker's next word.
func (m *member) next(ctx context.Context) (word, error) {
	select {
	case w, ok := <-m.words:
		if !ok {
			return w, fmt.Errorf("server %d ended early", m.cmd.Process.Pid)
		}
		if w.Error != "" {
			return w, fmt.Errorf("server %d: %s", m.cmd.Process.Pid, w.Error)
		}
		return w, nil
	case <-ctx.Done():
		return word{}, context.Cause(ctx)
	}
}

// order tells every server the same, and returns what they answer, in their order. One that has died says so where
// its answer is awaited.
func (t *team) order(ctx context.Context, o order) ([]word, error) {
	for _, m := range t.members {
		_ = m.give.Encode(o)
	}
	return t.answers(ctx)
}

func (t *team) answers(ctx context.Context) ([]word, error) {
	words := make([]word, len(t.members))
	for i, m := range t.members {
		w, err := m.next(ctx)
		if err != nil {
			return nil, err
		}
		words[i] = w
	}
	return words, nil
}

// urls returns where the servers are.
func (t *team) urls() []string {
	urls := make([]string, len(t.members))
	for i, m := range t.members {
		urls[i] = "http://" + m.addr
	}
	return urls
}

// close ends the servers in good order, all at once, and those that take too long by force.
func (t *team) close() error {
	for _, m := range t.members {
		_ = m.in.Close() // one that is gone needs no word of it
	}
	ctx, cancel := context.WithTimeout(context.Background(), closeLimit+time.Second)
	defer cancel()
	var errs []error
	for _, m := range t.members {
		if !m.drain(ctx.Done()) {
			_ = m.cmd.Process.Kill() // Wait tells how it ended
			m.drain(nil)
		}
		if err := m.cmd.Wait(); err != nil {
			errs = append(errs, fmt.Errorf("server %d: %w", m.cmd.Process.Pid, err))
		}
	}
	t.members = nil
	return errors.Join(errs...)
}

// drain reads a worker's output to its end; false means that the deadline came first.
func (m *member) drain(deadline <-chan struct{}) bool {
	for {
		select {
		case _, ok := <-m.words:
			if !ok {
				return true
			}
		case <-deadline:
			return false
		}
	}
}
