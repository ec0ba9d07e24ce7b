package faults

import (
	_ "embed"
	"encoding/binary"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"
)

//go:embed clockc/clock.c
var clockSource []byte

// Clock is the wall clock of servers, which a test steps. What a process of Go reads is not changed by it.
type Clock struct {
	file *os.File
	off  time.Duration
}

// NewClock gives the processes that the test starts from now on a wall clock of their own. It needs a C compiler, as the
// race detector does, and sets environment variables, so the test can't be a parallel one.
func NewClock(t testing.TB) *Clock {
	t.Helper()
	dir := t.TempDir()
	source, shim := filepath.Join(dir, "clock.c"), filepath.Join(dir, "clock.so")
	if err := os.WriteFile(source, clockSource, 0o600); err != nil {
		t.Fatalf("faults: clock: %v", err)
	}
	if out, err := exec.Command("cc", "-shared", "-fPIC", "-O1", "-o", shim, source).CombinedOutput(); err != nil {
		t.Fatalf("faults: clock: it takes a C compiler, as the race detector does: %v\n%s", err, out)
	}
	file, err := os.Create(filepath.Join(dir, "clock"))
	if err != nil {
		t.Fatalf("faults: clock: %v", err)
	}
	c := &Clock{file: file}
	t.Cleanup(func() { _ = file.Close() })
	c.Step(t, 0)
	t.Setenv("LEASEHOLD_CLOCK", file.Name())
	t.Setenv("LD_PRELOAD", shim)
	return c
}

// Step steps the clock, forward or backward.
func (c *Clock) Step(t testing.TB, d time.Duration) {
	t.Helper()
	c.off += d
	if _, err := c.file.WriteAt(binary.NativeEndian.AppendUint64(nil, uint64(c.off)), 0); err != nil {
		t.Fatalf("faults: clock: %v", err)
	}
}
