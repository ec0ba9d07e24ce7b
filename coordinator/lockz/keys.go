package lockz

import (
	"cmp"
	"slices"
	"strings"
	"time"

	"github.com/go-leasehold/leasehold/coordinator"
)

// rank is what a key is sorted by.
type rank struct {
	key        int
	cycle      bool
	failing    bool
	wait, hold time.Duration
	wanted     bool
}

// trouble compares two keys: what is in trouble comes first.
func trouble(a, b rank) int {
	yes := func(x, y bool) int {
		switch {
		case x == y:
			return 0
		case x:
			return -1
		}
		return 1
	}
	return cmp.Or(
		yes(a.cycle, b.cycle), yes(a.failing, b.failing), cmp.Compare(b.wait, a.wait),
		yes(a.wanted, b.wanted), cmp.Compare(b.hold, a.hold), cmp.Compare(a.key, b.key),
	)
}

// ranks counts what there is in all keys, and returns those that are asked for,
// sorted.
func (p *picture) ranks(keys []coordinator.KeySnapshot) []rank {
	stuck := map[int]bool{}
	for s := range p.graph.stuck {
		stuck[s.key] = true
	}
	var longest rank
	room := 0
	if p.asked.query == "" {
		room = len(keys)
	}
	ranks := make([]rank, 0, room)
	for i := range keys {
		k := &keys[i]
		r := rank{key: i, cycle: stuck[i], failing: k.Failure != nil, wanted: k.Wanted}
		for at := range k.Waiters {
			r.wait = max(r.wait, k.Waiters[at].Waited, 1) // 1: any wait is more than none
		}
		for at := range k.Holds {
			r.hold = max(r.hold, k.Holds[at].Age)
		}
		longest.wait, longest.hold = max(longest.wait, r.wait), max(longest.hold, r.hold)
		p.Now.add(k)
		if p.asked.query == "" || matches(k, p.asked.query) {
			ranks = append(ranks, r)
		}
	}
	p.Now.LongestWait, p.Now.LongestHold = seconds(longest.wait), seconds(longest.hold)
	slices.SortFunc(ranks, trouble)
	return ranks
}

func (n *Now) add(k *coordinator.KeySnapshot) {
	one := func(counts bool) int {
		if counts {
			return 1
		}
		return 0
	}
	n.Keys++
	n.Leases += one(k.Phase == "held")
	n.Wanted += one(k.Wanted)
	n.Failing += one(k.Failure != nil)
	n.Holds += len(k.Holds) + k.Readers
	n.Waiters += len(k.Waiters)
}

// matches says that a key is one that was asked for.
func matches(k *coordinator.KeySnapshot, query string) bool {
	return strings.Contains(k.Key, query) || strings.Contains(k.Class, query) ||
		strings.Contains(k.Owner, query) || strings.Contains(k.Holder, query) ||
		strings.Contains(nameOf(k.Key).Text, query)
}

// keys fills in the keys.
func (p *picture) keys(ranks []rank) {
	p.Keys = []Key{}
	p.MoreKeys = max(len(ranks)-p.asked.limit, 0)
	for _, r := range ranks[:len(ranks)-p.MoreKeys] {
		p.Keys = append(p.Keys, p.key(r))
	}
}

// key returns one key.
func (p *picture) key(r rank) Key {
	k := &p.graph.keys[r.key]
	key := Key{
		Name: nameOf(k.Key), Class: clip(k.Class), Phase: k.Phase, Valid: seconds(k.Valid), Owner: clip(k.Owner),
		Holder: clip(k.Holder), HolderTrace: p.h.trace(k.HolderTrace), HolderTraceAge: seconds(k.HolderTraceAge), Wanted: k.Wanted, Cycle: r.cycle, Readers: k.Readers,
		LongestWait: seconds(r.wait), LongestHold: seconds(r.hold), Holds: []Hold{}, Waiters: []Waiter{},
	}
	if k.Kind != 0 {
		key.Kind = k.Kind.String()
	}
	if k.Phase != "free" {
		key.Mode = k.Mode.String()
	}
	if k.Phase == "queued" {
		rank := k.Rank
		key.Rank = &rank
	}
	if k.Failure != nil {
		key.Failure = clip(k.Failure.Error())
	}
	key.MoreHolds = max(len(k.Holds)-p.asked.each, 0)
	for i := range k.Holds[:len(k.Holds)-key.MoreHolds] {
		hold := &k.Holds[i]
		shown := Hold{
			Mode: hold.Mode.String(), Token: hold.Token, Count: hold.Count, Reads: hold.Reads, Age: seconds(hold.Age),
			Since: p.At.Add(-hold.Age), Path: string(hold.Path), Trace: p.h.trace(hold.Trace), Place: clip(hold.Place),
		}
		if p.graph.seenAgain(hold.Owner) {
			shown.Caller = p.caller(hold.Owner)
		}
		key.Holds = append(key.Holds, shown)
	}
	key.MoreWaiters = max(len(k.Waiters)-p.asked.each, 0)
	for i := range k.Waiters[:len(k.Waiters)-key.MoreWaiters] {
		key.Waiters = append(key.Waiters, p.waiter(&k.Waiters[i]))
	}
	return key
}

// waiter returns one waiting call.
func (p *picture) waiter(w *coordinator.WaiterSnapshot) Waiter {
	return Waiter{
		Callers: p.callersOf(w.Owners), Mode: w.Mode.String(), Try: w.Try, Age: seconds(w.Waited),
		Since: p.At.Add(-w.Waited), Trace: p.h.trace(w.Trace), Place: clip(w.Place),
	}
}
