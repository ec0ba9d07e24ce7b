// Package childproc starts child processes that never outlive their parent: they are killed when the test
// that started them ends, and, on Linux, by the kernel when the parent dies without ending anything.
package childproc

import (
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"time"
)

// pipeDelay is how long Wait waits for output pipes that a grandchild holds open.
const pipeDelay = time.Second

// Process is a running child. Every method may be called from any goroutine.
type Process struct {
	cmd  *exec.Cmd
	done chan struct{}
	err  error // written once, before done is closed
}

// Start starts cmd as a child that dies with this process.
//
// The kernel sends the parent-death signal when the *thread* that forked ends, not the process. So one
// goroutine, locked to its thread, starts the child and stays until the child has ended.
func Start(cmd *exec.Cmd) (*Process, error) {
	dieWithParent(cmd)
	if cmd.WaitDelay == 0 {
		cmd.WaitDelay = pipeDelay
	}
	p := &Process{cmd: cmd, done: make(chan struct{})}
	started := make(chan error, 1)
	go func() {
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		if err := cmd.Start(); err != nil {
			started <- err
			return
		}
		started <- nil
		p.err = cmd.Wait()
		close(p.done)
	}()
	if err := <-started; err != nil {
		return nil, fmt.Errorf("start %s: %w", cmd.Path, err)
	}
	return p, nil
}

// Pid returns the child's process id.
func (p *Process) Pid() int { return p.cmd.Process.Pid }

// Done is closed when the child has ended and been waited for.
func (p *Process) Done() <-chan struct{} { return p.done }

// Wait waits for the child's end and returns what os/exec's Wait said of it.
func (p *Process) Wait() error {
	<-p.done
	return p.err
}

// Signal sends sig to the child. A child that has ended is no error.
func (p *Process) Signal(sig os.Signal) error {
	select {
	case <-p.done:
		return nil
	default:
	}
	if err := p.cmd.Process.Signal(sig); err != nil && !p.ended() {
		return fmt.Errorf("signal %v to process %d: %w", sig, p.Pid(), err)
	}
	return nil
}

// ended tells whether a failed signal only met a child that was ending.
func (p *Process) ended() bool {
	select {
	case <-p.done:
		return true
	case <-time.After(pipeDelay):
		return false
	}
}

// Kill kills the child, stopped or not, and waits until it is gone.
func (p *Process) Kill() {
	_ = p.Signal(os.Kill) // it ends either way; Wait tells how
	<-p.done
}
