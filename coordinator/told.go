package coordinator

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"sync/atomic"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/trace"

	"github.com/go-leasehold/leasehold/lease"
	"github.com/go-leasehold/leasehold/telemetry"
)

// What is told of a key: who waited for whom, and what happened meanwhile. Most
// calls are not traced, and cost a comparison here. What is told is put together
// under the actor's mutex and handed on once it is free; spans begin on the
// caller's goroutine and end on one of telemetry's.

// path is how a hold was granted, in a byte.
type path uint8

const (
	byHandOver path = iota
	byRetention
	byPassing
	byAsking
	byHandoff
)

// name is what telemetry calls it.
func (p path) name() telemetry.Path {
	return [...]telemetry.Path{
		byHandOver: telemetry.PathLocal, byRetention: telemetry.PathRetained, byPassing: telemetry.PathPassed,
		byAsking: telemetry.PathRedis, byHandoff: telemetry.PathHandoff,
	}[p]
}

// path is how the lease serves the next of those that wait.
func (a *actor) path() path {
	switch t := &a.cur; {
	case t.served > 0:
		return byHandOver
	case t.byMessage:
		return byHandoff
	}
	return byAsking
}

// granted counts a grant.
func (s *Stats) granted(by path) {
	s.Grants++
	switch by {
	case byRetention:
		s.Retained++
	case byAsking:
		s.Asked++
	case byHandoff:
		s.Handed++
	}
}

// told is what an actor keeps for telemetry. It is guarded by actor.mu.
type told struct {
	following int             // claims that are traced, waiting or holding
	events    []event         // of the key, as long as anything of it is traced
	before    *telemetry.Call // of the last hold here that ended; nil if it is not traced
	ended     instant         // when that was
	credit    instant         // see allow
}

// event is something that happened to the key.
type event struct {
	name string
	at   instant
	with []attribute.KeyValue
}

// maxEvents bounds the events that are kept: the newest.
const maxEvents = 64

// maxBlockers bounds the readers that a writer's wait leads to.
const maxBlockers = 4

// claimTrace is what a traced claim has, guarded as the claim is. What the caller
// reads without the mutex is written once, before ready.
type claimTrace struct {
	call      *telemetry.Call
	owing     atomic.Bool // it is wanted elsewhere, and was when there was no span yet
	shared    bool
	counted   bool // in told.following
	annotated bool // the store was told
	ahead     int
	behind    bool // others of this process, who held or waited
	blockers  []telemetry.Blocker
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

// arrive notes when a call came.
func (a *actor) arrive(c *claim, now instant) {
	c.since = now
	c.timed = c.timed && a.allow(now)
}

// follow begins to note what happens to a claim that is traced.
func (a *actor) follow(c *claim) {
	if c.more == nil || c.more.trace == nil {
		return
	}
	x := c.more.trace
	x.counted = true
	x.shared = c.mode == lease.Shared
	a.told.following++
}

// queue notes who is in the way of a claim that is traced, and is about to wait.
func (a *actor) queue(c *claim) {
	if c.more == nil || c.more.trace == nil {
		return
	}
	a.follow(c)
	x := c.more.trace
	x.ahead = a.waiting.n
	x.behind = x.ahead > 0 || a.inUse()
	a.linkHolders(x)
	if t := &a.cur; t.phase == queued {
		// Who has it elsewhere may be another than when that was last asked.
		a.verify(max(c.since, t.verifiedAt.add(checkHoldAfter)))
	}
}

// linkHolders notes the holds here.
func (a *actor) linkHolders(x *claimTrace) {
	for h := a.holds.first; h != nil && len(x.blockers) < maxBlockers; h = h.next {
		if call := h.call(); call != nil {
			x.blockers = append(x.blockers, telemetry.Blocker{Relation: telemetry.LinkHolder, Call: call})
		}
	}
}

// unfollow ends that.
func (a *actor) unfollow(x *claimTrace) {
	if !x.counted {
		return
	}
	x.counted = false
	a.told.following--
	if a.told.following == 0 && a.cur.asker == nil {
		a.told.events = nil
	}
}

// linkGranted notes by whom a claim was let in, and what happened while it waited.
func (a *actor) linkGranted(c *claim) {
	x, t := c.more.trace, &a.cur
	switch c.path {
	case byHandOver:
		if c.since < t.wonAt {
			a.linkElsewhere(c)
		}
		if a.told.before != nil && a.told.ended >= c.since {
			x.blockers = append(x.blockers, telemetry.Blocker{Relation: telemetry.LinkPredecessor, Call: a.told.before})
		}
	case byAsking, byHandoff:
		a.linkElsewhere(c)
		if t.passedBy != "" {
			x.blockers = append(x.blockers, telemetry.Blocker{Relation: telemetry.LinkPredecessor, Remote: t.passedBy})
		}
	}
	x.events = a.eventsOf(x, c.since)
	if t.wanted {
		x.owing.Store(true)
	}
}

// heldElsewhere is a hold in another process that had the key at a given moment,
// and perhaps after it.
type heldElsewhere struct {
	trace string // "": that one is not traced
	at    instant
}

// keptBy notes who had the key. The first is kept, and the newest.
func (t *tenure) keptBy(trace string, at instant) {
	n := len(t.heldBy)
	if n > 0 && t.heldBy[n-1].trace == trace {
		t.heldBy[n-1].at = max(t.heldBy[n-1].at, at)
		return
	}
	if n == maxBlockers {
		t.heldBy = slices.Delete(t.heldBy, 1, 2)
	}
	t.heldBy = append(t.heldBy, heldElsewhere{trace, at})
}

// linkElsewhere notes the holds elsewhere that had the key after the claim came.
func (a *actor) linkElsewhere(c *claim) {
	x := c.more.trace
	for _, b := range a.cur.heldBy {
		if b.trace != "" && b.at >= c.since {
			x.blockers = append(x.blockers, telemetry.Blocker{Relation: telemetry.LinkHolder, Remote: b.trace})
		}
	}
}

// giveUpOn notes what was in the way of a claim that will not hold.
func (a *actor) giveUpOn(c *claim) {
	if c.more == nil || c.more.trace == nil {
		return
	}
	x := c.more.trace
	if !x.counted { // it was refused at once
		x.shared = c.mode == lease.Shared
		a.linkHolders(x)
	}
	if a.cur.phase != held || c.since < a.cur.wonAt {
		a.linkElsewhere(c)
	}
	x.events = a.eventsOf(x, c.since)
	a.unfollow(x)
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
		Ahead: x.ahead, From: w.time(from), To: w.time(to), Blockers: x.blockers, Events: events,
	}
}

// tellFailed tells of a call that does not hold.
func (a *actor) tellFailed(c *claim, waited time.Duration) {
	o := c.more.outcome
	if c.timed {
		a.classOf().Waited(c.mode == lease.Shared, o, waited)
	}
	call := c.call()
	if call == nil {
		return
	}
	x, holder, from := c.more.trace, c.more.holder, c.since
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
		if how.trace != nil {
			h.tellReentered(how.trace)
		}
		return
	}
	if mustWait && c.timed {
		a.classOf().Waited(c.mode == lease.Shared, telemetry.Acquired, c.granted.sub(c.since))
	}
	if how.trace == nil {
		return
	}
	x, from, to, by, token := c.more.trace, c.since, c.granted, c.path.name(), c.token
	h.parent = how.trace.Acquired(telemetry.Grant{
		Key: a.key, Class: a.classOf(), Shared: x.shared, Path: by, Token: token, At: a.c.clock.wall().time(to), Waited: mustWait,
	}, func() telemetry.Wait {
		w := a.waited(x, telemetry.Acquired, by, from, to)
		w.Token = token
		return w
	})
	if !x.owing.Load() {
		return
	}
	a.mu.Lock()
	if c.state == granted {
		a.annotate(c) // it was wanted before there was anything to say
	}
	a.unlock()
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
	if c.timed && o != telemetry.Released { // Unlock records the others when the mutex is free
		class, shared, lasted := a.classOf(), c.mode == lease.Shared, now.sub(c.granted)
		a.out.told = append(a.out.told, func() { class.Held(shared, o, lasted) })
	}
	if c.more == nil || c.more.trace == nil {
		return
	}
	x, events := c.more.trace, ofHolds(a.eventsOf(c.more.trace, c.granted))
	a.unfollow(x)
	if t := &a.cur; t.shows == x {
		t.shows, t.unsay = nil, true
	}
	a.out.told = append(a.out.told, func() {
		w := a.c.clock.wall()
		end := telemetry.End{Outcome: o, At: w.time(now), Events: w.events(events)}
		if o == telemetry.Lost {
			end.Cause = causeOf(why)
		}
		x.call.Ended(end)
	})
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
	a.out.told = append(a.out.told, func() { a.c.tel.Lease(l) })
}

// tellRenewed tells of a renewal that was due, and raises an alarm, once for a
// lease, if it came late.
func (a *actor) tellRenewed(due, until, now instant) {
	class, late := a.classOf(), now.sub(due)
	a.out.told = append(a.out.told, func() { class.Renewed(late) })
	t := &a.cur
	if t.late || until.sub(now) >= t.ttl/3 || !a.inUse() {
		return
	}
	t.late = true
	a.tell(telemetry.EventRenewalLate, now)
	alarm := a.alarm(nil, telemetry.LateRenewal, due, now, t.ttl/3)
	alarm.Owner, alarm.Mode = lease.Owner(a.c.id, t.ticket), t.mode.String()
	if a.holds.first != nil {
		alarm.Trace, alarm.Stack = a.holds.first.call().Hold(), a.holds.first.placed()
	}
	a.out.raise = append(a.out.raise, alarm)
}

// alarm is what all alarms of the key say. c is whom it is about, or nil.
func (a *actor) alarm(c *claim, kind telemetry.AlarmKind, since, now instant, limit time.Duration) telemetry.Alarm {
	if c != nil && c.call() != nil {
		x := c.more.trace
		x.own = append(x.own, event{telemetry.EventAlarm, now, []attribute.KeyValue{telemetry.AttrAlarm.String(string(kind))}})
	}
	return telemetry.Alarm{
		Kind: kind, Key: a.key, Class: a.classOf().Name(), Since: a.c.clock.wall().time(since), Lasted: now.sub(since), Limit: limit,
		Waiters: a.waiting.n, Wanted: a.cur.wanted,
	}
}

// alarmAt is when an alarm is raised for a hold.
func (a *actor) alarmAt(c *claim) instant {
	if c.alarmed || a.c.holdAlarm == 0 {
		return never
	}
	return c.granted.add(a.c.holdAlarm)
}

// heldLong raises the alarm of a hold.
func (a *actor) heldLong(c *claim, now instant) {
	c.alarmed = true
	alarm := a.alarm(c, telemetry.LongHold, c.granted, now, a.c.holdAlarm)
	alarm.Owner, alarm.Mode, alarm.Token = lease.Owner(a.c.id, a.cur.ticket), c.mode.String(), c.token
	alarm.Trace, alarm.Stack = c.call().Hold(), c.placed()
	a.out.raise = append(a.out.raise, alarm)
}

// readLong raises the alarm of readers that passed the gate, and stay inside while
// others wait for them to leave. Since when each of them is there, nobody knows.
func (a *actor) readLong(now instant) {
	g := a.gate
	alarm := a.alarm(nil, telemetry.LongHold, g.shutAt, now, a.c.holdAlarm)
	alarm.Owner, alarm.Mode, alarm.Token = lease.Owner(a.c.id, a.cur.ticket), lease.Shared.String(), g.token.Load()
	g.alarmed = true
	a.out.raise = append(a.out.raise, alarm)
}

// waitsLong raises the alarm of a wait, if it still waits.
func (a *actor) waitsLong(c *claim) {
	now := a.enter()
	defer a.leave(now)
	if c.state != waiting {
		return
	}
	alarm := a.alarm(c, telemetry.LongWait, c.since, now, a.c.waitAlarm)
	alarm.Mode, alarm.Holder, alarm.Stack = c.mode.String(), a.holder(), c.placed()
	if h := a.holds.first; h != nil {
		alarm.Trace = h.call().Hold()
	} else if n := len(a.cur.heldBy); n > 0 {
		alarm.Trace = telemetry.ParseTrace(a.cur.heldBy[n-1].trace)
	}
	a.out.raise = append(a.out.raise, alarm)
}

// annotate has the store told of a hold's trace, once, so that those who wait
// elsewhere know what they wait for.
func (a *actor) annotate(c *claim) {
	t := &a.cur
	if t.phase != held || t.lapsed || c.call() == nil || c.more.trace.annotated {
		return
	}
	trace := telemetry.FormatTrace(c.call().Hold())
	if trace == "" {
		// It has just been granted. Whoever begins its span looks here afterwards.
		c.more.trace.owing.Store(true)
		if trace = telemetry.FormatTrace(c.call().Hold()); trace == "" {
			return
		}
	}
	c.more.trace.annotated, t.annotated = true, true
	t.shows, t.unsay = c.more.trace, false
	a.hintTrace(trace)
}

func (a *actor) hintTrace(trace string) {
	a.out.hints = append(a.out.hints, lease.Request{
		Op: lease.Annotate, Key: a.key, Kind: a.kind, Ticket: a.cur.ticket, Trace: trace,
	})
}

// unannotate takes back what the store was told, where the lease goes on without
// that hold: who comes next must not be told that it waits for it.
func (a *actor) unannotate() {
	if t := &a.cur; t.unsay && t.phase == held && !t.lapsed {
		t.unsay = false
		a.hintTrace("")
	}
}

// handsOn is the trace of the hold for whose end others have waited, for them.
func (a *actor) handsOn() string {
	if !a.cur.wanted || a.told.ended < a.cur.wantFrom {
		return ""
	}
	return telemetry.FormatTrace(a.told.before.Hold())
}

// onTraced handles the notice of what a wait is for.
func (a *actor) onTraced(e lease.Event, now instant) {
	t := &a.cur
	switch {
	case e.Ticket != t.ticket || t.phase == held:
	case e.Passing:
		t.passedBy = e.Trace
	default:
		t.keptBy(e.Trace, now)
	}
}

// trace returns the span of the claim's hold; of one that waits there is none.
func (c *claim) trace() trace.SpanContext { return c.call().Hold() }

// outcomeOf says what a call came to that is told that it will not hold.
func outcomeOf(err error, try bool) telemetry.Outcome {
	switch {
	case errors.Is(err, ErrClosed):
		return telemetry.Closed
	case errors.Is(err, ErrUnavailable):
		return telemetry.Unavailable
	case try && errors.Is(err, ErrNotAcquired):
		return telemetry.Busy
	}
	return telemetry.Refused
}

// endOfContext says what a call came to whose context has ended.
func endOfContext(ctx context.Context) telemetry.Outcome {
	if errors.Is(ctx.Err(), context.DeadlineExceeded) {
		return telemetry.Timeout
	}
	return telemetry.Canceled
}

// failed counts a call that came to nothing.
func (s *Stats) failed(o telemetry.Outcome) {
	switch o {
	case telemetry.Busy:
		s.Busy++
	case telemetry.Timeout:
		s.TimedOut++
	case telemetry.Canceled:
		s.Canceled++
	case telemetry.Refused:
		s.Refused++
	case telemetry.Unavailable:
		s.Unavailable++
	case telemetry.Closed:
		s.Closed++
	}
}

// endOf says what a hold came to.
func endOf(why error) telemetry.Outcome {
	switch {
	case errors.Is(why, ErrReleased):
		return telemetry.Released
	case errors.Is(why, ErrHoldExpired):
		return telemetry.Expired
	case errors.Is(why, ErrClosed):
		return telemetry.Closed
	}
	return telemetry.Lost
}

// causeOf says why a lease was lost.
func causeOf(why error) string {
	if errors.Is(why, errNotRenewed) {
		return telemetry.CauseNotRenewed
	}
	return telemetry.CauseTakenAway
}
