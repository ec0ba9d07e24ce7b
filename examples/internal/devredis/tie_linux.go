package devredis

import (
	"os/exec"
	"syscall"
)

// tie makes the server die with this process, and keeps it out of the terminal's process group, so that a
// Ctrl-C reaches this process alone, which then ends things in order.
func tie(cmd *exec.Cmd) {
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL, Setpgid: true}
}
