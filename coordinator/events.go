package coordinator

import (
	"time"

	"github.com/go-leasehold/leasehold/lease"
	"github.com/go-leasehold/leasehold/telemetry"
)

// onEvent handles a notice from the store. It says false if the actor has left
// the table.
func (a *actor) onEvent(e lease.Event) bool {
	now := a.enter()
	if a.gone {
		a.unlock()
		return false
	}
	switch e.Type {
	case lease.Granted:
		a.onGranted(e, now)
	case lease.Wanted:
		a.onWanted(e, now)
	case lease.Traced:
		a.onTraced(e, now)
	case lease.InUse:
		if e.Ticket == a.cur.ticket && a.cur.asking {
			a.saidBusy(now)
		}
	case lease.Asked:
		a.onAsked(e)
	case lease.Changed:
		a.unlearn()
		a.changed(now)
	}
	a.leave(now)
	return true
}

// onGranted handles a grant by message.
func (a *actor) onGranted(e lease.Event, now instant) {
	t := &a.cur
	if e.Ticket != t.ticket || t.asked == 0 {
		a.stray(e.Ticket, now)
		return
	}
	if t.phase != held && e.First <= t.seen {
		return // from a life that has ended: the lock has been others' since (rule 1)
	}
	if t.phase != held {
		a.stats.Handoffs++
		t.byMessage = true
		a.tell(telemetry.EventHandoff, now)
	}
	from := t.answered
	if from == 0 {
		from = t.asked
	}
	b := block{e.First, e.Last}
	if t.phase == held {
		b = block{} // tokens go on from the block in use (rule 10)
	}
	a.won(b, e.Contended, from, now)
}

// onWanted handles the notice that another process waits.
func (a *actor) onWanted(e lease.Event, now instant) {
	t := &a.cur
	if e.Ticket == a.paid {
		return // it was told before the release was carried out, and is heard after
	}
	if e.Ticket != t.ticket || t.asked == 0 {
		a.stray(e.Ticket, now)
		return
	}
	a.want(now)
	t.wantLook = checkHoldAfter // this one may be gone soon, whatever was heard before
	if e.Asker != "" {
		a.shut(now) // is anybody inside?
	}
	if e.Asker == "" || t.phase == held && !a.inUse() && a.waiting.n == 0 {
		return // in the second case it is released at once, which is the answer
	}
	a.out.hints = append(a.out.hints, lease.Request{
		Op: lease.Busy, Key: a.key, Kind: a.kind, Ticket: t.ticket, Asker: e.Asker,
	})
}

// stray handles a notice for a ticket that is not in use: cancelled, retired,
// of a former life, or of a late copy of a command. It may be a lease that
// nobody knows of, so it is released (rule 4).
func (a *actor) stray(ticket lease.Ticket, now instant) {
	if f := a.flight; f != nil && f.req.Op == lease.Release && f.req.Ticket == ticket {
		f.again = f.again || a.owed[0].resent
		return
	}
	for _, d := range a.owed {
		if d.ticket == ticket {
			return
		}
	}
	a.class.CompareAndSwap(nil, a.c.tel.Other()) // what is counted now stays in its class
	a.stats.Orphans++
	a.owe(ticket, false, now)
	// Its kind is not known. Released as a read/write lock's it is left alone if
	// it is a mutex's, and tried as that then; the other way round a reader would
	// be taken out as if it had been alone.
	a.owed[len(a.owed)-1].kind = lease.ReadWrite
}

// changed handles the notice that somebody else changed the key. A holder looks
// at once. A waiter looks the later the further back it stands: a deletion is
// seen by the first of them, and a hand-off, which changes the key as well, is
// over before the others ask.
func (a *actor) changed(now instant) {
	switch a.cur.phase {
	case held:
		a.verify(now)
	case acquiring:
		a.askStore(now) // the holder that is asked has it no more
	case queued:
		if a.flight != nil && a.flight.req.Watch != "" {
			a.cur.doubted = true // it may be the change of what that look finds to be ours
		}
		a.verify(now.add(5 * time.Millisecond * time.Duration(a.cur.rank)))
	}
}

// verify asks for a look, or a renewal, at the given time. In shared mode other
// readers change the key all the time, so there it has a pace (rule 11).
func (a *actor) verify(at instant) {
	t := &a.cur
	if t.mode == lease.Shared {
		at = max(at, t.verifiedAt.add(checkHoldAfter))
	}
	t.verifyAt = min(t.verifyAt, at)
}

// examine has the key looked at because notices were lost (rule 6).
func (a *actor) examine() {
	now := a.enter()
	a.unlearn()
	a.askStore(now) // an answer may be among what is lost
	if a.cur.phase != free {
		a.cur.doubted = true
		a.cur.verifyAt = now
	}
	a.retryAt = 0 // the store is back
	a.leave(now)
}
