// Package fleet is how an example becomes several processes: a team of workers, each a copy of the program, that
// take orders from their parent and answer, a line of JSON each, and that end when the parent does.
//
// The parent has a [Team], a worker has a [Line].
package fleet

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"slices"
	"time"
)

// CloseLimit bounds a worker's good-bye; who takes longer is killed a second later.
const CloseLimit = 10 * time.Second

// Word is what a worker says in one line.
type Word interface {
	// Failure says what went wrong with the worker; "" is nothing.
	Failure() string
}

// Team is all workers. Its methods are not to be called at the same time.
type Team[W Word] struct {
	binary   string
	variable string
	aside    func(i int, w W) bool
	members  []*member[W] // nil: it was killed
}

// member is one worker's process.
type member[W Word] struct {
	cmd   *exec.Cmd
	in    io.WriteCloser
	give  *json.Encoder
	words chan W // closed at the end of its output
}

// Start starts n copies of this program, with a variable that makes them workers ("NAME=value") in their
// environment, and returns what each says first. A word of worker i that aside returns true for is no answer to
// anything: its progress, for example. Without aside, every word is an answer.
func Start[W Word](ctx context.Context, n int, variable string, aside func(i int, w W) bool) (*Team[W], []W, error) {
	binary, err := os.Executable()
	if err != nil {
		return nil, nil, fmt.Errorf("start workers: %w", err)
	}
	t := &Team[W]{binary: binary, variable: variable, aside: aside, members: make([]*member[W], n)}
	for i := range n {
		if err := t.start(i); err != nil {
			return nil, nil, errors.Join(err, t.Close())
		}
	}
	words, err := t.Answers(ctx)
	if err != nil {
		return nil, nil, errors.Join(err, t.Close())
	}
	return t, words, nil
}

// start starts worker i.
func (t *Team[W]) start(i int) error {
	m, out, err := startMember[W](t.binary, t.variable)
	if err != nil {
		return err
	}
	t.members[i] = m
	go m.read(out, func(w W) bool { return t.aside != nil && t.aside(i, w) })
	return nil
}

// Kill ends worker i as a crash would, in the middle of whatever it does, and returns when it is gone. Until Restart it is
// no part of the team: it gets no orders, and its answers are zero words.
func (t *Team[W]) Kill(i int) error {
	m := t.members[i]
	if err := m.cmd.Process.Kill(); err != nil {
		return fmt.Errorf("kill worker %d: %w", m.cmd.Process.Pid, err)
	}
	t.members[i] = nil
	_ = m.in.Close()
	m.drain(nil)
	_ = m.cmd.Wait() // that it was killed is known
	return nil
}

// Restart starts worker i anew, which was killed, and returns what it says first.
func (t *Team[W]) Restart(ctx context.Context, i int) (w W, err error) {
	if err := t.start(i); err != nil {
		return w, err
	}
	return t.members[i].next(ctx)
}

func startMember[W Word](binary, variable string) (*member[W], io.Reader, error) {
	cmd := exec.Command(binary)
	cmd.Env = append(os.Environ(), variable)
	cmd.Stderr = os.Stderr
	in, err := cmd.StdinPipe()
	if err != nil {
		return nil, nil, fmt.Errorf("start worker: %w", err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		return nil, nil, fmt.Errorf("start worker: %w", err)
	}
	if err := cmd.Start(); err != nil {
		return nil, nil, fmt.Errorf("start worker: %w", err)
	}
	return &member[W]{cmd: cmd, in: in, give: json.NewEncoder(in), words: make(chan W, 1)}, out, nil
}

// read passes on what the worker says.
func (m *member[W]) read(out io.Reader, aside func(W) bool) {
	defer close(m.words)
	decoder := json.NewDecoder(bufio.NewReader(out))
	for {
		var w W
		if decoder.Decode(&w) != nil {
			return
		}
		if !aside(w) {
			m.words <- w
		}
	}
}

// Order tells every worker the same. One that has died says so where its answer is awaited.
func (t *Team[W]) Order(order any) {
	for _, m := range t.members {
		if m != nil {
			_ = m.give.Encode(order)
		}
	}
}

// Answers waits until every worker has answered, and returns what they say, in their order.
func (t *Team[W]) Answers(ctx context.Context) ([]W, error) {
	words := make([]W, len(t.members))
	for i, m := range t.members {
		if m == nil {
			continue
		}
		w, err := m.next(ctx)
		if err != nil {
			return nil, err
		}
		words[i] = w
	}
	return words, nil
}

// next waits for the worker's next word.
func (m *member[W]) next(ctx context.Context) (w W, err error) {
	select {
	case w, ok := <-m.words:
		if !ok {
			return w, fmt.Errorf("worker %d ended early", m.cmd.Process.Pid)
		}
		if failure := w.Failure(); failure != "" {
			return w, fmt.Errorf("worker %d: %s", m.cmd.Process.Pid, failure)
		}
		return w, nil
	case <-ctx.Done():
		return w, context.Cause(ctx)
	}
}

// Close ends the workers in good order, all at once, and those that take too long by force.
func (t *Team[W]) Close() error { return t.closeWithin(CloseLimit + time.Second) }

func (t *Team[W]) closeWithin(limit time.Duration) error {
	t.members = slices.DeleteFunc(t.members, func(m *member[W]) bool { return m == nil })
	for _, m := range t.members {
		_ = m.in.Close() // one that is gone needs no word of it
	}
	ctx, cancel := context.WithTimeout(context.Background(), limit)
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
func (m *member[W]) drain(deadline <-chan struct{}) bool {
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
