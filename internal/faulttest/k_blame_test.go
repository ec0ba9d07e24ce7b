package faulttest

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/otel/attribute"

	"github.com/go-leasehold/leasehold/coordinator"
	"github.com/go-leasehold/leasehold/internal/redistest"
	"github.com/go-leasehold/leasehold/lease"
	"github.com/go-leasehold/leasehold/telemetry"
)

// orderKey is a key whose name nobody is to find in a trace; its class is "order".
const orderKey = "order:4711-of-Ada"

// annotated waits until Redis knows the trace of a holder of the key, and returns it.
func annotated(t testing.TB, c *coordinator.Coordinator, key string) (traceparent string) {
	t.Helper()
	eventually(t, hangs, "the holder's trace", func() bool {
		for _, h := range inspect(t, c, key).Holders {
			if h.Trace != "" {
				traceparent = h.Trace
				return true
			}
		}
		return false
	})
	return traceparent
}

// untraced is a coordinator of the test's own, which looks on.
func untraced(t testing.TB, s *redistest.Server) *coordinator.Coordinator {
	t.Helper()
	return process(t, s.Addr(), coordinator.WithTelemetry(telemetry.Config{Roots: -1}))
}

// K2: whoever waits is told by its own trace for whom: the very hold in the other process.
func TestWaitLeadsToTheVeryHoldInAnotherProcess(t *testing.T) {
	t.Parallel()
	s := redistest.Start(t)
	onlooker := untraced(t, s)
	a, b := startTeller(t, s.Addr(), 30*time.Second), startTeller(t, s.Addr(), 30*time.Second)
	order := a.request(t, "mutex", "order", orderKey, 0)
	ordering, orderToken := a.holds(t, "order")
	require.Equal(t, ordering.traceparent(), annotated(t, onlooker, orderKey))
	invoice := b.request(t, "mutex", "invoice", orderKey, 0)
	b.waits(t, orderKey, 1)
	a.wanted(t, orderKey)
	a.unlock(t, "order")
	invoicing, invoiceToken := b.holds(t, "invoice")
	b.unlock(t, "invoice")
	there, here := a.told(t), b.told(t)

	held := the(t, there, telemetry.SpanHold, order)
	require.Equal(t, ordering, held.ID, "the hold's span is the one in its context")
	require.Equal(t, telemetry.ScopeName, held.Scope)
	shows(t, held.Attributes, map[attribute.Key]string{
		telemetry.AttrClass: "order", telemetry.AttrMode: "exclusive", telemetry.AttrOutcome: "released", telemetry.AttrPath: "redis",
	})
	require.Contains(t, held.eventNames(), telemetry.EventWanted)
	require.False(t, held.Failed)
	require.Empty(t, held.Links)

	wait := the(t, here, telemetry.SpanAcquire, invoice)
	require.Equal(t, []exportedLink{{ordering, string(telemetry.LinkHolder)}}, wait.Links)
	shows(t, wait.Attributes, map[attribute.Key]string{
		telemetry.AttrClass: "order", telemetry.AttrMode: "exclusive", telemetry.AttrOutcome: "acquired", telemetry.AttrPath: "handoff",
		telemetry.AttrAhead: "0", telemetry.AttrErrorType: "", telemetry.AttrKey: "", telemetry.AttrToken: "",
	})
	require.Equal(t, []string{telemetry.EventLeaseAsked, telemetry.EventDenied, telemetry.EventHandoff}, wait.eventNames())
	id, _, ok := lease.ParseOwner(wait.Events[1].Attributes[string(telemetry.AttrHolder)])
	require.True(t, ok)
	require.Equal(t, a.id, id, "by whom it was denied")
	require.False(t, wait.Failed)
	beside(t, held, wait)
	for _, event := range wait.Events {
		require.WithinRange(t, event.At, wait.Begin.Add(-blur), wait.End.Add(blur), event.Name)
	}
	mine := the(t, here, telemetry.SpanHold, invoice)
	require.Equal(t, invoicing, mine.ID)
	require.WithinDuration(t, wait.End, mine.Begin, blur, "the hold begins where the wait ends")
	require.Len(t, named(there, telemetry.SpanAcquire), 1, "its first call waited for Redis")
	hidesAll(t, [][]exported{there, here}, "4711", "Ada", orderToken, invoiceToken, "redis.call")
}

// K2: a wait in vain is an error, and leads to the hold that goes on.
func TestWaitInVainLeadsToTheHoldThatGoesOn(t *testing.T) {
	t.Parallel()
	s := redistest.Start(t)
	a, b := startTeller(t, s.Addr(), 30*time.Second), startTeller(t, s.Addr(), 30*time.Second)
	_, ordering := a.enter(t, "mutex", "order", orderKey)
	require.Equal(t, ordering.traceparent(), annotated(t, untraced(t, s), orderKey))
	invoice := b.request(t, "for-mutex", "invoice", orderKey, 300*time.Millisecond)
	verdict, holder := b.fails(t, "invoice")
	require.Equal(t, "busy", verdict)
	id, _, _ := lease.ParseOwner(holder)
	require.Equal(t, a.id, id)

	wait := the(t, b.told(t), telemetry.SpanAcquire, invoice)
	require.Equal(t, []exportedLink{{ordering, string(telemetry.LinkHolder)}}, wait.Links)
	shows(t, wait.Attributes, map[attribute.Key]string{
		telemetry.AttrOutcome: "timeout", telemetry.AttrErrorType: "timeout", telemetry.AttrHolder: holder, telemetry.AttrPath: "",
	})
	require.True(t, wait.Failed)
	require.Empty(t, named(b.told(t), telemetry.SpanHold))
	require.Empty(t, named(a.told(t), telemetry.SpanHold), "that one goes on")
	a.unlock(t, "order")
	require.Len(t, named(a.told(t), telemetry.SpanHold), 1)
}

// K2: behind two others a wait leads to both, and to nobody else.
func TestWaitInAChainLeadsToAllWhoWereBeforeIt(t *testing.T) {
	t.Parallel()
	s := redistest.Start(t)
	a, b, c := startTeller(t, s.Addr(), 30*time.Second), startTeller(t, s.Addr(), 30*time.Second), startTeller(t, s.Addr(), 30*time.Second)
	_, first := a.enter(t, "mutex", "first", orderKey)
	annotated(t, untraced(t, s), orderKey)
	second := b.request(t, "mutex", "second", orderKey, 0)
	b.waits(t, orderKey, 1)
	third := c.request(t, "mutex", "third", orderKey, 0)
	c.waits(t, orderKey, 1)
	a.wanted(t, orderKey)
	a.unlock(t, "first")
	seconds, _ := b.holds(t, "second")
	b.wanted(t, orderKey)
	b.unlock(t, "second")
	thirds, _ := c.holds(t, "third")
	c.unlock(t, "third")

	require.Equal(t, []spanID{first}, the(t, b.told(t), telemetry.SpanAcquire, second).leadsTo())
	wait := the(t, c.told(t), telemetry.SpanAcquire, third)
	require.Equal(t, []spanID{first, seconds}, wait.leadsTo())
	require.Equal(t, string(telemetry.LinkHolder), wait.Links[0].Relation)
	beside(t, the(t, b.told(t), telemetry.SpanHold, second), wait)
	require.Equal(t, thirds, the(t, c.told(t), telemetry.SpanHold, third).ID)
}

// K2: who waits for a process that is killed knows the hold all the same, though nobody will ever see it end.
func TestWaitBehindAKilledProcessLeadsToItsHold(t *testing.T) {
	t.Parallel()
	const ttl = 1500 * time.Millisecond
	s := redistest.Start(t)
	a, b := startTeller(t, s.Addr(), ttl), startTeller(t, s.Addr(), ttl)
	onlooker := untraced(t, s)
	_, ordering := a.enter(t, "mutex", "order", orderKey)
	annotated(t, onlooker, orderKey)
	require.Empty(t, named(a.told(t), telemetry.SpanHold))
	invoice := b.request(t, "mutex", "invoice", orderKey, 0)
	b.waits(t, orderKey, 1)
	a.Kill()
	b.holds(t, "invoice")
	require.Equal(t, []spanID{ordering}, the(t, b.told(t), telemetry.SpanAcquire, invoice).leadsTo())
	b.unlock(t, "invoice")
	b.CloseInput()
	require.NoError(t, b.Wait())
	eventually(t, hangs, "nothing is left", func() bool { return len(leftovers(t, s)) == 0 })
}

// K2: a process that stands still loses its lease. Its hold says so, and who came in leads to it.
func TestWaitBehindAStoppedProcessLeadsToTheHoldThatWasLost(t *testing.T) {
	t.Parallel()
	const ttl = 1500 * time.Millisecond
	s := redistest.Start(t)
	a, b := startTeller(t, s.Addr(), ttl), startTeller(t, s.Addr(), ttl)
	order, ordering := a.enter(t, "mutex", "order", orderKey)
	annotated(t, untraced(t, s), orderKey)
	invoice := b.request(t, "mutex", "invoice", orderKey, 0)
	b.waits(t, orderKey, 1)
	a.Stop()
	_, _ = b.holds(t, "invoice")
	a.Cont()
	require.Equal(t, "lost", a.ask(t, "lost order", "lost order"))

	wait := the(t, b.told(t), telemetry.SpanAcquire, invoice)
	require.Equal(t, []spanID{ordering}, wait.leadsTo())
	held := the(t, a.told(t), telemetry.SpanHold, order)
	require.Equal(t, ordering, held.ID)
	shows(t, held.Attributes, map[attribute.Key]string{
		telemetry.AttrOutcome: "lost", telemetry.AttrErrorType: "lost", telemetry.AttrCause: telemetry.CauseNotRenewed,
	})
	require.Contains(t, held.eventNames(), telemetry.EventLost)
	require.True(t, held.Failed)
	beside(t, held, wait)
	require.Equal(t, "lost", a.ask(t, "unlock order", "unlocked order"))
	require.Len(t, named(a.told(t), telemetry.SpanHold), 1, "it ends once")
	b.unlock(t, "invoice")
}

// K2: a writer leads to the readers that kept it out, and readers to the writer.
func TestWaitsOfReadersAndWritersLeadToEachOther(t *testing.T) {
	t.Parallel()
	s := redistest.Start(t)
	onlooker := untraced(t, s)
	a, b, c := startTeller(t, s.Addr(), 30*time.Second), startTeller(t, s.Addr(), 30*time.Second), startTeller(t, s.Addr(), 30*time.Second)
	_, one := a.enter(t, "read", "one", orderKey)
	_, other := b.enter(t, "read", "other", orderKey)
	eventually(t, hangs, "both readers' traces", func() bool {
		holders := inspect(t, onlooker, orderKey).Holders
		return len(holders) == 2 && holders[0].Trace != "" && holders[1].Trace != ""
	})
	change := c.request(t, "write", "change", orderKey, 0)
	c.waits(t, orderKey, 1)
	later := a.request(t, "read", "later", orderKey, 0)
	a.waits(t, orderKey, 1)
	a.unlock(t, "one")
	eventually(t, hangs, "its release", func() bool { return len(inspect(t, onlooker, orderKey).Holders) == 1 })
	b.unlock(t, "other")
	changing, _ := c.holds(t, "change")
	sooner := b.request(t, "read", "sooner", orderKey, 0)
	b.waits(t, orderKey, 1)
	c.unlock(t, "change")
	a.holds(t, "later")
	b.holds(t, "sooner")

	writes := the(t, c.told(t), telemetry.SpanAcquire, change)
	shows(t, writes.Attributes, map[attribute.Key]string{telemetry.AttrMode: "exclusive"})
	require.NotEmpty(t, writes.Links)
	require.Subset(t, []spanID{one, other}, writes.leadsTo())
	if writes.Attributes[string(telemetry.AttrPath)] == string(telemetry.PathHandoff) { // and it did not look in that very moment
		require.Contains(t, writes.leadsTo(), other, "who left last")
	}
	reads := the(t, b.told(t), telemetry.SpanAcquire, sooner)
	shows(t, reads.Attributes, map[attribute.Key]string{telemetry.AttrMode: "shared"})
	require.Equal(t, []spanID{changing}, reads.leadsTo())
	require.Contains(t, the(t, a.told(t), telemetry.SpanAcquire, later).leadsTo(), changing)
	a.unlock(t, "later")
	b.unlock(t, "sooner")
}

// K2: a hold that nobody traces is nobody's link, and least of all one that ended before the wait.
func TestWaitBehindAnUntracedHoldLeadsNowhere(t *testing.T) {
	t.Parallel()
	s := redistest.Start(t)
	onlooker := untraced(t, s)
	a, b := startTeller(t, s.Addr(), 30*time.Second), startTeller(t, s.Addr(), 30*time.Second)
	_, ordering := a.enter(t, "mutex", "order", orderKey)
	require.Equal(t, ordering.traceparent(), annotated(t, onlooker, orderKey))
	a.request(t, "mutex", "unsampled", orderKey, 0)
	a.waits(t, orderKey, 1)
	a.unlock(t, "order")
	a.holds(t, "unsampled")
	eventually(t, hangs, "it is taken back", func() bool { return inspect(t, onlooker, orderKey).Holders[0].Trace == "" })
	invoice := b.request(t, "mutex", "invoice", orderKey, 0)
	b.waits(t, orderKey, 1)
	a.unlock(t, "unsampled")
	b.holds(t, "invoice")
	b.unlock(t, "invoice")
	require.Empty(t, the(t, b.told(t), telemetry.SpanAcquire, invoice).Links)
	require.Empty(t, named(a.told(t), "unsampled"))
	require.Len(t, named(a.told(t), telemetry.SpanHold), 1)
}

// K2: a lease that is kept when nobody needs it any more keeps somebody waiting for a moment; the hold that was under it
// does not.
func TestWaitForAnIdleLeaseLeadsNowhere(t *testing.T) {
	t.Parallel()
	s := redistest.Start(t)
	spans := &spanList{}
	traces := coordinator.WithTelemetry(telemetry.Config{TracerProvider: spans.provider()})
	a, b := process(t, s.Addr(), traces, coordinator.WithRetention(time.Hour)), process(t, s.Addr(), traces)
	hold := take(t, a.Mutex("k"))
	annotated(t, b, "k")
	require.NoError(t, hold.Unlock())
	eventually(t, hangs, "it is taken back", func() bool { return inspect(t, b, "k").Holders[0].Trace == "" })
	require.NoError(t, take(t, b.Mutex("k")).Unlock())
	for _, c := range []*coordinator.Coordinator{a, b} {
		require.NoError(t, c.FlushTelemetry(t.Context()))
	}
	waits := named(spans.all(), telemetry.SpanAcquire)
	require.Len(t, waits, 2, "one for each process")
	for _, wait := range waits {
		require.Empty(t, wait.Links)
	}
}

// K3: what Redis is told of a hold goes with it, and leaves nothing behind.
func TestTraceOfAHoldIsInRedisAsLongAsTheHold(t *testing.T) {
	t.Parallel()
	const ttl = 1500 * time.Millisecond
	s := redistest.Start(t)
	onlooker := untraced(t, s)
	a := startTeller(t, s.Addr(), ttl)
	for _, how := range []string{"mutex", "read", "write"} {
		key := "order:" + how
		_, ordering := a.enter(t, how, how, key)
		require.Equal(t, ordering.traceparent(), annotated(t, onlooker, key))
		renewals := a.stats(t).Renewals
		eventually(t, hangs, "renewals", func() bool { return a.stats(t).Renewals >= renewals+4 })
		require.Equal(t, ordering.traceparent(), annotated(t, onlooker, key), "it lives as long as the lease")
		a.unlock(t, how)
		eventually(t, hangs, "it is gone", func() bool { return len(leftovers(t, s)) == 0 })
	}
	a.enter(t, "mutex", "order", orderKey)
	annotated(t, onlooker, orderKey)
	a.Kill()
	eventually(t, hangs, "it is gone", func() bool { return len(leftovers(t, s)) == 0 })
	eventually(t, hangs, "tokens too", func() bool { return len(s.Keys(t, "*")) == 0 })
}
