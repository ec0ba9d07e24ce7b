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
	chosen, more := p.choose(ranks)
	p.Fleet = &Fleet{Keys: []FleetKey{}, More: more}
	keys := make([]string, 0, len(chosen))
	idle := map[string]bool{}
	for _, r := range chosen {
		k := &p.graph.keys[r.key]
		keys = append(keys, k.Key)
		idle[k.Key] = len(k.Holds)+k.Readers == 0
	}
	began := time.Now()
	answers := inspect(ctx, keys, p.h.c.Inspect)
	p.Fleet.At = time.Now()
	var infos []lease.Info
	for i, a := range answers {
		p.Fleet.Keys = append(p.Fleet.Keys, p.h.fleetKey(keys[i], a, p.Fleet.At))
		if a.err == nil {
			infos = append(infos, a.info)
		}
	}
	f := fleetLook{at: p.Fleet.At, least: max(p.Fleet.At.Sub(began), leastWait), here: p.ID, idle: idle}
	p.Cycles = append(p.Cycles, fleetCycles(f.waits(infos))...)
}

// choose returns the keys that the store is asked about, and how many are left out.
// Half of the room is for keys that other processes want: a ring leads through one of
// these and one that a call here waits for, and there may be any number of either. Of
// the latter those come first that another process has.
func (p *picture) choose(ranks []rank) (chosen []rank, more int) {
	var wanted, theirs, ours []rank
	for _, r := range ranks {
		switch {
		case r.wanted:
			wanted = append(wanted, r)
		case r.wait > 0 && p.graph.keys[r.key].Phase != "held":
			theirs = append(theirs, r)
		case r.wait > 0:
			ours = append(ours, r)
		}
	}
	waited := append(theirs, ours...)
	half := max(maxAsked/2, maxAsked-len(waited))
	chosen = append(chosen, wanted[:min(len(wanted), half)]...)
	chosen = append(chosen, waited[:min(len(waited), maxAsked-len(chosen))]...)
	slices.SortFunc(chosen, trouble)
	return chosen, len(wanted) + len(waited) - len(chosen)
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
		p.Trace = h.trace(telemetry.ParseTrace(holder.Trace))
		k.Holders = append(k.Holders, p)
	}
	for _, waiter := range a.info.Waiters[:min(len(a.info.Waiters), maxProcesses)] {
		k.Waiters = append(k.Waiters, h.process(waiter.Owner, waiter.Mode, waiter.TTL, waiter.Since, at))
	}
	k.More = len(a.info.Holders) + len(a.info.Waiters) - len(k.Holders) - len(k.Waiters)
	return k
}

func (h *handler) process(owner string, mode lease.Mode, ttl time.Duration, since, at time.Time) Process {
	p := Process{Owner: clip(owner), Here: processOf(owner) == h.c.ID(), Mode: mode.String(), TTL: seconds(ttl), Since: since}
	if !since.IsZero() {
		p.Age = seconds(max(at.Sub(since), 0)) // by the store's clock, which may go before ours
	}
	return p
}

// processWait is a process that waits for another.
type processWait struct {
	waiter, holder string
	key            string
	mode           lease.Mode
	age            Seconds
	held           Seconds
}

// leastWait is how old the waits of processes must be to be called a possible
// deadlock: where there is much to do each waits for the other all the time, for a
// moment.
const leastWait = time.Second

// fleetLook is how the store's answers are looked at.
type fleetLook struct {
	at time.Time
	// least is how old a wait or a hold must be to count. The keys were asked about
	// one after the other: what is younger than that took may never have been so at one
	// time with the rest.
	least time.Duration
	here  string
	// idle has the keys that this process has and nobody here uses: it gives them up
	// when it hears of who waits.
	idle map[string]bool
}

// ago is how long ago something was, by the store's clock; 0 if that is not known.
func (f *fleetLook) ago(t time.Time) Seconds {
	if t.IsZero() {
		return 0
	}
	return seconds(max(f.at.Sub(t), 0))
}

func (f *fleetLook) young(t time.Time) bool { return !t.IsZero() && f.at.Sub(t) < f.least }

// waits returns who waits for whom among processes.
func (f *fleetLook) waits(infos []lease.Info) (waits []processWait) {
	for _, info := range infos {
		queue := info.Waiters[:min(len(info.Waiters), maxProcesses)]
		ahead := slices.IndexFunc(queue, func(w lease.Waiter) bool { return w.Mode == lease.Exclusive })
		for i, w := range queue {
			if f.young(w.Since) {
				continue
			}
			of := f.behindHolders(info, w)
			if len(of) == 0 && w.Mode == lease.Shared && ahead >= 0 && ahead < i && !f.young(queue[ahead].Since) {
				of = append(of, processWait{holder: processOf(queue[ahead].Owner)})
			}
			for _, wait := range of {
				wait.waiter, wait.key, wait.mode, wait.age = processOf(w.Owner), info.Key, w.Mode, f.ago(w.Since)
				if wait.waiter != wait.holder {
					waits = append(waits, wait)
				}
			}
		}
	}
	return waits
}

// behindHolders returns a process's waits for those who have the key.
func (f *fleetLook) behindHolders(info lease.Info, w lease.Waiter) (waits []processWait) {
	for _, holder := range info.Holders[:min(len(info.Holders), maxProcesses)] {
		id := processOf(holder.Owner)
		switch {
		case id == f.here && f.idle[info.Key]:
		case w.Mode == lease.Shared && holder.Mode == lease.Shared:
		case f.young(holder.Since):
		default:
			waits = append(waits, processWait{holder: id, held: f.ago(holder.Since)})
		}
	}
	return waits
}

// processOf returns the process whose lease has that name.
func processOf(owner string) string {
	id, _, _ := lease.ParseOwner(owner)
	return id
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
	c := Cycle{Possible: true, Cut: max(len(path)-maxSteps, 0)}
	for i, node := range path[:len(path)-c.Cut] {
		before := edges[[2]int{path[(i+len(path)-1)%len(path)], node}]
		wait := edges[[2]int{node, path[(i+1)%len(path)]}]
		c.Steps = append(c.Steps, Step{
			Process: clip(wait.waiter), Has: nameOf(before.key), Held: before.held,
			Key: nameOf(wait.key), Mode: wait.mode.String(), Age: wait.age,
		})
	}
	return c
}
