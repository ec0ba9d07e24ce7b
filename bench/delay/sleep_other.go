//go:build !unix

package delay

import "time"

// sleepUntil sleeps until a time.
func sleepUntil(due time.Time) { time.Sleep(time.Until(due)) }
