package segment

import (
	"strings"

	"github.com/redis/rueidis"
)

// asked is one order as a script gets it.
type asked struct {
	verb          verb
	field         string
	quantity, ttl int64
}

// observeOrders writes down what a batch of orders came to.
func (c *chronicle) observeOrders(index int, call *call, a *answer, tag int, reached map[string]int) {
	s, args := c.sections[index], call.args
	at := 5
	for range atoi(args[4]) {
		m := c.move(args[0], pair{int(atoi(args[at])), index})
		total := atoi(args[at+1])
		switch {
		case total > m.given:
			c.fail("segment %d gets %d units of %s, which has given %d", index, total, args[at], m.given)
		case total > m.got:
			reached["units received"]++
			if len(args) == 5+2*int(atoi(args[4])) {
				reached["units of a crash received"]++
			}
			m.got = total
		default:
			reached["units told again"]++
		}
		at += 2
	}
	replies := repliesOf(a)
	for at < len(args) {
		o := asked{verb: verb(args[at][0]), quantity: atoi(args[at+1]), ttl: atoi(args[at+2])}
		count := int(atoi(args[at+3]))
		at += 4
		if o.verb == nameless {
			served := replies.next(int64(count))
			c.nameless(s, &o, count, served.number, tag)
			continue
		}
		for range count {
			o.field = args[at]
			c.one(index, s, &o, replies.next(int64(statusDone)), tag, reached)
			at++
			c.snap()
		}
	}
}

// replies are what a script answered.
type replies struct {
	all    bool // everything was done
	values []rueidis.RedisMessage
}

// reply is the answer for one order.
type reply struct{ number, left, quantity int64 }

func repliesOf(a *answer) *replies {
	values, _ := a.message.ToArray()
	return &replies{word(values) == "all", values[1:]}
}

// next is the next reply; done where all were done.
func (r *replies) next(done int64) reply {
	if r.all {
		return reply{done, -1, -1}
	}
	if len(r.values) == 0 {
		return reply{-1000, -1, -1}
	}
	value := r.values[0]
	r.values = r.values[1:]
	if value.IsInt64() {
		n, _ := value.ToInt64()
		return reply{n, -1, -1}
	}
	if three, err := value.AsIntSlice(); err == nil && len(three) == 3 {
		return reply{three[0], three[1], three[2]}
	}
	return reply{-1000, -1, -1}
}

// nameless writes down orders with neither ID nor user.
func (c *chronicle) nameless(s *section, o *asked, count int, served int64, tag int) {
	if served < 0 || served > int64(count) || served*o.quantity > c.left(s.set) {
		c.fail("%d of %d orders of %d were served with %d left", served, count, o.quantity, c.left(s.set))
	}
	s.took += served * o.quantity
	c.unnamed[tag] += served * o.quantity
	c.tookBy[tag] += served * o.quantity
	c.snap()
}

// one writes down an order.
func (c *chronicle) one(index int, s *section, o *asked, r reply, tag int, reached map[string]int) {
	got := status(r.number)
	if strings.HasPrefix(o.field, "W") && c.owner[o.field] == 0 {
		c.owner[o.field] = tag
	}
	known, on := s.records[o.field]
	if o.verb == unnamed {
		on = false
	}
	if on && !c.surelyForgotten(s, &known) && got == afterwards(&known, o) {
		if known.at/c.remember < c.now/c.remember && known.kind != 'v' {
			reached["record of the bucket before"]++
		}
		c.repeat(s, o, &known, r, reached)
		return
	}
	if on && !c.maybeForgotten(s, &known) {
		c.fail("segment %d: %c of %q for %d is %d, and it is on record as %c%d", index, o.verb, o.field, o.quantity, got, known.kind, known.quantity)
		return
	}
	if on {
		reached["forgotten"]++
		delete(s.records, o.field)
	}
	for i, other := range c.sections {
		if n, ok := other.records[o.field]; ok && i != index {
			c.fail("%q is on record as %c%d at segment %d, and asked for at %d", o.field, n.kind, n.quantity, i, index)
		}
	}
	c.fresh(index, s, o, r, tag, reached)
}

// afterwards is what an order on record is answered.
func afterwards(n *note, o *asked) status {
	if differ(n, o) {
		return statusMismatch
	}
	gives := o.verb == giveBack || o.verb == cancel
	switch n.kind {
	case 't':
		switch {
		case o.verb == cancel:
			return statusTaken
		case o.verb == giveBack:
			return statusDone
		}
		return statusAgain
	case 'r':
		if gives {
			return statusAgain
		}
		return statusReturned
	case 'x':
		if gives {
			return statusAgain
		}
		return statusExpired
	}
	switch {
	case gives || o.verb == confirm || o.verb == extend:
		return statusDone
	case o.verb == reserve:
		return statusAgain
	}
	return statusReserved
}

// differ says that it is not the order on record that is asked for. 0 stands for any quantity.
func differ(n *note, o *asked) bool {
	return n.quantity != o.quantity && n.quantity != 0 && o.quantity != 0
}

// repeat writes down what was done to an order on record.
func (c *chronicle) repeat(s *section, o *asked, n *note, r reply, reached map[string]int) {
	if r.quantity >= 0 && r.quantity != n.quantity {
		c.fail("%q is on record with %d units, and was told as %d", o.field, n.quantity, r.quantity)
	}
	if differ(n, o) {
		return
	}
	switch {
	case n.kind == 't' && o.verb == giveBack:
		s.took -= n.quantity
		c.charge(s, o.field, -n.quantity)
		c.write(s, o.field, 'r', n.quantity)
		reached["returned"]++
	case n.kind != 'v':
		reached["asked again"]++
	case o.verb == giveBack || o.verb == cancel:
		s.reserved -= n.quantity
		c.charge(s, o.field, -n.quantity)
		c.write(s, o.field, 'r', n.quantity)
	case o.verb == confirm:
		s.reserved -= n.quantity
		s.took += n.quantity
		c.write(s, o.field, 't', n.quantity)
		reached["confirmed"]++
	case o.verb == extend:
		n.deadline = max(n.deadline, c.now+o.ttl)
		s.records[o.field] = *n
	}
	if n.kind == 'v' && (o.verb == extend || o.verb == reserve || o.verb == query) && r.left >= 0 && r.left != n.deadline-c.now {
		c.fail("%q is reserved for %d µs more, and was told %d", o.field, n.deadline-c.now, r.left)
	}
}

// fresh writes down an order that was not on record.
func (c *chronicle) fresh(index int, s *section, o *asked, r reply, tag int, reached map[string]int) {
	got := status(r.number)
	user := userOf(o.field)
	over := c.limit > 0 && user != "" && s.users[user]+o.quantity > c.limit
	switch o.verb {
	case deduct, reserve, unnamed:
		switch {
		case got == statusShort || got == statusOver && over:
		case got != statusDone || over:
			c.fail("segment %d: %c of %q for %d is %d, and its user has %d of %d", index, o.verb, o.field, o.quantity, got, s.users[user], c.limit)
		case c.left(s.set) < o.quantity:
			c.fail("oversold: segment %d: %c of %q took %d of %d", index, o.verb, o.field, o.quantity, c.left(s.set))
		default:
			c.take(s, o, r.left, tag)
		}
		return
	case restock:
		if got == statusDone {
			s.loaded += o.quantity
			c.write(s, o.field, 't', o.quantity)
			reached["restocked"]++
			return
		}
	case giveBack, cancel:
		if got == statusUnknown {
			c.write(s, o.field, 'r', o.quantity)
			reached["returned before it was taken"]++
			return
		}
	default:
		if got == statusUnknown {
			return
		}
	}
	c.fail("segment %d: %c of %q for %d, which is not on record, is %d", index, o.verb, o.field, o.quantity, got)
}

func (c *chronicle) take(s *section, o *asked, left int64, tag int) {
	c.charge(s, o.field, o.quantity)
	c.tookBy[tag] += o.quantity
	switch o.verb {
	case deduct:
		s.took += o.quantity
		c.write(s, o.field, 't', o.quantity)
	case unnamed:
		s.took += o.quantity
		c.unnamed[tag] += o.quantity
	case reserve:
		s.reserved += o.quantity
		s.records[o.field] = note{kind: 'v', quantity: o.quantity, deadline: c.now + o.ttl, at: c.now, latest: s.latest}
		if left >= 0 && left != o.ttl {
			c.fail("%q is reserved for %d µs, and was told %d", o.field, o.ttl, left)
		}
	}
}
