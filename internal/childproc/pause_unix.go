//go:build unix

package childproc

import "syscall"

// Stop freezes the child (SIGSTOP): its connections stay, it answers nothing.
func (p *Process) Stop() error { return p.Signal(syscall.SIGSTOP) }

// Cont lets a frozen child go on (SIGCONT).
func (p *Process) Cont() error { return p.Signal(syscall.SIGCONT) }
