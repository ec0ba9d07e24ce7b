package lockz

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/go-leasehold/leasehold/lease"
	"github.com/go-leasehold/leasehold/telemetry"
)

const (
	// maxAsked is about how many keys the store is asked for one page.
	maxAsked = 20
	// askWithin bounds all these questions together.
	askWithin = time.Second
	// maxProcesses bounds the holders, and the waiters, shown of a key.
	maxProcesses = 50
)

// answer is what the store says about a key.
type answer struct {
	info lease.Info
	err  error
}

// fleet fills in what the store says of other processes.
func (p *picture) fleet(ctx context.Context, ranks []rank) {
	var keys []string
	idle := map[string]bool{}
	p.Fleet = &Fleet{Keys: []FleetKey{}}
	for _, r := range ranks {
		k := &p.graph.keys[r.key]
		switch {
		case r.wait == 0 && !r.wanted:
		case len(keys) == maxAsked:
			p.Fleet.More++
		default:
			keys = append(keys, k.Key)
			idle[k.Key] = len(k.Holds)+k.Readers == 0
		}
	}
	answers := inspect(ctx, keys, p.h.c.Inspect)
	p.Fleet.At = time.Now()
	var infos []lease.Info
	for i, a := range answers {
		p.Fleet.Keys = append(p.Fleet.Keys, p.h.fleetKey(keys[i], a, p.Fleet.At))
		if a.err == nil {
			infos = append(infos, a.info)
		}
	}
	waits := processWaits(infos, p.Fleet.At, p.ID, func(key string) bool { return idle[key] })
	p.Cycles = append(p.Cycles, fleetCycles(waits)...)
}

// inspect asks the store about keys, all at the same time. What is not answered
// within askWithin isn't waited for.
func inspect(ctx context.Context, keys []string, ask func(context.Context, string) (lease.Info, error)) []answer {
	ctx, cancel := context.WithTimeout(ctx, askWithin)
	defer cancel()
	type numbered struct {
		i int
		answer
	}
	answers := make([]answer, len(keys))
	came := make(chan numbered, len(keys)) // so that nobody waits to be heard
	for i, key := range keys {
		answers[i].err = fmt.Errorf("no answer within %v", askWithin)
		go func() {
			info, err := asked(ctx, key, ask)
			came <- numbered{i, answer{info, err}}
		}()
	}
	for range keys {
		select {
		case n := <-came:
			answers[n.i] = n.answer
		case <-ctx.Done():
			return answers
		}
	}
	return answers
}

// asked calls the store, which may be a user's own: its panic is an error.
func asked(ctx context.Context, key string, ask func(context.Context, string) (lease.Info, error)) (info lease.Info, err error) {
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("the store panicked: %v", p)
		}
	}()
	return ask(ctx, key)
}

// fleetKey returns what is shown of an answer.
func (h *handler) fleetKey(key string, a answer, at time.Time) FleetKey {
	k := FleetKey{Name: nameOf(key), Token: a.info.Token, Holders: []Process{}, Waiters: []Process{}}
	if a.err != nil {
		k.Error = clip(a.err.Error())
	}
	for _, holder := range a.info.Holders[:min(len(a.info.Holders), maxProcesses)] {
		p := h.process(holder.Owner, holder.Mode, holder.TTL, holder.Since, at)
		p.Trace = h.remoteTrace(holder.Trace)
		k.Holders = append(k.Holders, p)
	}
	for _, waiter := range a.info.Waiters[:min(len(a.info.Waiters), maxProcesses)] {
		k.Waiters = append(k.Waiters, h.process(waiter.Owner, waiter.Mode, waiter.TTL, waiter.Since, at))
	}
	k.More = len(a.info.Holders) + len(a.info.Waiters) - len(k.Holders) - len(k.Waiters)
	return k
}

func (h *handler) process(owner string, mode lease.Mode, ttl time.Duration, since, at time.Time) Process {
	id, _, _ := lease.ParseOwner(owner)
	p := Process{Owner: clip(owner), Here: id == h.c.ID(), Mode: mode.String(), TTL: seconds(ttl), Since: since}
	if !since.IsZero() {
		p.Age = seconds(max(at.Sub(since), 0)) // by the store's clock, which may go before ours
	}
	return p
}

// remoteTrace returns where the span of a hold in another process is, or nil.
func (h *handler) remoteTrace(traceparent string) *Trace {
	span := telemetry.ParseTrace(traceparent)
	if !span.IsValid() {
		return nil
	}
	return &Trace{TraceID: span.TraceID().String(), SpanID: span.SpanID().String(), URL: h.conf.telemetry.URL(span)}
}

// processWait is a process that waits for another.
type processWait struct {
	waiter, holder string
	key            string
	mode           lease.Mode
	age            Seconds
	held           Seconds
	token          uint64
}

// processWaits returns who waits for whom among processes. idle says that this
// process has a key that nobody here uses: it gives it up when it hears of it.
func processWaits(infos []lease.Info, at time.Time, here string, idle func(key string) bool) (waits []processWait) {
	ago := func(t time.Time) Seconds {
		if t.IsZero() {
			return 0
		}
		return seconds(max(at.Sub(t), 0))
	}
	for _, info := range infos {
		for i, w := range info.Waiters[:min(len(info.Waiters), maxProcesses)] {
			waiter, _, _ := lease.ParseOwner(w.Owner)
			wait := processWait{waiter: waiter, key: info.Key, mode: w.Mode, age: ago(w.Since), token: info.Token}
			read := w.Mode == lease.Shared
			for _, holder := range info.Holders[:min(len(info.Holders), maxProcesses)] {
				id, _, _ := lease.ParseOwner(holder.Owner)
				if id == waiter || read && holder.Mode == lease.Shared || id == here && idle(info.Key) {
					continue
				}
				wait.holder, wait.held = id, ago(holder.Since)
				waits = append(waits, wait)
				read = false // it need not look for a writer ahead
			}
			ahead := slices.IndexFunc(info.Waiters[:i], func(o lease.Waiter) bool { return o.Mode == lease.Exclusive })
			if read && ahead >= 0 {
				wait.holder, _, _ = lease.ParseOwner(info.Waiters[ahead].Owner)
				wait.held = 0
				waits = append(waits, wait)
			}
		}
	}
	return waits
}

// fleetCycles returns a cycle of each knot of processes.
func fleetCycles(waits []processWait) (cycles []Cycle) {
	numbers := map[string]int{}
	var next [][]int
	number := func(process string) int {
		n, ok := numbers[process]
		if !ok {
			n = len(next)
			numbers[process], next = n, append(next, nil)
		}
		return n
	}
	edges := map[[2]int]processWait{}
	for _, w := range waits {
		from, to := number(w.waiter), number(w.holder)
		if old, known := edges[[2]int{from, to}]; !known {
			next[from] = append(next[from], to)
			edges[[2]int{from, to}] = w
		} else if w.age > old.age {
			edges[[2]int{from, to}] = w
		}
	}
	part := components(next)
	done := map[int]bool{}
	for start := range next {
		path := []int(nil)
		if !done[part[start]] {
			path = shortest(next, part, start)
		}
		if len(path) < 2 {
			continue
		}
		done[part[start]] = true
		cycles = append(cycles, cycleOf(path, edges))
	}
	return cycles
}

// cycleOf says what a way through processes means.
func cycleOf(path []int, edges map[[2]int]processWait) Cycle {
	c := Cycle{Possible: true}
	for i, node := range path[:min(len(path), maxSteps)] {
		before := edges[[2]int{path[(i+len(path)-1)%len(path)], node}]
		wait := edges[[2]int{node, path[(i+1)%len(path)]}]
		c.Steps = append(c.Steps, Step{
			Process: clip(wait.waiter), Has: nameOf(before.key), Held: before.held,
			Key: nameOf(wait.key), Mode: wait.mode.String(), Age: wait.age,
		})
	}
	return c
}
