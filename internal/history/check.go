package history

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/anishathalye/porcupine"
)

// Rules are what a history is held to.
type Rules struct {
	// TTL is that of the leases: no hold lives on in a process that stood still for
	// longer, nor in one whose lease was deleted that long ago.
	TTL time.Duration
	// Limit is how long the search may take for one key.
	Limit time.Duration
}

// Violation is an error of [Check].
type Violation struct {
	Text string

	ops []porcupine.Operation // of the key; none where no order is to blame
	// found is what the search tried.
	found porcupine.LinearizationInfo
}

// Error tells what was wrong.
func (v *Violation) Error() string { return v.Text }

// shownWrongs bounds how much is told of what is wrong.
const shownWrongs = 10

// Check returns nil if the history can be explained, or a [*Violation]. What is
// wrong with single holds is told first.
func Check(events []Event, rules Rules) error {
	stories, wrong := tell(events, rules.TTL)
	if n := len(wrong); n > 0 {
		if n > shownWrongs {
			wrong = append(wrong[:shownWrongs], fmt.Sprintf("and %d more", n-shownWrongs))
		}
		return &Violation{Text: strings.Join(wrong, "\n")}
	}
	for _, s := range stories {
		if v := s.check(rules.Limit); v != nil {
			return v
		}
	}
	return nil
}

// check searches an order for one key.
func (s *story) check(limit time.Duration) *Violation {
	ops := s.operations()
	result := porcupine.CheckOperationsTimeout(model, ops, limit)
	if result == porcupine.Ok {
		return nil
	}
	v := &Violation{ops: ops}
	_, v.found = porcupine.CheckOperationsVerbose(model, ops, limit) // takes notes, which is slower
	v.Text = fmt.Sprintf("key %q: no order explains its %d operations", s.key, len(ops))
	if result == porcupine.Unknown {
		v.Text = fmt.Sprintf("key %q: no order of its %d operations was found within %v: "+
			"there is none, or the history is too long for one key", s.key, len(ops), limit)
	}
	v.Text += "\n" + v.explain()
	return v
}

// explain tells how far the best order goes, and what it can't go on with.
func (v *Violation) explain() string {
	var best []porcupine.Operation
	for _, order := range v.found.PartialLinearizationsOperations()[0] {
		if len(order) > len(best) {
			best = order
		}
	}
	state := &lock{}
	done := map[input]bool{}
	for _, op := range best {
		in, _ := op.Input.(input)
		state, done[in] = state.step(in), true
	}
	rest := slices.DeleteFunc(slices.Clone(v.ops), func(op porcupine.Operation) bool {
		in, _ := op.Input.(input)
		return done[in]
	})
	slices.SortFunc(rest, func(a, b porcupine.Operation) int {
		return int(min(1, max(-1, a.Return-b.Return)))
	})
	text := fmt.Sprintf("after %d of them: %v", len(best), state)
	for _, op := range rest[:min(len(rest), shownWrongs)] {
		text += fmt.Sprintf("\nstill to come, from %d to %d: %v", op.Call, op.Return, op.Input)
	}
	return text
}

// Keep writes the events, and a picture of the search if err has one, into dir. It
// returns the paths.
func Keep(dir string, events []Event, err error) (paths []string, failed error) {
	record := filepath.Join(dir, "history.jsonl")
	f, failed := os.Create(record)
	if failed != nil {
		return nil, failed
	}
	if failed := errors.Join(Save(f, events), f.Close()); failed != nil {
		return nil, failed
	}
	paths = append(paths, record)
	var v *Violation
	if !errors.As(err, &v) || v.ops == nil {
		return paths, nil
	}
	picture := filepath.Join(dir, "history.html")
	if failed := porcupine.VisualizePath(model, v.found, picture); failed != nil {
		return paths, failed
	}
	return append(paths, picture), nil
}
