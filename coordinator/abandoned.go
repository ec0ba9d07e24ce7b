package coordinator

import (
	"fmt"
	"runtime"
	"strings"
)

// watchHandle has it told if the first handle of a claim is dropped without
// Unlock. Until a hold has lasted for a moment the claim keeps its handle
// itself, so that short holds don't pay for this. It is called under the
// actor's mutex.
func (c *claim) watchHandle(a *actor) {
	if c.hold == nil {
		return
	}
	c.hold.watch(a)
	c.hold = nil
}

// watch has it told if the handle is dropped without Unlock.
func (h *Hold) watch(a *actor) {
	x := h.extras()
	x.watched = true
	h.claim.kept = true
	x.cleanup = runtime.AddCleanup(h, a.abandoned, h.claim)
}

// abandoned notes that a handle of a claim was garbage-collected. It runs on
// the runtime's own goroutine, from which channels of a synctest bubble can't be
// used: so it leaves a note, and the coordinator's goroutine tells.
func (a *actor) abandoned(c *claim) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if c.state != granted {
		return
	}
	a.noteAbandoned(c.token, c.placed())
}

func (a *actor) noteAbandoned(token uint64, place string) {
	a.stats.Abandoned++
	n := &a.c.abandoned
	n.Lock()
	n.notes = append(n.notes, note{a.key, token, place})
	n.Unlock()
}

// note tells of a hold that was garbage-collected while it was held.
type note struct {
	key   string
	token uint64
	place string
}

// tellAbandoned logs the holds that were garbage-collected while they were held.
func (c *Coordinator) tellAbandoned() {
	c.abandoned.Lock()
	notes := c.abandoned.notes
	c.abandoned.notes = nil
	c.abandoned.Unlock()
	for _, n := range notes {
		c.journal.abandoned(n.key, n.token, n.place)
	}
}

// place writes down where a claim was made, the innermost call outside this
// package first.
func place(pcs []uintptr) string {
	var b strings.Builder
	frames := runtime.CallersFrames(pcs)
	for n := 0; n < 3; n++ {
		f, more := frames.Next()
		if n > 0 {
			b.WriteString(" < ")
		}
		fmt.Fprintf(&b, "%s (%s:%d)", f.Function, f.File, f.Line)
		if !more {
			break
		}
	}
	return b.String()
}
