package coordinator

import (
	"github.com/go-leasehold/leasehold/lease"
	"github.com/go-leasehold/leasehold/telemetry"
)

// hold makes a claim one of the holds.
func (a *actor) hold(c *claim) {
	c.state = granted
	a.holds.push(c)
	if c.owner.fixed {
		a.expose(c)
	}
}

// unhold takes a claim out of the holds.
func (a *actor) unhold(c *claim, now instant) {
	a.holds.remove(c)
	if c.listed {
		a.hide(c)
	}
	if a.holds.n == 0 {
		a.cur.idleFrom = now
	}
}

// holders is about how many holds there are.
func (a *actor) holders() int {
	n := a.holds.n
	if a.reading() {
		n += a.gate.readers()
	}
	return n
}

// grant makes a claim a holder.
func (a *actor) grant(c *claim, now instant, by path) {
	c.token = a.cur.tokenFor(c.mode)
	c.hold.token = c.token
	c.granted = now
	c.path = by
	a.stats.granted(by)
	if by != byRetention {
		a.recordWait(c, telemetry.Acquired, now)
	}
	if c.more != nil && c.more.trace != nil {
		a.linkGranted(c)
	}
	a.hold(c)
	look := now.add(a.c.firstLook)
	if c.conf.maxHold > 0 {
		c.limit(0, now.add(c.conf.maxHold))
		look = min(look, now.add(c.conf.maxHold))
	}
	a.holdsDue = min(a.holdsDue, look)
	t := &a.cur
	t.served++
	if t.wanted && c.mode == lease.Exclusive {
		t.spent++
	}
	if a.kind == lease.ReadWrite {
		a.takeTurns(c, now)
	}
}

// takeTurns notes what a grant means for whose turn is next, and whether readers
// are so many that the gate is worth its while.
func (a *actor) takeTurns(c *claim, now instant) {
	t := &a.cur
	if c.mode == lease.Shared {
		if a.gate == nil && now >= t.readAt.add(closeReads) {
			t.reads = 0
		}
		t.reads, t.readAt, t.readersTurn = t.reads+1, now, false
		return
	}
	t.reads, t.readersTurn = 0, true
	a.often = a.wrote != 0 && !c.conf.fair && now < a.wrote.add(oftenSlices*a.c.conf.slice)
	a.wrote = now
}

// oftenSlices is how many slices may lie between two writes of a process that
// writes often. Such a process keeps its turn, its readers inside, for the writes
// to come; at most that part of the time others wait for no more than that.
const oftenSlices = 20

// admissible says whether the lease here can serve one more local grant at all:
// it is believed in, and its turn is not over.
func (a *actor) admissible(now instant) bool {
	t := &a.cur
	return t.phase == held && now < t.until && !t.lapsed &&
		(!t.wanted || !a.turnOver(now))
}

// turnOver says that the lease has to go to another process before it serves
// anybody else here. Every lease serves one (rule 7).
func (a *actor) turnOver(now instant) bool {
	t := &a.cur
	if !t.wanted || t.served == 0 {
		return false
	}
	if t.mode == lease.Shared {
		// The readers that came before whoever wants it go first.
		return a.waiting.first != nil && a.waiting.first.nth > t.wantNth
	}
	budget := a.c.conf.budget
	if a.fair > 0 {
		budget = 1
	}
	return t.spent >= budget || now >= t.wantFrom.add(a.c.conf.slice)
}

// fits says whether a claim may hold beside the present holders, under the
// lease that is here.
func (a *actor) fits(c *claim) bool {
	if a.ending > 0 {
		return false
	}
	if c.mode == lease.Shared {
		return a.holds.n == 0 || a.holds.first.mode == lease.Shared
	}
	return a.cur.mode == lease.Exclusive && !a.inUse()
}

// serve grants to waiting claims, in their order, as many as the lease allows.
func (a *actor) serve(now instant) {
	if a.readers > 0 && a.cur.readersTurn {
		a.serveReaders(now)
	}
	for c := a.waiting.first; c != nil && a.admissible(now) && a.fits(c) && a.cur.deals(c.mode); c = a.waiting.first {
		a.dequeue(c)
		a.grant(c, now, a.path())
		c.ready <- struct{}{}
	}
	if a.tries > 0 && a.inUse() {
		a.refuseTries(nil) // somebody here has it
	}
}

// serveReaders lets in all readers that wait, whoever stands before them: a writer
// has left, and those behind others are to wait for one only.
func (a *actor) serveReaders(now instant) {
	for c := a.waiting.first; c != nil && a.admissible(now) && a.cur.deals(lease.Shared); {
		next := c.next
		if c.mode == lease.Shared {
			if !a.fits(c) {
				return
			}
			a.dequeue(c)
			a.grant(c, now, a.path())
			c.ready <- struct{}{}
		}
		c = next
	}
}

func (a *actor) dequeue(c *claim) {
	a.waiting.remove(c)
	if c.mode == lease.Shared {
		a.readers--
	}
	if c.conf.fair {
		a.fair--
	}
	if c.try {
		a.tries--
	}
}

// refuse ends a waiting claim with an error.
func (a *actor) refuse(c *claim, err error) {
	a.dequeue(c)
	a.turnAway(c, err)
}

// turnAway tells a claim that it will not hold.
func (a *actor) turnAway(c *claim, err error) {
	c.state, c.err, c.hold = over, err, nil
	x := c.extras()
	x.refused, x.holder = err, a.holder()
	x.outcome = outcomeOf(err, c.try)
	a.stats.failed(x.outcome)
	if c.timed {
		a.recordWait(c, x.outcome, a.c.clock.now())
	}
	a.giveUpOn(c)
	c.turned = true
	c.ready <- struct{}{}
}

// refuseTries ends the TryLocks among the waiting claims: with ErrNotAcquired,
// or with the failure of the store.
func (a *actor) refuseTries(failure error) {
	if a.tries == 0 {
		return
	}
	for c := a.waiting.first; c != nil; {
		next := c.next
		if c.try {
			if failure != nil {
				a.refuse(c, failure)
			} else {
				a.refuse(c, ErrNotAcquired)
			}
		}
		c = next
	}
}

func (a *actor) refuseAll(err error) {
	for a.waiting.first != nil {
		a.refuse(a.waiting.first, err)
	}
}

// end ends a hold: its handles answer with err from now on, their contexts end
// with it.
func (a *actor) end(c *claim, err error, now instant) {
	a.cur.dealt = 0 // its work may go on: who comes next gets a token of its own
	c.state, c.err, c.hold = over, err, nil
	a.unhold(c, now)
	a.tellBefore(c, now)
	a.tellEnded(c, err, now)
	if x := c.more; x != nil {
		for _, held := range x.contexts {
			a.out.ended = append(a.out.ended, ending{held.cancel, err})
		}
		x.contexts = nil
	}
}

// endAll ends every hold of the key.
func (a *actor) endAll(err error, now instant) {
	a.abandonGate(err)
	for a.holds.first != nil {
		a.end(a.holds.first, err, now)
	}
}
