package memlease

import (
	"fmt"
	"slices"
	"time"

	"github.com/go-leasehold/leasehold/lease"
)

// sender is who sent a request: the coordinator's id, and the store it came
// through, which is nil for a coordinator that is not here (see Replay).
type sender struct {
	id    string
	store *Store
}

func (s sender) owner(t lease.Ticket) string { return lease.Owner(s.id, t) }

// claim is an acquire, whether it came as a request or as the Next of a release.
type claim struct {
	kind   lease.Kind
	owner  string
	mode   lease.Mode
	ttl    time.Duration
	tokens int
	age    time.Duration
	queue  bool
	ask    bool
	traced bool
}

// departed is what a holder that has just left, or become a reader, means to those
// behind it.
type departed struct {
	wrote bool
	trace string // of its last hold; empty: nobody is told
}

// apply runs a request, as the server's scripts would. Call it with mu held.
func (s *Server) apply(from sender, r lease.Request) (lease.Reply, error) {
	if err := validate(r); err != nil {
		return lease.Reply{}, err
	}
	if r.Op == lease.Busy || r.Op == lease.Ask {
		return s.message(from, r), nil
	}
	now := s.now()
	e := s.entry(r.Key)
	dropped := s.expire(e, now, from.store)
	switch other := len(e.holders) > 0 && e.kind != r.Kind; {
	case e.foreign || other && r.Op != lease.Renew && r.Op != lease.Annotate:
		return lease.Reply{}, lease.ErrKind
	case other:
		return lease.Reply{Status: lease.Lost}, nil
	case dropped && r.Op == lease.Renew && r.Kind == lease.ReadWrite:
		s.passOn(e, departed{}, now, from.store)
	}
	reply, err := s.run(from, e, r, now)
	if err == nil && r.Watch != "" && (r.Op == lease.Acquire || r.Op == lease.Renew) {
		reply.Watched = s.watch(e, from.store)
		reply.Present = reply.Watched && e.holder(r.Watch) != nil
	}
	return reply, err
}

// message sends what changes nothing here.
func (s *Server) message(from sender, r lease.Request) lease.Reply {
	to, event := r.Asker, lease.Event{Type: lease.InUse, Key: r.Key}
	switch {
	case r.Op == lease.Ask:
		to, event.Type, event.Asker = r.Holder, lease.Asked, from.owner(r.Ticket)
	case r.Idle:
		event.Type = lease.Changed
	}
	reply := lease.Reply{Status: lease.Done}
	if id, ticket, ok := lease.ParseOwner(to); ok {
		event.Ticket = ticket
		reply.Told = s.send(id, event)
	}
	if s.config.noReceipts {
		reply.Told = -1
	}
	return reply
}

func (s *Server) run(from sender, e *entry, r lease.Request, now time.Time) (lease.Reply, error) {
	owner := from.owner(r.Ticket)
	switch r.Op {
	case lease.Acquire:
		return s.acquire(from, e, claim{
			kind: r.Kind, owner: owner, mode: r.Mode, ttl: r.TTL, tokens: r.Tokens,
			age: r.Age, queue: r.Queue, ask: r.Ask, traced: r.Traced,
		}, departed{}, now)
	case lease.Release:
		return s.release(from, e, owner, r, now)
	case lease.Renew:
		return s.renew(from, e, owner, r, now), nil
	case lease.Annotate:
		return s.annotate(from, e, owner, r), nil
	default:
		return s.downgrade(from, e, owner, r, now), nil
	}
}

// validate refuses what no correct caller sends; nothing is done then.
func validate(r lease.Request) error {
	ttl, mode := r.TTL, r.Mode
	switch {
	case r.Op < lease.Acquire || r.Op > lease.Ask:
		return fmt.Errorf("memlease: unknown request: %v", r.Op)
	case r.Op == lease.Busy || r.Op == lease.Ask:
		return nil
	case (r.Op == lease.Annotate || r.Op == lease.Release) && r.Trace != "" && !lease.ValidTrace(r.Trace):
		return fmt.Errorf("memlease: %v: the trace %q is no traceparent", r.Op, r.Trace)
	case r.Op == lease.Annotate:
		return nil
	case r.Op == lease.Downgrade && r.Kind != lease.ReadWrite:
		return lease.ErrKind
	case r.Op == lease.Release && r.Next == nil:
		return nil
	case r.Op == lease.Release:
		ttl, mode = r.Next.TTL, r.Next.Mode
	case r.Op == lease.Renew || r.Op == lease.Downgrade:
		mode = lease.Exclusive // has none
	}
	if ttl <= 0 {
		return fmt.Errorf("memlease: %v: the TTL %v is not above zero", r.Op, ttl)
	}
	if mode != lease.Exclusive && (mode != lease.Shared || r.Kind != lease.ReadWrite) {
		return fmt.Errorf("memlease: %v: no %v lease of a %v", r.Op, mode, r.Kind)
	}
	return nil
}

// acquire gets, or waits for, a lease, behind what has departed in the same step.
func (s *Server) acquire(from sender, e *entry, c claim, d departed, now time.Time) (lease.Reply, error) {
	already := e.holder(c.owner) != nil
	if e.rank(c.owner) >= 0 { // as it stands now, should its turn have come
		w := e.queue[e.rank(c.owner)]
		w.ttl, w.tokens = c.ttl, c.tokens
	}
	grants, readersTurn := s.advance(e, &c, d.wrote, now, from.store)
	reply, err := s.obtain(from, e, c, readersTurn, now)
	reply.Already = already && reply.Status == lease.Held
	s.announce(e, grants, d.trace) // now it is known whether somebody stands behind them
	if reply.Status == lease.Waiting {
		reply.Told = s.want(e, c, grants)
	}
	return reply, err
}

// obtain is the second half of an acquire: those before it have had their turn.
// In a turn of readers that has just begun, that is all who write.
func (s *Server) obtain(from sender, e *entry, c claim, readersTurn bool, now time.Time) (lease.Reply, error) {
	mine := e.holder(c.owner)
	switch {
	case len(e.holders) > 0 && e.kind != c.kind:
		return lease.Reply{}, lease.ErrKind // a waiter of the other kind came first
	case mine != nil && (c.mode == lease.Shared || mine.mode == lease.Exclusive):
		s.extend(e, mine, c.ttl, now, from.store)
		return s.held(e, c.tokens, now), nil
	}
	rank := e.rank(c.owner)
	waits := rank >= 0
	var score int64
	if !waits {
		rank, score = e.place(c.age, now)
		if !c.queue {
			rank = len(e.queue)
		}
	}
	if readersTurn && c.mode == lease.Shared {
		rank = 0
	}
	if rank == 0 && e.admits(c.mode) { // not in the queue: else advance had taken it
		e.hold(c.kind, c.owner, c.mode, c.ttl, now)
		s.changed(e, from.store)
		return s.held(e, c.tokens, now), nil
	}
	reply := lease.Reply{
		Status: lease.Denied, Remaining: e.soonest().Sub(now), Rank: rank,
		Token: e.token, Holder: e.holders[0].owner,
	}
	if c.traced {
		reply.Trace = e.holders[0].trace
	}
	if !c.queue || mine != nil { // who reads can't wait to write: it would wait for itself
		return reply, nil
	}
	if !waits {
		e.queue = slices.Insert(e.queue, rank, &waiter{
			owner: c.owner, kind: c.kind, mode: c.mode, ttl: c.ttl, tokens: c.tokens, score: score,
		})
	}
	e.keepQueue(c.ttl, now)
	reply.Status = lease.Waiting
	return reply, nil
}

// held answers for an owner that has the lease, with a block of fresh tokens.
func (s *Server) held(e *entry, tokens int, now time.Time) lease.Reply {
	first, last := e.block(tokens, now, s.config.tokenRetention)
	return lease.Reply{Status: lease.Held, First: first, Last: last, Contended: len(e.queue) > 0}
}

// want tells every holder that the lease is wanted, and counts who was told. A
// grant of this very step has told its holder already, unless an answer is asked.
func (s *Server) want(e *entry, c claim, grants []grant) (told int) {
	asker := ""
	if c.ask {
		asker = c.owner
	}
	for _, h := range e.holders {
		id, ticket, ok := lease.ParseOwner(h.owner)
		granted := slices.ContainsFunc(grants, func(g grant) bool { return g.heard && g.owner == h.owner })
		switch {
		case granted && !c.ask:
			told++
		case ok:
			told += s.send(id, lease.Event{Type: lease.Wanted, Key: e.name, Ticket: ticket, Asker: asker})
		}
	}
	if s.config.noReceipts {
		return -1
	}
	return told
}

func (s *Server) release(from sender, e *entry, owner string, r lease.Request, now time.Time) (lease.Reply, error) {
	mine := e.holder(owner)
	d := departed{wrote: mine != nil && mine.mode == lease.Exclusive, trace: r.Trace}
	if e.remove(owner) {
		s.changed(e, from.store)
	} else {
		e.withdraw(owner)
	}
	if r.Next == nil {
		s.passOn(e, d, now, from.store)
		return lease.Reply{Status: lease.Done}, nil
	}
	n := r.Next
	return s.acquire(from, e, claim{
		kind: r.Kind, owner: from.owner(n.Ticket), mode: n.Mode, ttl: n.TTL, tokens: n.Tokens,
		age: n.Age, queue: true, ask: n.Ask, traced: n.Traced,
	}, d, now)
}

func (s *Server) renew(from sender, e *entry, owner string, r lease.Request, now time.Time) lease.Reply {
	h := e.holder(owner)
	if h == nil {
		return lease.Reply{Status: lease.Lost}
	}
	s.extend(e, h, r.TTL, now, from.store)
	e.keepQueue(r.TTL, now)
	reply := s.held(e, r.Tokens, now)
	reply.Waiters = len(e.queue)
	return reply
}

// extend lengthens a lease. A reader's deadline is its own: the others are not told.
func (s *Server) extend(e *entry, h *holder, ttl time.Duration, now time.Time, by *Store) {
	if h.extend(ttl, now) && h.mode == lease.Exclusive {
		s.changed(e, by)
	}
}

func (s *Server) downgrade(from sender, e *entry, owner string, r lease.Request, now time.Time) lease.Reply {
	h := e.holder(owner)
	if h == nil {
		return lease.Reply{Status: lease.Lost}
	}
	wrote := h.mode == lease.Exclusive
	h.mode = lease.Shared
	h.extend(r.TTL, now)
	s.changed(e, from.store)
	e.keepQueue(r.TTL, now)
	s.passOn(e, departed{wrote: wrote}, now, from.store)
	reply := s.held(e, r.Tokens, now)
	reply.Waiters = len(e.queue)
	return reply
}

// toldOfTraces is how many places at the front of the queue are told of a trace.
const toldOfTraces = 16

// annotate keeps the trace of the present hold with the lease, and tells those at
// the front of the queue, but for the holder's own process. None takes it back.
func (s *Server) annotate(from sender, e *entry, owner string, r lease.Request) lease.Reply {
	h := e.holder(owner)
	if h == nil {
		return lease.Reply{Status: lease.Lost}
	}
	if h.trace = r.Trace; r.Trace == "" {
		return lease.Reply{Status: lease.Done}
	}
	for _, w := range e.queue[:min(len(e.queue), toldOfTraces)] {
		if id, ticket, ok := lease.ParseOwner(w.owner); ok && id != from.id {
			s.send(id, lease.Event{Type: lease.Traced, Key: e.name, Ticket: ticket, Trace: r.Trace})
		}
	}
	return lease.Reply{Status: lease.Done}
}

// grant is a lease that advance gave away, to be told by message.
type grant struct {
	owner string
	id    string
	event lease.Event
	heard bool
}

// passOn gives the key to those whose turn it is, and tells them.
func (s *Server) passOn(e *entry, d departed, now time.Time, by *Store) {
	grants, _ := s.advance(e, nil, d.wrote, now, by)
	s.announce(e, grants, d.trace)
}

// advance gives the key to those whose turn it is, and each its own whole TTL. All
// but me, who learns by the reply, are to be told by message. Those whom no
// message would reach are gone, and passed over.
//
// The head of the queue has the next turn, but when a writer leaves (wrote) it is
// the readers'. In a turn of readers that begins, all that wait come in, whoever
// stands before them; advance says whether one has begun.
func (s *Server) advance(e *entry, me *claim, wrote bool, now time.Time, by *Store) (grants []grant, readersTurn bool) {
	iRead := me != nil && me.mode == lease.Shared
	if free := len(e.holders) == 0; free || wrote {
		readersTurn = wrote && iRead || len(e.queue) > 0 && e.queue[0].mode == lease.Shared ||
			wrote && slices.ContainsFunc(e.queue, reads)
		if readersTurn {
			for i := 0; i < len(e.queue); {
				if !reads(e.queue[i]) {
					i++
					continue
				}
				grants = s.take(e, i, me, grants, now, by)
			}
			if iRead {
				return grants, true
			}
		}
	}
	for len(e.queue) > 0 && e.admits(e.queue[0].mode) {
		grants = s.take(e, 0, me, grants, now, by)
	}
	return grants, readersTurn
}

func reads(w *waiter) bool { return w.mode == lease.Shared }

// take makes a holder of somebody in the queue.
func (s *Server) take(e *entry, i int, me *claim, grants []grant, now time.Time, by *Store) []grant {
	w := e.queue[i]
	mine := me != nil && w.owner == me.owner
	e.queue = slices.Delete(e.queue, i, i+1)
	id, ticket, ok := lease.ParseOwner(w.owner)
	if !mine && !s.config.noReceipts && !(ok && s.reachable(id)) {
		return grants
	}
	e.hold(w.kind, w.owner, w.mode, w.ttl, now)
	s.changed(e, by)
	if mine {
		return grants
	}
	first, last := e.block(max(w.tokens, 1), now, s.config.tokenRetention)
	return append(grants, grant{owner: w.owner, id: id, event: lease.Event{
		Type: lease.Granted, Key: e.name, Ticket: ticket, First: first, Last: last,
	}})
}

// announce sends the grants, each of which says whether others wait behind, and
// before each the trace of the hold that has ended, if there is one.
func (s *Server) announce(e *entry, grants []grant, trace string) {
	for i := range grants {
		if trace != "" {
			s.send(grants[i].id, lease.Event{
				Type: lease.Traced, Key: e.name, Ticket: grants[i].event.Ticket, Trace: trace, Passing: true,
			})
		}
		grants[i].event.Contended = len(e.queue) > 0
		grants[i].heard = s.send(grants[i].id, grants[i].event) > 0
	}
}
