package segment

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"pgregory.net/rapid"
)

// sale is everything that happens in one run.
type sale struct {
	Segments  int
	Limit     int64 // units per user
	Units     int64 // loaded first
	Processes int
	Shared    bool     // the processes are handles of one coordinator
	Loading   []mishap // while it is loaded first
	Deeds     []deed
	Crew      [][]deed // of the concurrent mode, one a goroutine
	Chance    int      // that a command meets a mishap, in a thousand
	Seed      uint64   // of these mishaps
}

// deed is one call of one process, or something that happens to it.
type deed struct {
	Process  int
	What     act
	User, ID int  // see names
	Other    int  // than the usual quantity of that order; 0: the usual
	Same     bool // the order of the deed before
	TTL      time.Duration
	By       time.Duration // the clock's move
	Ctx      ctxKind
	Fails    bool // what WithSegment does
	Mishaps  []mishap
}

type act string

const (
	actNothing  act = "" // what deeds are made smaller to
	actDeduct   act = "deduct"
	actUnnamed  act = "deduct without an ID"
	actReserve  act = "reserve"
	actConfirm  act = "confirm"
	actCancel   act = "cancel"
	actReturn   act = "return"
	actRestock  act = "restock"
	actLocked   act = "with segment"
	actRemain   act = "remaining"
	actAudit    act = "audit"
	actLoad     act = "load"
	actReset    act = "reset"
	actClock    act = "clock"
	actNewStock act = "new handle"
)

type ctxKind int

const (
	ctxPatient ctxKind = iota
	ctxEnded
	ctxHasty
)

// remembers is how long orders are remembered in these tests.
const remembers = time.Minute

// usualActs are what processes do, as often as it stands here.
var usualActs = func() (all []act) {
	add := func(n int, what act) {
		for range n {
			all = append(all, what)
		}
	}
	add(10, actDeduct)
	add(4, actUnnamed)
	add(4, actReserve)
	add(3, actConfirm)
	add(1, actCancel)
	add(3, actReturn)
	add(2, actRestock)
	add(1, actLocked)
	add(1, actRemain)
	add(1, actAudit)
	return all
}()

// pick draws one of some, each as often as any other. rapid.SampledFrom prefers the first ones by far.
func pick[T any](r *rapid.T, label string, from []T) T {
	return from[pickIndex(len(from)).Draw(r, label)]
}

func pickIndex(n int) *rapid.Generator[int] {
	return rapid.Custom(func(r *rapid.T) int {
		const bits = 10
		i := 0
		for range bits {
			i *= 2
			if rapid.Bool().Draw(r, "bit") {
				i++
			}
		}
		return i * n >> bits
	})
}

// drawSale draws a run in which one thing happens after the other.
var drawSale = rapid.Custom(func(r *rapid.T) *sale {
	s := drawStock(r)
	events := slices.Concat([]act{actNothing}, usualActs, usualActs, []act{
		actClock, actClock, actClock, actClock, actClock, actClock, actLoad, actReset, actNewStock,
	})
	s.Loading = rapid.SliceOfN(rapid.Custom(func(r *rapid.T) mishap {
		return mishap{
			At: pick(r, "at", []int{0, 1, 2, 3, 4, 5, 6, 7}), Later: rapid.IntRange(0, 20).Draw(r, "later"),
			What: pick(r, "misfortune", []misfortune{unreachable, lostCommand, lostReply, doubled, delayed, crashBefore, crashAfter, crashDuring}),
		}
	}), 0, 2).Draw(r, "loading")
	n := pick(r, "deeds", []int{8, 16, 32, 48})
	s.Deeds = rapid.SliceOfN(rapid.Custom(func(r *rapid.T) deed {
		d := drawDeed(r, events)
		d.Mishaps = rapid.SliceOfN(rapid.Custom(drawMishap), 0, 3).Draw(r, "mishaps")
		return d
	}), n, n).Draw(r, "deeds")
	follow(s.Deeds)
	return s
})

// drawTogether draws a run in which goroutines of several processes do things at once.
var drawTogether = rapid.Custom(func(r *rapid.T) *sale {
	s := drawStock(r)
	n := pick(r, "deeds", []int{2, 5, 10, 20})
	one := rapid.Custom(func(r *rapid.T) deed { return drawDeed(r, usualActs) })
	s.Crew = rapid.SliceOfN(rapid.SliceOfN(one, n, n), 2, 8).Draw(r, "crew")
	for _, deeds := range s.Crew {
		follow(deeds)
	}
	s.Chance = pick(r, "chance", []int{0, 30, 100, 200})
	s.Seed = rapid.Uint64().Draw(r, "seed")
	return s
})

// follow has deeds be about the order of the deed before, or of the one that interrupts it, where they say so.
func follow(deeds []deed) {
	var before *deed
	take := func(d *deed) {
		if before != nil && d.Same {
			d.User, d.ID, d.Other = before.User, before.ID, before.Other
		}
		if d.User+d.ID > 0 {
			before = d
		}
	}
	for i := range deeds {
		take(&deeds[i])
		for j := range deeds[i].Mishaps {
			if m := deeds[i].Mishaps[j].Meanwhile; m != nil {
				take(m)
				if m.Same && m.Fails && (deeds[i].What == actDeduct || deeds[i].What == actReserve) {
					m.What = deeds[i].What // a twin
				}
			}
		}
	}
}

func drawStock(r *rapid.T) *sale {
	return &sale{
		Segments:  pick(r, "segments", []int{1, 2, 2, 3, 3, 4}),
		Limit:     int64(pick(r, "limit", []int{0, 0, 3, 5})),
		Units:     int64(pick(r, "units", []int{0, 1, 2, 3, 4, 5, 6, 8, 10, 12})),
		Processes: rapid.IntRange(2, 3).Draw(r, "processes"),
		Shared:    rapid.Bool().Draw(r, "shared"),
	}
}

func drawDeed(r *rapid.T, from []act) deed {
	d := deed{
		What:    pick(r, "what", from),
		Process: pick(r, "process", []int{0, 1, 2}),
	}
	switch d.What {
	case actClock:
		d.By = pick(r, "by", []time.Duration{
			0, time.Millisecond, time.Second, 10 * time.Second, remembers / 2, remembers, remembers * 3 / 2, 2 * remembers, 3 * remembers,
			-time.Millisecond, -time.Second, -10 * time.Second,
		})
		return d
	case actNothing, actNewStock:
		return d
	case actRemain, actAudit, actLoad, actReset:
	default:
		d.User = pick(r, "user", []int{0, 1, 2, 3})
		d.ID = pick(r, "id", []int{0, 1, 2})
		d.Other = pick(r, "other", []int{0, 0, 0, 0, 0, 0, 0, 0, 1, 2, 3, 7})
		d.Same = rapid.Bool().Draw(r, "same")
	}
	d.TTL = pick(r, "ttl", []time.Duration{time.Second, 5 * time.Second, remembers, 3 * remembers})
	d.Fails = rapid.Bool().Draw(r, "fails")
	d.Ctx = pick(r, "ctx", []ctxKind{
		ctxPatient, ctxPatient, ctxPatient, ctxPatient, ctxPatient, ctxPatient, ctxPatient, ctxPatient, ctxPatient, ctxPatient,
		ctxPatient, ctxPatient, ctxPatient, ctxPatient, ctxEnded, ctxHasty,
	})
	return d
}

// mishapPlaces are the commands that something befalls: most calls have few.
var mishapPlaces = []int{0, 0, 0, 0, 0, 0, 1, 1, 1, 2, 2, 3, 3, 4, 4, 5, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 18, 20, 22}

func drawMishap(r *rapid.T) mishap {
	m := mishap{
		At: pick(r, "at", mishapPlaces),
		What: pick(r, "misfortune", []misfortune{
			meanwhile, meanwhile, meanwhile, unreachable, lostCommand, lostReply, doubled, delayed, crashBefore, crashAfter, crashDuring,
		}),
		Later: rapid.IntRange(0, 60).Draw(r, "later"),
		On:    pick(r, "on", []string{"", "", "", "", "", "give", "give", "credit", "credit", "credit", "once", "once", "rotate", "look"}),
	}
	if m.On != "" {
		m.At = rapid.IntRange(0, 2).Draw(r, "which")
	}
	if m.On == "give" || m.On == "credit" || m.On == "once" {
		m.At = 0 // most calls have one, and many have none
		m.What = pick(r, "befalls", []misfortune{meanwhile, lostReply, doubled, delayed, crashBefore, crashAfter, crashDuring})
	}
	if m.What == meanwhile {
		d := drawDeed(r, append([]act{actClock}, usualActs...))
		if d.By < 0 {
			d.By = -d.By // back only between deeds
		}
		if d.What == actLocked {
			d.What = actDeduct // it might wait for whom it interrupts
		}
		d.Ctx = ctxPatient
		m.Meanwhile = &d
	}
	return m
}

// order is the order that a deed is about.
func (d *deed) order(s *sale) Order {
	o := Order{ID: fmt.Sprintf("id%d", d.ID), Quantity: d.quantity()}
	if d.User > 0 {
		o.User = fmt.Sprintf("user%d", d.User)
	} else if s.Limit > 0 {
		o.User = "user1"
	}
	if d.What == actUnnamed {
		o.ID = ""
	}
	return o
}

func (d *deed) quantity() int64 {
	switch gives := d.What == actConfirm || d.What == actCancel || d.What == actReturn; {
	case gives && d.Other == 7:
		return 0 // whatever it has
	case d.Other > 0:
		return int64(d.Other)
	}
	return int64(1 + d.ID%3)
}

func (d *deed) String() string {
	if d.What == actClock {
		return fmt.Sprintf("clock by %v", d.By)
	}
	var b strings.Builder
	fmt.Fprintf(&b, "p%d %s", d.Process, d.What)
	switch d.What {
	case actNewStock, actRemain, actAudit, actLoad, actReset:
	default:
		fmt.Fprintf(&b, " user%d id%d %d units", d.User, d.ID, d.quantity())
	}
	if d.What == actReserve {
		fmt.Fprintf(&b, " for %v", d.TTL)
	}
	if d.What == actLocked && d.Fails {
		b.WriteString(" fails")
	}
	if d.Ctx != ctxPatient {
		fmt.Fprintf(&b, " ctx %d", d.Ctx)
	}
	for _, m := range d.Mishaps {
		fmt.Fprintf(&b, " [%v]", m)
	}
	return b.String()
}

func (s *sale) String() string {
	var b strings.Builder
	fmt.Fprintf(&b, "%d segments, limit %d, %d units, %d processes, shared %t, mishaps of %d in 1000 by %d\n",
		s.Segments, s.Limit, s.Units, s.Processes, s.Shared, s.Chance, s.Seed)
	if len(s.Loading) > 0 {
		fmt.Fprintf(&b, "  load %v\n", s.Loading)
	}
	for i := range s.Deeds {
		if s.Deeds[i].What == actNothing {
			continue
		}
		fmt.Fprintf(&b, "  %d: %v\n", i, &s.Deeds[i])
	}
	for i, deeds := range s.Crew {
		for j := range deeds {
			fmt.Fprintf(&b, "  %d.%d: %v\n", i, j, &deeds[j])
		}
	}
	return b.String()
}
