//go:build race

package coordinator

const (
	// pooled is how much more than without the race detector a read may allocate: it
	// has pools forget things at random.
	pooled = 1.5
	// manyCalls is how many calls show that nothing is kept of them.
	manyCalls = 10_000
)
