//go:build unix

package harness

import (
	"os"
	"time"

	"golang.org/x/sys/unix"
)

// share maps a file into memory that all processes see.
func share(path string, size int) ([]byte, error) {
	file, err := os.OpenFile(path, os.O_RDWR, 0)
	if err != nil {
		return nil, err
	}
	defer func() { _ = file.Close() }() // the mapping stays
	return unix.Mmap(int(file.Fd()), 0, size, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
}

func unshare(memory []byte) error { return unix.Munmap(memory) }

// Now is a clock that all processes of a machine share, and that nobody sets.
func Now() time.Duration {
	var now unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_MONOTONIC, &now); err != nil {
		return time.Duration(time.Now().UnixNano()) // nearly as good
	}
	return time.Duration(now.Nano())
}

// cpuTime is the CPU time that this process has used, in microseconds.
func cpuTime() float64 {
	var usage unix.Rusage
	if err := unix.Getrusage(unix.RUSAGE_SELF, &usage); err != nil {
		return 0 // it fails for no argument of ours
	}
	return float64(usage.Utime.Nano()+usage.Stime.Nano()) / 1e3
}
