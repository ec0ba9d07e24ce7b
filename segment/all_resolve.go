package segment

import (
	"context"
	"strings"
	"time"
)

// maxRest is the longest pause before another attempt.
const maxRest = 64 * time.Millisecond

// overdue is what a spanning order has in open past its deadline.
type overdue struct {
	home  *home
	set   string
	field string
	value string
}

// entry is what is in open of a spanning order: see parts.lua.
type entry struct {
	kind    byte
	attempt string
	lines   string
	home    string
}

func parseEntry(value string) (e entry, ok bool) {
	fields := strings.SplitN(value, " ", 5)
	if len(fields) != 5 || fields[0] == "" || !strings.Contains("pdg", fields[0][:1]) {
		return entry{}, false
	}
	return entry{kind: fields[0][0], attempt: fields[1], lines: fields[3], home: fields[4]}, true
}

// ending is how an overdue entry is ended: all that is asked first, then what follows from it.
type ending struct {
	entry
	at    *overdue
	asked []*step
}

// resolve ends what spanning orders have left past its deadline, each as it was decided at the order's first
// home: whoever sees it does it, and done twice it does nothing. Nothing is sent again: what fails is seen again. It
// says whether there was progress.
func (s *Stock) resolve(due []overdue) (progress bool) {
	endings := make([]*ending, 0, len(due))
	var asked []*step
	for i := range due {
		e := s.ending(&due[i])
		if e == nil {
			continue
		}
		endings = append(endings, e)
		asked = append(asked, e.asked...)
	}
	takeSteps(s.once, asked...)
	var last []*step
	for _, e := range endings {
		if st := e.last(s); st != nil {
			last = append(last, st)
		}
	}
	takeSteps(s.once, last...)
	for _, st := range last {
		progress = progress || st.status != statusFailed
	}
	// Parts that went back at their first home were asked for there.
	for _, st := range asked {
		progress = progress || st.verb == "abort" && st.status == statusDone
	}
	return progress
}

// ending returns what is to be asked first; nil where it makes no sense.
func (s *Stock) ending(d *overdue) *ending {
	parsed, ok := parseEntry(d.value)
	if !ok {
		return nil
	}
	e := &ending{entry: parsed, at: d}
	if parsed.kind == 'p' && strings.HasPrefix(parsed.home, "=") {
		e.asked = []*step{e.step("abort", d.home, d.set, "")}
		return e
	}
	homes, sets, err := s.places(parsed.home)
	if err != nil {
		return nil
	}
	for i, h := range homes {
		switch parsed.kind {
		case 'p':
			e.asked = append(e.asked, e.step("abort", h, sets[i], ""))
		case 'd':
			e.asked = append(e.asked, e.step("finish", h, sets[i], placeOf(d.home, d.set)))
		case 'g':
			e.asked = append(e.asked, e.step("undo", h, sets[i], placeOf(d.home, d.set)))
		}
	}
	return e
}

func (e *ending) step(verb string, h *home, set, first string) *step {
	return &step{home: h, set: set, verb: verb, field: e.at.field, lines: e.lines, attempt: e.attempt, first: first}
}

// last is the step that ends it; nil: there is none, or it is too early.
func (e *ending) last(s *Stock) *step {
	for _, st := range e.asked {
		if st.status == statusFailed && !st.gone() {
			return nil
		}
	}
	if e.kind != 'p' {
		st := e.step("close", e.at.home, e.at.set, "")
		st.detail = string(e.kind)
		return st
	}
	first := e.asked[0]
	if first.home == e.at.home {
		return nil
	}
	verb := "abort"
	if first.status == statusAgain && first.by == e.attempt {
		verb = "finish"
	}
	return e.step(verb, e.at.home, e.at.set, e.entry.home)
}

// await waits, a little, for the end of the part of a spanning order that keeps an order with one stock
// of the same user and ID from being served.
func (h *home) await(ctx context.Context, field string, misses int) error {
	set, err := h.stock.set()
	if err != nil {
		return err
	}
	st := &step{home: h, set: set, verb: "see", field: field}
	takeSteps(h.stock.run, st)
	if st.status == statusFailed {
		return st.err
	}
	if st.rest(ctx, misses); ctx.Err() != nil {
		return ended(ErrNotDone, ctx)
	}
	return nil
}

// rest waits for the end of what is in the way of a step: it is ended where it has passed its deadline,
// and may be about to end by itself where not.
func (st *step) rest(ctx context.Context, misses int) {
	d := min(time.Millisecond<<min(misses, 10), maxRest)
	if st != nil && st.status == statusBusy {
		if st.left < 0 {
			st.home.stock.resolve([]overdue{{st.home, st.set, st.field, st.by}})
		}
		d = max(min(d, st.left), time.Millisecond)
	}
	_ = pause(ctx, d) // whoever rests looks at ctx next
}
