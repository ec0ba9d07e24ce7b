package leasetest

import (
	"fmt"
	"strings"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/go-leasehold/leasehold/lease"
)

var traceCases = []testCase{
	{"AnnotateTellsThoseWhoWait", testAnnotateTells},
	{"AnnotateTellsTheFrontOfTheQueue", testAnnotateFront},
	{"AnnotateOfWhatIsNotMineIsLost", testAnnotateLost},
	{"TraceIsAnsweredIfAskedFor", testTraceAnswered},
	{"TraceIsEachReadersOwn", testTraceOfReaders},
	{"TraceIsReplacedByTheNext", testTraceReplaced},
	{"TraceIsTakenBack", testTraceTakenBack},
	{"TraceGoesWithItsLease", testTraceGoes},
	{"TraceGoesWithAForce", testTraceForced},
	{"TraceGoesWithTheTime", testTraceExpires},
	{"TraceLivesAsLongAsItsLease", testTraceRenewed},
	{"TraceIsNoOneElses", testTraceOfNoOneElse},
	{"BadTraceIsRefused", testBadTrace},
}

var passingCases = []testCase{
	{"ReleaseTellsTheNextOfTheLastHold", testPassing},
	{"ReleaseWithNextTellsTheNextOfTheLastHold", testPassingNext},
	{"ReleaseTellsAllReadersOfTheLastHold", testPassingReaders},
	{"ReleaseTellsNobodyWhereNothingIsGranted", testPassingNobody},
	{"AnnotateMayBeSentAtAnyTime", testAnnotateAnyTime},
}

var alreadyCases = []testCase{
	{"AlreadyAfterAGrantByMessage", testAlreadyGranted},
	{"AlreadyForEachMode", testAlready},
	{"AlreadyOfNext", testAlreadyNext},
}

// traceparent makes traces that differ.
func traceparent(n int) string { return fmt.Sprintf("00-%032x-%016x-01", n+0xabc, n+1) }

func (k subject) annotate(t lease.Ticket, trace string) lease.Request {
	return lease.Request{Op: lease.Annotate, Key: k.key, Kind: k.kind, Ticket: t, Trace: trace}
}

func traced(r *lease.Request)     { r.Traced = true }
func annotated(r *lease.Request)  { r.Annotated = true }
func nextTraced(r *lease.Request) { r.Next.Traced = true }

func passing(trace string) func(*lease.Request) {
	return func(r *lease.Request) { r.Trace = trace }
}

// toldTrace waits for a trace that is told.
func (c *client) toldTrace(k subject, t lease.Ticket) lease.Event {
	c.s.Helper()
	return c.event("traced", func(e lease.Event) bool {
		return e.Type == lease.Traced && e.Key == k.key && e.Ticket == t
	})
}

// requireTraces compares the traces of the holders with what the store tells: an
// owner and its trace by turns.
func (s *suite) requireTraces(c *client, k subject, want ...string) {
	s.Helper()
	found, expected := map[string]string{}, map[string]string{}
	for _, h := range s.inspect(c, k).Holders {
		found[h.Owner] = h.Trace
	}
	for i := 0; i < len(want); i += 2 {
		expected[want[i]] = want[i+1]
	}
	require.Equal(s, expected, found, "traces")
}

func testAnnotateTells(s *suite) {
	all := s.openAll("a", "b", "c")
	a, b, c := all[0], all[1], all[2]
	s.skipUnless(a.can.Notices, "notices")
	for i, k := range []subject{s.mutex(), s.readWrite()} {
		trace := traceparent(i)
		a.get(lease.Held, k.acquire(1))
		b.get(lease.Waiting, k.acquire(5))
		a.get(lease.Waiting, k.acquire(2))
		c.get(lease.Waiting, k.acquire(6))
		require.Len(s, a.messages(k), 3, "wants")
		a.get(lease.Done, k.annotate(1, trace))
		require.Equal(s, []lease.Event{{Type: lease.Traced, Key: k.key, Ticket: 5, Trace: trace}}, b.messages(k))
		require.Equal(s, []lease.Event{{Type: lease.Traced, Key: k.key, Ticket: 6, Trace: trace}}, c.messages(k))
		a.requireNoMessage(k)
		s.requireTraces(b, k, a.owner(1), trace)
		s.requireWaiters(b, k, b.owner(5), a.owner(2), c.owner(6))
	}
}

// testAnnotateFront: how many a store tells is its own affair, but not whom first.
func testAnnotateFront(s *suite) {
	all, k := s.openAll("a", "b"), s.mutex()
	a, b := all[0], all[1]
	s.skipUnless(a.can.Notices, "notices")
	a.get(lease.Held, k.acquire(1))
	const waiters = 20
	for t := range lease.Ticket(waiters) {
		b.get(lease.Waiting, k.acquire(t+1))
	}
	a.get(lease.Done, k.annotate(1, traceparent(1)))
	told := b.messages(k)
	require.NotEmpty(s, told)
	for i, e := range told {
		require.Equal(s, lease.Event{Type: lease.Traced, Key: k.key, Ticket: lease.Ticket(i + 1), Trace: traceparent(1)}, e)
	}
}

func testAnnotateLost(s *suite) {
	all := s.openAll("a", "b")
	a, b := all[0], all[1]
	for name, of := range renewable(s) {
		k := of.k
		a.get(lease.Lost, k.annotate(1, traceparent(1))) // free
		a.get(lease.Held, k.acquire(1, of.changes...))
		a.get(lease.Lost, k.annotate(2, traceparent(2))) // another ticket, of the same
		b.get(lease.Lost, k.annotate(1, traceparent(3))) // the same ticket, of another
		other := k
		other.kind = lease.Mutex + lease.ReadWrite - k.kind
		a.get(lease.Lost, other.annotate(1, traceparent(4)))
		b.get(lease.Waiting, k.acquire(5))
		b.get(lease.Lost, k.annotate(5, traceparent(5)))
		for _, e := range append(a.messages(k), b.messages(k)...) {
			require.Equal(s, lease.Wanted, e.Type, name)
		}
		s.requireTraces(a, k, a.owner(1), "")
		require.Empty(s, b.get(lease.Waiting, k.acquire(5, traced)).Trace, name)
		a.get(lease.Done, k.release(1))
		a.get(lease.Lost, k.annotate(1, traceparent(6)))
		s.requireTraces(a, k, b.owner(5), "")
		b.get(lease.Done, k.release(5))
		s.requireHolders(a, k)
	}
}

func testTraceAnswered(s *suite) {
	all := s.openAll("a", "b", "c")
	a, b, c := all[0], all[1], all[2]
	for name, of := range renewable(s) {
		k, trace := of.k, traceparent(7)
		a.get(lease.Held, k.acquire(1, of.changes...))
		require.Empty(s, b.get(lease.Waiting, k.acquire(1, traced)).Trace, name)
		a.get(lease.Done, k.annotate(1, trace))
		require.Equal(s, trace, b.get(lease.Waiting, k.acquire(1, traced)).Trace, name)
		require.Empty(s, b.get(lease.Waiting, k.acquire(1)).Trace, name)
		require.Equal(s, trace, c.get(lease.Denied, k.acquire(9, atOnce, traced)).Trace, name)
		require.Empty(s, c.get(lease.Denied, k.acquire(9, atOnce)).Trace, name)
		waiting := c.get(lease.Waiting, k.release(9, next(10), nextTraced))
		require.Equal(s, trace, waiting.Trace, name)
		require.Equal(s, a.owner(1), waiting.Holder, name)
		require.Empty(s, c.get(lease.Waiting, k.release(10, next(11))).Trace, name)
		held := a.get(lease.Held, k.acquire(1, append(of.changes, traced)...))
		require.Empty(s, held.Trace, "%s: of what is mine", name)

		waiting = a.get(lease.Waiting, k.release(1, next(2), nextTraced, annotated))
		require.Equal(s, b.owner(1), waiting.Holder, name)
		require.Empty(s, waiting.Trace, "%s: it has just come", name)
	}
}

func testTraceOfReaders(s *suite) {
	all, k := s.openAll("a", "b", "c", "w"), s.readWrite()
	a, b, c, w := all[0], all[1], all[2], all[3]
	for _, r := range all[:3] {
		r.get(lease.Held, k.acquire(1, shared))
	}
	w.get(lease.Waiting, k.acquire(1))
	traces := map[string]string{a.owner(1): traceparent(1), b.owner(1): traceparent(2), c.owner(1): ""}
	for _, r := range all[:2] {
		trace := traces[r.owner(1)]
		r.get(lease.Done, k.annotate(1, trace))
		if w.can.Notices {
			require.Equal(s, trace, w.toldTrace(k, 1).Trace)
		}
	}
	s.requireTraces(w, k, a.owner(1), traces[a.owner(1)], b.owner(1), traces[b.owner(1)], c.owner(1), "")
	waiting := w.get(lease.Waiting, k.acquire(1, traced))
	require.Contains(s, traces, waiting.Holder)
	require.Equal(s, traces[waiting.Holder], waiting.Trace)

	a.get(lease.Done, k.release(1, annotated))
	s.requireTraces(w, k, b.owner(1), traces[b.owner(1)], c.owner(1), "")
	b.get(lease.Held, k.renew(1, annotated))
	s.requireTraces(w, k, b.owner(1), traces[b.owner(1)], c.owner(1), "")
	b.get(lease.Done, k.release(1, annotated))
	s.requireTraces(w, k, c.owner(1), "")
	require.Empty(s, w.get(lease.Waiting, k.acquire(1, traced)).Trace)
	c.get(lease.Done, k.release(1))
	s.requireTraces(w, k, w.owner(1), "")
}

func testTraceReplaced(s *suite) {
	all := s.openAll("a", "b")
	a, b := all[0], all[1]
	for name, of := range renewable(s) {
		k := of.k
		a.get(lease.Held, k.acquire(1, of.changes...))
		b.get(lease.Waiting, k.acquire(1))
		for i := range 3 {
			a.get(lease.Done, k.annotate(1, traceparent(i)))
			if b.can.Notices {
				require.Equal(s, traceparent(i), b.toldTrace(k, 1).Trace, name)
			}
			s.requireTraces(b, k, a.owner(1), traceparent(i))
			require.Equal(s, traceparent(i), b.get(lease.Waiting, k.acquire(1, traced)).Trace, name)
		}
	}
}

func testTraceTakenBack(s *suite) {
	all := s.openAll("a", "b", "c")
	a, b, c := all[0], all[1], all[2]
	for name, of := range renewable(s) {
		k := of.k
		a.get(lease.Lost, k.annotate(1, ""))
		a.get(lease.Held, k.acquire(1, of.changes...))
		a.get(lease.Done, k.annotate(1, "")) // there is none
		a.get(lease.Done, k.annotate(1, traceparent(1)))
		b.get(lease.Waiting, k.acquire(1))
		a.get(lease.Done, k.annotate(1, ""))
		b.requireNoMessage(k)
		s.requireTraces(c, k, a.owner(1), "")
		require.Empty(s, b.get(lease.Waiting, k.acquire(1, traced)).Trace, name)
		a.get(lease.Held, k.renew(1, annotated))
		a.get(lease.Done, k.annotate(1, traceparent(2)))
		require.Equal(s, traceparent(2), b.get(lease.Waiting, k.acquire(1, traced)).Trace, name)
	}
	k := s.readWrite()
	a.get(lease.Held, k.acquire(1, shared))
	b.get(lease.Held, k.acquire(1, shared))
	a.get(lease.Done, k.annotate(1, traceparent(1)))
	b.get(lease.Done, k.annotate(1, traceparent(2)))
	a.get(lease.Done, k.annotate(1, ""))
	s.requireTraces(c, k, a.owner(1), "", b.owner(1), traceparent(2))
}

func testTraceGoes(s *suite) {
	all := s.openAll("a", "b", "c")
	a, b, c := all[0], all[1], all[2]
	for name, of := range renewable(s) {
		k := of.k
		a.get(lease.Held, k.acquire(1, of.changes...))
		a.get(lease.Done, k.annotate(1, traceparent(1)))
		b.get(lease.Waiting, k.acquire(1))
		a.get(lease.Done, k.release(1, annotated))
		s.requireTraces(c, k, b.owner(1), "")
		require.Empty(s, c.get(lease.Denied, k.acquire(1, atOnce, traced)).Trace, name)
		b.get(lease.Done, k.release(1, annotated)) // though nothing was
		a.get(lease.Held, k.acquire(1, of.changes...))
		s.requireTraces(c, k, a.owner(1), "")
		require.Empty(s, c.get(lease.Denied, k.acquire(1, atOnce, traced)).Trace, name)
	}
}

func testTraceForced(s *suite) {
	all := s.openAll("a", "b", "c")
	a, b, c := all[0], all[1], all[2]
	for name, of := range renewable(s) {
		k := of.k
		a.get(lease.Held, k.acquire(1, of.changes...))
		a.get(lease.Done, k.annotate(1, traceparent(1)))
		b.get(lease.Waiting, k.acquire(1))
		require.NoError(s, c.store.Force(s.Context(), k.key))
		s.requireTraces(c, k, b.owner(1), "")
		require.Empty(s, c.get(lease.Denied, k.acquire(1, atOnce, traced)).Trace, name)
		a.get(lease.Lost, k.annotate(1, traceparent(2)))
		b.get(lease.Done, k.release(1))
		a.get(lease.Held, k.acquire(1, of.changes...))
		s.requireTraces(c, k, a.owner(1), "")
	}
}

func testTraceExpires(s *suite) {
	all := s.openAll("a", "b")
	a, b := all[0], all[1]
	for name, of := range renewable(s) {
		s.withShortLease(func(ttl time.Duration) bool {
			k := s.subject(of.k.kind, "")
			a.get(lease.Held, k.acquire(1, append(of.changes, lasting(ttl))...))
			if a.do(k.annotate(1, traceparent(1))).Status != lease.Done {
				return false
			}
			s.eventually(func() bool { return len(s.inspect(a, k).Holders) == 0 }, "the lease has ended")
			a.get(lease.Lost, k.annotate(1, traceparent(2)))
			b.get(lease.Held, k.acquire(1))
			s.requireTraces(a, k, b.owner(1), "")
			require.Empty(s, a.get(lease.Waiting, k.acquire(2, traced)).Trace, name)
			return true
		})
	}
}

// testTraceRenewed: the trace outlives the term that the lease had when it came.
func testTraceRenewed(s *suite) {
	all := s.openAll("a", "b")
	a, b := all[0], all[1]
	renewals := map[string]func(k subject) lease.Request{
		"renew":             func(k subject) lease.Request { return k.renew(1, annotated) },
		"renew with tokens": func(k subject) lease.Request { return k.renew(1, annotated, numbered(3)) },
		"downgrade":         func(k subject) lease.Request { return k.downgrade(1, annotated) },
	}
	s.withShortLease(func(ttl time.Duration) bool {
		keys := map[string]subject{}
		for name, of := range renewable(s) {
			for verb, renewal := range renewals {
				if verb == "downgrade" && of.k.kind == lease.Mutex {
					continue
				}
				k := s.subject(of.k.kind, "")
				keys[name+", "+verb] = k
				a.get(lease.Held, k.acquire(1, append(of.changes, lasting(ttl))...))
				if a.do(k.annotate(1, traceparent(1))).Status != lease.Done || a.do(renewal(k)).Status != lease.Held {
					return false
				}
			}
		}
		s.env.Sleep(2 * ttl) // a server may let a reader's go on a little
		for name, k := range keys {
			s.requireTraces(b, k, a.owner(1), traceparent(1))
			require.Equal(s, traceparent(1), b.get(lease.Denied, k.acquire(1, atOnce, traced)).Trace, name)
		}
		return true
	})
}

// testTraceOfNoOneElse: of another key, or of another ticket, whatever they are called.
func testTraceOfNoOneElse(s *suite) {
	a := s.open("a")
	for _, suffix := range []string{"", " ", "{x}y", "}a{", "~holder"} {
		k, other := s.subject(lease.Mutex, suffix), s.subject(lease.Mutex, suffix)
		a.get(lease.Held, k.acquire(1))
		a.get(lease.Held, other.acquire(1))
		a.get(lease.Waiting, k.acquire(2))
		a.get(lease.Done, k.annotate(1, traceparent(1)))
		s.requireTraces(a, k, a.owner(1), traceparent(1))
		s.requireTraces(a, other, a.owner(1), "")
		a.get(lease.Done, k.release(1, annotated))
		s.requireTraces(a, k, a.owner(2), "")
	}
}

func testBadTrace(s *suite) {
	all, k := s.openAll("a", "b"), s.mutex()
	a, b := all[0], all[1]
	a.get(lease.Held, k.acquire(1))
	b.get(lease.Waiting, k.acquire(1))
	good := traceparent(1)
	for _, bad := range []string{
		"x", good[:54], good + "1", " " + good[:54], strings.ToUpper(good), "01" + good[2:], "ff" + good[2:],
		"00-" + strings.Repeat("0", 32) + good[35:], good[:36] + strings.Repeat("0", 16) + good[52:],
		strings.Replace(good, "-", "_", 1), good[:54] + "g", good[:53] + "\n1", strings.Repeat("a", 55), strings.Repeat("x", 1<<16),
	} {
		_, err := a.try(k.annotate(1, bad))
		require.Error(s, err, bad)
		_, err = a.try(k.release(1, passing(bad)))
		require.Error(s, err, bad)
	}
	b.requireNoMessage(k)
	s.requireTraces(a, k, a.owner(1), "")
	a.get(lease.Done, k.annotate(1, good[:53]+"00")) // not sampled: still a trace
}
