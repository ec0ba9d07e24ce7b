package coordinator

import (
	"slices"

	"github.com/go-leasehold/leasehold/lease"
	"github.com/go-leasehold/leasehold/telemetry"
)

// maxBlockers bounds the holds that are remembered of other processes, and of earlier
// leases.
const maxBlockers = telemetry.MaxHolders

// maxCandidates bounds the holds here that a wait may lead to, or others are told of.
// They are more than [telemetry.MaxHolders], for of most it is not known yet whether
// they are sampled.
const maxCandidates = 16

// blocker is a hold that was in the way until a given moment, at least.
type blocker struct {
	telemetry.Blocker
	until instant
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
	for h := a.holds.first; h != nil && len(x.blockers) < maxCandidates; h = h.next {
		if call := h.call(); call != nil && !call.Unsampled() {
			x.blockers = append(x.blockers, telemetry.Blocker{Relation: telemetry.LinkHolder, Call: call})
		}
	}
	x.holders = len(x.blockers)
}

// unfollow ends that.
func (a *actor) unfollow(x *claimTrace) {
	if !x.counted {
		return
	}
	x.counted = false
	a.told.following--
	if a.told.following == 0 {
		a.told.earlier = nil
		if a.cur.asker == nil {
			a.told.events = nil
		}
	}
}

// tellBefore notes which hold was the last that ended here.
func (a *actor) tellBefore(c *claim, now instant) {
	a.told.before, a.told.ended = c.call(), now
	a.traced = a.told.before != nil
}

// turnsOver notes, where a lease ends with callers waiting on, who was in their way
// under it.
func (a *actor) turnsOver() {
	if a.told.following == 0 {
		return
	}
	for _, b := range a.cur.heldBy {
		a.remember(telemetry.Blocker{Relation: telemetry.LinkHolder, Remote: b.trace}, b.at)
	}
	a.remember(telemetry.Blocker{Relation: telemetry.LinkHolder, Call: a.told.before}, a.told.ended)
}

func (a *actor) remember(b telemetry.Blocker, until instant) {
	if b.Remote == "" && b.Call == nil {
		return
	}
	if len(a.told.earlier) == 2*maxBlockers {
		a.told.earlier = slices.Delete(a.told.earlier, 0, 1)
	}
	a.told.earlier = append(a.told.earlier, blocker{b, until})
}

// linkEarlier notes those who were in a claim's way under leases before this one.
func (a *actor) linkEarlier(c *claim) {
	for _, b := range a.told.earlier {
		if b.until >= c.since {
			c.more.trace.blockers = append(c.more.trace.blockers, b.Blocker)
		}
	}
}

// linkGranted notes by whom a claim was let in, and what happened while it waited.
func (a *actor) linkGranted(c *claim) {
	x, t := c.more.trace, &a.cur
	if c.path != byHandOver || c.since < t.wonAt {
		a.linkElsewhere(c)
	}
	between := c.path == byHandoff || len(t.heldBy) > 0 && c.path == byAsking // others, elsewhere
	if a.told.before != nil && a.told.ended >= c.since && !between {
		x.blockers = append(x.blockers, telemetry.Blocker{Relation: telemetry.LinkPredecessor, Call: a.told.before})
	}
	if p := t.passedBy; p.trace != "" && c.since <= p.at && c.path != byHandOver {
		x.blockers = append(x.blockers, telemetry.Blocker{Relation: telemetry.LinkPredecessor, Remote: p.trace})
	}
	a.linkEarlier(c) // of a hold that is there already, the first relation counts
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
	a.linkEarlier(c)
	if a.cur.phase != held || c.since < a.cur.wonAt {
		a.linkElsewhere(c)
	}
	x.events = a.eventsOf(x, c.since)
	a.unfollow(x)
}

// annotate has the store told of a hold's trace, once, so that those who wait
// elsewhere know what they wait for.
func (a *actor) annotate(c *claim) {
	t := &a.cur
	if t.phase != held || t.lapsed || t.shows != nil || c.call() == nil || c.more.trace.annotated {
		return
	}
	trace := telemetry.FormatTrace(c.call().Begun())
	if trace == "" {
		a.annotateLater(c)
		return
	}
	c.more.trace.annotated, t.annotated = true, true
	t.shows, t.unsay = c.more.trace, false
	a.hintTrace(trace)
}

// annotateOne does so for the first of the holds that is sampled.
func (a *actor) annotateOne() {
	n := 0
	for c := a.holds.first; c != nil && a.cur.shows == nil && n < maxCandidates; c = c.next {
		if call := c.call(); call != nil && !call.Unsampled() {
			c.more.trace.annotated = false
			a.annotate(c)
			n++
		}
	}
}

// annotateLater does so when the span has begun: at the grant, or else on a
// goroutine of telemetry's.
func (a *actor) annotateLater(c *claim) {
	c.more.trace.owing.Store(true)
	a.out.soon = append(a.out.soon, a.annotatesNow(c)) // not behind exporters
}

// annotatesNow is what begins the span, and does so then.
func (a *actor) annotatesNow(c *claim) func() {
	call := c.call()
	return func() {
		if !call.Hold().IsValid() {
			return
		}
		a.mu.Lock()
		if c.state == granted {
			a.annotate(c)
		}
		a.unlock()
	}
}

// hintTrace has the store told of a trace, or with "" that there is none any more.
// Such hints go one by one, each when the one before is answered, for otherwise a late
// copy of that one might be the last word.
func (a *actor) hintTrace(trace string) {
	r := lease.Request{Op: lease.Annotate, Key: a.key, Kind: a.kind, Ticket: a.cur.ticket, Trace: trace}
	if a.told.hinting {
		a.told.hint = &r
		return
	}
	a.told.hinting = true
	a.out.hints = append(a.out.hints, r)
}

// unannotate takes back what the store was told, where the lease goes on without
// that hold: who comes next must not be told that it waits for it.
func (a *actor) unannotate() {
	t := &a.cur
	if !t.unsay || t.phase != held || t.lapsed {
		return
	}
	if a.annotateOne(); t.shows != nil {
		return // another reader is in the way still
	}
	t.unsay = false
	a.hintTrace("")
}

// onHint handles the answer to a hint. One that would take a trace back, and was
// not carried out, is sent again when the key is next looked at.
func (a *actor) onHint(r lease.Request, reply lease.Reply, err error) {
	if r.Op == lease.Ask && (err != nil || reply.Told == 0) {
		a.unheard(r.Ticket)
	}
	if r.Op != lease.Annotate {
		return
	}
	a.mu.Lock()
	defer a.unlock()
	t, next := &a.cur, a.told.hint
	a.told.hinting, a.told.hint = false, nil
	switch {
	case next != nil && next.Ticket == t.ticket && t.phase == held:
		a.hintTrace(next.Trace)
	case next == nil && err != nil && r.Trace == "" && r.Ticket == t.ticket && t.shows == nil:
		t.unsay = true
	}
}

// handsOn is the trace of the hold for whose end others have waited, for them.
func (a *actor) handsOn() string {
	if !a.cur.wanted || a.told.ended < a.cur.wantFrom {
		return ""
	}
	return telemetry.FormatTrace(a.told.before.Begun())
}

// onTraced handles the notice of what a wait is for.
func (a *actor) onTraced(e lease.Event, now instant) {
	t := &a.cur
	switch {
	case e.Ticket != t.ticket || t.phase == held:
	case e.Passing:
		t.passedBy = heldElsewhere{e.Trace, now}
	default:
		t.keptBy(e.Trace, now)
	}
}
