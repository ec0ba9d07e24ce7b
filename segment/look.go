package segment

import (
	"context"
	"fmt"
	"strconv"
	"sync"
	"time"

	"github.com/redis/rueidis"

	"github.com/go-leasehold/leasehold/coordinator"
)

// books are one segment's, at one moment.
type books struct {
	left, took, reserved, parts, loaded int64
	opens                               int64         // reservations and parts
	added                               int64         // units that came for sale after Load, ever: given back or restocked
	raised                              int64         // counts what makes "sold out" untrue
	gave, gotten                        int64         // to and from other segments, ever
	short                               int64         // what a failover took and left has not
	rev                                 int64         // grows with every change
	more                                bool          // reservations past their deadline are left
	earliest                            time.Duration // until the first deadline of a reservation; negative: none
	overdue                             []overdue     // of orders over several stocks
}

// survey is all segments, one after the other.
type survey []books

// surveyor has those who want to look at all segments at the same time look together.
type surveyor struct {
	mu   sync.Mutex
	busy bool
	next *joint // the look that begins when the present one has ended
}

// joint is a look that many wait for. The result is written before done is closed.
type joint struct {
	done chan struct{}
	all  survey
	err  error
}

// look looks at all segments, which sends back what is due, and ends what orders over several
// stocks have left past its deadline. It begins after the call; what comes of it is shared, and not to be changed.
func (s *Stock) look() (survey, error) { return s.lookWithin(context.Background()) }

// lookWithin is look for a caller who waits no longer than ctx.
func (s *Stock) lookWithin(ctx context.Context) (survey, error) {
	v := &s.surveyor
	v.mu.Lock()
	if v.next == nil {
		v.next = &joint{done: make(chan struct{})}
	}
	mine := v.next
	if !v.busy {
		v.busy = true
		go s.survey() // ends with the last look that somebody waits for
	}
	v.mu.Unlock()
	select {
	case <-mine.done:
		return mine.all, mine.err
	case <-ctx.Done():
		return nil, ended(ErrNotDone, ctx)
	}
}

// survey makes the looks that are waited for, one after the other.
func (s *Stock) survey() {
	v := &s.surveyor
	for {
		v.mu.Lock()
		j := v.next
		v.next = nil
		v.busy = j != nil
		v.mu.Unlock()
		if j == nil {
			return
		}
		j.all, j.err = s.lookNow()
		close(j.done)
	}
}

// looks is how often lookNow looks again because it has ended what orders over several stocks have left.
const looks = 4

func (s *Stock) lookNow() (survey, error) {
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
	s.told.Looked()
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
	more, err1 := values[0].ToInt64()
	earliest, err2 := values[1].ToInt64()
	if err1 != nil || err2 != nil {
		return books{}, unreadable
	}
	b := books{more: more == 1, earliest: ofMicros(earliest)}
	fields := map[string]*int64{
		"left": &b.left, "took": &b.took, "reserved": &b.reserved, "parts": &b.parts, "loaded": &b.loaded, "opens": &b.opens,
		"added": &b.added, "raised": &b.raised, "gave": &b.gave, "gotten": &b.gotten, "short": &b.short, "rev": &b.rev,
	}
	for i := 2; i < len(values); i += 2 {
		name, _ := values[i].ToString()
		if name == "overdue" {
			var ok bool
			if b.overdue, ok = parseOverdue(&values[i+1]); !ok {
				return books{}, unreadable
			}
			continue
		}
		if to := fields[name]; to != nil {
			text, err := values[i+1].ToString()
			if err == nil {
				*to, err = strconv.ParseInt(text, 10, 64)
			}
			if err != nil {
				return books{}, unreadable
			}
			delete(fields, name)
		}
	}
	if len(fields) > 0 { // what is missing is not 0
		return books{}, unreadable
	}
	return b, nil
}

// parseOverdue reads fields and values of open. A value that is gone is left out.
func parseOverdue(m *rueidis.RedisMessage) (all []overdue, ok bool) {
	values, err := m.ToArray()
	if err != nil || len(values)%2 != 0 {
		return nil, false
	}
	for ; len(values) > 0; values = values[2:] {
		field, err := values[0].ToString()
		if err != nil {
			return nil, false
		}
		value, err := values[1].ToString()
		if rueidis.IsRedisNil(err) {
			continue
		}
		if err != nil {
			return nil, false
		}
		all = append(all, overdue{field: field, value: value})
	}
	return all, true
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

// most is the most that can have been available at the moment between the end of v and the beginning of then; false:
// something due is still to come back. What a segment has left, in parts, and given more than received does not change
// when units move. It falls when they are taken, and rises by what is added, or found to be there twice after a failover,
// of which all since v is in then.
func (v survey) most(then survey) (units int64, ok bool) {
	units = v.available()
	for i := range v {
		if v[i].more || then[i].more {
			return 0, false
		}
		units += then[i].added - v[i].added + then[i].short - v[i].short
	}
	return units, true
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
		if !parsePairs(&a.message, of[i].index, given, got) {
			return nil, nil, fmt.Errorf("%w: pairs: %w", coordinator.ErrUnavailable, errUnreadable)
		}
	}
	return given, got, nil
}

// parsePairs notes what a segment says that it has given and got.
func parsePairs(m *rueidis.RedisMessage, index int, given, got map[pair]int64) bool {
	values, err := m.ToArray()
	if err != nil || len(values)%3 != 0 {
		return false
	}
	for ; len(values) > 0; values = values[3:] {
		what, _ := values[0].ToString()
		other, ok := count(&values[1])
		units, also := count(&values[2])
		if !ok || !also || other >= MaxSegments {
			return false
		}
		switch what {
		case "given":
			given[pair{index, int(other)}] = units
		case "got":
			got[pair{int(other), index}] = units
		default:
			return false
		}
	}
	return true
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
			if _, err := s.give([]gift{{p, units, -1}}); err != nil {
				return err
			}
		}
	}
	return nil
}

// receive has donors give units to this segment, the first as much as it has of what is wanted, the next the
// rest, and so on; each gives half of what it has, if that is more. Credits are what they gave, also where one has failed.
func (h *home) receive(donors []int, want int64, seen survey) (credits []credit, err error) {
	_, got, err := h.stock.pairs(h)
	if err != nil {
		return nil, err
	}
	gifts := make([]gift, len(donors))
	for i, donor := range donors {
		share := min(max(want, 1), seen[donor].left)
		want -= share
		gifts[i] = gift{pair{donor, h.index}, got[pair{donor, h.index}], share}
	}
	totals, err := h.stock.give(gifts)
	for i, total := range totals {
		if total != "" {
			credits = append(credits, credit{donors[i], total})
		}
	}
	if len(credits) > 0 {
		err = nil
	}
	return credits, err
}

// gift is units that a donor is asked for. got is what it is known to have ever given to that home and was received
// there; want of -1 asks for none.
type gift struct {
	pair
	got, want int64
}

// give has donors give, and returns the total that each has ever given to that home, or nothing
// where it failed.
func (s *Stock) give(gifts []gift) (totals []string, err error) {
	set, err := s.set()
	if err != nil {
		return nil, err
	}
	calls, moves, moved := make([]call, len(gifts)), int64(0), int64(0)
	for i, g := range gifts {
		if g.want >= 0 {
			moves++
		}
		calls[i] = call{
			script: giveScript, keys: []string{s.homes[g.donor].keys.books},
			args: []string{set, strconv.Itoa(g.home), number(g.got), number(g.want)},
		}
	}
	s.counters.moves.Add(moves)
	totals = make([]string, len(gifts))
	for i, a := range s.run(calls...) {
		if a.err != nil {
			s.noteEpoch(set, a.err)
			err = a.err
			continue
		}
		total, units, ok := parseGift(&a.message)
		if !ok {
			err = fmt.Errorf("%w: give: %w", coordinator.ErrUnavailable, errUnreadable)
			continue
		}
		totals[i], moved = number(total), moved+units
	}
	s.told.Moved(moves, moved)
	return totals, err
}

// parseGift reads the total that was ever given to a segment, and what was given now.
func parseGift(m *rueidis.RedisMessage) (total, units int64, ok bool) {
	values, err := m.ToArray()
	if err != nil || len(values) != 3 {
		return 0, 0, false
	}
	total, ok = count(&values[0])
	_, left := count(&values[1])
	units, moved := count(&values[2])
	if !ok || !left || !moved || units > total {
		return 0, 0, false
	}
	return total, units, true
}
