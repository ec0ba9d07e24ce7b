package harness

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/rpc"
	"os"
	"os/exec"
	"time"

	"github.com/go-leasehold/leasehold/internal/childproc"
)

// ChildVariable is the environment variable that makes the program a child.
const ChildVariable = "LEASEHOLD_BENCH_CHILD"

// IsChild tells whether this process is one.
func IsChild() bool { return os.Getenv(ChildVariable) != "" }

// callLimit bounds a call to a child. The longest takes as long as a million keys.
const callLimit = 5 * time.Minute

// ChildProcess is a child, seen from its parent.
type ChildProcess struct {
	proc   *childproc.Process
	client *rpc.Client
	out    *childproc.Tail
}

// start starts the program again as a child.
func start(environment ...string) (*ChildProcess, error) {
	program, err := os.Executable()
	if err != nil {
		return nil, err
	}
	cmd, out := exec.Command(program), &childproc.Tail{}
	cmd.Env = append(append(os.Environ(), ChildVariable+"=1"), environment...)
	cmd.Stderr = out
	stdin, err := cmd.StdinPipe()
	if err != nil {
		return nil, err
	}
	stdout, stdoutWriter, err := os.Pipe() // not StdoutPipe, which Wait closes before all is read
	if err != nil {
		return nil, err
	}
	cmd.Stdout = stdoutWriter
	proc, err := childproc.Start(cmd)
	_ = stdoutWriter.Close() // the child has its own
	if err != nil {
		_ = stdout.Close() // nobody reads it
		return nil, err
	}
	return &ChildProcess{proc: proc, out: out, client: rpc.NewClient(&pipes{stdout, stdin})}, nil
}

// pipes is the way to a child.
type pipes struct {
	io.ReadCloser
	in io.WriteCloser
}

func (p *pipes) Write(b []byte) (int, error) { return p.in.Write(b) }
func (p *pipes) Close() error                { return errors.Join(p.in.Close(), p.ReadCloser.Close()) }

// Call calls a method of a service of the child.
func (c *ChildProcess) Call(ctx context.Context, method string, args, reply any) error {
	ctx, cancel := context.WithTimeout(ctx, callLimit)
	defer cancel()
	call := c.client.Go(method, args, reply, make(chan *rpc.Call, 1))
	select {
	case <-call.Done:
		if call.Error != nil {
			return fmt.Errorf("%s: %w%s", method, call.Error, c.said())
		}
		return nil
	case <-ctx.Done():
		return fmt.Errorf("%s: no answer: %w%s", method, context.Cause(ctx), c.said())
	}
}

// said is the last that the child wrote, for an error's text.
func (c *ChildProcess) said() string {
	if text := c.out.String(); text != "" {
		return "; it wrote:\n" + text
	}
	return ""
}

// Pause freezes the child, where the system can: its connections stay, and it does nothing until Resume.
func (c *ChildProcess) Pause() error { return supported(c.proc.Stop()) }

// Resume lets it go on.
func (c *ChildProcess) Resume() error { return supported(c.proc.Cont()) }

// supported passes over that a system can't freeze processes. They are idle there.
func supported(err error) error {
	if errors.Is(err, errors.ErrUnsupported) {
		return nil
	}
	return err
}

// Kill kills the child as a crash would (SIGKILL), and waits until it is gone.
func (c *ChildProcess) Kill() {
	c.proc.Kill()
	_ = c.client.Close() // the other end is gone
}

// endFor is how long a child may take to end once it was told to.
const endFor = 10 * time.Second

// End closes the contender and ends the child.
func (c *ChildProcess) End(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, endFor)
	defer cancel()
	err := c.Call(ctx, "Worker.Close", Nothing{}, &Nothing{})
	_ = c.client.Close() // ends the child, which reads from it
	select {
	case <-c.proc.Done():
	case <-ctx.Done():
		c.proc.Kill()
	}
	return err
}
