package childproc

import (
	"os/exec"
	"syscall"
)

// dieWithParent asks the kernel to kill the child when its parent ends, however it ends.
func dieWithParent(cmd *exec.Cmd) {
	if cmd.SysProcAttr == nil {
		cmd.SysProcAttr = &syscall.SysProcAttr{}
	}
	cmd.SysProcAttr.Pdeathsig = syscall.SIGKILL
}
