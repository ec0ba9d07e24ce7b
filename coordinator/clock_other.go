//go:build !linux

package coordinator

import "time"

// slept is not known here: the wall clock has to tell.
func slept() (time.Duration, bool) { return 0, false }
