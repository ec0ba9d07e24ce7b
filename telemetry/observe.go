package telemetry

import (
	"context"
	"fmt"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/metric"
)

// Totals is what is counted of a class of keys: now, and since the beginning.
type Totals struct {
	Class *Class

	Waiters, Holds, Leases, Keys int64

	Retained, Passed, Local, Redis, Handoff, Reentries uint64 // grants by path

	// Calls that came to nothing, by outcome.
	Busy, TimedOut, Canceled, Refused, Unavailable, Closed uint64

	Yields, Renewals, NotRenewed, TakenAway, Expired uint64
	MissedGrants, MissedWants                        uint64
	Commands, Failures, FailedReleases               uint64
}

// observables are the metrics that are observed.
type observables struct {
	waiters, holds, leases, keys                        metric.Int64ObservableUpDownCounter
	grants, waits, handoffs, yields, renewals, losses   metric.Int64ObservableCounter
	expired, missed, commands, failures, failedReleases metric.Int64ObservableCounter
	dropped                                             metric.Int64ObservableCounter
	stock                                               stockObservables
}

func (o *observables) all() []metric.Observable {
	return append([]metric.Observable{
		o.waiters, o.holds, o.leases, o.keys, o.grants, o.waits, o.handoffs, o.yields, o.renewals, o.losses, o.expired,
		o.missed, o.commands, o.failures, o.failedReleases, o.dropped,
	}, o.stock.all()...)
}

func (o *observables) make(m metric.Meter) (err error) {
	now := func(name, unit, what string) metric.Int64ObservableUpDownCounter {
		c, e := m.Int64ObservableUpDownCounter(name, metric.WithUnit(unit), metric.WithDescription(what))
		if err == nil {
			err = e
		}
		return c
	}
	sum := func(name, unit, what string) metric.Int64ObservableCounter {
		c, e := m.Int64ObservableCounter(name, metric.WithUnit(unit), metric.WithDescription(what))
		if err == nil {
			err = e
		}
		return c
	}
	o.waiters = now(MetricWaiters, "{waiter}", "Callers that wait for a lock")
	o.holds = now(MetricHolds, "{lock}", "Locks held")
	o.leases = now(MetricLeases, "{lease}", "Leases that the process has, idle ones included")
	o.keys = now(MetricKeys, "{key}", "Keys that the process knows of")
	o.grants = sum(MetricGrants, "{lock}", "Locks granted")
	o.waits = sum(MetricWaits, "{wait}", "Calls that did not enter at once, by what they came to")
	o.handoffs = sum(MetricHandoffs, "{handoff}", "Locks handed over by the holder before")
	o.yields = sum(MetricYields, "{handoff}", "Leases passed to another process while callers waited here")
	o.renewals = sum(MetricRenewals, "{renewal}", "Leases renewed")
	o.losses = sum(MetricLosses, "{lease}", "Leases lost under their holders")
	o.expired = sum(MetricExpired, "{lock}", "Holds that outlasted their MaxHold")
	o.missed = sum(MetricMissed, "{notice}", "Notices missed: what they would have told was found by looking")
	o.commands = sum(MetricCommands, "{command}", "Commands sent to the store")
	o.failures = sum(MetricFailures, "{command}", "Commands that the store did not answer, or with an error")
	o.failedReleases = sum(MetricFailedReleases, "{lease}", "Leases left to expire because their release failed")
	o.dropped = sum(MetricDropped, "{record}", "Spans, alarms and log lines that a slow receiver made us drop")
	o.stock.make(sum)
	return err
}

// Observe has the totals read whenever somebody collects metrics. After Close their
// last values are told. lines is how many log lines were dropped.
func (t *Telemetry) Observe(totals func() []Totals, lines func() int64) (err error) {
	defer func() {
		if r := recover(); r != nil {
			err = fmt.Errorf("the meter provider panicked: %v", r)
		}
	}()
	var o observables
	if err := o.make(t.meter); err != nil {
		return err
	}
	counted := func(all []Totals, to metric.Observer) {
		for i := range all {
			o.since(to, &all[i])
		}
		for _, x := range t.classes.stocks() {
			o.stock.observe(to, x)
		}
		to.ObserveInt64(o.dropped, t.dropped.Load()+lines())
	}
	w := &watcher{}
	w.set(func(ctx context.Context, to metric.Observer) {
		all := totals()
		t.settle(ctx)
		for i := range all {
			o.now(to, &all[i])
		}
		counted(all, to)
	})
	t.registration, err = t.meter.RegisterCallback(w.watch, o.all()...)
	t.retire = func() {
		r := &remains{}
		counted(totals(), r)
		w.set(r.tell)
	}
	return err
}

// settleFor is how long who collects waits for what is still to be recorded.
const settleFor = 100 * time.Millisecond

// settle waits until what was measured before is recorded.
func (t *Telemetry) settle(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, settleFor)
	defer cancel()
	_ = t.soon.flush(ctx) // what is late is in the next collection
}

// now tells what there is at the moment.
func (o *observables) now(to metric.Observer, x *Totals) {
	of := metric.WithAttributeSet(attribute.NewSet(AttrClass.String(x.Class.name)))
	to.ObserveInt64(o.waiters, x.Waiters, of)
	to.ObserveInt64(o.holds, x.Holds, of)
	to.ObserveInt64(o.leases, x.Leases, of)
	to.ObserveInt64(o.keys, x.Keys, of)
}

// since tells what was counted since the beginning.
func (o *observables) since(to metric.Observer, x *Totals) {
	class := AttrClass.String(x.Class.name)
	by := func(more ...attribute.KeyValue) metric.ObserveOption {
		return metric.WithAttributeSet(attribute.NewSet(append(more, class)...))
	}
	path := func(p Path, n uint64) { to.ObserveInt64(o.grants, int64(n), by(AttrPath.String(string(p)))) }
	wait := func(end Outcome, n uint64) { to.ObserveInt64(o.waits, int64(n), by(AttrOutcome.String(string(end)))) }
	of := by()
	path(PathRetained, x.Retained)
	path(PathPassed, x.Passed)
	path(PathLocal, x.Local)
	path(PathRedis, x.Redis)
	path(PathHandoff, x.Handoff)
	path(PathReentry, x.Reentries)
	wait(Acquired, x.Local+x.Redis+x.Handoff)
	wait(Busy, x.Busy)
	wait(Timeout, x.TimedOut)
	wait(Canceled, x.Canceled)
	wait(Refused, x.Refused)
	wait(Unavailable, x.Unavailable)
	wait(Closed, x.Closed)
	to.ObserveInt64(o.handoffs, int64(x.Local), by(AttrHandoff.String("local")))
	to.ObserveInt64(o.handoffs, int64(x.Handoff), by(AttrHandoff.String("remote")))
	to.ObserveInt64(o.yields, int64(x.Yields), of)
	to.ObserveInt64(o.renewals, int64(x.Renewals), of)
	to.ObserveInt64(o.losses, int64(x.NotRenewed), by(AttrCause.String(CauseNotRenewed)))
	to.ObserveInt64(o.losses, int64(x.TakenAway), by(AttrCause.String(CauseTakenAway)))
	to.ObserveInt64(o.expired, int64(x.Expired), of)
	to.ObserveInt64(o.missed, int64(x.MissedGrants), by(AttrNotice.String("grant")))
	to.ObserveInt64(o.missed, int64(x.MissedWants), by(AttrNotice.String("want")))
	to.ObserveInt64(o.commands, int64(x.Commands), of)
	to.ObserveInt64(o.failures, int64(x.Failures), of)
	to.ObserveInt64(o.failedReleases, int64(x.FailedReleases), of)
}
