package coordinator

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"go.opentelemetry.io/otel/sdk/trace/tracetest"
	"go.opentelemetry.io/otel/trace"
	"pgregory.net/rapid"

	"github.com/go-leasehold/leasehold/lease"
	"github.com/go-leasehold/leasehold/lease/memlease"
	"github.com/go-leasehold/leasehold/telemetry"
)

// TestLinksLeadToHoldsThatWereInTheWay runs callers in several processes, traced and
// not, and compares what their waits lead to with who had the key when. rapid tells
// the seed of a run that fails; LEASEHOLD_TORTURE=1 makes 5,000 runs.
func TestLinksLeadToHoldsThatWereInTheWay(t *testing.T) {
	manyRuns(t, "200")
	rapid.Check(t, func(r *rapid.T) {
		p := drawLinkPlan(r)
		var err error
		synctest.Test(t, func(t *testing.T) { err = p.run(t) })
		if err != nil {
			r.Fatalf("%v\n%+v", err, p)
		}
	})
}

// linkPlan is what callers do.
type linkPlan struct {
	Processes int
	ReadWrite bool
	Latency   time.Duration // of each way
	Callers   [][]linkCall
}

type linkCall struct {
	Process, Key int
	Pause, Work  time.Duration
	Wait         time.Duration // 0: as long as it takes
	Cancel       bool          // its context is canceled then
	Read, Traced bool
}

func drawLinkPlan(r *rapid.T) linkPlan {
	p := linkPlan{
		Processes: rapid.IntRange(1, 3).Draw(r, "processes"),
		ReadWrite: rapid.IntRange(0, 3).Draw(r, "kind") == 0,
		Latency:   rapid.SampledFrom([]time.Duration{0, time.Millisecond}).Draw(r, "latency"),
	}
	some := func(of ...time.Duration) time.Duration { return rapid.SampledFrom(of).Draw(r, "time") }
	const ms = time.Millisecond
	for range rapid.IntRange(2, 6).Draw(r, "callers") {
		process := rapid.IntRange(0, p.Processes-1).Draw(r, "process")
		var calls []linkCall
		for range rapid.IntRange(1, 4).Draw(r, "calls") {
			calls = append(calls, linkCall{
				Process: process, Key: rapid.IntRange(0, 3).Draw(r, "key") / 3,
				Pause: some(0, 100*time.Microsecond, 3*ms, 41*ms, 333*ms), Work: some(0, 200*time.Microsecond, 7*ms, 30*ms, 120*ms, 601*ms),
				Wait: some(0, 0, 0, 13*ms, 450*ms), Cancel: rapid.Bool().Draw(r, "cancel"),
				Read: p.ReadWrite && rapid.Bool().Draw(r, "read"), Traced: rapid.IntRange(0, 3).Draw(r, "traced") > 0,
			})
		}
		p.Callers = append(p.Callers, calls)
	}
	return p
}

// had is a call, and the time for which it had its key: none, if it failed.
type had struct {
	key      string
	process  int
	request  trace.SpanID // of the call
	span     trace.SpanID // zero: it is not traced
	from, to time.Time
}

// run carries the plan out and checks what was told.
func (p linkPlan) run(t *testing.T) error {
	server := memlease.NewServer(memlease.WithLatency(p.Latency, p.Latency, p.Latency))
	defer server.Close()
	var r []*listener
	var c []*Coordinator
	for i := range p.Processes {
		r = append(r, listen(t))
		made, err := NewWithStore(server.Store(), WithTTL(3*time.Second),
			WithTelemetry(r[i].config(telemetry.Config{Roots: -1, KeyAttribute: true, HoldAlarm: -1})))
		if err != nil {
			return err
		}
		c = append(c, made)
	}
	var mu sync.Mutex
	var all []had
	var callers sync.WaitGroup
	for _, calls := range p.Callers {
		callers.Go(func() {
			for _, call := range calls {
				h := call.do(c[call.Process], r[call.Process], p.ReadWrite)
				mu.Lock()
				all = append(all, h)
				mu.Unlock()
			}
		})
	}
	callers.Wait()
	var errs []error
	for _, c := range c {
		errs = append(errs, c.Close(context.Background()))
	}
	waits := []tracetest.SpanStub{}
	for i, r := range r {
		if open := r.live.names(); len(open) > 0 {
			errs = append(errs, fmt.Errorf("process %d: spans that never end: %v", i, open))
		}
		for _, s := range r.spans.GetSpans() {
			if s.Name == telemetry.SpanAcquire {
				waits = append(waits, s)
			}
		}
	}
	for _, w := range waits {
		errs = append(errs, p.check(w, all))
	}
	return errors.Join(errs...)
}

// do makes one call, and says for which time it had the key.
func (call linkCall) do(c *Coordinator, r *listener, rw bool) had {
	time.Sleep(call.Pause)
	h := had{key: fmt.Sprintf("k%d", call.Key), process: call.Process}
	ctx := context.Background()
	if call.Traced {
		var span trace.Span
		ctx, span = r.request(ctx, "request")
		defer span.End()
		h.request = span.SpanContext().SpanID()
	}
	if call.Wait > 0 && call.Cancel {
		within, cancel := context.WithCancel(ctx)
		defer time.AfterFunc(call.Wait, cancel).Stop()
		defer cancel()
		ctx = within
	}
	limited := call.Wait > 0 && !call.Cancel
	var hold *Hold
	var err error
	mode := lease.Exclusive
	if call.Read {
		mode = lease.Shared
	}
	switch {
	case rw && limited:
		hold, err = c.ReadWrite(h.key).TryLockFor(ctx, mode, call.Wait)
	case rw:
		hold, err = c.ReadWrite(h.key).Lock(ctx, mode)
	case limited:
		hold, err = c.Mutex(h.key).TryLockFor(ctx, call.Wait)
	default:
		hold, err = c.Mutex(h.key).Lock(ctx)
	}
	if err != nil {
		return h
	}
	h.from = time.Now()
	if call.Traced {
		h.span = spanOf(hold).SpanID()
	}
	time.Sleep(call.Work)
	h.to = time.Now()
	_ = hold.Unlock() // nothing befalls the leases here
	return h
}

// check compares what a wait leads to with who had the key when.
func (p linkPlan) check(w tracetest.SpanStub, all []had) error {
	key, process, own := attrs(w.Attributes)[telemetry.AttrKey].(string), -1, had{}
	wrong := func(format string, args ...any) error {
		return fmt.Errorf("a wait for %s from %v to %v, %v: %s", key, w.StartTime, w.EndTime, leads(w), fmt.Sprintf(format, args...))
	}
	for _, h := range all {
		if h.request == w.Parent.SpanID() {
			own, process = h, h.process
		}
	}
	led := map[trace.SpanID]bool{}
	for _, l := range w.Links {
		var to *had
		for i := range all {
			if l.SpanContext.IsValid() && all[i].span == l.SpanContext.SpanID() {
				to = &all[i]
			}
		}
		switch {
		case to == nil:
			return wrong("%v is no hold", l.SpanContext.SpanID())
		case to.span == own.span && own.span.IsValid():
			return wrong("it leads to its own hold")
		case to.key != key:
			return wrong("%v is of %s", to.span, to.key)
		case led[to.span]:
			return wrong("twice to %v", to.span)
		// What another process told is as old as the message.
		case to.from.After(w.EndTime) || to.to.Before(w.StartTime.Add(-2*p.Latency)):
			return wrong("%v had the key from %v to %v", to.span, to.from, to.to)
		}
		led[to.span] = true
		if relation := l.Attributes[0].Value.AsString(); relation == string(telemetry.LinkPredecessor) && !p.ReadWrite {
			for _, h := range all {
				if h.key == key && h.to.After(to.to) && h.to.Before(w.EndTime) && h.request != w.Parent.SpanID() {
					return wrong("%v, until %v, is not the last before it: %v was, until %v", to.span, to.to, h.span, h.to)
				}
			}
		}
	}
	return p.missing(w, key, process, all, led, wrong)
}

// missing says whether a hold that was in the way is not led to, where that can't be
// by the limits of what is known and kept.
func (p linkPlan) missing(w tracetest.SpanStub, key string, process int, all []had, led map[trace.SpanID]bool,
	wrong func(string, ...any) error,
) error {
	if p.ReadWrite || p.Processes > 2 || len(led) >= maxBlockers || process < 0 {
		return nil
	}
	for _, h := range all {
		if h.key != key || !h.span.IsValid() || led[h.span] || h.request == w.Parent.SpanID() {
			continue
		}
		if h.process == process && h.from.Before(w.StartTime) && h.to.After(w.StartTime) {
			return wrong("%v of this process is missing, from %v to %v", h.span, h.from, h.to)
		}
		from, to := h.from, h.to
		if from.Before(w.StartTime) {
			from = w.StartTime
		}
		if to.After(w.EndTime) {
			to = w.EndTime
		}
		if h.process != process && to.Sub(from) > 2*checkHoldAfter+50*time.Millisecond {
			return wrong("%v of another process is missing, from %v to %v", h.span, h.from, h.to)
		}
	}
	return nil
}
