package segment

import (
	"fmt"
	"strconv"
	"time"

	"github.com/go-leasehold/leasehold/coordinator"
)

// books are one segment's, at one moment.
type books struct {
	left, took, reserved, parts, loaded int64
	opens                               int64         // reservations and parts
	ups                                 int64         // grows with whatever adds to left
	gave, gotten                        int64         // to and from other segments, ever
	short                               int64         // what a failover took and left has not
	rev                                 int64         // grows with every change
	more                                bool          // reservations past their deadline are left
	earliest                            time.Duration // until the first deadline of a reservation; negative: none
	overdue                             []overdue     // of orders over several stocks
}

// survey is all segments, one after the other.
type survey []books

// looks is how often look looks again because it has ended what orders over several stocks have left.
const looks = 4

// look looks at all segments, which sends back what is due, and ends what orders over several
// stocks have left past its deadline.
func (s *Stock) look() (survey, error) {
	for tries := 1; ; tries++ {
		all, err := s.pass()
		if err != nil {
			return nil, err
		}
		var due []overdue
		for i := range all {
			due = append(due, all[i].overdue...)
		}
		if len(due) == 0 || tries == looks || !s.resolve(due) {
			return all, nil
		}
	}
}

// pass looks at all segments once.
func (s *Stock) pass() (survey, error) {
	s.counters.surveys.Add(1)
	all := make(survey, len(s.homes))
	todo := make([]*home, len(s.homes))
	copy(todo, s.homes)
	for range tries {
		set, err := s.set()
		if err != nil {
			return nil, err
		}
		calls := make([]call, len(todo))
		for i, h := range todo {
			calls[i].script = lookScript
			calls[i].keys, calls[i].args = h.common(set)
			calls[i].keys = append(calls[i].keys, h.keys.parts)
		}
		var again []*home
		for i, a := range s.run(calls...) {
			h := todo[i]
			if a.err != nil {
				s.noteEpoch(set, a.err)
				return nil, a.err
			}
			values, _ := a.message.ToArray()
			if stored, bucket, other := another(values); other {
				if err := h.rotate(set, stored, bucket); err != nil {
					return nil, err
				}
				again = append(again, h)
				continue
			}
			b, err := parseBooks(a)
			if err != nil {
				return nil, err
			}
			for i := range b.overdue {
				b.overdue[i].home, b.overdue[i].set = h, set
			}
			all[h.index] = b
		}
		if len(again) == 0 {
			return all, nil
		}
		todo = again
	}
	return nil, fmt.Errorf("%w: stock %q: the server names another bucket each time", coordinator.ErrUnavailable, s.name)
}

func parseBooks(a answer) (books, error) {
	values, err := a.message.ToArray()
	unreadable := fmt.Errorf("%w: look: %w", coordinator.ErrUnavailable, errUnreadable)
	if err != nil || len(values) < 2 || len(values)%2 != 0 {
		return books{}, unreadable
	}
	more, err1 := values[0].AsInt64()
	earliest, err2 := values[1].AsInt64()
	if err1 != nil || err2 != nil {
		return books{}, unreadable
	}
	b := books{more: more == 1, earliest: time.Duration(earliest) * time.Microsecond}
	fields := map[string]*int64{
		"left": &b.left, "took": &b.took, "reserved": &b.reserved, "parts": &b.parts, "loaded": &b.loaded, "opens": &b.opens,
		"ups": &b.ups, "gave": &b.gave, "gotten": &b.gotten, "short": &b.short, "rev": &b.rev,
	}
	for i := 2; i < len(values); i += 2 {
		name, _ := values[i].ToString()
		if name == "overdue" {
			pairs, err := values[i+1].AsStrSlice()
			if err != nil || len(pairs)%2 != 0 {
				return books{}, unreadable
			}
			for ; len(pairs) > 0; pairs = pairs[2:] {
				b.overdue = append(b.overdue, overdue{field: pairs[0], value: pairs[1]})
			}
			continue
		}
		text, _ := values[i+1].ToString()
		if to := fields[name]; to != nil {
			if *to, err = strconv.ParseInt(text, 10, 64); err != nil {
				return books{}, unreadable
			}
		}
	}
	return b, nil
}

// available is what could be sold at most: what is left, on its way between
// segments, or in parts of orders that are not decided.
func (v survey) available() (n int64) {
	for i := range v {
		n += v[i].left + v[i].parts
	}
	return n + v.underWay()
}

// underWay is what was given and not received.
func (v survey) underWay() (n int64) {
	for i := range v {
		n += v[i].gave - v[i].gotten
	}
	return n
}

func (v survey) undecided() (n int64) {
	for i := range v {
		n += v[i].parts
	}
	return n
}

// proves says that what was available in v was the most that there was at the
// moment between v and then: nothing was added, or on the move, and nothing that is
// due was still to come back.
func (v survey) proves(then survey) bool {
	for i := range v {
		a, b := &v[i], &then[i]
		if a.ups != b.ups || a.gave != b.gave || a.gotten != b.gotten || a.more || b.more {
			return false
		}
	}
	return true
}

// pair is units that one segment has given to another, ever.
type pair struct{ donor, home int }

// pairs reads what segments have given to and received from others.
func (s *Stock) pairs(of ...*home) (given, got map[pair]int64, err error) {
	calls := make([]call, len(of))
	set, err := s.set()
	if err != nil {
		return nil, nil, err
	}
	for i, h := range of {
		calls[i] = call{script: pairsScript, keys: []string{h.keys.books}, args: []string{set}}
	}
	given, got = map[pair]int64{}, map[pair]int64{}
	for i, a := range s.run(calls...) {
		if a.err != nil {
			s.noteEpoch(set, a.err)
			return nil, nil, a.err
		}
		values, err := a.message.AsStrSlice()
		if err != nil || len(values)%3 != 0 {
			return nil, nil, fmt.Errorf("%w: pairs: %w", coordinator.ErrUnavailable, errUnreadable)
		}
		for ; len(values) > 0; values = values[3:] {
			other, err1 := strconv.Atoi(values[1])
			units, err2 := strconv.ParseInt(values[2], 10, 64)
			if err1 != nil || err2 != nil {
				return nil, nil, fmt.Errorf("%w: pairs: %w", coordinator.ErrUnavailable, errUnreadable)
			}
			if values[0] == "given" {
				given[pair{of[i].index, other}] = units
			} else {
				got[pair{other, of[i].index}] = units
			}
		}
	}
	return given, got, nil
}

// settle ends what a crash has left half done: units that were given and not
// received are credited, and, where a failover has lost that they were given,
// it is written down. Whoever sees it does it; done twice it does nothing.
func (s *Stock) settle() error {
	given, got, err := s.pairs(s.homes...)
	if err != nil {
		return err
	}
	credits := map[int][]credit{}
	for p, units := range given {
		if units > got[p] && p.home < len(s.homes) {
			credits[p.home] = append(credits[p.home], credit{p.donor, number(units)})
		}
	}
	for at, c := range credits {
		if _, err := s.homes[at].ask(&batch{credits: c}); err != nil {
			return err
		}
	}
	for p, units := range got {
		if units > given[p] && p.donor < len(s.homes) {
			if _, _, err := s.homes[p.donor].give(p.home, units, -1); err != nil {
				return err
			}
		}
	}
	return nil
}

// give has the segment give units to another one, which is known to have
// received got from here; it returns the total that it has ever given there,
// and what is left. want of -1 gives none.
func (h *home) give(to int, got, want int64) (total string, left int64, err error) {
	s := h.stock
	set, err := s.set()
	if err != nil {
		return "", 0, err
	}
	if want >= 0 {
		s.counters.moves.Add(1)
	}
	a := s.run(call{
		script: giveScript, keys: []string{h.keys.books},
		args: []string{set, strconv.Itoa(to), number(got), number(want)},
	})[0]
	if a.err != nil {
		s.noteEpoch(set, a.err)
		return "", 0, a.err
	}
	values, err := a.message.AsStrSlice()
	if err != nil || len(values) != 2 {
		return "", 0, fmt.Errorf("%w: give: %w", coordinator.ErrUnavailable, errUnreadable)
	}
	if left, err = strconv.ParseInt(values[1], 10, 64); err != nil {
		return "", 0, fmt.Errorf("%w: give: %w", coordinator.ErrUnavailable, errUnreadable)
	}
	return values[0], left, nil
}
