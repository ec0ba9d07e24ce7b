package segment

import (
	"fmt"
	"maps"
	"strconv"
	"strings"
)

// chronicle is what the server has run, written down in its order, in the words of what is promised: orders, and
// units in sum. Of moving units it knows only that they are moved. Whatever contradicts it is in wrong.
type chronicle struct {
	remember, limit int64 // µs; units, 0: no limit
	now             int64 // µs

	sections map[int]*section
	set      string // of the epoch in use
	loading  string // of the one being loaded
	moves    map[way]*moved

	moments []moment
	tookBy  map[int]int64 // units that commands of a deed took, by its tag
	unnamed map[int]int64 // the same of orders without an ID
	owner   map[string]int
	wrong   []string
}

// section is what belongs to one segment, in one epoch.
type section struct {
	set                    string
	latest                 int64 // the latest time that any script met here
	loaded, took, reserved int64
	records                map[string]note
	users                  map[string]int64
}

// note is what became of an order.
type note struct {
	kind     byte // t taken, r returned, x expired, v reserved
	quantity int64
	deadline int64 // v
	at       int64 // when it was written
	latest   int64 // the latest time met by then
}

// way is from one segment to another, in one epoch. The segments come into an epoch one after the other, and a crash may
// lie between: the first may give before the other is loaded, and what it gave in the epoch before may be told there late.
type way struct {
	set string
	pair
}

// moved is what one segment gave to another.
type moved struct{ given, got int64 }

// moment is how things are between two changes. It is never changed.
type moment struct {
	set       string // of all segments; empty: they differ
	usable    bool   // it is the epoch in use, and no other is being loaded
	available int64  // could be sold, with what is overdue
	orders    map[string]seen
	users     map[string]int64
}

// seen is an order at a moment.
type seen struct {
	note
	maybe bool // it may be forgotten
}

func newChronicle(conf *Config, now int64) *chronicle {
	c := &chronicle{
		remember: conf.Remember.Microseconds(), limit: conf.PerUser, now: now,
		sections: map[int]*section{}, moves: map[way]*moved{},
		tookBy: map[int]int64{}, unnamed: map[int]int64{}, owner: map[string]int{},
	}
	for i := range conf.Segments {
		c.sections[i] = &section{}
	}
	c.snap()
	return c
}

func (c *chronicle) fail(format string, args ...any) {
	c.wrong = append(c.wrong, fmt.Sprintf(format, args...))
}

// clock is told that the clock was set.
func (c *chronicle) clock(now int64) {
	c.now = now
	c.snap()
}

// snap keeps how things are now.
func (c *chronicle) snap() {
	m := moment{set: c.sections[0].set, orders: map[string]seen{}, users: map[string]int64{}}
	for _, s := range c.sections {
		if s.set != m.set {
			m.set = ""
		}
		m.available += s.loaded - s.took - s.reserved
		for field, n := range s.records {
			if n.kind == 'v' && n.deadline <= c.now {
				m.available += n.quantity
			}
			m.orders[field] = seen{n, c.maybeForgotten(s, &n)}
		}
		maps.Copy(m.users, s.users)
	}
	m.usable = m.set != "" && m.set == c.set && c.loading == ""
	c.moments = append(c.moments, m)
}

// maybeForgotten says that it is longer ago than orders are remembered for sure.
func (c *chronicle) maybeForgotten(s *section, n *note) bool {
	return n.kind != 'v' && max(s.latest, c.now) >= n.at+c.remember
}

// surelyForgotten says that it is longer ago than orders are remembered at most, and a script has seen it.
func (c *chronicle) surelyForgotten(s *section, n *note) bool {
	return n.kind != 'v' && s.latest >= n.latest+2*c.remember
}

// left is what the segments of an epoch have in sum, units on their way too.
func (c *chronicle) left(set string) (n int64) {
	for _, s := range c.sections {
		if s.set == set {
			n += s.loaded - s.took - s.reserved
		}
	}
	return n
}

// underWay is how many units are given and not received.
func (c *chronicle) underWay() (n int64) {
	for _, m := range c.moves {
		n += m.given - m.got
	}
	return n
}

// observe writes down what a command did, by its answer.
func (c *chronicle) observe(call *call, a *answer, tag int, reached map[string]int) {
	if a.err != nil && code(a.err) == "" {
		c.fail("the server does not answer: %v", a.err)
		return
	}
	index := segmentOf(call.keys[0])
	s := c.sections[index]
	switch call.script.name {
	case "rights":
		return
	case "load_begin", "load_end", "attach", "forget":
		c.observeMeta(call, a)
		return
	case "load":
		c.observeLoad(index, call, a)
		return
	}
	if a.err != nil {
		if s.set == call.args[0] {
			c.fail("segment %d: %s of %q was refused: %v", index, call.script.name, call.args[0], a.err)
		}
		return
	}
	if s.set != call.args[0] {
		c.fail("segment %d: %s of %q was served, it is %q", index, call.script.name, call.args[0], s.set)
		return
	}
	switch call.script.name {
	case "give":
		c.observeGive(index, call, a, reached)
		return
	case "pairs":
		return
	}
	values, _ := a.message.ToArray()
	_, _, other := another(values)
	if word(values) == "long" {
		reached["the long way"]++
		return
	}
	if other && call.script.name != "rotate" {
		return
	}
	if c.now/c.remember > s.latest/c.remember {
		reached["rotation"]++
	}
	s.latest = max(s.latest, c.now)
	switch call.script.name {
	case "look":
		c.expire(s, reached)
	case "deduct":
		for field, n := range s.records {
			if n.kind == 'v' {
				c.fail("the short way was taken while %q is reserved", field)
			}
		}
		c.observeOrders(index, call, a, tag, reached)
	case "orders":
		c.expire(s, reached)
		c.observeOrders(index, call, a, tag, reached)
	}
}

func segmentOf(key string) int {
	i, _ := strconv.Atoi(strings.TrimSuffix(key[strings.LastIndex(key, "/")+1:], "}"))
	return i
}

func (c *chronicle) observeMeta(call *call, a *answer) {
	if a.err != nil {
		return
	}
	values, _ := a.message.AsStrSlice()
	switch call.script.name {
	case "load_begin":
		if len(values) == 2 {
			c.loading = values[0] + ":" + call.args[0]
		}
	case "load_end":
		for i, s := range c.sections {
			if s.set != call.args[0] {
				c.fail("loading of %q is ended, segment %d is %q", call.args[0], i, s.set)
			}
		}
		if c.loading == call.args[0] {
			c.set, c.loading = call.args[0], ""
		}
	}
	c.snap()
}

func (c *chronicle) observeLoad(index int, call *call, a *answer) {
	s := c.sections[index]
	epoch := func(set string) int64 {
		e, _, _ := cut(set)
		return atoi(e)
	}
	if a.err != nil {
		if epoch(s.set) < epoch(call.args[0]) {
			c.fail("segment %d: load of %q was refused: %v", index, call.args[0], a.err)
		}
		return
	}
	values, _ := a.message.ToArray()
	if _, _, other := another(values); other || s.set == call.args[0] {
		return
	}
	if epoch(s.set) >= epoch(call.args[0]) {
		c.fail("segment %d: %q was loaded over %q", index, call.args[0], s.set)
	}
	c.sections[index] = &section{
		set: call.args[0], latest: c.now, loaded: atoi(call.args[3]), records: map[string]note{}, users: map[string]int64{},
	}
	for p := range c.moves {
		if p.set != call.args[0] && p.home == index {
			delete(c.moves, p)
		}
	}
	c.snap()
}

func (c *chronicle) observeGive(index int, call *call, a *answer, reached map[string]int) {
	values, _ := a.message.AsStrSlice()
	m := c.move(call.args[0], pair{index, int(atoi(call.args[1]))})
	given := atoi(values[0])
	if given < m.given {
		c.fail("segment %d has given %d units to %s, and %d before", index, given, call.args[1], m.given)
	}
	if given > m.given {
		reached["units given"]++
	}
	m.given = given
}

func (c *chronicle) move(set string, of pair) *moved {
	w := way{set, of}
	if c.moves[w] == nil {
		c.moves[w] = &moved{}
	}
	return c.moves[w]
}

// expire sends back what is due in a segment.
func (c *chronicle) expire(s *section, reached map[string]int) {
	changed := false
	for field, n := range s.records {
		if n.kind == 'v' && n.deadline <= c.now {
			reached["reservation expired"]++
			s.reserved -= n.quantity
			c.charge(s, field, -n.quantity)
			c.write(s, field, 'x', n.quantity)
			changed = true
		}
	}
	if changed {
		c.snap()
	}
}

func (c *chronicle) write(s *section, field string, kind byte, quantity int64) {
	s.records[field] = note{kind: kind, quantity: quantity, at: c.now, latest: s.latest}
}

// charge counts units for the user of an order.
func (c *chronicle) charge(s *section, field string, n int64) {
	if user := userOf(field); user != "" && c.limit > 0 {
		s.users[user] += n
		if s.users[user] == 0 {
			delete(s.users, user)
		}
	}
}

func userOf(field string) string {
	user, _, _ := parseField(field)
	return user
}

func atoi(text string) int64 {
	n, _ := strconv.ParseInt(text, 10, 64)
	return n
}
