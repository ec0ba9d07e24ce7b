package leasetest

import (
	"fmt"
	"slices"
	"strings"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/go-leasehold/leasehold/lease"
)

var modelCases = []testCase{
	{"RandomCommandsOnAMutex", func(s *suite) { testModel(s, lease.Mutex) }},
	{"RandomCommandsOnAReadWriteLock", func(s *suite) { testModel(s, lease.ReadWrite) }},
}

const (
	modelStores  = 3
	modelTickets = 3 // of each store, on each key
)

// model is what a key should look like, in the plainest way. Leases don't expire
// in it, and nobody in it dies.
type model struct {
	kind    lease.Kind
	holders []place
	queue   []place
}

// place is an owner with its mode, as holder or as waiter, and a holder's trace.
type place struct {
	owner string
	mode  lease.Mode
	trace string
}

func at(places []place, owner string) int {
	return slices.IndexFunc(places, func(p place) bool { return p.owner == owner })
}

func (m *model) admits(mode lease.Mode) bool {
	return len(m.holders) == 0 || mode == lease.Shared && m.holders[0].mode == lease.Shared
}

// advance returns whom it granted the key, and whether a turn of readers has
// begun: when a writer leaves (wrote) all that wait to read come in, whoever stands
// before them, and so does who has just asked to (reader).
func (m *model) advance(wrote, reader bool) (granted []string, readersTurn bool) {
	reads := func(p place) bool { return p.mode == lease.Shared }
	free := len(m.holders) == 0
	readersTurn = wrote && (reader || slices.ContainsFunc(m.queue, reads)) || free && len(m.queue) > 0 && reads(m.queue[0])
	if readersTurn {
		for _, p := range m.queue {
			if reads(p) {
				m.holders = append(m.holders, p)
				granted = append(granted, p.owner)
			}
		}
		m.queue = slices.DeleteFunc(m.queue, reads)
		if reader {
			return granted, true
		}
	}
	for len(m.queue) > 0 && m.admits(m.queue[0].mode) {
		m.holders = append(m.holders, m.queue[0])
		granted = append(granted, m.queue[0].owner)
		m.queue = m.queue[1:]
	}
	return granted, readersTurn
}

// outcome is what a command should be answered, and who should be told what.
type outcome struct {
	status  lease.Status
	rank    int
	already bool
	granted []string // by message
	wanted  []string
	traced  []string // of the hold that is
	passing string   // told to those granted, of the hold that was
	// unsure: whether these are told of the want, or know from their grant.
	unsure bool
}

func (m *model) acquire(p place, queue, wrote bool) (o outcome) {
	var readersTurn bool
	o.already = at(m.holders, p.owner) >= 0
	o.granted, readersTurn = m.advance(wrote, wrote && p.mode == lease.Shared)
	if i := slices.Index(o.granted, p.owner); i >= 0 { // by the reply alone
		o.granted = slices.Delete(o.granted, i, i+1)
	}
	if i := at(m.holders, p.owner); i >= 0 {
		o.status = lease.Held
		if p.mode == lease.Exclusive && m.holders[i].mode == lease.Shared {
			o.status, o.rank = lease.Denied, -1
		}
		return o
	}
	o.rank = at(m.queue, p.owner)
	switch {
	case (len(m.queue) == 0 || readersTurn && p.mode == lease.Shared) && m.admits(p.mode):
		m.holders = append(m.holders, p)
		o.status, o.rank = lease.Held, 0
	case !queue:
		o.status, o.rank = lease.Denied, -1
	default:
		if o.rank < 0 {
			o.rank = len(m.queue)
			m.queue = append(m.queue, p)
		}
		o.status = lease.Waiting
		for _, h := range m.holders {
			o.wanted = append(o.wanted, h.owner)
		}
	}
	return o
}

func (m *model) release(owner string, next *place) (o outcome) {
	i := at(m.holders, owner)
	wrote := i >= 0 && m.holders[i].mode == lease.Exclusive
	m.holders = slices.DeleteFunc(m.holders, func(p place) bool { return p.owner == owner })
	m.queue = slices.DeleteFunc(m.queue, func(p place) bool { return p.owner == owner })
	if next == nil {
		granted, _ := m.advance(wrote, false)
		return outcome{status: lease.Done, granted: granted}
	}
	o = m.acquire(*next, true, wrote)
	o.unsure = len(o.granted) > 0
	return o
}

func (m *model) downgrade(owner string) outcome {
	i := at(m.holders, owner)
	if i < 0 {
		return outcome{status: lease.Lost}
	}
	wrote := m.holders[i].mode == lease.Exclusive
	m.holders[i].mode = lease.Shared
	granted, _ := m.advance(wrote, false)
	return outcome{status: lease.Held, granted: granted}
}

// annotate is told to those who wait in other stores than that of the id.
func (m *model) annotate(id, owner, trace string) outcome {
	i := at(m.holders, owner)
	if i < 0 {
		return outcome{status: lease.Lost}
	}
	m.holders[i].trace = trace
	o := outcome{status: lease.Done}
	for _, p := range m.queue {
		if of, _, _ := lease.ParseOwner(p.owner); of != id && trace != "" {
			o.traced = append(o.traced, p.owner+" "+trace)
		}
	}
	return o
}

// traceOf is the trace of a holder.
func (m *model) traceOf(owner string) string {
	if i := at(m.holders, owner); i >= 0 {
		return m.holders[i].trace
	}
	return ""
}

// run is one sequence of commands, checked one by one.
type run struct {
	*rapid.T

	s      *suite
	all    []*client
	k      subject
	model  model
	newest uint64
}

func testModel(s *suite, kind lease.Kind) {
	all := s.openAll("a", "b", "c")
	runs := 0
	rapid.Check(s, func(t *rapid.T) {
		if runs++; s.env.Slow && runs > slowRuns {
			return
		}
		k := s.subject(kind, "")
		r := &run{T: t, s: s, all: all, k: k, model: model{kind: kind}}
		actions := map[string]func(*rapid.T){
			"acquire": r.acquire, "release": r.release, "next": r.next, "renew": r.renew, "force": r.force,
			"annotate": r.annotate, "": r.compare,
		}
		if kind == lease.ReadWrite {
			actions["downgrade"] = r.downgrade
		}
		t.Repeat(actions)
	})
}

// pick draws a store and a ticket. Its mode goes with the ticket, as a ticket's does.
func (r *run) pick(t *rapid.T, name string) (c *client, ticket lease.Ticket, p place) {
	c = r.all[rapid.IntRange(0, modelStores-1).Draw(t, "store of "+name)]
	ticket, p = r.pickOf(t, c, name)
	return c, ticket, p
}

func (r *run) pickOf(t *rapid.T, c *client, name string) (lease.Ticket, place) {
	ticket := lease.Ticket(rapid.IntRange(1, modelTickets).Draw(t, name))
	mode := lease.Exclusive
	if r.k.kind == lease.ReadWrite && ticket > 1 {
		mode = lease.Shared
	}
	return ticket, place{owner: c.owner(ticket), mode: mode}
}

func (r *run) acquire(t *rapid.T) {
	c, ticket, p := r.pick(t, "ticket")
	request := r.k.acquire(ticket)
	request.Mode = p.mode
	request.Queue = rapid.Bool().Draw(t, "queue")
	request.Traced = rapid.Bool().Draw(t, "traced")
	r.check(c, request, r.model.acquire(p, request.Queue, false))
}

func (r *run) release(t *rapid.T) {
	c, ticket, p := r.pick(t, "ticket")
	request := r.k.release(ticket)
	r.leave(t, p.owner, &request)
	o := r.model.release(p.owner, nil)
	o.passing = request.Trace
	r.check(c, request, o)
}

// leave completes a release with what concerns traces. What was annotated is released so.
func (r *run) leave(t *rapid.T, owner string, request *lease.Request) {
	request.Annotated = r.model.traceOf(owner) != "" || rapid.Bool().Draw(t, "annotated")
	if rapid.Bool().Draw(t, "passing") {
		request.Trace = traceparent(rapid.IntRange(0, 3).Draw(t, "trace"))
	}
}

func (r *run) annotate(t *rapid.T) {
	c, ticket, p := r.pick(t, "ticket")
	trace := traceparent(rapid.IntRange(0, 3).Draw(t, "trace"))
	if rapid.IntRange(0, 4).Draw(t, "now and then") == 0 {
		trace = ""
	}
	r.check(c, r.k.annotate(ticket, trace), r.model.annotate(c.id, p.owner, trace))
}

func (r *run) next(t *rapid.T) {
	c, ticket, p := r.pick(t, "ticket")
	nextTicket, nextPlace := r.pickOf(t, c, "next")
	if nextTicket == ticket {
		t.Skip("a ticket is not followed by itself")
	}
	request := r.k.release(ticket, next(nextTicket))
	request.Next.Mode = nextPlace.mode
	request.Next.Traced = rapid.Bool().Draw(t, "traced")
	r.leave(t, p.owner, &request)
	o := r.model.release(p.owner, &nextPlace)
	o.passing = request.Trace
	r.check(c, request, o)
}

func (r *run) renew(t *rapid.T) {
	c, ticket, p := r.pick(t, "ticket")
	o := outcome{status: lease.Lost}
	if at(r.model.holders, p.owner) >= 0 {
		o.status = lease.Held
	}
	r.check(c, r.k.renew(ticket, numbered(rapid.IntRange(0, 3).Draw(t, "tokens"))), o)
}

func (r *run) downgrade(t *rapid.T) {
	c, ticket, p := r.pick(t, "ticket")
	r.check(c, r.k.downgrade(ticket), r.model.downgrade(p.owner))
}

func (r *run) force(t *rapid.T) {
	c, _, _ := r.pick(t, "ticket")
	if rapid.IntRange(0, 4).Draw(t, "now and then") > 0 {
		t.Skip("not so often")
	}
	r.model.holders = nil
	granted, _ := r.model.advance(false, false)
	require.NoError(r, c.store.Force(r.s.Context(), r.k.key))
	r.checkMessages(outcome{granted: granted})
}

// check sends a request and compares the answer and the messages.
func (r *run) check(c *client, request lease.Request, want outcome) {
	reply, err := c.try(request)
	require.NoError(r, err)
	require.Equal(r, want.status.String(), reply.Status.String(), "%v of %s:%d", request.Op, c.id, request.Ticket)
	switch reply.Status {
	case lease.Held:
		require.Equal(r, len(r.model.queue) > 0, reply.Contended)
		require.Equal(r, want.already, reply.Already, "already")
		if request.Op == lease.Renew || request.Op == lease.Downgrade {
			require.Equal(r, len(r.model.queue), reply.Waiters)
		}
		r.checkMessages(want) // grants within the same step have lower tokens
		if reply.First > 0 {
			require.Greater(r, reply.First, r.newest)
			r.newest = reply.Last
		}
		return
	case lease.Waiting, lease.Denied:
		if want.rank >= 0 {
			require.Equal(r, want.rank, reply.Rank)
		}
		require.GreaterOrEqual(r, at(r.model.holders, reply.Holder), 0, "%s holds", reply.Holder)
		trace := ""
		if request.Traced || request.Next != nil && request.Next.Traced {
			trace = r.model.traceOf(reply.Holder)
		}
		require.Equal(r, trace, reply.Trace, "the trace of %s", reply.Holder)
		if c.can.Receipts && reply.Status == lease.Waiting {
			require.Equal(r, len(r.model.holders), reply.Told)
		}
	default:
	}
	r.checkMessages(want)
}

// checkMessages compares what all stores were told with what they should be.
func (r *run) checkMessages(want outcome) {
	if !r.all[0].can.Notices {
		return
	}
	granted, wanted, traced := []string{}, []string{}, []string{}
	var last uint64
	for _, c := range r.all {
		passed := lease.Event{}
		for _, e := range c.messages(r.k) {
			switch e.Type {
			case lease.Traced:
				require.Empty(r, passed.Trace, "a trace without its grant")
				if e.Passing {
					passed = e
				} else {
					traced = append(traced, c.owner(e.Ticket)+" "+e.Trace)
				}
			case lease.Granted:
				granted = append(granted, c.owner(e.Ticket))
				require.Equal(r, want.passing, passed.Trace, "the trace before the grant")
				require.True(r, passed.Ticket == 0 || passed.Ticket == e.Ticket)
				passed = lease.Event{}
				require.Greater(r, e.First, r.newest)
				last = max(last, e.Last)
			case lease.Wanted:
				wanted = append(wanted, c.owner(e.Ticket))
			default:
				require.Fail(r, "an answer that nobody asked for", fmt.Sprint(e))
			}
		}
		require.Empty(r, passed.Trace, "a trace without its grant")
	}
	require.ElementsMatch(r, want.granted, granted, "granted")
	require.ElementsMatch(r, append([]string{}, want.traced...), traced, "traced")
	if want.unsure { // a grant may speak for the want
		wanted = append(wanted, want.granted...)
		for _, owner := range want.wanted {
			require.Contains(r, wanted, owner)
		}
	} else {
		require.ElementsMatch(r, want.wanted, wanted, "wanted")
	}
	r.newest = max(r.newest, last)
}

// compare is the state after every step.
func (r *run) compare(*rapid.T) {
	info, err := r.all[0].store.Inspect(r.s.Context(), r.k.key)
	require.NoError(r, err)
	show := func(places []place) string {
		var lines []string
		for _, p := range places {
			lines = append(lines, fmt.Sprintf("%s %v %s", p.owner, p.mode, p.trace))
		}
		return strings.Join(lines, "\n")
	}
	var holders, queue []place
	for _, h := range info.Holders {
		holders = append(holders, place{h.Owner, h.Mode, h.Trace})
	}
	for _, w := range info.Waiters {
		queue = append(queue, place{owner: w.Owner, mode: w.Mode})
	}
	want := slices.Clone(r.model.holders)
	byOwner := func(a, b place) int { return strings.Compare(a.owner, b.owner) }
	slices.SortFunc(want, byOwner)
	slices.SortFunc(holders, byOwner)
	require.Equal(r, show(want), show(holders), "holders")
	require.Equal(r, show(r.model.queue), show(queue), "queue")
}
