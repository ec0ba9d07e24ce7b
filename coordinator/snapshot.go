package coordinator

import (
	"cmp"
	"slices"
	"time"

	"go.opentelemetry.io/otel/trace"

	"github.com/go-leasehold/leasehold/lease"
	"github.com/go-leasehold/leasehold/telemetry"
)

// Stats counts what happened to keys, since the coordinator began.
type Stats struct {
	Grants    uint64 // holds, re-entries not counted
	Retained  uint64 // of these: at once, under a lease that was here and not in the way
	Asked     uint64 // of these: the first under a lease that the store granted on being asked
	Handed    uint64 // of these: the first under a lease that another process handed over
	Passed    uint64 // of these: to read, without asking the key's actor
	Leases    uint64 // leases won from the store
	Handoffs  uint64 // of these: by a message of another process's release
	Yields    uint64 // leases passed on while callers here still waited
	Commands  uint64 // sent to the store, but for its own re-sending
	Renewals  uint64
	Failures  uint64 // commands that the store did not answer, or with an error
	Lost      uint64 // leases lost under their holders
	Taken     uint64 // of these: taken away, not lapsed
	Expired   uint64 // holds that reached their MaxHold
	Orphans   uint64 // stray tickets released
	Abandoned uint64 // holds garbage-collected while they were held

	// Calls that came to nothing. One that left in the instant of its grant is among
	// the grants.
	Busy        uint64 // TryLocks of a key that somebody else has
	TimedOut    uint64 // by TryLockFor, or by the deadline of their context
	Canceled    uint64 // by their context
	Refused     uint64 // too many waiters, another kind of lock, an upgrade
	Unavailable uint64 // the store did not answer
	Closed      uint64 // the coordinator was closed

	Reentries    uint64
	MissedGrants uint64 // that were found by looking, not told
	MissedWants  uint64

	FailedReleases uint64 // leases left to expire, since their release failed for as long
}

func (s *Stats) add(o *Stats) {
	s.Grants += o.Grants
	s.Retained += o.Retained
	s.Asked += o.Asked
	s.Handed += o.Handed
	s.Passed += o.Passed
	s.Leases += o.Leases
	s.Handoffs += o.Handoffs
	s.Yields += o.Yields
	s.Commands += o.Commands
	s.Renewals += o.Renewals
	s.Failures += o.Failures
	s.Lost += o.Lost
	s.Taken += o.Taken
	s.Busy += o.Busy
	s.TimedOut += o.TimedOut
	s.Canceled += o.Canceled
	s.Refused += o.Refused
	s.Unavailable += o.Unavailable
	s.Closed += o.Closed
	s.Reentries += o.Reentries
	s.MissedGrants += o.MissedGrants
	s.MissedWants += o.MissedWants
	s.Expired += o.Expired
	s.Orphans += o.Orphans
	s.Abandoned += o.Abandoned
	s.FailedReleases += o.FailedReleases
}

// Snapshot is what a process holds and who waits in it, at about one moment.
type Snapshot struct {
	ID           string             // the coordinator's, as it stands in Redis
	Capabilities lease.Capabilities // with what the server lacks
	Keys         []KeySnapshot      // held, waited for, or known of; sorted
	Stats        Stats
	LogDropped   uint64 // log lines lost to a slow logger
}

// KeySnapshot is one key of a [Snapshot].
type KeySnapshot struct {
	Key    string
	Class  string // see [telemetry.Config.KeyClass]; "" without it
	Kind   lease.Kind
	Phase  string        // "free", "acquiring", "queued" or "held": of the lease
	Mode   lease.Mode    // of the lease
	Owner  string        // its name in Redis; "" if there is none
	Valid  time.Duration // of a held lease: what is left of it, if it is not renewed
	Wanted bool          // another process waits for it
	Holder string        // another process that has the key, as far as known

	// HolderTrace is the span of the hold there that was heard of last, and
	// HolderTraceAge how long ago that was: it may have ended since. Not valid where
	// nothing was heard, as where no call here is traced, or that hold is not.
	HolderTrace    trace.SpanContext
	HolderTraceAge time.Duration

	Rank    int // queued: the process's place, 0 is the head
	Readers int // holds that came in without asking: counted, not listed in Holds
	Holds   []HoldSnapshot
	Waiters []WaiterSnapshot // in their order
	Failure error            // of the last command, while the store fails
}

// HoldSnapshot is one hold of a [KeySnapshot].
type HoldSnapshot struct {
	Mode  lease.Mode
	Token uint64
	Count int           // re-entrancy depth
	Reads int           // of these, to read
	Age   time.Duration // since the grant
	Path  telemetry.Path

	// Trace is the hold's span; not valid where it is not traced, or where its span
	// has not begun, which it has when the hold is 100 ms old, as a rule. A Snapshot
	// that meets one has it begun, and does not wait for that.
	Trace trace.SpanContext

	// Owner numbers the identity that the hold belongs to, from 1: it is the same
	// for all its holds, and in [WaiterSnapshot.Owners], in one Snapshot. 0: no
	// context has it, so that there is nothing else of it.
	Owner int

	Place string // of the Lock call, with [WithDebug] or [telemetry.Config.AlarmStack]
}

// WaiterSnapshot is one waiting call of a [KeySnapshot].
type WaiterSnapshot struct {
	Mode   lease.Mode
	Try    bool // a TryLock: it waits for an answer, not for a holder
	Waited time.Duration

	// Owners are the identities in the call's context, the innermost first: the
	// call may enter what these hold, and they can't go on before it returns, but
	// for what other goroutines do in their name. At most 64.
	Owners []int

	// Trace is the span that the call was made in, which is not yet that of the wait;
	// not valid where there is none that is sampled.
	Trace trace.SpanContext

	Place string // of the Lock call, with [WithDebug] or [telemetry.Config.AlarmStack]
}

// maxOwners bounds the identities that are told of a waiting call: a context may
// have been handed down through any number of holds.
const maxOwners = 64

// identities numbers the owners that a Snapshot meets.
type identities map[*owner]int

// of returns an owner's number.
func (i identities) of(o *owner) int {
	n, ok := i[o]
	if !ok {
		n = len(i) + 1
		i[o] = n
	}
	return n
}

// holding returns the number of a hold's owner, or 0 where it is in no context.
func (i identities) holding(c *claim) int {
	if !c.owner.fixed && !c.exposed {
		return 0
	}
	return i.of(c.owner)
}

// waiting returns the numbers of the owners that a waiting call comes with. Its
// own identity is none of them before it holds, unless it was fixed.
func (i identities) waiting(c *claim) (numbers []int) {
	o := c.owner
	if !o.fixed {
		o = o.outer
	}
	for ; o != nil && len(numbers) < maxOwners; o = o.outer {
		numbers = append(numbers, i.of(o))
	}
	return numbers
}

// Snapshot tells what this process holds and who waits here. It looks at one
// key after the other, each for a moment.
func (c *Coordinator) Snapshot() Snapshot {
	s := Snapshot{ID: c.id, Capabilities: c.caps, LogDropped: c.journal.dropped.Load()}
	actors := make([]*actor, 0, max(c.live.Load(), 0))
	c.actors.Range(func(_ string, a *actor) bool {
		actors = append(actors, a)
		return true
	})
	slices.SortFunc(actors, func(a, b *actor) int { return cmp.Compare(a.key, b.key) })
	s.Keys = make([]KeySnapshot, 0, len(actors))
	stats := make([]Stats, 0, len(actors))
	seen := sight{identities: identities{}, places: map[[placeDepth]uintptr]string{}}
	for _, a := range actors {
		k, counts, ok := a.snapshot(&seen)
		if ok {
			actors[len(stats)] = a
			s.Keys = append(s.Keys, k)
			stats = append(stats, counts)
		}
	}
	if asleep := seen.asleep; len(asleep) > 0 {
		c.tel.Soon(func() { // runs samplers, which may hang
			for _, call := range asleep {
				call.Hold()
			}
		})
	}
	c.past.Lock()
	s.Stats = c.past.stats
	for _, n := range c.past.denied {
		s.Stats.Busy += uint64(n.Value())
	}
	for i := range stats {
		if !actors[i].past { // it has not left the table meanwhile
			s.Stats.add(&stats[i])
		}
	}
	c.past.Unlock()
	return s
}

// sight is what one Snapshot has met so far.
type sight struct {
	identities
	places map[[placeDepth]uintptr]string // written down once: most calls come from few places
	asleep []*telemetry.Call              // of holds whose spans have not begun
}

const (
	// placeDepth is more than what place writes down can depend on.
	placeDepth = 8
	// maxAsleep bounds the spans that one Snapshot has begun.
	maxAsleep = 1000
)

// placed writes down where a call came from.
func (s *sight) placed(pcs []uintptr) string {
	if pcs == nil {
		return ""
	}
	var key [placeDepth]uintptr
	copy(key[:], pcs)
	text, ok := s.places[key]
	if !ok {
		text = place(pcs)
		s.places[key] = text
	}
	return text
}

// traced returns a hold's span, if it has begun.
func (s *sight) traced(call *telemetry.Call) trace.SpanContext {
	if call == nil {
		return trace.SpanContext{}
	}
	span := call.Begun()
	if !span.IsValid() && !call.Unsampled() && len(s.asleep) < maxAsleep {
		s.asleep = append(s.asleep, call)
	}
	return span
}

func (a *actor) snapshot(seen *sight) (KeySnapshot, Stats, bool) {
	k, rest, stats, ok := a.picture(seen.identities)
	for i, call := range rest.calls {
		k.Holds[i].Trace = seen.traced(call)
	}
	for i, pcs := range rest.holds {
		k.Holds[i].Place = seen.placed(pcs)
	}
	for i, pcs := range rest.waiters {
		k.Waiters[i].Place = seen.placed(pcs)
	}
	if there := rest.elsewhere; there.trace != "" {
		if k.HolderTrace = telemetry.ParseTrace(there.trace); k.HolderTrace.IsValid() {
			k.HolderTraceAge = rest.at.sub(there.at)
		}
	}
	return k, stats, ok
}

// unwritten is what takes its time to be told, and so is not told under the mutex.
// None of it is changed once it is there.
type unwritten struct {
	calls          []*telemetry.Call // of the holds, if any of them has one
	holds, waiters [][]uintptr       // where they were called, if that is noted
	elsewhere      heldElsewhere     // the hold there that was heard of last
	at             instant
}

// picture is the snapshot without what is told later.
func (a *actor) picture(who identities) (k KeySnapshot, rest unwritten, _ Stats, _ bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.gone {
		return k, rest, Stats{}, false // counted among the past
	}
	now := a.c.clock.now()
	t := &a.cur
	k = KeySnapshot{
		Key: a.key, Kind: a.kind, Phase: t.phase.String(), Mode: t.mode, Wanted: t.wanted, Rank: t.rank,
		Holder: t.holder, Failure: a.failure,
	}
	if a.c.tel.Classifies() {
		k.Class = a.classOf().Name()
	}
	if t.phase != free {
		k.Owner = lease.Owner(a.c.id, t.ticket)
	}
	if t.phase == held {
		k.Holder = ""
		k.Valid = max(t.until.sub(now), 0)
	} else {
		if k.Holder == "" {
			k.Holder = a.elsewhere.holder
		}
		if n := len(t.heldBy); n > 0 {
			rest.elsewhere, rest.at = t.heldBy[n-1], now
		}
	}
	if a.reading() {
		k.Readers = a.gate.readers()
		a.countPassed()
	}
	k.list(a, who, now, &rest)
	return k, rest, a.stats, true
}

// list fills in the holds and the waiters.
func (k *KeySnapshot) list(a *actor, who identities, now instant, rest *unwritten) {
	if a.holds.n > 0 {
		k.Holds = make([]HoldSnapshot, 0, a.holds.n)
	}
	for c := a.holds.first; c != nil; c = c.next {
		k.Holds = append(k.Holds, HoldSnapshot{
			Mode: c.mode, Token: c.token, Count: int(c.handles), Reads: int(c.handles - c.writes),
			Age: now.sub(c.granted), Path: c.path.name(), Owner: who.holding(c),
		})
		if c.call() != nil && rest.calls == nil {
			rest.calls = make([]*telemetry.Call, len(k.Holds)-1, a.holds.n)
		}
		if rest.calls != nil {
			rest.calls = append(rest.calls, c.call())
		}
		if a.c.places {
			rest.holds = append(rest.holds, c.pcs())
		}
	}
	if a.waiting.n > 0 {
		k.Waiters = make([]WaiterSnapshot, 0, a.waiting.n)
	}
	for c := a.waiting.first; c != nil; c = c.next {
		k.Waiters = append(k.Waiters, WaiterSnapshot{
			Mode: c.mode, Try: c.try, Waited: now.sub(c.since), Owners: who.waiting(c), Trace: c.call().From(),
		})
		if a.c.places {
			rest.waiters = append(rest.waiters, c.pcs())
		}
	}
}

// pcs returns where the claim was made, if that is noted.
func (c *claim) pcs() []uintptr {
	if c.more == nil {
		return nil
	}
	return c.more.place
}

func (c *claim) placed() string {
	pcs := c.pcs()
	if pcs == nil {
		return ""
	}
	return place(pcs)
}
