package faults

import (
	"bytes"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/go-leasehold/leasehold/internal/childproc"
)

// ExpectLimit is how long [Child.Expect] waits: far longer than anything a test waits for, since it only
// decides how soon a hopeless test ends.
const ExpectLimit = 30 * time.Second

// Child is a process of its own that runs a role of this test binary.
type Child struct {
	role   string
	proc   *childproc.Process
	stdin  io.WriteCloser
	stderr childproc.Tail
	lines  lineQueue
}

// StartChild starts this test binary as another process in the given role. The child is killed when the test
// ends, and dies with the test binary. Role names and what they do stand in the [Roles] of TestMain.
func StartChild(t testing.TB, role string, args ...string) *Child {
	t.Helper()
	binary, err := os.Executable()
	if err != nil {
		t.Fatalf("faults: own path: %v", err)
	}
	c := &Child{role: role, lines: lineQueue{wake: make(chan struct{}, 1)}}
	cmd := exec.Command(binary, args...)
	cmd.Env = append(os.Environ(), roleVariable+"="+role)
	cmd.Stdout, cmd.Stderr = &c.lines, &c.stderr
	if c.stdin, err = cmd.StdinPipe(); err != nil {
		t.Fatalf("faults: child %s: %v", role, err)
	}
	if c.proc, err = childproc.Start(cmd); err != nil {
		t.Fatalf("faults: child %s: %v", role, err)
	}
	t.Cleanup(func() {
		c.Kill()
		if t.Failed() {
			t.Logf("child %s (%d): %v\nit said:\n%s\nits stderr:\n%s", role, c.Pid(), c.Wait(), c.lines.transcript(), &c.stderr)
		}
	})
	return c
}

// Pid returns the child's process id.
func (c *Child) Pid() int { return c.proc.Pid() }

// Send tells the child one line, which its Hear returns.
func (c *Child) Send(line string) {
	// A child that has ended can't hear it; the Expect that follows will say so.
	_, _ = io.WriteString(c.stdin, line+"\n")
}

// CloseInput tells the child that no more lines will come.
func (c *Child) CloseInput() { _ = c.stdin.Close() }

// Expect waits for the child's next line that starts with prefix and returns what follows it, without the
// spaces between. Lines before it are passed over. The test fails when the child ends, or says nothing of the
// kind within [ExpectLimit].
func (c *Child) Expect(t testing.TB, prefix string) string {
	t.Helper()
	return c.ExpectWithin(t, ExpectLimit, prefix)
}

// ExpectWithin is Expect with a limit of its own.
func (c *Child) ExpectWithin(t testing.TB, limit time.Duration, prefix string) string {
	t.Helper()
	rest, err := c.await(limit, prefix)
	if err != nil {
		t.Fatal(err)
	}
	return rest
}

func (c *Child) await(limit time.Duration, prefix string) (string, error) {
	timer := time.NewTimer(limit)
	defer timer.Stop()
	done := c.proc.Done()
	for {
		if rest, ok := c.lines.find(prefix); ok {
			return rest, nil
		}
		if done == nil {
			return "", fmt.Errorf("child %s ended (%w) without saying %q", c.role, c.Wait(), prefix)
		}
		select {
		case <-c.lines.wake:
		case <-done:
			done = nil // all it said is in the queue now: one last look
		case <-timer.C:
			return "", fmt.Errorf("child %s did not say %q within %v", c.role, prefix, limit)
		}
	}
}

// Stop freezes the child (SIGSTOP), as a long pause of its machine would.
func (c *Child) Stop() { c.must(c.proc.Stop()) }

// Cont lets a frozen child go on (SIGCONT).
func (c *Child) Cont() { c.must(c.proc.Cont()) }

// Kill kills the child as a crash would (SIGKILL) and waits until it is gone.
func (c *Child) Kill() { c.proc.Kill() }

// Wait waits for the child's end and tells how it ended: nil when its role returned.
func (c *Child) Wait() error { return c.proc.Wait() }

// Done is closed when the child has ended.
func (c *Child) Done() <-chan struct{} { return c.proc.Done() }

func (c *Child) must(err error) {
	if err != nil {
		panic(fmt.Errorf("faults: child %s: %w", c.role, err))
	}
}

// lineQueue collects a child's output by lines.
type lineQueue struct {
	wake chan struct{} // room for one: notices merge

	mu   sync.Mutex
	part []byte   // of a line not yet ended
	all  []string // everything said so far
	next int      // the first line not yet passed over
}

// Write is called by the goroutine that copies the child's output.
func (q *lineQueue) Write(p []byte) (int, error) {
	q.mu.Lock()
	q.part = append(q.part, p...)
	for {
		line, rest, ok := bytes.Cut(q.part, []byte("\n"))
		if !ok {
			break
		}
		q.all = append(q.all, string(line))
		q.part = append([]byte(nil), rest...)
	}
	q.mu.Unlock()
	select {
	case q.wake <- struct{}{}:
	default:
	}
	return len(p), nil
}

// find passes over lines until one starts with prefix.
func (q *lineQueue) find(prefix string) (string, bool) {
	q.mu.Lock()
	defer q.mu.Unlock()
	for q.next < len(q.all) {
		line := q.all[q.next]
		q.next++
		if rest, ok := strings.CutPrefix(line, prefix); ok {
			return strings.TrimSpace(rest), true
		}
	}
	return "", false
}

func (q *lineQueue) transcript() string {
	q.mu.Lock()
	defer q.mu.Unlock()
	return strings.Join(q.all, "\n")
}
