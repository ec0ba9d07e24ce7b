package history

import (
	"fmt"
	"hash/fnv"
	"slices"
	"strings"

	"github.com/anishathalye/porcupine"
)

// input is a step of the model. What it came to is part of it, for only calls whose
// answer is known are steps.
type input struct {
	what  What // Locked, Unlocked, Downgraded or Lost
	hold  ID
	owner ID
	next  ID
	mode  Mode
	token uint64

	// Of Locked, from the tokens of the whole history.
	lower int    // how many calls that locked have a lower token
	write uint64 // the highest token of a write that is not above this one
}

// String describes a step.
func (in input) String() string {
	switch in.what {
	case Locked:
		text := fmt.Sprintf("%s: %s, token %d", in.hold, in.mode, in.token)
		if in.owner != in.hold {
			text += ", owner " + string(in.owner)
		}
		return text
	case Downgraded:
		return fmt.Sprintf("%s: downgraded to %s", in.hold, in.next)
	}
	return fmt.Sprintf("%s: %s", in.hold, in.what)
}

// lock is a state of the model. It is never changed.
type lock struct {
	locked int    // calls so far
	newest uint64 // of all tokens
	write  uint64 // the newest token of a write
	inside []guest
}

// guest is a handle that is inside.
type guest struct {
	hold, owner ID
	mode        Mode
	token       uint64
}

// String describes a state.
func (l *lock) String() string {
	if len(l.inside) == 0 {
		return fmt.Sprintf("nobody is inside, newest token %d", l.newest)
	}
	guests := make([]string, len(l.inside))
	for i, g := range l.inside {
		guests[i] = fmt.Sprintf("%s (%s, token %d)", g.hold, g.mode, g.token)
	}
	return "inside: " + strings.Join(guests, ", ")
}

// step returns the state after a step, or nil where it can't be taken.
func (l *lock) step(in input) *lock {
	if in.what == Locked {
		return l.enter(in)
	}
	at := slices.IndexFunc(l.inside, func(g guest) bool { return g.hold == in.hold })
	if at < 0 {
		return nil
	}
	next := *l
	if in.what != Downgraded {
		next.inside = slices.Concat(l.inside[:at], l.inside[at+1:])
		return &next
	}
	if l.inside[at].mode != Write {
		return nil
	}
	next.inside = slices.Clone(l.inside)
	next.inside[at].hold, next.inside[at].mode = in.next, Read
	return &next
}

func (l *lock) enter(in input) *lock {
	own, ownWrites, others, othersWrite := 0, false, 0, false
	for _, g := range l.inside {
		switch {
		case g.owner != in.owner:
			others++
			othersWrite = othersWrite || g.mode == Write
		case g.token != in.token:
			return nil // that hold of the owner is not over yet
		default:
			own++
			ownWrites = ownWrites || g.mode == Write
		}
	}
	switch {
	case own > 0 && in.mode == Write && !ownWrites: // an upgrade
		return nil
	case own > 0: // re-entry
	case l.early(in):
		return nil
	case in.mode == Write && (others > 0 || in.token <= l.newest):
		return nil
	case in.mode == Read && (othersWrite || in.token < l.write):
		return nil
	}
	next := *l
	next.locked++
	next.newest = max(l.newest, in.token)
	if in.mode == Write {
		next.write = max(l.write, in.token)
	}
	next.inside = append(slices.Clone(l.inside), guest{in.hold, in.owner, in.mode, in.token})
	return &next
}

// early says that others have to come in first, for their tokens would not be
// right after this one. That is no rule of its own: it ends a search that the rules
// of tokens would end later.
func (l *lock) early(in input) bool {
	if in.mode == Write {
		return l.locked < in.lower
	}
	return l.write < in.write
}

// same says that two states have the same guests and tokens, in whatever order the
// guests came.
func (l *lock) same(m *lock) bool {
	if l.locked != m.locked || l.newest != m.newest || l.write != m.write || len(l.inside) != len(m.inside) {
		return false
	}
	for _, g := range l.inside {
		if !slices.Contains(m.inside, g) {
			return false
		}
	}
	return true
}

func (l *lock) hash() uint64 {
	sum := uint64(l.locked)
	for _, g := range l.inside {
		h := fnv.New64a()
		_, _ = h.Write([]byte(g.hold)) // a hash takes everything
		sum += h.Sum64()
	}
	return sum
}

// model is what porcupine searches an order for.
var model = porcupine.Model{
	Init: func() any { return &lock{} },
	Step: func(state, in, _ any) (bool, any) {
		next := state.(*lock).step(in.(input))
		return next != nil, next
	},
	Equal:             func(a, b any) bool { return a.(*lock).same(b.(*lock)) },
	Hash:              func(state any) uint64 { return state.(*lock).hash() },
	DescribeOperation: func(in, _ any) string { return in.(input).String() },
	DescribeState:     func(state any) string { return state.(*lock).String() },
}
