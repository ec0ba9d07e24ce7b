package segment

import (
	"weak"

	"github.com/go-leasehold/leasehold/coordinator"
)

// NoteLife and NoteTrust are what the documentation promises.
const (
	NoteLife  = noteLife
	NoteTrust = noteTrust
	FewFleets = fewFleets
)

// Remembers says whether anything is remembered of a coordinator.
func Remembers(c weak.Pointer[coordinator.Coordinator]) bool {
	_, ok := allFleets.Load(c)
	return ok
}

// Fleets is how many fleets, and claims in place of notes, are remembered of a coordinator.
func Fleets(c *coordinator.Coordinator) (known, claims int) {
	f := fleetsOf(c)
	f.mu.Lock()
	defer f.mu.Unlock()
	return len(f.of), len(f.claims)
}

// Agreed says whether the next call would ask nobody.
func (l *Locks) Agreed() bool { return l.agreed() }
