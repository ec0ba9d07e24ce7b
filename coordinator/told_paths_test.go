package coordinator

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/trace"

	"github.com/go-leasehold/leasehold/lease"
	"github.com/go-leasehold/leasehold/telemetry"
)

// What is told of a call by each of the ways to a hold: parent, attributes, events,
// times, and the counts.

type wanted = map[attribute.Key]any

func TestFirstCallIsToldAsGrantedByTheStore(t *testing.T) {
	heard(t, telemetry.Config{}, func(t *testing.T, s *script, c *Coordinator, r *listener) {
		ctx, span := r.request(t.Context(), "request")
		came := time.Now()
		call := lockWith(t, ctx, c.Mutex("k"))
		q := s.next(lease.Acquire)
		require.True(t, q.Traced, "it wants to know whom it waits for")
		time.Sleep(7 * time.Millisecond)
		q.held(1, 100)
		h := call.holds()
		granted := time.Now()
		time.Sleep(20 * time.Millisecond)
		unlock(t, h)
		ended := time.Now()

		wait := r.under(c, span.SpanContext(), telemetry.SpanAcquire)
		r.has(wait, wanted{telemetry.AttrPath: "redis", telemetry.AttrOutcome: "acquired", telemetry.AttrAhead: int64(0)})
		require.Equal(t, []string{telemetry.EventLeaseAsked}, happened(wait))
		require.Empty(t, wait.Links)
		require.True(t, came.Equal(wait.StartTime) && granted.Equal(wait.EndTime), "%v to %v", wait.StartTime, wait.EndTime)

		hold := r.under(c, span.SpanContext(), telemetry.SpanHold)
		r.has(hold, wanted{telemetry.AttrPath: "redis", telemetry.AttrOutcome: "released"})
		require.Empty(t, hold.Events)
		require.Empty(t, hold.Links)
		require.True(t, granted.Equal(hold.StartTime) && ended.Equal(hold.EndTime), "%v to %v", hold.StartTime, hold.EndTime)

		require.Len(t, r.all(c), 2)
		require.Equal(t, map[string]int64{"redis": 1}, r.some(telemetry.MetricGrants))
		require.Equal(t, map[string]int64{"exclusive acquired": 1}, r.some(telemetry.MetricWait))
		require.Equal(t, map[string]int64{"exclusive released": 1}, r.some(telemetry.MetricHold))
	})
}

// retains brings the lease of the tests' key here, idle, with nothing told of it.
func retains(t *testing.T, s *script, c *Coordinator, r *listener) {
	t.Helper()
	unlock(t, lockOf(t, c.Mutex("k")).holdsAfter(s))
	r.reset(c)
}

func TestCallThatEntersAtOnceHasNoSpanOfItsWait(t *testing.T) {
	heard(t, telemetry.Config{Roots: -1}, func(t *testing.T, s *script, c *Coordinator, r *listener) {
		retains(t, s, c, r)
		ctx, span := r.request(t.Context(), "request")
		unlock(t, lockWith(t, ctx, c.Mutex("k")).holds())
		hold := r.under(c, span.SpanContext(), telemetry.SpanHold)
		r.has(hold, wanted{telemetry.AttrPath: "retained", telemetry.AttrOutcome: "released"})
		require.Len(t, r.all(c), 1)
		require.Equal(t, map[string]int64{"redis": 1, "retained": 1}, r.some(telemetry.MetricGrants))
		require.Equal(t, map[string]int64{"exclusive acquired": 1}, r.some(telemetry.MetricWait), "the second did not wait")
		require.Equal(t, map[string]int64{"exclusive released": 2}, r.some(telemetry.MetricHold))
	})
}

// TestCallThatEntersAtOnceIsToldWhereThatIsAsked: by the Config, or by the context.
func TestCallThatEntersAtOnceIsToldWhereThatIsAsked(t *testing.T) {
	for name, conf := range map[string]telemetry.Config{"Traced": {Roots: -1}, "AllAcquires": {Roots: -1, AllAcquires: true}} {
		t.Run(name, func(t *testing.T) {
			heard(t, conf, func(t *testing.T, s *script, c *Coordinator, r *listener) {
				retains(t, s, c, r)
				ctx, span := r.request(t.Context(), "request")
				if !conf.AllAcquires {
					ctx = telemetry.Traced(ctx)
				}
				unlock(t, lockWith(t, ctx, c.Mutex("k")).holds())
				wait := r.under(c, span.SpanContext(), telemetry.SpanAcquire)
				r.has(wait, wanted{telemetry.AttrPath: "retained", telemetry.AttrOutcome: "acquired", telemetry.AttrAhead: int64(0)})
				require.Equal(t, wait.StartTime, wait.EndTime)
				require.Empty(t, wait.Events)
				r.under(c, span.SpanContext(), telemetry.SpanHold)
			})
		})
	}
}

// TestRootCallsThatAreTracedHaveTheirHoldBelowThem: where the caller has no span,
// and no root is allowed but by Traced.
func TestRootCallsThatAreTracedHaveTheirHoldBelowThem(t *testing.T) {
	heard(t, telemetry.Config{Roots: -1}, func(t *testing.T, s *script, c *Coordinator, r *listener) {
		retains(t, s, c, r)
		unlock(t, lockWith(t, t.Context(), c.Mutex("k")).holds())
		require.Empty(t, r.all(c))
		unlock(t, lockWith(t, telemetry.Traced(t.Context()), c.Mutex("k")).holds())
		wait := r.only(c, telemetry.SpanAcquire)
		require.False(t, wait.Parent.IsValid(), "it has a parent")
		r.under(c, wait.SpanContext, telemetry.SpanHold)
		require.Len(t, r.all(c), 2)
	})
}

func TestRootHoldThatDidNotWaitIsARoot(t *testing.T) {
	heard(t, telemetry.Config{}, func(t *testing.T, s *script, c *Coordinator, r *listener) {
		retains(t, s, c, r)
		unlock(t, lockWith(t, t.Context(), c.Mutex("k")).holds())
		hold := r.only(c, telemetry.SpanHold)
		require.False(t, hold.Parent.IsValid())
		require.Len(t, r.all(c), 1)
	})
}

func TestHandOverWithinTheProcess(t *testing.T) {
	heard(t, telemetry.Config{Roots: -1}, func(t *testing.T, s *script, c *Coordinator, r *listener) {
		ctx, span := r.request(t.Context(), "first")
		first := lockWith(t, ctx, c.Mutex("k")).holdsAfter(s)
		time.Sleep(time.Millisecond)
		ctx2, span2 := r.request(t.Context(), "second")
		second := lockWith(t, ctx2, c.Mutex("k"))
		ctx3, span3 := r.request(t.Context(), "third")
		third := lockWith(t, ctx3, c.Mutex("k"))
		time.Sleep(time.Millisecond)
		unlock(t, first)
		time.Sleep(time.Millisecond)
		unlock(t, second.holds())
		unlock(t, third.holds())

		held := r.under(c, span.SpanContext(), telemetry.SpanHold).SpanContext
		held2 := r.under(c, span2.SpanContext(), telemetry.SpanHold)
		r.has(held2, wanted{telemetry.AttrPath: "local", telemetry.AttrOutcome: "released"})
		wait2 := r.under(c, span2.SpanContext(), telemetry.SpanAcquire)
		r.has(wait2, wanted{telemetry.AttrPath: "local", telemetry.AttrOutcome: "acquired", telemetry.AttrAhead: int64(0)})
		require.Equal(t, []string{lead(telemetry.LinkHolder, held)}, leads(wait2), "the hold in its way and the one before it are one")
		require.Equal(t, []string{telemetry.EventQueued}, happened(wait2))
		require.Equal(t, map[attribute.Key]any{telemetry.AttrAhead: int64(0)}, attrs(wait2.Events[0].Attributes))

		wait3 := r.under(c, span3.SpanContext(), telemetry.SpanAcquire)
		r.has(wait3, wanted{telemetry.AttrPath: "local", telemetry.AttrOutcome: "acquired", telemetry.AttrAhead: int64(1)})
		require.Equal(t, []string{lead(telemetry.LinkHolder, held), lead(telemetry.LinkPredecessor, held2.SpanContext)}, leads(wait3))
		require.Equal(t, map[string]int64{"redis": 1, "local": 2}, r.some(telemetry.MetricGrants))
		require.Equal(t, map[string]int64{"local": 2}, r.some(telemetry.MetricHandoffs))
	})
}

// annotatedBy makes sure that the trace of a span is what was said of the lease.
func annotatedBy(t *testing.T, q *sent, hold trace.SpanContext) {
	t.Helper()
	require.Equal(t, telemetry.FormatTrace(hold), q.Trace)
	require.True(t, lease.ValidTrace(q.Trace))
}

// elsewhere is a span of another process's hold.
func elsewhere(n byte) trace.SpanContext {
	return trace.NewSpanContext(trace.SpanContextConfig{
		TraceID: trace.TraceID{n}, SpanID: trace.SpanID{0xe, n}, TraceFlags: trace.FlagsSampled,
	})
}

func TestHandoffFromAnotherProcess(t *testing.T) {
	heard(t, telemetry.Config{Roots: -1}, func(t *testing.T, s *script, c *Coordinator, r *listener) {
		ctx, span := r.request(t.Context(), "request")
		call := lockWith(t, ctx, c.Mutex("k"))
		q := s.next(lease.Acquire)
		answer := q.waiting()
		answer.Trace = telemetry.FormatTrace(elsewhere(1))
		q.reply(answer)
		time.Sleep(3 * time.Millisecond)
		s.tell(lease.Event{Type: lease.Traced, Key: "k", Ticket: q.Ticket, Trace: telemetry.FormatTrace(elsewhere(2)), Passing: true})
		s.grant(q.Ticket, 1, 100)
		unlock(t, call.holds())

		wait := r.under(c, span.SpanContext(), telemetry.SpanAcquire)
		r.has(wait, wanted{telemetry.AttrPath: "handoff", telemetry.AttrOutcome: "acquired", telemetry.AttrAhead: int64(0)})
		require.Equal(t, []string{telemetry.EventLeaseAsked, telemetry.EventDenied, telemetry.EventHandoff}, happened(wait))
		require.Equal(t, map[attribute.Key]any{telemetry.AttrHolder: "other:1"}, attrs(wait.Events[1].Attributes))
		require.Equal(t, []string{
			lead(telemetry.LinkHolder, elsewhere(1)), lead(telemetry.LinkPredecessor, elsewhere(2)),
		}, leads(wait))
		for _, l := range wait.Links {
			require.True(t, l.SpanContext.IsRemote())
			require.True(t, l.SpanContext.IsSampled())
		}
		hold := r.under(c, span.SpanContext(), telemetry.SpanHold)
		r.has(hold, wanted{telemetry.AttrPath: "handoff", telemetry.AttrOutcome: "released"})
		require.Empty(t, hold.Events, "what was of the wait")
		require.Equal(t, map[string]int64{"handoff": 1}, r.some(telemetry.MetricGrants))
		require.Equal(t, map[string]int64{"remote": 1}, r.some(telemetry.MetricHandoffs))
	})
}

func TestReentryIsNoHoldOfItsOwn(t *testing.T) {
	heard(t, telemetry.Config{Roots: -1, AllAcquires: true, KeyAttribute: true}, func(t *testing.T, s *script, c *Coordinator, r *listener) {
		ctx, span := r.request(t.Context(), "request")
		first := lockWith(t, ctx, c.Mutex("k")).holdsAfter(s)
		second := lockWith(t, first.Context(), c.Mutex("k")).holds()
		require.Equal(t, 2, first.Count())
		time.Sleep(time.Second)
		unlock(t, first)
		require.Empty(t, r.of(c, telemetry.SpanHold), "it goes on for the second handle")
		unlock(t, second)
		hold := r.under(c, span.SpanContext(), telemetry.SpanHold)
		require.Equal(t, time.Second, hold.EndTime.Sub(hold.StartTime))
		wait := r.under(c, hold.SpanContext, telemetry.SpanAcquire)
		r.has(wait, wanted{
			telemetry.AttrPath: "reentry", telemetry.AttrOutcome: "acquired", telemetry.AttrAhead: int64(0),
			telemetry.AttrKey: "k", telemetry.AttrToken: int64(1),
		})
		require.Empty(t, wait.Links)
		require.Len(t, r.all(c), 3)
		require.Equal(t, map[string]int64{"redis": 1, "reentry": 1}, r.some(telemetry.MetricGrants))
		require.Equal(t, map[string]int64{"exclusive released": 1}, r.some(telemetry.MetricHold))
	})
}

// TestUnsampledCallsAreNotTold: it was decided for the whole of their trace.
func TestUnsampledCallsAreNotTold(t *testing.T) {
	heard(t, telemetry.Config{AllAcquires: true}, func(t *testing.T, s *script, c *Coordinator, r *listener) {
		ctx := trace.ContextWithSpanContext(t.Context(), elsewhere(1).WithTraceFlags(0))
		first := lockWith(t, telemetry.Traced(ctx), c.Mutex("k"))
		q := s.next(lease.Acquire)
		require.False(t, q.Traced, "nobody wants to know")
		q.held(1, 100)
		second := lockWith(t, ctx, c.Mutex("k"))
		s.emit(lease.Wanted, "k", q.Ticket)
		s.quiet(200 * time.Millisecond)
		require.Equal(t, elsewhere(1).SpanID(), trace.SpanContextFromContext(first.holds().Context()).SpanID())
		unlock(t, first.holds())
		r2 := s.next(lease.Release)
		require.Empty(t, r2.Trace)
		require.False(t, r2.Annotated)
		require.False(t, r2.Next.Traced)
		r2.held(101, 200)
		unlock(t, second.holds())
		require.Empty(t, r.all(c))
	})
}

func TestRootsAreBounded(t *testing.T) {
	heard(t, telemetry.Config{Roots: 10}, func(t *testing.T, s *script, c *Coordinator, r *listener) {
		retains(t, s, c, r)
		time.Sleep(time.Second)
		s.obey()
		for range 50 {
			unlock(t, lockWith(t, t.Context(), c.Mutex("k")).holds())
		}
		require.Len(t, r.of(c, telemetry.SpanHold), 10)
		time.Sleep(time.Second / 10)
		for range 50 {
			unlock(t, lockWith(t, t.Context(), c.Mutex("k")).holds())
		}
		require.Len(t, r.of(c, telemetry.SpanHold), 11)
		ctx, span := r.request(context.Background(), "request")
		unlock(t, lockWith(t, ctx, c.Mutex("k")).holds())
		r.under(c, span.SpanContext(), telemetry.SpanHold) // it is no root
	})
}

// TestReadersThatPassAreCountedNotTold: a traced one asks the actor, so that others
// can be told whom they wait for.
func TestReadersThatPassAreCountedNotTold(t *testing.T) {
	heard(t, telemetry.Config{Roots: -1}, func(t *testing.T, s *script, c *Coordinator, r *listener) {
		l := c.ReadWrite("k")
		opened(t, s, l, lease.Shared)
		for range 5 {
			unlock(t, passes(t, l))
		}
		ctx, span := r.request(t.Context(), "request")
		h, err := l.Lock(ctx, lease.Shared)
		require.NoError(t, err)
		other := passes(t, l)
		unlock(t, h)
		unlock(t, other)
		hold := r.under(c, span.SpanContext(), telemetry.SpanHold)
		r.has(hold, wanted{telemetry.AttrMode: "shared", telemetry.AttrPath: "retained", telemetry.AttrOutcome: "released"})
		require.Empty(t, hold.Links)
		require.Len(t, r.all(c), 1)
		require.Equal(t, map[string]int64{"redis": 1, "retained": 2, "passed": 7}, r.some(telemetry.MetricGrants))
		require.Equal(t, map[string]int64{"shared released": 3}, r.some(telemetry.MetricHold), "those that pass are not timed")
	}, WithRetention(time.Minute))
}
