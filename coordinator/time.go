package coordinator

import (
	"time"

	"github.com/go-leasehold/leasehold/lease"
)

// elapse lets happen what the clock says has happened. Every handler begins
// with it, so that it does not matter whether a timer or a message is first.
func (a *actor) elapse(now instant) {
	t := &a.cur
	if t.phase == held && !t.lapsed && now >= t.until {
		a.lapse(now)
	}
	if now >= a.holdsDue {
		a.elapseHolds(now)
	}
	if a.reading() && !a.gate.checked && now >= a.gate.opened.add(checkHoldAfter) {
		a.gate.checked = true
		if a.c.caps.Tracking {
			a.verify(now)
		}
	}
	if now >= a.gateAlarmAt() {
		a.readLong(now)
	}
	switch {
	case now < t.askUntil:
	case t.direct:
		a.askStore(now) // it may be dead, which the store finds out
	case t.asking:
		t.askUntil = never
		a.refuseTries(nil) // no answer is an answer: it is busy, or it is dead
	}
	for a.waiting.n > 0 && now >= a.unavailableAt() {
		a.refuse(a.waiting.first, a.unavailable())
	}
	if a.elsewhere.holder != "" && !a.known(now) {
		a.unlearn()
	}
	if t.phase == queued && !t.checked && now >= t.began.add(checkHoldAfter) {
		t.checked = true
		if a.c.caps.Tracking {
			t.verifyAt = now
		}
	}
}

// lapse ends a lease that was not renewed in time. The holds end now, which is
// before Redis can give the key to anybody else.
func (a *actor) lapse(now instant) {
	a.cur.lapsed = true
	a.shut(now)
	if a.inUse() {
		a.loses(errNotRenewed, now)
	}
}

// elapseHolds ends the holds whose MaxHold is over, and has those looked at
// that have lasted for a while.
func (a *actor) elapseHolds(now instant) {
	a.holdsDue = never
	for c := a.holds.first; c != nil; {
		next := c.next
		if now >= c.expires() {
			a.stats.Expired++
			a.end(c, ErrHoldExpired, now)
			c = next
			continue
		}
		if !c.checked && now >= c.granted.add(checkHoldAfter) {
			c.checked = true
			c.watchHandle(a)
			a.annotate(c)
			if a.c.caps.Tracking {
				a.verify(now)
			}
		}
		if now >= a.alarmAt(c) {
			a.heldLong(c, now)
		}
		a.holdsDue = min(a.holdsDue, a.due(c))
		c = next
	}
	// With thousands of readers this is not to become all that is done: an end
	// may be late by a microsecond for each. What a hold says of itself is not.
	if a.holds.n > 64 {
		a.holdsDue = max(a.holdsDue, now.add(time.Duration(a.holds.n)*time.Microsecond))
	}
}

// due is when a hold is to be looked at next.
func (a *actor) due(c *claim) instant {
	due := min(c.expires(), a.alarmAt(c))
	if c.checked {
		return due
	}
	return min(due, c.granted.add(checkHoldAfter))
}

// unavailableAt is when the first of the waiting claims, which came first, is
// told that the store is away: it has been since then, and since the call.
// While the lease is here they wait for each other, not for the store.
func (a *actor) unavailableAt() instant {
	after := a.c.conf.unavailableAfter
	if after == 0 || a.cur.phase == held && !a.cur.lapsed {
		return never
	}
	since := a.failing
	if since == 0 && a.flight != nil {
		since = a.flight.sent // as long as nothing is heard, it may be away
	}
	if since == 0 {
		return never
	}
	return max(since, a.waiting.first.since).add(after)
}

// arm sets the timer to the next moment at which something is to happen by
// itself.
func (a *actor) arm(now instant) {
	t := &a.cur
	at := min(a.holdsDue, t.due(), a.gateAlarmAt())
	if a.reading() && !a.gate.checked {
		at = min(at, a.gate.opened.add(checkHoldAfter))
	}
	if a.waiting.n > 0 {
		at = min(at, a.unavailableAt())
	}
	if a.elsewhere.holder != "" {
		at = min(at, a.elsewhere.until)
	}
	if a.flight == nil && a.ending == 0 {
		at = min(at, a.commandDue(now))
	}
	a.wake(at, now)
}

// due is when the tenure changes by itself.
func (t *tenure) due() instant {
	switch {
	case t.phase == held && !t.lapsed:
		return t.until
	case t.phase == queued && !t.checked:
		return min(t.askUntil, t.began.add(checkHoldAfter))
	case t.phase != free:
		return t.askUntil
	}
	return never
}

// commandDue is when the next command is to be chosen, as long as nothing else
// happens.
func (a *actor) commandDue(now instant) instant {
	t := &a.cur
	at := never
	switch t.phase {
	case held:
		at = min(t.renewAt, t.verifyAt)
		if t.lowering {
			at = now
		}
		switch {
		case a.holds.n > 0 || a.waiting.n > 0:
		case !a.reading():
			at = min(at, a.idleUntil())
		case a.gate.open.Load():
			at = min(at, a.nextLookInside())
		}
		if end := a.shuts(); a.inUse() && t.reads > 0 && t.mode == lease.Exclusive && now < end {
			at = min(at, end) // of a turn that is kept: readers that are still inside don't keep others out
		}
	case queued:
		at = min(t.lookAt, t.verifyAt)
	case acquiring:
		if !t.direct {
			at = now
		}
	}
	if len(a.owed) > 0 {
		at = now
	}
	if at == never {
		return never
	}
	return max(at, a.retryAt)
}

// wake makes the timer fire at the given moment, or before.
func (a *actor) wake(at, now instant) {
	lost := a.c.clock.lost.Load()
	if at >= a.armed && lost == a.armedLost {
		return
	}
	at = min(at, a.armed)
	a.armed, a.armedLost = at, lost
	d := max(at.sub(now), 0)
	if a.timer == nil {
		a.timer = time.AfterFunc(d, a.onTimer)
	} else {
		a.timer.Reset(d)
	}
}

func (a *actor) onTimer() {
	a.mu.Lock()
	a.armed = never
	a.mu.Unlock()
	a.tick()
}

// tick handles the passing of time.
func (a *actor) tick() {
	now := a.enter()
	a.leave(now)
}
