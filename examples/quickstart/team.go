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
	"sync/atomic"
	"time"
)

// team is all worker processes.
type team struct {
	members []*member
}

// member is one worker process.
type member struct {
	cmd   *exec.Cmd
	in    io.WriteCloser
	give  *json.Encoder
	words chan word // closed at the end of its output
	locks atomic.Int64
}

// startTeam starts the workers and waits until each is connected.
func startTeam(ctx context.Context, s settings, addr string) (*team, error) {
	binary, err := os.Executable()
	if err != nil {
		return nil, fmt.Errorf("start workers: %w", err)
	}
	t := &team{}
	for range s.processes {
		m, err := startMember(binary, addr)
		if err != nil {
			return nil, errors.Join(err, t.close())
		}
		t.members = append(t.members, m)
	}
	for _, m := range t.members {
		w, err := m.next(ctx)
		if err == nil && w.Error != "" {
			err = errors.New(w.Error)
		}
		if err != nil {
			return nil, errors.Join(err, t.close())
		}
	}
	return t, nil
}

func startMember(binary, addr string) (*member, error) {
	cmd := exec.Command(binary)
	cmd.Env = append(os.Environ(), workerVariable+"="+addr)
	cmd.Stderr = os.Stderr
	in, err := cmd.StdinPipe()
	if err != nil {
		return nil, fmt.Errorf("start worker: %w", err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		return nil, fmt.Errorf("start worker: %w", err)
	}
	if err := cmd.Start(); err != nil {
		return nil, fmt.Errorf("start worker: %w", err)
	}
	m := &member{cmd: cmd, in: in, give: json.NewEncoder(in), words: make(chan word, 1)}
	go m.read(out)
	return m, nil
}

// read passes on what the worker says, but for its progress, which is only noted.
func (m *member) read(out io.Reader) {
	defer close(m.words)
	decoder := json.NewDecoder(bufio.NewReader(out))
	for {
		var w word
		if decoder.Decode(&w) != nil {
			return
		}
		m.locks.Store(w.Locks)
		if w.Ready || w.Done || w.Error != "" {
			m.words <- w
		}
	}
}

// next waits for the worker's next word.
func (m *member) next(ctx context.Context) (word, error) {
	select {
	case w, ok := <-m.words:
		if !ok {
			return w, fmt.Errorf("worker %d ended early", m.cmd.Process.Pid)
		}
		return w, nil
	case <-ctx.Done():
		return word{}, context.Cause(ctx)
	}
}

// order tells every worker the same. One that has died says so where its answer is awaited.
func (t *team) order(o order) {
	for _, m := range t.members {
		m.locks.Store(0)
		_ = m.give.Encode(o)
	}
}

// locks returns how far all are, as far as they have said.
func (t *team) locks() int64 {
	var sum int64
	for _, m := range t.members {
		sum += m.locks.Load()
	}
	return sum
}

// answers waits until every worker has ended its round, and returns what they say, in their order.
func (t *team) answers(ctx context.Context) ([]word, error) {
	words := make([]word, len(t.members))
	for i, m := range t.members {
		w, err := m.next(ctx)
		if err != nil {
			return nil, err
		}
		if w.Error != "" {
			return nil, fmt.Errorf("worker %d: %s", m.cmd.Process.Pid, w.Error)
		}
		words[i] = w
	}
	return words, nil
}

// close ends the workers in good order, all at once, and those that take too long by force.
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
			errs = append(errs, fmt.Errorf("worker %d: %w", m.cmd.Process.Pid, err))
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
