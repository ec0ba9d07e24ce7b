//go:build !race

package coordinator

const (
	// pooled is how much more or less than one thing a read may allocate.
	pooled = 0.1
	// manyCalls is how many calls show that nothing is kept of them.
	manyCalls = 100_000
)
