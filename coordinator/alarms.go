package coordinator

import (
	"time"

	"go.opentelemetry.io/otel/attribute"

	"github.com/go-leasehold/leasehold/lease"
	"github.com/go-leasehold/leasehold/telemetry"
)

// raised is an alarm, and the trace of the hold that it is about, if it has one
// here.
type raised struct {
	alarm telemetry.Alarm
	of    *telemetry.Call
}

// raise raises an alarm, where the mutex is free.
func (c *Coordinator) raise(r raised) {
	if r.of == nil {
		c.tel.Raise(r.alarm)
		return
	}
	c.tel.Soon(func() { // the span may have to be begun, which runs samplers
		r.alarm.Trace = r.of.Hold()
		c.tel.Raise(r.alarm)
	})
}

// tellRenewed tells of a renewal that was due, and raises an alarm, once for a
// lease, if it came late.
func (a *actor) tellRenewed(due, until, now instant) {
	class, late := a.classOf(), now.sub(due)
	a.out.soon = append(a.out.soon, func() { class.Renewed(late) })
	t := &a.cur
	if t.late || until.sub(now) >= t.ttl/3 || !a.inUse() {
		return
	}
	t.late = true
	a.tell(telemetry.EventRenewalLate, now, telemetry.AttrAlarm.String(string(telemetry.LateRenewal)))
	alarm := a.alarm(nil, telemetry.LateRenewal, due, now, t.ttl/3)
	alarm.Owner, alarm.Mode = lease.Owner(a.c.id, t.ticket), t.mode.String()
	var of *telemetry.Call
	if h := a.holds.first; h != nil {
		of, alarm.Stack = h.call(), h.placed()
	}
	a.out.raise = append(a.out.raise, raised{alarm, of})
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
	alarm.Stack = c.placed()
	a.out.raise = append(a.out.raise, raised{alarm, c.call()})
}

// readLong raises the alarm of readers that passed the gate, and stay inside while
// others wait for them to leave. Since when each of them is there, nobody knows.
func (a *actor) readLong(now instant) {
	g := a.gate
	alarm := a.alarm(nil, telemetry.LongHold, g.shutAt, now, a.c.holdAlarm)
	alarm.Owner, alarm.Mode, alarm.Token = lease.Owner(a.c.id, a.cur.ticket), lease.Shared.String(), g.token.Load()
	g.alarmed = true
	a.out.raise = append(a.out.raise, raised{alarm, nil})
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
	var of *telemetry.Call
	if h := a.holds.first; h != nil {
		of = h.call()
	} else if n := len(a.cur.heldBy); n > 0 {
		alarm.Trace = telemetry.ParseTrace(a.cur.heldBy[n-1].trace)
	}
	a.out.raise = append(a.out.raise, raised{alarm, of})
}
