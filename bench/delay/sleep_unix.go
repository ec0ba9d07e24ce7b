//go:build unix

package delay

import (
	"time"

	"golang.org/x/sys/unix"
)

// SleepUntil sleeps until a time, to some ten microseconds. A timer of the runtime may be late by a millisecond in a process
// that is idle, which is as much as the delays are that are asked for here. So the thread sleeps itself.
func SleepUntil(due time.Time) {
	for {
		left := time.Until(due)
		if left <= 0 {
			return
		}
		rest := unix.NsecToTimespec(left.Nanoseconds())
		_ = unix.Nanosleep(&rest, nil) // woken early by a signal it looks again
	}
}
