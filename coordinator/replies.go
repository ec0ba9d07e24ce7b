package coordinator

import (
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/go-leasehold/leasehold/lease"
	"github.com/go-leasehold/leasehold/telemetry"
)

// onReply handles the answer to the command on its way.
func (a *actor) onReply(f *flight, r lease.Reply, err error) {
	now := a.enter()
	if a.flight != f { // everything here was ended meanwhile
		a.leave(now)
		return
	}
	a.flight = nil
	if err != nil {
		a.failed(f, err, now)
		a.leave(now)
		return
	}
	a.failing, a.fails, a.failure, a.retryAt, a.heard = 0, 0, nil, 0, now
	if f.req.Op == lease.Release {
		a.settled(f)
	}
	if r.Resent && !extends(f.req.Op) {
		a.repeated(f.ticket())
	}
	// The ticket may have been retired meanwhile, when the key was asked for as
	// something else: then its release is owed, whatever the answer.
	if f.ticket() == a.cur.ticket {
		sent := a.c.clock.at(r.Sent, f.sent, f.lost)
		switch {
		case extends(f.req.Op):
			a.renewed(f, r, sent, now)
		case f.req.Op == lease.Acquire || f.req.Next != nil:
			a.answered(f, r, sent, now)
		}
	}
	a.leave(now)
}

// extends says whether a command only keeps what there is: a late copy of it
// can't make a lease.
func extends(op lease.Op) bool { return op == lease.Renew || op == lease.Downgrade }

// answered handles the answer to an acquire, a look, or the next of a release.
func (a *actor) answered(f *flight, r lease.Reply, sent, now instant) {
	t := &a.cur
	switch r.Status {
	case lease.Held:
		if r.Already && t.phase == queued && !t.resent {
			a.stats.MissedGrants++ // it had been granted, and nobody told
		}
		a.won(block{r.First, r.Last}, r.Contended, sent, now)
	case lease.Waiting:
		if t.phase == held {
			return // the grant came by message and was quicker (rule 10)
		}
		t.phase = queued
		if r.Holder != t.holder {
			a.tell(telemetry.EventDenied, now, telemetry.AttrHolder.String(r.Holder))
		}
		if r.Trace != "" || r.Holder != t.holder {
			t.keptBy(r.Trace, sent) // of another holder perhaps nothing is known
		}
		t.answered, t.seen, t.holder, t.rank = sent, r.Token, r.Holder, r.Rank
		t.lookAt = a.nextLook(r, sent, now)
		if t.asking {
			a.askedHolder(r, now)
		} else {
			a.refuseTries(nil) // nobody was asked for an answer, so none will come
		}
		a.watched(f, r, sent, now)
	default:
		a.failed(f, fmt.Errorf("the store answered %v to %v", r.Status, f.req.Op), now)
	}
}

// nextLook is when a waiter looks again unasked: after a third of its TTL, and
// when the soonest of the holders' leases ends. That finds a crashed holder.
func (a *actor) nextLook(r lease.Reply, sent, now instant) instant {
	at := sent.add(a.cur.ttl / 3)
	if r.Remaining >= 0 {
		at = min(at, sent.add(r.Remaining+time.Millisecond))
	}
	return max(at, now.add(time.Millisecond))
}

// askedHolder decides how long TryLock waits for the holder's answer: not at
// all where nobody can have heard the question.
func (a *actor) askedHolder(r lease.Reply, now instant) {
	t := &a.cur
	if r.Told == 0 {
		a.refuseTries(nil)
		return
	}
	if t.askUntil == never {
		t.askUntil = now.add(askFor)
		if t.cached && a.c.caps.Tracking {
			t.verifyAt = now // a second look, with tracking, to know next time
		}
	}
}

// watched uses what was read with tracking behind the look of a waiter.
func (a *actor) watched(f *flight, r lease.Reply, sent, now instant) {
	switch {
	case !r.Watched:
	case r.Present && f.req.Watch == r.Holder:
		if a.cur.cached {
			a.know(knowledge{holder: r.Holder, until: sent.add(r.Remaining)})
		}
	case !a.cur.asking:
		a.changed(now) // it changed hands between the look and the reading
	}
}

// won handles a grant, by answer or by message.
func (a *actor) won(b block, contended bool, sent, now instant) {
	t := &a.cur
	if t.phase != held {
		a.unlearn()
		t.phase = held
		t.idleFrom = now
		t.verifyAt, t.askUntil, t.lookAt = never, never, never
		if t.doubted {
			t.verifyAt = now
		}
		if t.wanted {
			t.wantFrom, t.wantNth, t.spent = now, a.came, 0
		}
		a.stats.Leases++
		t.wonAt = now
	}
	a.extend(sent)
	t.take(b.next, b.last)
	if contended {
		a.want(now)
	}
	if now >= t.until {
		t.lapsed = true // granted too late to be used (rule 9)
	}
}

// settled strikes a debt off.
func (a *actor) settled(f *flight) {
	d := a.owed[0]
	a.owed = a.owed[1:]
	if len(a.owed) == 0 {
		a.owed = nil
	}
	if !d.resent {
		a.paid = d.ticket
	} else if f.again && !d.final {
		d.final = true
		a.owed = append(a.owed, d)
	}
}

// renewed handles the answer to a renewal, or to a downgrade, which is one too.
func (a *actor) renewed(f *flight, r lease.Reply, sent, now instant) {
	t := &a.cur
	if t.lapsed {
		return // too late; it is released next
	}
	if r.Status != lease.Held {
		a.lose(errTakenAway, now)
		return
	}
	a.stats.Renewals++
	due, until := t.renewAt, t.until
	if f.req.Op == lease.Downgrade {
		t.lowering = false
		if a.c.caps.Tracking && now >= a.usedFrom().add(checkHoldAfter) {
			a.verify(now) // our own change has ended the tracking
		}
	}
	a.extend(sent)
	t.take(r.First, r.Last)
	if now >= due {
		a.dropGate(now)
		a.tellRenewed(due, until, now)
	}
	switch {
	case r.Waiters > 0:
		if !t.wanted {
			a.stats.MissedWants++ // they wait, and nobody told
		}
		a.want(now)
	case t.wants == f.wants:
		t.wanted = false // whoever wanted it has gone
	}
	if r.Watched && !r.Present {
		a.verify(now)
	}
}

// lose ends the tenure, whose lease is somebody else's or nobody's.
func (a *actor) lose(cause error, now instant) {
	a.shut(now)
	if a.inUse() {
		a.loses(cause, now)
	}
	a.tellLease(cause, now)
	a.endAll(cause, now)
	a.cur = tenure{}
}

// loses counts and tells of a lease that is lost under its holders, and ends them.
func (a *actor) loses(cause error, now instant) {
	a.stats.Lost++
	if !errors.Is(cause, errNotRenewed) {
		a.stats.Taken++
	}
	a.c.journal.lost(a.key, a.cur.ticket, a.holders(), cause)
	a.tell(telemetry.EventLost, now, telemetry.AttrCause.String(causeOf(cause)))
	a.endAll(cause, now)
}

// failed handles a command whose outcome is unknown, or that the store refused.
func (a *actor) failed(f *flight, err error, now instant) {
	if errors.Is(err, lease.ErrKind) {
		a.refused(f, err, now)
		return
	}
	a.stats.Failures++
	if a.failing == 0 {
		a.failing = f.sent
	}
	a.failure = err
	a.retryAt = now.add(backOff(a.fails))
	a.fails++
	if a.fails == 1 {
		name := telemetry.EventStoreFailed
		if extends(f.req.Op) {
			name = telemetry.EventRenewalFailed
		}
		a.tell(name, now)
	}
	a.refuseTries(a.unavailable())
	if errors.Is(err, lease.ErrStoreClosed) {
		a.endEverything(now)
		return
	}
	if extends(f.req.Op) {
		// Several times before the end, however short the TTL.
		a.retryAt = min(a.retryAt, now.add(a.cur.ttl/12))
		if a.fails == 1 {
			a.c.journal.trouble(a.key, f.req.Op, err)
		}
		return
	}
	if f.req.Op == lease.Acquire || f.req.Next != nil {
		a.repeated(f.ticket())
	}
	if f.req.Op == lease.Release && len(a.owed) > 0 && a.owed[0].ticket == f.req.Ticket {
		a.owed[0].resent = true
		a.giveUp(err, now)
	}
}

// repeated notes that a copy of an acquire of the ticket may still arrive.
func (a *actor) repeated(ticket lease.Ticket) {
	if a.cur.ticket == ticket {
		a.cur.resent = true
	}
	for i := range a.owed {
		if a.owed[i].ticket == ticket {
			a.owed[i].resent = true
		}
	}
}

// endEverything is for when there is no use in going on: the store is closed, and answers no more.
func (a *actor) endEverything(now instant) {
	a.refuseAll(ErrClosed)
	a.tellLease(ErrClosed, now)
	a.endAll(ErrClosed, now)
	a.owed, a.flight, a.cur = nil, nil, tenure{}
	a.unlearn()
}

// giveUp drops the debts that could not be paid in time: everything of their
// tickets has expired in the store.
func (a *actor) giveUp(err error, now instant) {
	a.owed = slices.DeleteFunc(a.owed, func(d debt) bool {
		if now < d.until {
			return false
		}
		a.stats.FailedReleases++
		a.c.journal.unreleased(a.key, d.ticket, err)
		return true
	})
	if len(a.owed) == 0 {
		a.owed = nil
	}
}

// refused handles ErrKind: nothing was done, and asking again is no use.
func (a *actor) refused(f *flight, err error, now instant) {
	if f.req.Op == lease.Release {
		if d := &a.owed[0]; d.turned {
			a.settled(f)
		} else {
			// An orphan's kind was a guess; the other one is left.
			d.turned = true
			d.kind = lease.Mutex + lease.ReadWrite - d.kind
		}
		if f.req.Next == nil {
			return // what is in use now will meet it by itself
		}
	}
	if a.cur.phase == held {
		a.lose(fmt.Errorf("%w: %w", errTakenAway, err), now)
		return
	}
	a.refuseAll(err)
	a.cur = tenure{}
}

// unavailable is the error for claims that the store's failure ends.
func (a *actor) unavailable() error {
	if a.failure == nil {
		return fmt.Errorf("%w: no answer", ErrUnavailable)
	}
	return fmt.Errorf("%w: %w", ErrUnavailable, a.failure)
}
