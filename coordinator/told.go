package coordinator

import (
	"cmp"
	"slices"
	"sync/atomic"
	"time"

	"go.opentelemetry.io/otel/attribute"

	"github.com/go-leasehold/leasehold/lease"
	"github.com/go-leasehold/leasehold/telemetry"
)

// What is told of a key: who waited for whom, and what happened meanwhile. Most
// calls are not traced, and cost a comparison here. What is told is put together
// under the actor's mutex. Spans begin where they are asked for, or else on a goroutine
// of telemetry's, where they end.

// told is what an actor keeps for telemetry. It is guarded by actor.mu.
type told struct {
	following int                  // claims that are traced, waiting or holding
	events    []event              // of the key, as long as anything of it is traced
	before    *telemetry.Call      // of the last hold here that ended; nil if it is not traced
	ended     instant              // when that was
	earlier   []blocker            // what was in the way of those that wait, under leases before this one; the newest
	credit    instant              // see allow
	durations []telemetry.Duration // to be recorded
	hinting   bool                 // a hint with a trace is not answered yet
	hint      *lease.Request       // to be sent then
}

// event is something that happened to the key.
type event struct {
	name string
	at   instant
	with []attribute.KeyValue
}

// maxEvents bounds the events that are kept: the newest.
const maxEvents = 64

// claimTrace is what a traced claim has, guarded as the claim is. What the caller
// reads without the mutex is written once, before ready.
type claimTrace struct {
	call      *telemetry.Call
	owing     atomic.Bool // it is wanted elsewhere, where somebody is to be told of its span
	shared    bool
	counted   bool // in told.following
	annotated bool // the store was told
	ahead     int
	behind    bool // others of this process, who held or waited
	blockers  []telemetry.Blocker
	holders   int     // the first so many of them: they had the key when the call came
	events    []event // while it waited
	own       []event // of the wait that goes on, or of the hold; the others are the key's
}

// call returns the trace of the claim, or nil.
func (c *claim) call() *telemetry.Call {
	if c.more == nil || c.more.trace == nil {
		return nil
	}
	return c.more.trace.call
}

// classOf returns the class of the key.
func (a *actor) classOf() *telemetry.Class {
	if class := a.class.Load(); class != nil {
		return class
	}
	return a.c.tel.Other()
}

// How many durations of a key are recorded: all, but for keys that are locked far
// more often than a store could grant them. Recording costs as much as a hand-off.
const (
	recordEvery = 10 * time.Microsecond // on an average of
	recordBurst = 10 * time.Millisecond
)

// allow says whether the durations of one more call are recorded. (The generic cell
// rate algorithm.)
func (a *actor) allow(now instant) bool {
	after := max(a.told.credit, now).add(recordEvery)
	if after > now.add(recordBurst) {
		return false
	}
	a.told.credit = after
	return true
}

// maxDurations is how many durations are recorded at one go, at most. Recording one
// by one would have the cores pass the histograms to and fro.
const maxDurations = 64

// record has a duration recorded: with others, when the key leaves the table, or when
// somebody collects.
func (a *actor) record(d telemetry.Duration) {
	a.told.durations = append(a.told.durations, d)
	if len(a.told.durations) == maxDurations {
		a.recordAll()
	}
}

// recordWait has a claim's wait recorded, up to now.
func (a *actor) recordWait(c *claim, o telemetry.Outcome, now instant) {
	if c.timed {
		a.record(telemetry.Duration{Of: telemetry.OfWait, Shared: c.mode == lease.Shared, Outcome: o, Lasted: now.sub(c.since)})
	}
}

// recordAll does so at once: when the last key has left the table, the queue is closed.
func (a *actor) recordAll() {
	if class, all := a.classOf(), a.told.durations; len(all) > 0 {
		a.told.durations = nil
		a.c.tel.Soon(func() { class.Record(all) })
	}
}

// arrive notes when a call came.
func (a *actor) arrive(c *claim, now instant) {
	c.since = now
	c.timed = c.timed && a.allow(now)
}

// tell notes an event of the key, if anything of it is traced.
func (a *actor) tell(name string, now instant, with ...attribute.KeyValue) {
	if a.told.following == 0 && a.cur.asker == nil {
		return
	}
	if len(a.told.events) == maxEvents {
		a.told.events = append(a.told.events[:0], a.told.events[1:]...)
	}
	a.told.events = append(a.told.events, event{name, now, with})
}

// eventsSince returns a copy of the events from then on.
func (a *actor) eventsSince(from instant) (events []event) {
	for _, e := range a.told.events {
		if e.at >= from {
			events = append(events, e)
		}
	}
	return events
}

// eventsOf returns a copy of the events from then on that are the key's, or the
// claim's own.
func (a *actor) eventsOf(x *claimTrace, from instant) []event {
	events := append(a.eventsSince(from), x.own...)
	x.own = nil
	slices.SortStableFunc(events, func(a, b event) int { return cmp.Compare(a.at, b.at) })
	return events
}

// ofHolds leaves those that are about holds: an event of the very moment of the
// grant may be the end of the wait.
func ofHolds(events []event) []event {
	return slices.DeleteFunc(events, func(e event) bool {
		return e.name == telemetry.EventLeaseAsked || e.name == telemetry.EventDenied || e.name == telemetry.EventHandoff
	})
}

// wall tells instants by the wall clock.
type wall struct {
	now instant
	is  time.Time
}

func (w wall) time(at instant) time.Time { return w.is.Add(at.sub(w.now)) }

func (w wall) events(events []event) (all []telemetry.Event) {
	for _, e := range events {
		all = append(all, telemetry.Event{Name: e.name, At: w.time(e.at), With: e.with})
	}
	return all
}

// waited puts together what is told of a claim's wait. Nothing of it changes any
// more. It is for telemetry's goroutine, and says nothing that has to be asked for.
func (a *actor) waited(x *claimTrace, o telemetry.Outcome, by telemetry.Path, from, to instant) telemetry.Wait {
	w := a.c.clock.wall()
	events := w.events(x.events)
	if x.behind {
		queued := telemetry.Event{Name: telemetry.EventQueued, At: w.time(from)}
		queued.With = append(queued.With, telemetry.AttrAhead.Int(x.ahead))
		events = append([]telemetry.Event{queued}, events...)
	}
	return telemetry.Wait{
		Key: a.key, Class: a.classOf(), Shared: x.shared, Outcome: o, Path: by,
		Ahead: x.ahead, From: w.time(from), To: w.time(to), Blockers: x.blockers, Holders: x.holders, Events: events,
	}
}

// tellFailed tells of a call that does not hold.
func (a *actor) tellFailed(c *claim, waited time.Duration) {
	call := c.call()
	if call == nil {
		return
	}
	o, x, holder, from := c.more.outcome, c.more.trace, c.more.holder, c.since
	call.NoHold(true, func() telemetry.Wait {
		w := a.waited(x, o, "", from, from.add(waited))
		w.Holder = holder
		return w
	})
}

// tellAcquired tells of a call that holds now, whether it had to wait or not. The
// context of the hold gets its span.
func (h *Hold) tellAcquired(how *call, mustWait bool) {
	a, c := h.actor, h.claim
	if h.number > 0 { // inside already: it is no hold of its own
		h.tellReentered(how.trace)
		return
	}
	x, from, to, by, token := c.more.trace, c.since, c.granted, c.path.name(), c.token
	h.traced = true
	how.trace.Acquired(telemetry.Grant{
		Key: a.key, Class: a.classOf(), Shared: x.shared, Path: by, Token: token, At: a.c.clock.wall().time(to), Waited: mustWait,
	}, func() telemetry.Wait {
		w := a.waited(x, telemetry.Acquired, by, from, to)
		w.Token = token
		return w
	})
	if x.owing.Load() {
		a.c.tel.Soon(a.annotatesNow(c)) // the span is still to be begun, which runs samplers
	}
}

// tellReentered tells of a call that was inside already, if that was asked for.
func (h *Hold) tellReentered(call *telemetry.Call) {
	a, now, shared, token := h.actor, time.Now(), h.mode == lease.Shared, h.token
	call.NoHold(false, func() telemetry.Wait {
		return telemetry.Wait{
			Key: a.key, Class: a.classOf(), Shared: shared, Outcome: telemetry.Acquired, Path: telemetry.PathReentry,
			Token: token, From: now, To: now,
		}
	})
}

// tellEnded tells of a hold that is over, for the reason given.
func (a *actor) tellEnded(c *claim, why error, now instant) {
	o := endOf(why)
	if c.timed {
		a.record(telemetry.Duration{Of: telemetry.OfHold, Shared: c.mode == lease.Shared, Outcome: o, Lasted: now.sub(c.granted)})
	}
	if c.more == nil || c.more.trace == nil {
		return
	}
	x, events := c.more.trace, ofHolds(a.eventsOf(c.more.trace, c.granted))
	a.unfollow(x)
	if t := &a.cur; t.shows == x {
		t.shows, t.unsay = nil, true
	}
	// At once, so that who sees that it is over, and flushes, misses nothing.
	a.c.tel.Later(func() {
		w := a.c.clock.wall()
		end := telemetry.End{Outcome: o, At: w.time(now), Events: w.events(events)}
		if o == telemetry.Lost {
			end.Cause = causeOf(why)
		}
		x.call.Ended(end)
	})
}

// tellDowngraded tells that a hold is a shared one from now on.
func (a *actor) tellDowngraded(c *claim) {
	if c.call() != nil {
		x := c.more.trace
		x.own = append(x.own, event{name: telemetry.EventDowngraded, at: a.c.clock.now()})
	}
}

// tellLease tells of a lease that is over.
func (a *actor) tellLease(why error, now instant) {
	t := &a.cur
	if t.asker == nil || t.wonAt == 0 {
		return
	}
	if t.lapsed {
		why = errNotRenewed
	}
	w := a.c.clock.wall()
	l := telemetry.Lease{
		Key: a.key, Class: a.classOf(), Shared: t.mode == lease.Shared, Path: telemetry.PathRedis, Asker: t.asker, Holds: t.served,
		From: w.time(t.wonAt), To: w.time(now), Outcome: endOf(why), Events: w.events(a.eventsSince(t.wonAt)),
	}
	if t.byMessage {
		l.Path = telemetry.PathHandoff
	}
	if l.Outcome == telemetry.Lost {
		l.Cause = causeOf(why)
	}
	a.c.tel.Later(func() { a.c.tel.Lease(l) })
}
