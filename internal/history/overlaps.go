package history

import (
	"fmt"
	"sort"
	"time"
)

// Overlap is two holds that exclude each other and were believed in at the same time, which can be where a server
// lost what it had acknowledged ([Shaken]), and nowhere else.
type Overlap struct {
	Key          string
	First, Then  ID            // in the order in which they were had
	Tokens       [2]uint64     // of the two, in this order
	For          time.Duration // how long both were believed in, at least
	AfterTheLoss time.Duration // how long after the end of the loss the older one was believed in; below zero: it was over before
}

// String says who met whom.
func (o Overlap) String() string {
	return fmt.Sprintf("key %q: %s (token %d) and %s (token %d), for %v", o.Key, o.First, o.Tokens[0], o.Then, o.Tokens[1], o.For)
}

// Overlaps returns the pairs of holds that were certainly believed in side by side, of those that [Check] excuses: of
// leases that the server may have lost. The error is a [*Violation] where a pair was so for longer than a
// time to live after the loss, for by then each has been told.
func Overlaps(events []Event, rules Rules) ([]Overlap, error) {
	stories, _ := tell(events, rules.TTL)
	var all []Overlap
	for _, s := range stories {
		for _, old := range s.order {
			if len(old.losses) == 0 || old.alive < old.losses[0].Call {
				continue // it was over by then
			}
			for _, other := range s.order {
				start, end, met := meeting(old, other)
				if !met {
					continue
				}
				o := Overlap{
					Key: s.key, First: old.id, Then: other.id, Tokens: [2]uint64{old.token, other.token}, For: time.Duration(end - start),
				}
				// The other came in because of a loss that had begun by then.
				at := sort.Search(len(old.losses), func(i int) bool { return old.losses[i].Call > start }) - 1
				if at < 0 {
					return all, &Violation{Text: fmt.Sprintf("%v, before anything was lost", o)}
				}
				told := old.losses[at].Return
				if end > told+int64(rules.TTL) {
					return all, &Violation{Text: fmt.Sprintf("%v: %v longer than the lease of the first could be believed in",
						o, time.Duration(end-told)-rules.TTL)}
				}
				o.AfterTheLoss = time.Duration(old.alive - told)
				all = append(all, o)
			}
		}
	}
	return all, nil
}

// meeting is when two holds, of which the first was had first, were certainly in each other's way.
func meeting(old, other *handle) (start, end int64, met bool) {
	switch {
	case old == other || old.owner == other.owner,
		old.mode == Read && other.mode == Read,
		other.begin.Return < old.begin.Return, // counted from the other's side, where that is excused
		other.begin.Return == old.begin.Return && other.id < old.id:
		return 0, 0, false
	}
	start, end = max(old.begin.Return, other.begin.Return), min(old.alive, other.alive)
	return start, end, end > start
}
