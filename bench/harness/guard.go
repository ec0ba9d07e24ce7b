package harness

import (
	"fmt"
	"os"
	"sync/atomic"
	"unsafe"
)

// GuardSlots is how many keys a guard can tell apart.
const GuardSlots = 1 << 20

// writer is what an exclusive holder adds to a slot; readers add one each.
const writer = int64(1) << 32

// Guard finds holders that should not be there at the same time, in whichever processes they are: it is memory that
// all of them share, with a number for each key. It works whatever the lock says, for every contender the same way.
type Guard struct {
	memory     []byte
	slots      []atomic.Int64 // of memory
	violations atomic.Int64   // that this process met
}

// CreateGuard makes the file that processes share.
func CreateGuard(path string) error {
	file, err := os.Create(path)
	if err != nil {
		return fmt.Errorf("guard: %w", err)
	}
	if err := file.Truncate(GuardSlots * int64(unsafe.Sizeof(atomic.Int64{}))); err != nil {
		_ = file.Close() // the first error tells more
		return fmt.Errorf("guard: %w", err)
	}
	return file.Close()
}

// OpenGuard opens what CreateGuard made.
func OpenGuard(path string) (*Guard, error) {
	memory, err := share(path, GuardSlots*int(unsafe.Sizeof(atomic.Int64{})))
	if err != nil {
		return nil, fmt.Errorf("guard: %w", err)
	}
	return &Guard{memory: memory, slots: unsafe.Slice((*atomic.Int64)(unsafe.Pointer(&memory[0])), GuardSlots)}, nil
}

// Close gives the memory back.
func (g *Guard) Close() error {
	g.slots = nil
	return unshare(g.memory)
}

// Enter notes an exclusive holder of a key.
func (g *Guard) Enter(slot int) {
	if g.slots[slot].Add(writer) != writer {
		g.violations.Add(1)
	}
}

// Leave takes an exclusive holder back.
func (g *Guard) Leave(slot int) { g.slots[slot].Add(-writer) }

// EnterShared notes a reader of a key.
func (g *Guard) EnterShared(slot int) {
	if g.slots[slot].Add(1) >= writer {
		g.violations.Add(1)
	}
}

// LeaveShared takes a reader back.
func (g *Guard) LeaveShared(slot int) { g.slots[slot].Add(-1) }

// Clear forgets who is inside: after a holder was killed, and before a round.
func (g *Guard) Clear() {
	for i := range g.slots {
		if g.slots[i].Load() != 0 {
			g.slots[i].Store(0)
		}
	}
}

// Counters is how many numbers there are for scenarios. No key has their slots.
const Counters = 2

// Counter is a number that all processes share, for a scenario to use as it likes. Clear sets it to zero.
func (g *Guard) Counter(i int) *atomic.Int64 { return &g.slots[GuardSlots-Counters+i] }

// Take returns how many violations this process met since the last call.
func (g *Guard) Take() int64 { return g.violations.Swap(0) }
