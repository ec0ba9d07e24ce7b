//go:build unix

package childproc

import (
	"fmt"
	"syscall"
	"time"
)

// stopLimit bounds the wait for a child's threads to stop, which takes long on a loaded machine only.
const stopLimit = 20 * time.Second

// Stop freezes the child (SIGSTOP): its connections stay, it answers nothing. A signal reaches the threads of a
// process one after the other; where the system tells (Linux), Stop returns when the last one has stopped.
func (p *Process) Stop() error {
	if err := p.Signal(syscall.SIGSTOP); err != nil {
		return err
	}
	deadline := time.Now().Add(stopLimit)
	retry := time.NewTicker(time.Millisecond)
	defer retry.Stop()
	for {
		stopped, err := stopped(p.Pid())
		if err != nil {
			return fmt.Errorf("stop process %d: %w", p.Pid(), err)
		}
		if stopped {
			return nil
		}
		if time.Now().After(deadline) {
			return fmt.Errorf("process %d has not stopped within %v", p.Pid(), stopLimit)
		}
		select {
		case <-p.done: // a child that has ended is no error
			return nil
		case <-retry.C:
		}
	}
}

// Cont lets a frozen child go on (SIGCONT).
func (p *Process) Cont() error { return p.Signal(syscall.SIGCONT) }
