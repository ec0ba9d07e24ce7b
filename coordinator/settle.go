package coordinator

import (
	"math/rand/v2"
	"time"

	"github.com/go-leasehold/leasehold/lease"
	"github.com/go-leasehold/leasehold/telemetry"
)

// settle brings the key where it should be: it grants what can be granted, and,
// if no command is on its way, chooses the next one. Which one follows from the
// state alone, and nowhere else is a command chosen.
func (a *actor) settle(now instant) {
	a.attend(now)
	a.serve(now)
	a.lower(now)
	// One command of a key at a time (rule 5); its answer settles again, as does
	// the end of contexts.
	if a.flight == nil && a.ending == 0 {
		a.proceed(now)
	}
	a.unannotate()
	a.admit(now)
}

// proceed chooses the next command.
func (a *actor) proceed(now instant) {
	t := &a.cur
	switch t.phase {
	case held:
		if a.mustYield(now) {
			a.yield(now)
		} else {
			a.askAgain()
		}
	case acquiring, queued:
		if !a.askedFor(t.mode) { // nobody wants it any more
			a.withdraw(now)
		}
	}
	if t.phase == free && a.waiting.n > 0 {
		a.begin(now)
	}
	if now < a.retryAt {
		return
	}
	if req, ok := a.command(now); ok {
		a.flight = &flight{req: req, sent: now, lost: a.c.clock.lost.Load(), wants: t.wants}
		a.out.send = a.flight
		a.stats.Commands++
	}
}

// withdraw retires a ticket that is no lease yet. Its release is the next command, if the store knows of it.
func (a *actor) withdraw(now instant) {
	t := &a.cur
	if !t.direct {
		if t.replied {
			a.hear(t.holder, now)
		}
		a.owe(t.ticket, t.resent || a.failing != 0, now)
	}
	*t = tenure{}
}

// askedFor says whether anybody who waits wants a lease of the mode. A ticket
// whose writers have gone would keep the readers behind them, and all others, out.
func (a *actor) askedFor(mode lease.Mode) bool {
	if mode == lease.Shared {
		return a.readers > 0
	}
	return a.waiting.n > a.readers
}

// askAgain has the store asked, at growing distances, whether a shared lease is
// still wanted: nobody tells that a writer has gone away, and no reader comes in
// as long as one may wait.
func (a *actor) askAgain() {
	t := &a.cur
	if t.wanted && t.mode == lease.Shared && t.wantLook <= t.ttl/3 {
		t.verifyAt = min(t.verifyAt, max(t.wantFrom, t.verifiedAt).add(t.wantLook))
	}
}

// mustYield says that the lease is to be released now.
func (a *actor) mustYield(now instant) bool {
	t := &a.cur
	if t.lapsed {
		return true // its holds have ended; it may still be ours in the store (rule 9)
	}
	if !a.idle(now) {
		return false
	}
	if c := a.waiting.first; c != nil && !a.closing {
		return a.turnOver(now) || !a.fits(c)
	}
	return a.closing || t.wanted || now >= a.idleUntil()
}

// retention is how long the lease is kept idle.
func (a *actor) retention() time.Duration {
	if own := a.c.conf.sharedRetention; own != nil && a.cur.mode == lease.Shared {
		return *own
	}
	return a.c.conf.retention
}

// idleUntil is when an idle lease is given up: after its retention, or when it
// would have to be renewed for a retention that is not meant to outlast that.
func (a *actor) idleUntil() instant {
	t, retention := &a.cur, a.retention()
	until := t.idleFrom.add(retention)
	if retention <= t.ttl/3 {
		until = min(until, t.renewAt)
	}
	return until
}

// lower makes an exclusive lease a shared one where only readers have it and
// another process waits, which may read too. A writer waiting here has its turn
// first, and so have those that may come in a turn that is kept.
func (a *actor) lower(now instant) {
	t := &a.cur
	if t.phase != held || t.mode != lease.Exclusive || a.kind != lease.ReadWrite || !t.wanted || t.lapsed || a.ending > 0 ||
		!a.inUse() || a.holds.n > 0 && a.holds.first.mode == lease.Exclusive ||
		a.askedFor(lease.Exclusive) || a.keepsTurn(now) {
		return
	}
	t.mode, t.lowering = lease.Shared, true
}

// yield retires the ticket. Its release is the next command; if anybody waits
// here, the same command joins the queue for them.
func (a *actor) yield(now instant) {
	if a.waiting.n > 0 {
		a.stats.Yields++
	}
	a.tellLease(ErrReleased, now)
	a.turnsOver()
	a.owe(a.cur.ticket, a.cur.resent, now)
	d := &a.owed[len(a.owed)-1]
	d.annotated, d.trace = a.cur.annotated, a.handsOn()
	a.readFirst = a.cur.readersTurn && a.readers > 0
	a.cur = tenure{}
}

// owe notes that a ticket is to be released.
func (a *actor) owe(ticket lease.Ticket, resent bool, now instant) {
	ttl := a.cur.ttl
	if ttl == 0 {
		ttl = a.c.conf.ttl
	}
	a.owed = append(a.owed, debt{ticket: ticket, kind: a.kind, until: now.add(ttl), resent: resent})
}

// begin takes a new ticket for the claims that wait. Its mode and TTL are those
// of the first of them (rule 8), or of the first that wants to read where the
// readers' turn has come.
func (a *actor) begin(now instant) {
	first := a.waiting.first
	if a.readFirst && a.readers > 0 {
		first = a.firstOf(lease.Shared)
	}
	a.readFirst = false
	asking := true
	for c := first; c != nil && asking; c = c.next {
		asking = c.try
	}
	a.cur = tenure{
		ticket: a.c.ticket(),
		mode:   first.mode,
		phase:  acquiring,
		ttl:    first.conf.ttl,
		began:  now,
		asking: asking,
		size:   a.blockSize(),
		cached: first.conf.cached,
		// It may be asked for ahead of a writer here.
		readersTurn: first.mode == lease.Shared && first != a.waiting.first,
		lookAt:      never, askUntil: never, verifyAt: never, renewAt: never,
	}
	if a.c.tel.LeaseSpans() {
		a.cur.asker = first.call()
	}
	if a.asksHolder(now) {
		a.askHolder(now)
		return
	}
	a.tell(telemetry.EventLeaseAsked, now)
}

// blockSize is how many tokens a lease begins with: about twice what a turn can
// use while others wait.
func (a *actor) blockSize() int { return max(16, 2*a.c.conf.budget) }

// maxBlock bounds the blocks that a process asks for while it has a key for
// itself. Tokens are microseconds of the server's clock, so that no more than a
// million holds a second could outrun it.
const maxBlock = 1 << 20

// command returns the command that is due.
func (a *actor) command(now instant) (lease.Request, bool) {
	t := &a.cur
	if len(a.owed) > 0 {
		return a.releaseCommand(now), true
	}
	switch t.phase {
	case acquiring:
		if !t.direct {
			return a.acquireCommand(now), true
		}
	case queued:
		if now >= t.lookAt || now >= t.verifyAt {
			return a.acquireCommand(now), true
		}
	case held:
		// A store that can't downgrade now can perhaps renew (a slot that moves).
		if renew := a.fails%2 == 1 && a.renewDue(now); t.lowering && !t.lapsed && !renew {
			return a.downgradeCommand(now), true
		}
		if now >= t.verifyAt || a.renewDue(now) || a.tokensDue() {
			return a.renewCommand(now), true
		}
	}
	return lease.Request{}, false
}

func (a *actor) releaseCommand(now instant) lease.Request {
	d := &a.owed[0]
	req := lease.Request{
		Op: lease.Release, Key: a.key, Kind: d.kind, Ticket: d.ticket, Trace: d.trace, Annotated: d.annotated,
	}
	if t := &a.cur; t.phase == acquiring && !t.direct && d.kind == a.kind {
		req.Next = &lease.Next{
			Ticket: t.ticket, Mode: t.mode, TTL: t.ttl, Tokens: t.size, Ask: t.asking,
			Age: a.age(now), Traced: a.told.following > 0,
		}
		a.asked(now)
	}
	return req
}

// acquireCommand is the first asking, and every look after it.
func (a *actor) acquireCommand(now instant) lease.Request {
	t := &a.cur
	req := lease.Request{
		Op: lease.Acquire, Key: a.key, Kind: a.kind, Ticket: t.ticket, Mode: t.mode, TTL: t.ttl,
		Queue: true, Ask: t.asking, Tokens: t.size, Age: a.age(now), Traced: a.told.following > 0,
	}
	if a.c.caps.Tracking && t.holder != "" && (t.asking && t.cached || now >= t.began.add(checkHoldAfter)) {
		req.Watch = t.holder
	}
	a.asked(now)
	return req
}

// asked notes that the ticket is asked for.
func (a *actor) asked(now instant) {
	t := &a.cur
	if t.asked == 0 {
		t.asked = now
	}
	t.verifyAt, t.verifiedAt, t.doubted = never, now, false
}

// age is the place in the queue that the process asks for: behind all others at
// first, that of its oldest waiter when it comes again.
func (a *actor) age(now instant) time.Duration {
	age := now.sub(a.firstOf(a.cur.mode).since)
	if a.cur.asked == 0 && age < time.Millisecond {
		return -1
	}
	return max(age, 0)
}

// firstOf returns the first waiting claim of a mode, or the first of all.
func (a *actor) firstOf(mode lease.Mode) *claim {
	for c := a.waiting.first; c != nil; c = c.next {
		if c.mode == mode {
			return c
		}
	}
	return a.waiting.first
}

// renewDue says that the lease is to be renewed: a third of its TTL has passed
// and somebody holds it, or it is meant to be kept.
func (a *actor) renewDue(now instant) bool { return now >= a.cur.renewAt }

// tokensDue says that the next block of tokens is to be asked for: ahead of
// need where the process has the key for itself, or at the last where not.
func (a *actor) tokensDue() bool {
	t := &a.cur
	if t.lapsed {
		return false
	}
	return t.tokensLeft() == 0 && a.waiting.n > 0 || !t.wanted && t.short() && t.spare.left() == 0
}

func (a *actor) renewCommand(now instant) lease.Request {
	t := &a.cur
	req := lease.Request{
		Op: lease.Renew, Key: a.key, Kind: a.kind, Ticket: t.ticket, Mode: t.mode, TTL: t.ttl, Annotated: t.annotated,
	}
	if t.short() {
		t.size = min(maxBlock, 8*t.size)
		req.Tokens = t.size
	}
	if t.wanted {
		t.wantLook *= 2
	}
	if a.c.caps.Tracking && now >= a.usedFrom().add(checkHoldAfter) {
		req.Watch = lease.Owner(a.c.id, t.ticket)
	}
	t.verifyAt, t.verifiedAt, t.doubted = never, now, false
	return req
}

// downgradeCommand has the store let other readers in beside those here. Until
// it is answered the lease may be either there; here it is shared already.
func (a *actor) downgradeCommand(now instant) lease.Request {
	req := a.renewCommand(now)
	req.Op, req.Watch = lease.Downgrade, ""
	return req
}

// usedFrom is since when somebody here has had the key, as far as the actor
// knows.
func (a *actor) usedFrom() instant {
	from := never
	if a.holds.n > 0 {
		from = a.holds.first.granted
	}
	if a.reading() {
		from = min(from, a.gate.opened)
	}
	return from
}

// backOff returns the pause after the nth failure in a row: 20 ms to 1 s,
// jittered, so that a fleet does not come back in step.
func backOff(n int) time.Duration {
	d := time.Second
	if n < 6 {
		d = 20 * time.Millisecond << n
	}
	return d/2 + rand.N(d/2+1)
}
