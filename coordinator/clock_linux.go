package coordinator

import (
	"time"

	"golang.org/x/sys/unix"
)

// slept returns how long the machine has been suspended since it booted:
// CLOCK_BOOTTIME counts that time, CLOCK_MONOTONIC does not. Being interrupted
// between the two readings can only make it look longer, so it takes the
// shortest of three.
func slept() (time.Duration, bool) {
	shortest := time.Duration(1<<63 - 1)
	for range 3 {
		var boot, mono unix.Timespec
		if unix.ClockGettime(unix.CLOCK_MONOTONIC, &mono) != nil || unix.ClockGettime(unix.CLOCK_BOOTTIME, &boot) != nil {
			return 0, false
		}
		shortest = min(shortest, time.Duration(boot.Nano()-mono.Nano()))
	}
	return shortest, true
}
