package coordinator

import (
	"context"
	"sync"

	"github.com/puzpuzpuz/xsync/v3"

	"github.com/go-leasehold/leasehold/telemetry"
)

// Telemetry returns what the coordinator tells by, for packages on top of it.
func (c *Coordinator) Telemetry() *telemetry.Telemetry { return c.tel }

// FlushTelemetry waits until all spans and alarms so far were handed to who is told
// of them, or ctx ends: for a test, or a program about to end. It does
// not flush a provider: that is the program's. Close does the same.
func (c *Coordinator) FlushTelemetry(ctx context.Context) error {
	if ctx == nil {
		return invalid("the context is nil")
	}
	return c.tel.Flush(ctx)
}

// past is what happened to keys whose actors have left the table.
type past struct {
	sync.Mutex
	stats   Stats
	byClass map[*telemetry.Class]*Stats
	denied  map[*telemetry.Class]*xsync.Counter // calls that were counted nowhere else: see denial

	// While metrics are collected, which looks at one key after the other, keys
	// that it has seen may leave the table. Their stats wait here until it is done,
	// so that none is counted twice.
	collecting uint64 // the number of the collection under way; 0: none
	waiting    map[*telemetry.Class]*Stats

	collection sync.Mutex // held for the time of a collection
	collected  uint64     // how many there were
}

// take adds the stats of an actor that leaves the table. It is called under the
// actor's mutex.
func (p *past) take(a *actor) {
	p.Lock()
	defer p.Unlock()
	p.stats.add(&a.stats)
	a.past = true
	to := &p.byClass
	if p.collecting != 0 && a.collected == p.collecting {
		to = &p.waiting
	}
	tally(to, a.classOf()).add(&a.stats)
}

// tally returns the stats of a class.
func tally(of *map[*telemetry.Class]*Stats, class *telemetry.Class) *Stats {
	if *of == nil {
		*of = map[*telemetry.Class]*Stats{}
	}
	s := (*of)[class]
	if s == nil {
		s = &Stats{}
		(*of)[class] = s
	}
	return s
}

// observe has metrics collected from the keys when somebody asks for them.
func (c *Coordinator) observe() {
	lines := func() int64 { return int64(c.journal.dropped.Load()) }
	if err := c.tel.Observe(c.totals, lines); err != nil {
		c.journal.log().Warn("leasehold: no metrics of keys", "error", err)
	}
}

// totals counts by class.
func (c *Coordinator) totals() []telemetry.Totals {
	p := &c.past
	p.collection.Lock()
	defer p.collection.Unlock()
	p.collected++
	p.Lock()
	p.collecting = p.collected
	p.Unlock()

	sums := map[*telemetry.Class]*Stats{}
	now := map[*telemetry.Class]*telemetry.Totals{}
	durations := map[*telemetry.Class][]telemetry.Duration{} // that nobody has recorded yet
	c.actors.Range(func(_ string, a *actor) bool {
		a.count(&sums, now, durations, p.collected)
		return true
	})
	for class, all := range durations {
		class.Record(all)
	}

	p.Lock()
	for class, s := range p.byClass {
		tally(&sums, class).add(s)
	}
	for class, s := range p.waiting {
		tally(&p.byClass, class).add(s)
	}
	for class, n := range p.denied {
		tally(&sums, class).Busy += uint64(n.Value())
	}
	p.waiting, p.collecting = nil, 0
	p.Unlock()

	tally(&sums, c.tel.Other()) // there is always one
	all := make([]telemetry.Totals, 0, len(sums))
	for class, s := range sums {
		x := telemetry.Totals{}
		if of := now[class]; of != nil {
			x = *of
		}
		x.Class = class
		s.fill(&x)
		all = append(all, x)
	}
	return all
}

// count adds a key to the sums of its class.
func (a *actor) count(sums *map[*telemetry.Class]*Stats, now map[*telemetry.Class]*telemetry.Totals,
	durations map[*telemetry.Class][]telemetry.Duration, collection uint64,
) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.gone {
		return // it is counted among the past
	}
	a.collected = collection
	class := a.classOf()
	durations[class] = append(durations[class], a.told.durations...)
	a.told.durations = nil
	x := now[class]
	if x == nil {
		x = &telemetry.Totals{}
		now[class] = x
	}
	x.Keys++
	x.Waiters += int64(a.waiting.n)
	x.Holds += int64(a.holders())
	if a.cur.phase == held {
		x.Leases++
	}
	if a.reading() {
		a.countPassed()
	}
	tally(sums, class).add(&a.stats)
}

// fill writes down what is counted since the beginning.
func (s *Stats) fill(x *telemetry.Totals) {
	x.Retained, x.Passed, x.Redis, x.Handoff, x.Reentries = s.Retained, s.Passed, s.Asked, s.Handed, s.Reentries
	x.Local = s.Grants - s.Retained - s.Passed - s.Asked - s.Handed
	x.Busy, x.TimedOut, x.Canceled = s.Busy, s.TimedOut, s.Canceled
	x.Refused, x.Unavailable, x.Closed = s.Refused, s.Unavailable, s.Closed
	x.Yields, x.Renewals, x.Expired = s.Yields, s.Renewals, s.Expired
	x.NotRenewed, x.TakenAway = s.Lost-s.Taken, s.Taken
	x.MissedGrants, x.MissedWants = s.MissedGrants, s.MissedWants
	x.Commands, x.Failures, x.FailedReleases = s.Commands, s.Failures, s.FailedReleases
}
