package segment

import (
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/redis/rueidis"

	"github.com/go-leasehold/leasehold/coordinator"
)

// partLasts is how long a part holds its units, by the clock of its server, before whoever looks asks
// what became of its order.
const partLasts = 5 * time.Second

// statusOutrun: the attempt is over, for another one is at work, or it took too long. Nothing was decided.
const statusOutrun status = -10

// step is one step of a spanning order at one home: see parts.lua, which has the verbs.
type step struct {
	home     *home
	set      string
	verb     string
	field    string
	lines    string
	attempt  string
	first    string // the first home; empty where this is it
	quantity int64
	detail   string

	// The answer.
	status status
	by     string        // attempt that is dealt, or decided; the entry of statusBusy
	left   time.Duration // of statusBusy
	err    error         // statusFailed
}

func (st *step) call() call {
	keys, args := st.home.common(st.set)
	return call{
		script: partsScript,
		keys:   append(keys, st.home.keys.parts),
		args: append(args, st.verb, st.field, st.lines, st.attempt, st.first, number(st.quantity), st.detail,
			micros(partLasts)),
	}
}

// read reads the answer; false: the server has named another bucket.
func (st *step) read(a answer) bool {
	st.status, st.err = statusFailed, a.err
	if a.err != nil {
		st.home.stock.noteEpoch(st.set, a.err)
		return true
	}
	values, err := a.message.ToArray()
	if err != nil || len(values) == 0 {
		st.err = st.unreadable()
		return true
	}
	if stored, bucket, other := another(values); other {
		st.err = st.home.rotate(st.set, stored, bucket)
		return st.err != nil
	}
	st.answered(values)
	return true
}

func (st *step) answered(values []rueidis.RedisMessage) {
	n, err := values[0].ToInt64()
	answer := status(n)
	if err != nil || !answer.known() && answer != statusOutrun || len(values) > 3 || (answer == statusBusy) != (len(values) == 3) {
		st.err = st.unreadable()
		return
	}
	var by, text string
	if len(values) > 1 {
		by, err = values[1].ToString()
	}
	var left int64
	if len(values) > 2 && err == nil {
		if text, err = values[2].ToString(); err == nil {
			left, err = strconv.ParseInt(text, 10, 64)
		}
	}
	if err != nil {
		st.err = st.unreadable()
		return
	}
	st.status, st.by, st.left = answer, by, ofMicros(left)
}

func (st *step) unreadable() error {
	return fmt.Errorf("%w: %s: %w", coordinator.ErrUnavailable, st.verb, errUnreadable)
}

// gone says that the stock it was for has been reset or dropped: there is nothing left to do.
func (st *step) gone() bool { return over(st.err) }

// takeSteps has all steps done, by one of run and once.
func takeSteps(run func(calls ...call) []answer, steps ...*step) {
	todo := steps
	for range tries {
		if len(todo) == 0 {
			return
		}
		calls := make([]call, len(todo))
		for i, st := range todo {
			calls[i] = st.call()
		}
		var again []*step
		for i, a := range run(calls...) {
			if !todo[i].read(a) {
				again = append(again, todo[i])
			}
		}
		todo = again
	}
	for _, st := range todo {
		st.err = fmt.Errorf("%w: stock %q: the server names another bucket each time", coordinator.ErrUnavailable, st.home.stock.name)
	}
}

// once is run that doesn't send again: for what somebody else will do if this fails.
func (s *Stock) once(calls ...call) []answer {
	answers := s.attempt(calls)
	for i := range answers {
		answers[i].err = explain(answers[i].err)
	}
	return answers
}

// confOf is the config that settings, as scripts state them, were made from.
func confOf(set string) (Config, bool) {
	fields := strings.Split(set, ":")
	if len(fields) != 4 {
		return Config{}, false
	}
	var n [3]int64
	for i, text := range fields[1:] {
		var err error
		if n[i], err = strconv.ParseInt(text, 10, 64); err != nil {
			return Config{}, false
		}
	}
	if n[0] < 1 || n[0] > MaxSegments || n[1] < 1 || n[1] > MaxRemember.Milliseconds() || n[2] < 0 || n[2] > MaxUnits {
		return Config{}, false
	}
	return Config{Segments: int(n[0]), Remember: time.Duration(n[1]) * time.Millisecond, PerUser: n[2]}, true
}
