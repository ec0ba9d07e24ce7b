//go:build !linux

package childproc

import "os/exec"

// dieWithParent does nothing: only Linux ties a child's life to its parent's.
func dieWithParent(*exec.Cmd) {}
