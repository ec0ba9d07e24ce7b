package redislease

import (
	"context"
	"math"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/redis/rueidis"
	"github.com/stretchr/testify/require"

	"github.com/go-leasehold/leasehold/internal/redistest"
	"github.com/go-leasehold/leasehold/lease"
)

// written is the message that says what an event says.
func written(id string, e *lease.Event) string {
	owner := " " + lease.Owner(id, e.Ticket) + " "
	switch e.Type {
	case lease.Granted:
		return verbGrant + owner + strconv.FormatUint(e.First, 10) + " " + strconv.FormatUint(e.Last, 10) + " " + flag(e.Contended) + " " + e.Key
	case lease.Wanted:
		if e.Asker == "" {
			return verbWant + owner + "- " + e.Key
		}
		return verbWant + owner + e.Asker + " " + e.Key
	case lease.Asked:
		return verbAsk + owner + e.Asker + " " + e.Key
	case lease.InUse:
		return verbBusy + owner + e.Key
	case lease.Changed:
		return verbChanged + owner + e.Key
	case lease.Traced:
		return verbTrace + owner + flag(e.Passing) + " " + e.Trace + " " + e.Key
	}
	return verbProbe
}

// FuzzMessages: a message is refused, or its event says all that the message says, and no more.
func FuzzMessages(f *testing.F) {
	for _, message := range []string{
		"grant a:7 10 19 1 k", "want a:7 b:9 k", "busy a:7 k", "changed a:7 k", "probe", "want a:7 - " + strings.Repeat("k", 300), "trace a:7 1 " + trace + " k",
		"ask a:7 b:9 \x00\xff", "grant a:18446744073709551615 18446744073709551615 18446744073709551615 0 ", "grant a:07 10 19 1 k", "grant a:7 010 19 1 k", "want a:7  k",
		"grant a:18446744073709551616 1 1 0 k", "grant b:7 10 19 1 k", "want a:7 nobody k", "ask a:7 - k",
	} {
		f.Add("a", message)
	}
	f.Add("host-1-x", "grant host-1-x:7 10 19 1 k")
	f.Add("", "grant :7 10 19 1 k")
	f.Fuzz(func(t *testing.T, id, message string) {
		event, err := parseMessage(id, message)
		if err != nil {
			require.Less(t, len(err.Error()), 4*64*4+len(id)+200, "what others write must not fill the log")
			return
		}
		if event.Type == 0 {
			require.Equal(t, verbProbe, message)
			require.Zero(t, event)
			return
		}
		require.NotZero(t, event.Ticket)
		require.LessOrEqual(t, event.First, event.Last)
		require.Equal(t, event.Type == lease.Granted, event.First > 0)
		require.Equal(t, event.Type == lease.Traced, lease.ValidTrace(event.Trace))
		require.Equal(t, message, written(id, &event))
		if event.Asker != "" {
			// The answer to it is one that a store sends.
			require.NoError(t, validate(&lease.Request{Op: lease.Busy, Key: event.Key, Asker: event.Asker}))
		}
	})
}

// FuzzPlaces: a place is read as the scripts read it, by the pattern that they have for it.
func FuzzPlaces(f *testing.F) {
	for _, place := range []string{
		"W30000/64:host-1-a:7", "r1/1:x", "M1/1:\n", "W/1:a", "é1/1:a", "W99999999999999999999/1:a", "W1/99999999999999999999:a", "W0/1:a", "W9223372036854775807/1:a", "W1/1:a:1:W2/2:b",
	} {
		f.Add(place, "1796035063767638")
	}
	for _, score := range []string{"1e300", "-1", "NaN", "inf", "", "x", "0x1p40", "1.7960350637676e+15"} {
		f.Add("W1/1:a", score)
	}
	server := redistest.Shared(f)
	client := server.Client(f)
	const match = `return {string.match(ARGV[1], '^(%a)(%d+)/(%d+):(.+)$')}`
	require.Contains(f, source("functions"), `string.match(places[at], '^(%a)(%d+)/(%d+):(.+)$')`)
	f.Fuzz(func(t *testing.T, member, score string) {
		waiter, ok := parsePlace(member, score)
		terms, err := client.Do(context.Background(), client.B().Eval().Script(match).Numkeys(0).Arg(member).Build()).AsStrSlice()
		require.NoError(t, err)
		if !ok {
			require.Zero(t, waiter)
			if len(terms) == 4 {
				ms, err := strconv.ParseInt(terms[1], 10, 64)
				require.True(t, err != nil || ms == 0, "%q is one to the scripts", member)
			}
			return
		}
		require.Len(t, terms, 4, "%q is none to the scripts", member)
		require.Equal(t, terms[3], waiter.Owner)
		require.Equal(t, strings.ToUpper(terms[0]) == "R", waiter.Mode == lease.Shared)
		ms, err := strconv.ParseInt(terms[1], 10, 64)
		require.NoError(t, err)
		require.Equal(t, min(ms, math.MaxInt64/int64(time.Millisecond)), waiter.TTL.Milliseconds())
		if !waiter.Since.IsZero() {
			us, err := strconv.ParseFloat(score, 64)
			require.NoError(t, err)
			require.Equal(t, int64(us), waiter.Since.UnixMicro())
		}
	})
}

// wire is a server, and all that is published there.
type wire struct {
	server *redistest.Server
	client rueidis.Client
	heard  chan rueidis.PubSubMessage
}

func newWire(f *testing.F) *wire {
	w := &wire{server: redistest.Start(f), heard: make(chan rueidis.PubSubMessage, 1000)}
	w.client = w.server.Client(f)
	ctx, cancel := context.WithCancel(context.Background())
	subscribed, ended := make(chan struct{}), make(chan struct{})
	listening := rueidis.WithOnSubscriptionHook(ctx, func(rueidis.PubSubSubscription) { close(subscribed) })
	go func() {
		defer close(ended)
		_ = w.client.Receive(listening, w.client.B().Psubscribe().Pattern("*").Build(), func(m rueidis.PubSubMessage) { w.heard <- m })
	}()
	f.Cleanup(func() { cancel(); <-ended })
	<-subscribed
	return w
}

// messages are those that were published since the last time.
func (w *wire) messages(t *testing.T) (all []rueidis.PubSubMessage) {
	const end = "end of messages"
	require.NoError(t, w.client.Do(t.Context(), w.client.B().Publish().Channel(end).Message(end).Build()).Error())
	for m := range w.heard {
		if m.Channel == end && m.Message == end {
			return all
		}
		all = append(all, m)
	}
	return nil
}

// run has a script do what a store is asked for, with no coordinator behind it.
func (w *wire) run(t *testing.T, s *Store, r lease.Request) lease.Reply {
	require.NoError(t, validate(&r))
	p := s.prepare(&r, s.namesOf(r.Key))
	reply, err := parseReply(r.Op, w.client.Do(t.Context(), s.commands(nil, &p, byText)[0]))
	require.NoError(t, err, "%+v", r)
	return reply
}

// event is what the one message says that came in the inbox of a store, which nobody else takes for his own.
func event(t *testing.T, s *Store, m rueidis.PubSubMessage) lease.Event {
	require.Equal(t, s.names.inbox()+s.id, m.Channel)
	e, err := parseMessage(s.id, m.Message)
	require.NoError(t, err, "%q", m.Message)
	_, err = parseMessage(s.id+"x", m.Message)
	require.Error(t, err)
	return e
}

// FuzzWritten: what the scripts write, messages and places of the queue, is read as what was meant, whatever the key, the
// prefix, the ids and the numbers are.
func FuzzWritten(f *testing.F) {
	for _, key := range []string{"k", "a{b}c", "{}a", "a}b{c", "~", "~queue{b}a", " ", "k 1 2", "\n", "\x00\xff", "grant a:1 1 1 0 k", strings.Repeat("}", 300)} {
		f.Add("lock:", key, "host-1-a", "host-2-b", uint64(7), uint64(9), int64(30_000_000_000), 64, false)
		f.Add("{app}:", key, "host-1-a", "host-2-b", uint64(7), uint64(9), int64(30_000_000_000), 64, true)
	}
	f.Add("%d", "%", "é", "%s", uint64(math.MaxUint64), uint64(1), int64(time.Millisecond), 0, true)
	f.Add("*?[x]", "k", "-", "a", uint64(1), uint64(1), int64(maxTTL), maxTokens, false)
	w := newWire(f)
	f.Fuzz(func(t *testing.T, prefix, key, idA, idB string, ticketA, ticketB uint64, ttl int64, tokens int, rw bool) {
		n, err := newNames(prefix)
		if err != nil || checkID(idA) != nil || checkID(idB) != nil || idA == idB || ticketA == 0 || ticketB == 0 {
			return
		}
		base := lease.Request{Key: key, Kind: lease.Mutex, Mode: lease.Exclusive, TTL: time.Duration(ttl), Tokens: tokens}
		waits := base
		if rw {
			base.Kind, waits.Kind, waits.Mode = lease.ReadWrite, lease.ReadWrite, lease.Shared
		}
		if validateTerms(lease.Acquire, base.Kind, base.Mode, base.TTL, tokens) != nil {
			return
		}
		with := func(r lease.Request, op lease.Op, ticket uint64) lease.Request {
			r.Op, r.Ticket = op, lease.Ticket(ticket)
			return r
		}
		at := func(id string) *Store {
			return &Store{
				// Without receipts, for nobody listens to the inboxes by their names.
				id: id, names: n, client: w.client, publish: "PUBLISH", keep: "3600000",
				tailFrom: strconv.Itoa(len(n.helperName("queue", "")) + 1),
			}
		}
		a, b := at(idA), at(idB)
		ownerA, ownerB := lease.Owner(idA, lease.Ticket(ticketA)), lease.Owner(idB, lease.Ticket(ticketB))
		// The holder could end in between where its lease is short.
		holds := base
		holds.TTL = max(base.TTL, time.Minute)
		w.server.Do(t, "FLUSHALL")

		reply := w.run(t, a, with(holds, lease.Acquire, ticketA))
		require.Equal(t, lease.Held, reply.Status)
		require.Equal(t, tokens > 0, reply.First > 0)
		ask := with(waits, lease.Acquire, ticketB)
		ask.Queue, ask.Ask = true, true
		reply = w.run(t, b, ask)
		require.Equal(t, lease.Waiting, reply.Status)
		require.Equal(t, ownerA, reply.Holder)
		messages := w.messages(t)
		require.Len(t, messages, 1)
		require.Equal(t, lease.Event{Type: lease.Wanted, Key: key, Ticket: lease.Ticket(ticketA), Asker: ownerB}, event(t, a, messages[0]))

		// What waits may be gone in no time; it is there for as long as nothing is asked but who waits.
		inspect := plan{script: inspectScript, names: a.namesOf(key), args: a.args(lease.Mutex, a.namesOf(key), 0)}
		info, err := parseInfo(w.client.Do(t.Context(), a.commands(nil, &inspect, byText)[0]))
		require.NoError(t, err)
		require.Len(t, info.Holders, 1)
		require.Equal(t, ownerA, info.Holders[0].Owner)
		require.Equal(t, base.Kind, info.Kind)
		if base.TTL >= time.Minute {
			require.Len(t, info.Waiters, 1)
			require.Equal(t, ownerB, info.Waiters[0].Owner)
			require.Equal(t, waits.Mode, info.Waiters[0].Mode)
			require.Equal(t, (base.TTL + time.Millisecond - 1).Milliseconds(), info.Waiters[0].TTL.Milliseconds())
		}

		annotate := with(base, lease.Annotate, ticketA)
		annotate.Trace = trace
		require.Equal(t, lease.Done, w.run(t, a, annotate).Status)
		if messages = w.messages(t); base.TTL >= time.Minute || len(messages) > 0 {
			require.Len(t, messages, 1)
			require.Equal(t, lease.Event{Type: lease.Traced, Key: key, Ticket: lease.Ticket(ticketB), Trace: trace}, event(t, b, messages[0]))
		}

		release := with(base, lease.Release, ticketA)
		release.Annotated, release.Trace = true, trace
		require.Equal(t, lease.Done, w.run(t, a, release).Status)
		if messages = w.messages(t); base.TTL >= time.Minute || len(messages) > 0 {
			require.Len(t, messages, 2)
			require.Equal(t, lease.Event{Type: lease.Traced, Key: key, Ticket: lease.Ticket(ticketB), Trace: trace, Passing: true}, event(t, b, messages[0]))
			granted := event(t, b, messages[1])
			require.EqualValues(t, max(1, tokens)-1, granted.Last-granted.First)
			granted.First, granted.Last = 0, 0
			require.Equal(t, lease.Event{Type: lease.Granted, Key: key, Ticket: lease.Ticket(ticketB)}, granted)
		}

		// What a store publishes itself.
		for request, want := range map[lease.Request]lease.Event{
			{Op: lease.Busy, Key: key, Asker: ownerB}:             {Type: lease.InUse, Key: key, Ticket: lease.Ticket(ticketB)},
			{Op: lease.Busy, Key: key, Asker: ownerB, Idle: true}: {Type: lease.Changed, Key: key, Ticket: lease.Ticket(ticketB)},
			{Op: lease.Ask, Key: key, Holder: ownerB, Ticket: lease.Ticket(ticketA)}: {
				Type: lease.Asked, Key: key, Ticket: lease.Ticket(ticketB), Asker: ownerA,
			},
		} {
			require.NoError(t, validate(&request))
			p := a.prepare(&request, a.namesOf(key))
			require.NoError(t, w.client.Do(t.Context(), a.commands(nil, &p, byName)[0]).Error())
			messages = w.messages(t)
			require.Len(t, messages, 1)
			require.Equal(t, want, event(t, b, messages[0]))
		}
	})
}
