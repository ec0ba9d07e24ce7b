package coordinator

import (
	"github.com/go-leasehold/leasehold/lease"
	"github.com/go-leasehold/leasehold/telemetry"
)

// TryLock has to know whether anybody uses the lease that somebody else has, which only that process knows. The first
// TryLock asks by way of the store: it joins the queue, the holder is told that it is wanted, and answers, and then the
// place in the queue is given up. From the answer the process knows who the holder is. For a while the next ones ask the
// holder itself: a message there, and one back. The store runs no script, the holder's lease is not wanted for it, and
// nobody stands in the queue. Whatever else comes than "busy" (it is idle, it is somebody else's, nobody heard the
// question, no answer) leads to asking the store.

// asksHolder says whether the claims that wait may be answered by the holder itself: TryLocks of a mutex that want no more
// than an answer, neither to learn by tracking nor whose hold it is.
func (a *actor) asksHolder(now instant) bool {
	t := &a.cur
	return t.asking && !t.cached && a.kind == lease.Mutex && a.elsewhere.holder != "" && a.known(now) &&
		a.told.following == 0 && !a.closing
}

// askHolder asks the holder itself.
func (a *actor) askHolder(now instant) {
	t := &a.cur
	t.direct, t.askUntil = true, now.add(askFor)
	a.out.hints = append(a.out.hints, lease.Request{
		Op: lease.Ask, Key: a.key, Kind: a.kind, Ticket: t.ticket, Holder: a.elsewhere.holder,
	})
}

// askStore goes on with the ticket as if the holder had not been asked.
func (a *actor) askStore(now instant) {
	t := &a.cur
	if !t.direct {
		return
	}
	if a.elsewhere.hearsay {
		a.unlearn()
	}
	t.direct, t.askUntil, t.began = false, never, now
	a.tell(telemetry.EventLeaseAsked, now)
}

// unheard handles a question that nobody heard.
func (a *actor) unheard(ticket lease.Ticket) {
	now := a.enter()
	if a.gone {
		a.unlock()
		return
	}
	if a.cur.ticket == ticket {
		a.askStore(now)
	}
	a.leave(now)
}

// saidBusy handles the holder's answer that it is busy.
func (a *actor) saidBusy(now instant) {
	t := &a.cur
	t.replied = true
	a.refuseTries(nil)
	if !t.direct {
		return
	}
	a.hear(a.elsewhere.holder, now)
	if a.waiting.n == 0 {
		*t = tenure{} // a TryLock that comes now asks anew
	}
}

// hear notes who said that it is busy, unless more than that is known.
func (a *actor) hear(holder string, now instant) {
	if holder == "" || a.closing || a.kind != lease.Mutex || a.known(now) && !a.elsewhere.hearsay {
		return
	}
	a.know(knowledge{holder: holder, until: now.add(hearsayFor), hearsay: true})
}

// onAsked answers another process that asks whether the lease is in use.
func (a *actor) onAsked(e lease.Event) {
	t := &a.cur
	busy := e.Ticket == t.ticket && t.phase == held && !t.lapsed && (a.inUse() || a.waiting.n > 0)
	a.out.hints = append(a.out.hints, lease.Request{Op: lease.Busy, Key: a.key, Kind: a.kind, Ticket: t.ticket, Asker: e.Asker, Idle: !busy})
}

// askAnew retires a ticket whose holder has said that it is busy, which may be before the command that asked is answered.
// What it said was said to those who asked then: nobody would answer again, and who comes now would wait for it in vain.
func (a *actor) askAnew(now instant) {
	if t := &a.cur; t.replied && t.phase != held && a.waiting.n == 0 {
		a.withdraw(now)
	}
}
