//go:build !unix

package delay

import "time"

// SleepUntil sleeps until a time.
func SleepUntil(due time.Time) { time.Sleep(time.Until(due)) }
