//go:build unix && !linux

package devredis

import (
	"os/exec"
	"syscall"
)

// tie keeps the server out of the terminal's process group, so that a Ctrl-C reaches this process alone, which
// then ends things in order.
func tie(cmd *exec.Cmd) { cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true} }
