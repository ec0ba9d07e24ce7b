package segment

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/go-leasehold/leasehold/internal/redistest"
)

// Steps in these tests are of one order of 2 units (3 in its older attempts) at one home, of a stock of 10.
const (
	itsLines   = "00000000000000aa"
	otherLines = "00000000000000bb"
	firstPlace = "5:first0:1:1:60000:0"
	otherPlace = "5:other0:1:1:60000:0"
)

// bench is a stock of one segment, at which steps are tried one by one.
type bench struct {
	*testing.T
	stock *Stock
	clock *serverClock
	// Attempts, in the order in which they were dealt, as texts.
	older, own, newer string
}

func newBench(t *testing.T) *bench {
	t.Helper()
	s, clock := loadedAt(t, Config{Segments: 1}, 10)
	b := &bench{T: t, stock: s, clock: clock}
	b.deal()
	return b
}

// deal has the attempts be such as are dealt now.
func (b *bench) deal() {
	µs := b.clock.now(b).UnixMicro()
	b.older, b.own, b.newer = number(µs-2), number(µs-1), number(µs)
}

// take has a step done: at the first home where place is empty.
func (b *bench) take(verb, attempt, place, lines, detail string, quantity int64) *step {
	b.Helper()
	set, err := b.stock.set()
	require.NoError(b, err)
	st := &step{
		home: b.stock.homes[0], set: set, verb: verb, field: "1:uo", lines: lines, attempt: attempt, first: place,
		quantity: quantity, detail: detail,
	}
	takeSteps(b.stock.run, st)
	require.NoError(b, st.err, verb)
	return st
}

// now is what there is of the order: the entry or record, without its deadline.
func (b *bench) now() string {
	b.Helper()
	h := b.stock.homes[0]
	if open := hashAt(b, redistest.Shared(b), h.keys.open)["1:uo"]; open != "" {
		e := strings.SplitN(open, " ", 5)
		if len(e) < 5 {
			return e[0]
		}
		return strings.Join([]string{e[0], b.name(e[1]), e[3], e[4]}, " ")
	}
	record, err := onRecord(b, h, "1:uo")
	require.NoError(b, err)
	r := strings.Split(record, " ")
	if len(r) == 3 {
		r[1] = b.name(r[1])
	}
	return strings.Join(r, " ")
}

// name is an attempt by the name that it has here.
func (b *bench) name(attempt string) string {
	for name, text := range map[string]string{"older": b.older, "own": b.own, "newer": b.newer} {
		if text == attempt {
			return name
		}
	}
	return "dealt"
}

// situations are what a step may meet, by how it came to be.
func (b *bench) situations() map[string]func() {
	order := func(v verb) func() {
		return func() {
			_, err := b.stock.homes[0].ask(&batch{orders: []order{{verb: v, field: "1:uo", quantity: 2, ttl: time.Hour}}})
			require.NoError(b, err)
		}
	}
	begun := func() {
		b.own = b.take("begin", "", "", itsLines, "caller", 2).by
		b.older, b.newer = decremented(b.own, 1), decremented(b.own, -1)
	}
	return map[string]func(){
		"none":  func() {},
		"own":   func() { b.take("prepare", b.own, firstPlace, itsLines, "", 2) },
		"older": func() { b.take("prepare", b.older, firstPlace, itsLines, "", 3) },
		"newer": func() { b.take("prepare", b.newer, firstPlace, itsLines, "", 2) },
		"alien": func() { b.take("prepare", b.own, otherPlace, otherLines, "", 2) },
		"begun": begun,
		"begun earlier": func() {
			begun()
			b.older, b.own = b.own, b.newer
		},
		"done": func() {
			begun()
			b.take("commit", b.own, "", itsLines, "places", 0)
		},
		"taken": func() {
			b.take("prepare", b.own, firstPlace, itsLines, "", 2)
			b.take("finish", b.own, firstPlace, itsLines, "", 0)
		},
		"taken earlier": func() {
			b.take("prepare", b.older, firstPlace, itsLines, "", 2)
			b.take("finish", b.older, firstPlace, itsLines, "", 0)
		},
		"other lines": func() {
			b.take("prepare", b.own, firstPlace, otherLines, "", 2)
			b.take("finish", b.own, firstPlace, otherLines, "", 0)
		},
		"given back": func() {
			begun()
			b.take("commit", b.own, "", itsLines, "places", 0)
			b.take("recall", "", "", itsLines, "places", 2)
		},
		"returned": func() { b.take("undo", b.own, firstPlace, itsLines, "", 2) },
		"sold":     order(deduct),
		"reserved": order(reserve),
	}
}

func decremented(attempt string, by int64) string {
	n := int64(0)
	for _, c := range attempt {
		n = n*10 + int64(c-'0')
	}
	return number(n - by)
}

// What is met, as it is written down.
var written = map[string]string{
	"none": "", "own": "p2 own " + itsLines + " " + firstPlace, "older": "p3 older " + itsLines + " " + firstPlace,
	"newer": "p2 newer " + itsLines + " " + firstPlace, "alien": "p2 own " + otherLines + " " + otherPlace,
	"begun": "p2 own " + itsLines + " =caller", "begun earlier": "p2 older " + itsLines + " =caller",
	"done": "d2 own " + itsLines + " places", "taken": "t2 own " + itsLines, "taken earlier": "t2 older " + itsLines,
	"other lines": "t2 own " + otherLines, "given back": "g2 own " + itsLines + " places", "returned": "r2 own " + itsLines,
	"sold": "t2", "reserved": "v2",
}

// effect is the answer of a step, and what there is after it; empty: as before.
type effect struct {
	status status
	after  string
}

const nothing = "nothing"

// effects by step and what it meets; what is not named is the effect of "else".
var effects = map[string]map[string]effect{
	"begin": {
		"none": {statusDone, "p2 dealt " + itsLines + " =new"}, "else": {statusMismatch, ""},
		"own": {statusBusy, ""}, "older": {statusBusy, ""}, "newer": {statusBusy, ""}, "alien": {statusBusy, ""},
		"begun": {statusBusy, ""}, "begun earlier": {statusBusy, ""},
		"done": {statusAgain, ""}, "taken": {statusAgain, ""}, "taken earlier": {statusAgain, ""},
		"given back": {statusReturned, ""}, "returned": {statusReturned, ""},
	},
	"prepare": {
		"none": {statusDone, "p2 own " + itsLines + " " + firstPlace}, "else": {statusMismatch, ""},
		"own": {statusDone, ""}, "older": {statusDone, "p2 own " + itsLines + " " + firstPlace}, "newer": {statusOutrun, ""},
		"alien": {statusBusy, ""}, "begun": {statusBusy, ""}, "begun earlier": {statusBusy, ""},
		"done": {statusAgain, ""}, "taken": {statusAgain, ""}, "taken earlier": {statusAgain, ""},
		"given back": {statusReturned, ""}, "returned": {statusReturned, ""},
	},
	"commit": {
		"begun": {statusDone, "d2 own " + itsLines + " new places"}, "else": {statusOutrun, ""},
		"done": {statusDone, ""}, "taken": {statusDone, ""},
	},
	"finish": {"own": {statusDone, "t2 own " + itsLines}, "else": {statusDone, ""}},
	"close":  {"done": {statusDone, "t2 own " + itsLines}, "else": {statusDone, ""}},
	"close g": {
		"given back": {statusDone, "r2 own " + itsLines}, "else": {statusDone, ""},
	},
	"abort": {
		"own": {statusDone, nothing}, "else": {statusUnknown, ""},
		"done": {statusAgain, ""}, "taken": {statusAgain, ""}, "taken earlier": {statusAgain, ""},
		"given back": {statusReturned, ""}, "returned": {statusReturned, ""},
	},
	"abort at the first": {
		"begun": {statusDone, nothing}, "else": {statusUnknown, ""},
		"done": {statusAgain, ""}, "taken": {statusAgain, ""}, "taken earlier": {statusAgain, ""},
		"given back": {statusReturned, ""}, "returned": {statusReturned, ""},
	},
	"recall": {
		"none": {statusUnknown, "g2 dealt " + itsLines + " new places"}, "else": {statusMismatch, ""},
		"begun":         {statusUnknown, "g2 dealt " + itsLines + " new places"},
		"begun earlier": {statusUnknown, "g2 dealt " + itsLines + " new places"},
		"own":           {statusBusy, ""}, "older": {statusBusy, ""}, "newer": {statusBusy, ""}, "alien": {statusBusy, ""},
		"done":          {statusDone, "g2 own " + itsLines + " new places"},
		"taken":         {statusDone, "g2 own " + itsLines + " new places"},
		"taken earlier": {statusDone, "g2 older " + itsLines + " new places"},
		"given back":    {statusAgain, ""}, "returned": {statusAgain, ""},
	},
	"undo": {
		"none": {statusDone, "r2 own " + itsLines}, "else": {statusDone, ""},
		"own": {statusDone, "r2 own " + itsLines}, "older": {statusDone, "r2 own " + itsLines}, "taken": {statusDone, "r2 own " + itsLines},
	},
	"see": {
		"else": {statusUnknown, ""},
		"own":  {statusBusy, ""}, "older": {statusBusy, ""}, "newer": {statusBusy, ""}, "alien": {statusBusy, ""},
		"begun": {statusBusy, ""}, "begun earlier": {statusBusy, ""},
	},
}

// do has the step of a name done.
func (b *bench) do(name string) *step {
	b.Helper()
	switch name {
	case "begin":
		return b.take("begin", "", "", itsLines, "new", 2)
	case "prepare", "finish", "abort", "undo":
		return b.take(name, b.own, firstPlace, itsLines, "", 2)
	case "commit":
		return b.take("commit", b.own, "", itsLines, "new places", 2)
	case "close":
		return b.take("close", b.own, "", itsLines, "d", 2)
	case "close g":
		return b.take("close", b.own, "", itsLines, "g", 2)
	case "abort at the first":
		return b.take("abort", b.own, "", itsLines, "", 2)
	}
	return b.take(name, "", "", itsLines, "new places", 2)
}

// holds is what of the stock an order has, by what is written down of it.
func holds(state string) Books {
	b := Books{Loaded: 10, Left: 10}
	if state == "" {
		return b
	}
	n := int64(state[1] - '0')
	switch state[0] {
	case 'p':
		b.Open, b.Left = n, 10-n
	case 'd', 't':
		b.Sold, b.Left = n, 10-n
	case 'v':
		b.Reserved, b.Left = n, 10-n
	}
	return b
}

// Every step, in every situation, twice: the second time changes nothing. What it meets came to be in the same bucket of
// orders, or in the one before.
func TestStepsInEverySituation(t *testing.T) {
	t.Parallel()
	for name, byMet := range effects {
		for met, before := range written {
			want, ok := byMet[met]
			if !ok {
				want = byMet["else"]
			}
			switch want.after {
			case "":
				want.after = before
			case nothing:
				want.after = ""
			}
			for _, edge := range []bool{false, true} {
				t.Run(fmt.Sprintf("%s meets %s, before the edge of a bucket: %t", name, met, edge), func(t *testing.T) {
					b := newBench(t)
					if edge {
						b.clock.edge(t, b.stock.conf.Remember, -time.Millisecond/2)
						b.deal()
					}
					b.situations()[met]()
					require.Equal(t, before, b.now())
					require.Equal(t, holds(before), audited(t, b.stock))
					b.meet(name, want)
				})
			}
		}
	}
}

// meet has a step done twice, a little later.
func (b *bench) meet(name string, want effect) {
	b.Helper()
	bucket := b.stock.homes[0].bucket.Load()
	began := b.clock.now(b)
	b.clock.add(b.T, time.Millisecond) // so that an attempt that is dealt now is none of those before
	require.Equal(b, want.status, b.do(name).status)
	require.Equal(b, want.after, b.now())
	require.Equal(b, holds(want.after), audited(b, b.stock))
	b.do(name)
	require.Equal(b, want.after, b.now(), "the second time")
	require.Equal(b, holds(want.after), audited(b, b.stock))
	remember := b.stock.conf.Remember.Microseconds()
	require.Equal(b, b.clock.now(b).UnixMicro()/remember-began.UnixMicro()/remember, b.stock.homes[0].bucket.Load()-bucket)
}
