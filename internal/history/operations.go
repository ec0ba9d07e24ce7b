package history

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"sort"
	"time"

	"github.com/anishathalye/porcupine"
)

// never is the return of what may happen at any time, or not at all.
const never = math.MaxInt64

// handle is all that is known of one.
type handle struct {
	id, owner ID
	mode      Mode
	token     uint64
	begin     Event
	before    *handle // what was downgraded to it
	end       *Event  // Unlocked or Downgraded
	alive     int64   // it was, at this moment or later
	lost      int64   // it was over by then
	stale     int64   // since then it means nothing to others
	losses    []Event // in which its lease may have been lost, in their order
}

// story is the history of one key.
type story struct {
	key     string
	handles map[ID]*handle
	order   []*handle
	deleted []Event
	shaken  []Event
	wrong   []string // what no order can explain
}

// tell sorts events by key, and finds out what happened to each hold.
func tell(events []Event, ttl time.Duration) (stories []*story, wrong []string) {
	byKey := map[string]*story{}
	killed := map[int]bool{}
	var paused, shaken []Event
	for _, e := range events {
		switch {
		case e.What == Killed:
			killed[e.Process] = true
			continue
		case e.What == Paused:
			if e.Return-e.Call > int64(ttl) {
				paused = append(paused, e)
			}
			continue
		case e.What == Shaken && e.Key == "":
			shaken = append(shaken, e)
			continue
		}
		s := byKey[e.Key]
		if s == nil {
			s = &story{key: e.Key, handles: map[ID]*handle{}}
			byKey[e.Key] = s
			stories = append(stories, s)
		}
		s.add(e)
	}
	for _, s := range stories {
		s.shaken = append(s.shaken, shaken...)
		slices.SortFunc(s.shaken, func(a, b Event) int { return cmp.Compare(a.Call, b.Call) })
		for _, h := range s.order {
			s.finish(h, killed, paused, ttl)
		}
		wrong = append(wrong, s.wrong...)
	}
	sort.Slice(stories, func(i, j int) bool { return stories[i].key < stories[j].key })
	return stories, wrong
}

func (s *story) failed(format string, args ...any) {
	s.wrong = append(s.wrong, fmt.Sprintf("key %q: ", s.key)+fmt.Sprintf(format, args...))
}

// add notes one event.
func (s *story) add(e Event) {
	switch e.What {
	case Refused:
		return // it did nothing
	case Deleted:
		s.deleted = append(s.deleted, e)
		return
	case Shaken:
		s.shaken = append(s.shaken, e)
		return
	case Odd:
		s.failed("process %d: %s", e.Process, e.Note)
		return
	case Locked:
		s.begin(&handle{id: e.Hold, owner: e.Owner, mode: e.Mode, token: e.Token, begin: e})
		return
	}
	h := s.handles[e.Hold]
	if h == nil {
		s.failed("%s of %s, which nobody got", e.What, e.Hold)
		return
	}
	if e.What == Lost {
		h.lost = min(h.lost, e.Return)
		return
	}
	if e.Call > h.lost {
		s.failed("%s was lost, and then %s", h.id, e.What)
	}
	h.alive = max(h.alive, e.Call)
	if e.What == Alive {
		return
	}
	if h.end != nil {
		s.failed("%s was %s, and then %s", h.id, h.end.What, e.What)
		return
	}
	h.end = &e
	if e.What == Downgraded {
		if e.Token != h.token {
			s.failed("the downgrade of %s, token %d, has token %d", h.id, h.token, e.Token)
		}
		s.begin(&handle{id: e.Next, owner: h.owner, mode: Read, token: h.token, begin: e, before: h})
	}
}

func (s *story) begin(h *handle) {
	if h.token == 0 {
		s.failed("%s has no token", h.id)
	}
	h.alive, h.lost, h.stale = h.begin.Call, never, never
	s.handles[h.id] = h
	s.order = append(s.order, h)
}

// finish holds a handle to what was done to its process and to its key.
func (s *story) finish(h *handle, killed map[int]bool, paused []Event, ttl time.Duration) {
	if h.end == nil && h.lost == never && !killed[h.begin.Process] {
		s.failed("%s never ended, and its process went on", h.id)
	}
	for _, p := range paused {
		if p.Process == h.begin.Process && h.begin.Return <= p.Call && h.alive >= p.Return {
			s.failed("%s outlived a pause of %v", h.id, time.Duration(p.Return-p.Call))
		}
	}
	for _, d := range s.deleted {
		if h.token > d.Token {
			continue // of a lease from after the deletion
		}
		h.stale = min(h.stale, d.Call)
		if h.alive > d.Return+int64(ttl) {
			s.failed("%s was believed in %v after its lease was deleted", h.id, time.Duration(h.alive-d.Return))
		}
	}
	for _, e := range s.shaken {
		if h.token <= e.Token {
			h.stale = min(h.stale, e.Call)
			h.losses = append(h.losses, e)
		}
	}
}

// operations returns what the model has to explain.
func (s *story) operations() []porcupine.Operation {
	var ops []porcupine.Operation
	lanes := map[[2]int]int{} // rows of the picture
	row := func(e *Event) int {
		at := [2]int{e.Process, e.Lane}
		if _, ok := lanes[at]; !ok {
			lanes[at] = len(lanes)
		}
		return lanes[at]
	}
	add := func(e *Event, in input, call, ret int64) {
		ops = append(ops, porcupine.Operation{ClientId: row(e), Input: in, Call: call, Return: ret, Metadata: e.Note})
	}
	for _, h := range s.order {
		if h.begin.Return >= h.stale {
			continue // of a lease that was deleted before: others need not mind it
		}
		if h.before == nil {
			add(&h.begin, input{what: Locked, hold: h.id, owner: h.owner, mode: h.mode, token: h.token}, h.begin.Call, h.begin.Return)
		}
		switch e := h.end; {
		case e != nil && e.Return < h.stale && e.What == Unlocked:
			add(e, input{what: Unlocked, hold: h.id}, e.Call, e.Return)
		case e != nil && e.Return < h.stale && e.What == Downgraded:
			add(e, input{what: Downgraded, hold: h.id, next: e.Next}, e.Call, e.Return)
		case e != nil:
			add(&h.begin, input{what: Lost, hold: h.id}, min(h.alive, h.stale), e.Return)
		default:
			add(&h.begin, input{what: Lost, hold: h.id}, min(h.alive, h.stale), h.lost)
		}
	}
	s.closeRows(ops)
	order(ops)
	return ops
}

// closeRows has ends that nobody saw return last, and gives ends that are not a
// call's a row of their own, for a row's calls do not overlap.
func (s *story) closeRows(ops []porcupine.Operation) {
	last, rows := int64(0), 0
	for i := range ops {
		last = max(last, ops[i].Call)
		if ops[i].Return != never {
			last = max(last, ops[i].Return)
		}
		rows = max(rows, ops[i].ClientId+1)
	}
	free := []int64{} // since when each of the further rows is
	for i := range ops {
		op := &ops[i]
		op.Return = min(op.Return, last+1)
		if in, _ := op.Input.(input); in.what != Lost {
			continue
		}
		at := slices.IndexFunc(free, func(since int64) bool { return since < op.Call })
		if at < 0 {
			at = len(free)
			free = append(free, 0)
		}
		free[at] = op.Return
		op.ClientId = rows + at
	}
}

// order tells each call that locked which others were before it, as their tokens
// say. It follows from the rules of tokens, and keeps the search for an order short.
func order(ops []porcupine.Operation) {
	var all, writes []uint64
	for i := range ops {
		if in, _ := ops[i].Input.(input); in.what == Locked {
			all = append(all, in.token)
			if in.mode == Write {
				writes = append(writes, in.token)
			}
		}
	}
	slices.Sort(all)
	slices.Sort(writes)
	for i := range ops {
		in, _ := ops[i].Input.(input)
		if in.what != Locked {
			continue
		}
		in.lower, _ = slices.BinarySearch(all, in.token)
		if n, _ := slices.BinarySearch(writes, in.token+1); n > 0 {
			in.write = writes[n-1]
		}
		ops[i].Input = in
	}
}
