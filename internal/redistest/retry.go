package redistest

import (
	"slices"
	"time"
)

// retry tries until it works, or has not for too long.
func retry(try func() error) error {
	for deadline := time.Now().Add(startLimit); ; time.Sleep(10 * time.Millisecond) {
		if err := try(); err == nil || time.Now().After(deadline) {
			return err
		}
	}
}

func sorted(list []string) []string {
	slices.Sort(list)
	return list
}
