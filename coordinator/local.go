package coordinator

import (
	"context"
	"time"

	"github.com/go-leasehold/leasehold/lease"
	"github.com/go-leasehold/leasehold/telemetry"
)

// What becomes of a call to lock at once.
type lockOutcome uint8

const (
	moved    lockOutcome = iota // the actor has left the table
	entered                     // the claim holds, or its handle re-entered another
	mustWait                    // the claim's ready will tell; it may have already
)

// lock handles a caller's wish to have the key.
func (a *actor) lock(h *Hold, kind lease.Kind, mode lease.Mode, conf *mutexConfig, how *call, chain *owner) lockOutcome {
	a.mu.Lock()
	if a.gone {
		a.mu.Unlock()
		return moved
	}
	c := a.newClaim(mode, conf, how, chain)
	h.claim = c
	if a.c.places {
		c.notePlace()
	}
	if a.lockIdle(h, kind, chain) {
		return entered
	}
	if chain == nil && a.lockBusy(h, kind) {
		return mustWait
	}
	now := a.c.clock.now()
	a.arrive(c, now)
	a.elapse(now)
	if a.holds.n > 0 && chain != nil && a.kind == kind && a.reenter(h, chain) {
		a.leave(now)
		if c.refusal() == nil {
			return entered
		}
		return mustWait
	}
	c.waits()
	if err := a.refusal(c, kind, now); err != nil {
		a.turnAway(c, err)
		a.leave(now)
		return mustWait
	}
	a.adopt(kind, now)
	if c.try {
		a.askAnew(now)
	} else {
		a.askStore(now) // who waits has to stand in the queue
	}
	a.enqueue(h)
	if c.try || a.waiting.n == 1 {
		a.retryAt = 0 // it has not tried yet, whatever the pace of retrying
	}
	a.leave(now)
	return mustWait
}

// lockIdle grants at once under a lease that is here with nobody in the way, which
// is what most calls meet: idle, or, for a reader, read under. It frees the mutex if
// it does.
func (a *actor) lockIdle(h *Hold, kind lease.Kind, chain *owner) bool {
	t, c := &a.cur, h.claim
	if t.phase != held || a.waiting.n > 0 || t.wanted || t.lapsed || a.closing || a.kind != kind ||
		chain != nil && a.holdOf(chain) != nil || !a.fits(c) || !t.deals(c.mode) {
		return false
	}
	now := a.c.clock.now()
	if now >= t.until {
		return false
	}
	c.begin(h)
	a.arrive(c, now)
	if c.more != nil {
		a.follow(c)
	}
	a.grant(c, now, byRetention)
	if t.short() || c.mode == lease.Shared && !a.reading() {
		a.leave(now)
		return true
	}
	a.wake(min(a.holdsDue, t.renewAt, t.until), now)
	a.mu.Unlock()
	return true
}

// lockBusy queues behind a hold that is here, or behind others that wait for a
// lease like this one's, which changes nothing else. It frees the mutex if it does.
// What the slow way takes of the stack would stay with each goroutine that waits.
func (a *actor) lockBusy(h *Hold, kind lease.Kind) bool {
	c := h.claim
	if c.try || a.closing || a.kind != kind || c.mode == lease.Shared || a.c.conf.maxWaiters > 0 || !a.holdsHere() && !a.asksFor(c) {
		return false
	}
	c.waits()
	a.arrive(c, a.c.clock.now())
	a.enqueue(h)
	a.mu.Unlock()
	return true
}

// holdsHere says that somebody here holds, and that the actor knows all who do.
func (a *actor) holdsHere() bool { return a.cur.phase == held && a.holds.n > 0 && !a.reading() }

// asksFor says that a lease that serves the claim is being asked for, for others that wait
// here. A claim that is traced is not among them: it has the holder looked at.
func (a *actor) asksFor(c *claim) bool {
	t := &a.cur
	return (t.phase == acquiring || t.phase == queued) && t.mode == lease.Exclusive && !t.asking &&
		a.waiting.n > 0 && a.tries == 0 && c.more == nil
}

func (a *actor) enqueue(h *Hold) {
	c := h.claim
	c.begin(h)
	if c.more != nil {
		a.queue(c)
	}
	a.waiting.push(c)
	a.came++
	c.nth = a.came
	if c.mode == lease.Shared {
		a.readers++
	}
	if c.conf.fair {
		a.fair++
	}
	if c.try {
		a.tries++
	}
	if c.conf.cached {
		a.cur.cached = true
	}
}

// reenter adds a handle to a hold of the caller's own. It says false if the
// caller has none here.
func (a *actor) reenter(h *Hold, chain *owner) bool {
	want, c := h.claim, a.holdOf(chain)
	if c == nil {
		return false
	}
	if c.mode == lease.Shared && want.mode == lease.Exclusive {
		want.waits()
		a.turnAway(want, ErrUpgrade)
		return true
	}
	c.join(h, want.mode)
	a.stats.Reentries++
	h.watch(a)
	if want.conf.maxHold > 0 {
		c.limit(h.number, a.c.clock.now().add(want.conf.maxHold))
		a.holdsDue = min(a.holdsDue, a.due(c))
	}
	return true
}

// used says whether the key can't become one of another kind now.
func (a *actor) used(now instant) bool {
	a.shut(now)
	return a.inUse() || a.waiting.n > 0
}

// refusal says why a claim can't even wait, or nil.
func (a *actor) refusal(c *claim, kind lease.Kind, now instant) error {
	switch {
	case a.closing || a.c.closing.Load():
		return ErrClosed
	case a.kind != kind && a.used(now):
		return ErrKind
	case c.try && a.taken(c, now):
		return ErrNotAcquired
	case a.c.conf.maxWaiters > 0 && a.waiting.n >= a.c.conf.maxWaiters:
		return ErrTooManyWaiters
	}
	return nil
}

// taken says whether TryLock need not even ask: somebody here has the key, or
// waits for it, or somebody elsewhere is known to have it.
func (a *actor) taken(c *claim, now instant) bool {
	if c.mode == lease.Exclusive {
		a.shut(now) // is anybody inside?
	}
	if a.inUse() && !a.fits(c) || a.cur.phase == queued && !a.cur.asking {
		return true
	}
	for w := a.waiting.first; w != nil; w = w.next {
		if !w.try {
			return true
		}
	}
	// Readers may join others, and what is known does not say who it is.
	return c.conf.cached && c.mode == lease.Exclusive && a.cur.phase == free && !a.elsewhere.hearsay && a.known(now)
}

// adopt makes the key one of the given kind. A lease of the other kind that is
// merely retained is given up.
func (a *actor) adopt(kind lease.Kind, now instant) {
	if a.kind == kind {
		return
	}
	if a.cur.phase != free {
		a.yield(now)
	}
	a.kind = kind
}

// wait waits for what becomes of a claim: nil if it holds.
func (a *actor) wait(ctx context.Context, c *claim, limit time.Duration) error {
	if limit >= 0 || a.c.waitAlarm > 0 {
		return a.waitLimited(ctx, c, limit)
	}
	done := ctx.Done()
	if done == nil {
		<-c.ready
		return c.answer()
	}
	select {
	case <-c.ready:
		return c.answer()
	case <-done:
		return a.goAway(c, ctx)
	}
}

// answer is what has become of a claim that is ready. Of one that holds nothing else
// is read: others may have come in by it already.
func (c *claim) answer() error {
	if !c.turned {
		return nil
	}
	return c.refusal()
}

func (a *actor) waitLimited(ctx context.Context, c *claim, limit time.Duration) error {
	var expired <-chan time.Time
	if limit >= 0 {
		timer := time.NewTimer(limit)
		defer timer.Stop()
		expired = timer.C
	}
	var long <-chan time.Time
	if a.c.waitAlarm > 0 {
		timer := time.NewTimer(a.c.waitAlarm)
		defer timer.Stop()
		long = timer.C
	}
	for {
		select {
		case <-c.ready:
			return c.answer()
		case <-ctx.Done():
			return a.goAway(c, ctx)
		case <-expired:
			err, _ := a.cancel(c, telemetry.Timeout)
			return err
		case <-long:
			a.waitsLong(c)
		}
	}
}

// goAway ends the wait of a caller whose context has ended.
func (a *actor) goAway(c *claim, ctx context.Context) error {
	err, refused := a.cancel(c, endOfContext(ctx))
	if refused {
		return err
	}
	return ended(err, ctx) // here, for ctx is the user's code
}

// cancel takes a claim back whose caller goes away. If it was granted in the
// same instant, the caller still goes away, and the grant passes on; if it was
// refused, the refusal stands. The error is ErrNotAcquired, or the store's
// failure if the claim has met with nothing else. why is what the caller says of it.
func (a *actor) cancel(c *claim, why telemetry.Outcome) (err error, refused bool) {
	now := a.enter()
	defer a.leave(now)
	if c.state != waiting {
		<-c.ready
		if err := c.refusal(); err != nil {
			return err, true
		}
	}
	x := c.extras()
	x.holder, x.outcome = a.holder(), why
	c.hold = nil
	left := c.state == granted // and nobody has had it
	switch c.state {
	case waiting:
		a.dequeue(c)
		c.state = over
		a.giveUpOn(c)
	case granted:
		c.timed = false // the wait is recorded already
		a.finish(c, now)
	}
	// Nothing but failures, or silence, since the call.
	err = ErrNotAcquired
	if a.cur.phase != held && a.heard < c.since && (a.failing != 0 || a.flight != nil && a.flight.sent <= c.since) {
		err, x.outcome = a.unavailable(), telemetry.Unavailable
	}
	if !left { // a call is counted once, and that one is among the grants
		a.stats.failed(x.outcome)
		a.recordWait(c, x.outcome, now)
	}
	return err, false
}

// finish ends a hold that was unlocked.
func (a *actor) finish(c *claim, now instant) {
	c.state, c.err, c.hold = over, ErrNotHeld, nil
	a.unhold(c, now)
	if c.timed || c.more != nil || a.traced {
		a.tellBefore(c, now)
		a.tellEnded(c, ErrReleased, now)
	}
	a.reuse(c)
}

// release handles Unlock of a claim's last handle. It is entered with the mutex
// locked, and frees it. elapsed says that there may be effects already.
func (a *actor) release(c *claim, now instant, elapsed bool) {
	quiet := !elapsed && !c.timed && c.more == nil // nothing is to be told
	a.finish(c, now)
	t := &a.cur
	// What else can be is left to settle.
	if t.wanted || a.closing || a.inUse() || elapsed || !quiet && t.unsay || t.phase != held || t.lapsed || now >= t.until {
		a.leave(now)
		return
	}
	if next := a.waiting.first; next != nil {
		if a.readers > 0 || t.mode != lease.Exclusive || t.short() {
			a.leave(now)
			return
		}
		a.dequeue(next)
		a.grant(next, now, byHandOver)
		ready := next.ready
		a.wake(a.holdsDue, now)
		if quiet && !next.timed && next.more == nil {
			a.mu.Unlock()
		} else {
			a.unlock()
		}
		ready <- struct{}{}
		return
	}
	if a.retention() == 0 {
		a.leave(now)
		return
	}
	a.wake(a.idleUntil(), now)
	if quiet {
		a.mu.Unlock()
	} else {
		a.unlock()
	}
}
