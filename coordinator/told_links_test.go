package coordinator

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/otel/trace"

	"github.com/go-leasehold/leasehold/lease"
	"github.com/go-leasehold/leasehold/telemetry"
)

// To which holds a wait leads.

// tracedLock calls Lock below a span of its own, which it returns.
func (r *listener) tracedLock(t *testing.T, m *Mutex) (*attempt, trace.SpanContext) {
	t.Helper()
	ctx, span := r.request(context.Background(), "request")
	span.End()
	return lockWith(t, ctx, m), span.SpanContext()
}

// spanOf is the span of a hold.
func spanOf(h *Hold) trace.SpanContext { return trace.SpanContextFromContext(h.Context()) }

// TestWaitLeadsToNoHoldThatEndedBefore: where an idle lease can't be had at once.
func TestWaitLeadsToNoHoldThatEndedBefore(t *testing.T) {
	heard(t, quietly, func(t *testing.T, s *script, c *Coordinator, r *listener) {
		first, _ := r.tracedLock(t, c.Mutex("k"))
		s.next(lease.Acquire).held(1, 1) // one token: the next call has to wait for more
		q := s.next(lease.Renew)
		unlock(t, first.holds())
		time.Sleep(time.Millisecond)
		second, span := r.tracedLock(t, c.Mutex("k"))
		second.waits()
		time.Sleep(time.Millisecond)
		q.held(2, 100)
		unlock(t, second.holds())
		wait := r.under(c, span, telemetry.SpanAcquire)
		require.Equal(t, "local", attrs(wait.Attributes)[telemetry.AttrPath])
		require.Empty(t, wait.Links)
	}, WithRetention(time.Minute))
}

// TestReadersBesideReadersWaitForNobody.
func TestReadersBesideReadersWaitForNobody(t *testing.T) {
	heard(t, telemetry.Config{Roots: -1, AllAcquires: true}, func(t *testing.T, s *script, c *Coordinator, r *listener) {
		l := c.ReadWrite("k")
		s.obey()
		var holds []*Hold
		for range 4 {
			ctx, _ := r.request(t.Context(), "request")
			h, err := l.Lock(ctx, lease.Shared)
			require.NoError(t, err)
			holds = append(holds, h)
			time.Sleep(time.Millisecond)
		}
		for _, h := range holds {
			unlock(t, h)
		}
		waits := r.of(c, telemetry.SpanAcquire)
		require.Len(t, waits, 4)
		for i, w := range waits {
			require.Empty(t, w.Links)
			if i > 0 {
				require.Empty(t, w.Events)
			}
		}
	}, WithRetention(time.Minute))
}

// TestThoseBehindTheFirstLeadElsewhereToo: all of them waited for the process that
// had the lease.
func TestThoseBehindTheFirstLeadElsewhereToo(t *testing.T) {
	heard(t, quietly, func(t *testing.T, s *script, c *Coordinator, r *listener) {
		first, span := r.tracedLock(t, c.Mutex("k"))
		q := s.next(lease.Acquire)
		time.Sleep(time.Millisecond)
		second, span2 := r.tracedLock(t, c.Mutex("k"))
		time.Sleep(time.Millisecond)
		answer := q.waiting()
		answer.Trace = telemetry.FormatTrace(elsewhere(1))
		q.reply(answer)
		s.tell(lease.Event{Type: lease.Traced, Key: "k", Ticket: q.Ticket, Trace: telemetry.FormatTrace(elsewhere(1))})
		time.Sleep(time.Second / 2)
		s.tell(lease.Event{Type: lease.Traced, Key: "k", Ticket: q.Ticket, Trace: telemetry.FormatTrace(elsewhere(1)), Passing: true})
		s.grant(q.Ticket, 1, 100)
		held := spanOf(first.holds())
		time.Sleep(time.Millisecond)
		unlock(t, first.holds())
		unlock(t, second.holds())
		there := lead(telemetry.LinkHolder, elsewhere(1))
		require.Equal(t, []string{there}, leads(r.under(c, span, telemetry.SpanAcquire)))
		require.Equal(t, []string{there, lead(telemetry.LinkPredecessor, held)}, leads(r.under(c, span2, telemetry.SpanAcquire)))
	})
}

// TestNothingStaysSaidOfAHoldThatIsOver: an untraced one follows it under the lease.
func TestNothingStaysSaidOfAHoldThatIsOver(t *testing.T) {
	heard(t, quietly, func(t *testing.T, s *script, c *Coordinator, r *listener) {
		first, _ := r.tracedLock(t, c.Mutex("k"))
		s.next(lease.Acquire).held(1, 100)
		told := s.after(checkHoldAfter, lease.Annotate)
		annotatedBy(t, told, spanOf(first.holds()))
		told.end()
		unlock(t, first.holds())
		took := s.next(lease.Annotate)
		require.Empty(t, took.Trace, "it is taken back")
		require.Equal(t, told.Ticket, took.Ticket)
		took.end()
		h := lockOf(t, c.Mutex("k")).holds()
		s.emit(lease.Wanted, "k", told.Ticket)
		s.quiet(10 * time.Millisecond)
		unlock(t, h)
		release := s.next(lease.Release)
		require.Empty(t, release.Trace, "the hold that ended last was not traced")
		require.True(t, release.Annotated)
		release.end()
	}, WithRetention(time.Minute))
}

// TestNextHoldUnderALeaseIsToldOfAnew: at once, where somebody waits already.
func TestNextHoldUnderALeaseIsToldOfAnew(t *testing.T) {
	heard(t, quietly, func(t *testing.T, s *script, c *Coordinator, r *listener) {
		first, _ := r.tracedLock(t, c.Mutex("k"))
		s.next(lease.Acquire).held(1, 100)
		told := s.after(checkHoldAfter, lease.Annotate)
		told.end()
		unlock(t, first.holds())
		s.next(lease.Annotate).end()
		second, _ := r.tracedLock(t, c.Mutex("k"))
		h := second.holds()
		s.emit(lease.Wanted, "k", told.Ticket)
		again := s.next(lease.Annotate)
		annotatedBy(t, again, spanOf(h))
		again.end()
		is := spanOf(h)
		unlock(t, h)
		release := s.next(lease.Release)
		require.Equal(t, telemetry.FormatTrace(is), release.Trace)
		release.end()
	}, WithRetention(time.Minute))
}

// TestHoldsOfOtherLeasesAreNotPassedOn: of a lease that nobody here held, there is
// nothing to say.
func TestHoldsOfOtherLeasesAreNotPassedOn(t *testing.T) {
	heard(t, quietly, func(t *testing.T, s *script, c *Coordinator, r *listener) {
		first, _ := r.tracedLock(t, c.Mutex("k"))
		q := s.next(lease.Acquire)
		q.held(1, 100)
		s.emit(lease.Wanted, "k", q.Ticket)
		s.next(lease.Annotate).end()
		ctx, cancel := context.WithCancel(t.Context())
		second := lockWith(t, ctx, c.Mutex("k"))
		time.Sleep(50 * time.Millisecond)
		unlock(t, first.holds())
		release := s.next(lease.Release)
		require.NotEmpty(t, release.Trace)
		release.waits()
		cancel()
		second.fails(context.Canceled)
		gone := s.next(lease.Release)
		require.Empty(t, gone.Trace)
		s.grant(release.Next.Ticket, 101, 200) // it had been granted meanwhile
		gone.end()
	})
}

func TestLeaseSpans(t *testing.T) {
	heard(t, telemetry.Config{Roots: -1, LeaseSpans: true, KeyAttribute: true}, func(t *testing.T, s *script, c *Coordinator, r *listener) {
		first, span := r.tracedLock(t, c.Mutex("k"))
		q := s.next(lease.Acquire)
		time.Sleep(time.Millisecond)
		q.held(1, 100)
		granted := time.Now()
		is := spanOf(first.holds())
		unlock(t, first.holds())
		unlock(t, lockOf(t, c.Mutex("k")).holds()) // is not traced, and served all the same
		require.Empty(t, r.of(c, telemetry.SpanLease))
		s.after(50*time.Millisecond, lease.Release).end()
		leased := r.only(c, telemetry.SpanLease)
		r.has(leased, wanted{
			telemetry.AttrPath: "redis", telemetry.AttrOutcome: "released", telemetry.AttrHolds: int64(2), telemetry.AttrKey: "k",
		})
		require.False(t, leased.Parent.IsValid(), "it is a trace of its own")
		require.NotEqual(t, span.TraceID(), leased.SpanContext.TraceID())
		require.Equal(t, []string{lead(telemetry.LinkAsker, is)}, leads(leased))
		require.True(t, granted.Equal(leased.StartTime))
		require.Equal(t, 50*time.Millisecond, leased.EndTime.Sub(leased.StartTime))

		unlock(t, lockOf(t, c.Mutex("k")).holdsAfter(s)) // asked for by nobody who is traced
		s.after(50*time.Millisecond, lease.Release).end()
		require.Len(t, r.of(c, telemetry.SpanLease), 1)
	})
	heard(t, telemetry.Config{Roots: -1, LeaseSpans: true}, func(t *testing.T, s *script, c *Coordinator, r *listener) {
		first, _ := r.tracedLock(t, c.Mutex("k"))
		q := s.next(lease.Acquire)
		q.waits()
		s.grant(q.Ticket, 1, 100)
		is := spanOf(first.holds())
		s.after(checkHoldAfter, lease.Annotate).end()
		s.within(time.Second, lease.Renew).reply(lease.Reply{Status: lease.Lost})
		require.ErrorIs(t, first.holds().Unlock(), ErrLeaseLost)
		leased := r.only(c, telemetry.SpanLease)
		r.has(leased, wanted{
			telemetry.AttrPath: "handoff", telemetry.AttrOutcome: "lost", telemetry.AttrHolds: int64(1), telemetry.AttrCause: "taken_away",
		})
		require.Equal(t, []string{lead(telemetry.LinkAsker, is)}, leads(leased))
	})
	heard(t, telemetry.Config{Roots: -1, LeaseSpans: true}, func(t *testing.T, s *script, c *Coordinator, r *listener) {
		ctx, _ := r.request(t.Context(), "request")
		h := lockWith(t, ctx, c.Mutex("k")).holdsAfter(s)
		s.after(checkHoldAfter, lease.Annotate).end()
		q := s.within(time.Second, lease.Renew)
		time.Sleep(believed - time.Second)
		require.ErrorIs(t, h.Unlock(), ErrLeaseLost)
		q.fail(errStore)
		s.within(time.Second, lease.Release).end() // it may still be there in the store
		r.has(r.only(c, telemetry.SpanLease), wanted{
			telemetry.AttrPath: "redis", telemetry.AttrOutcome: "lost", telemetry.AttrHolds: int64(1), telemetry.AttrCause: "not_renewed",
		})
	})
}

// TestWaitThatCameAfterAnEndDoesNotLeadToIt: the lease was on its way to this process
// already.
func TestWaitThatCameAfterAnEndDoesNotLeadToIt(t *testing.T) {
	heard(t, quietly, func(t *testing.T, s *script, c *Coordinator, r *listener) {
		ctx, cancel := context.WithCancel(t.Context())
		first := lockWith(t, ctx, c.Mutex("k"))
		q := s.next(lease.Acquire)
		q.waits()
		s.tell(lease.Event{Type: lease.Traced, Key: "k", Ticket: q.Ticket, Trace: telemetry.FormatTrace(elsewhere(1)), Passing: true})
		time.Sleep(time.Millisecond)
		second, span := r.tracedLock(t, c.Mutex("k"))
		cancel()
		first.fails(context.Canceled)
		time.Sleep(time.Millisecond)
		s.grant(q.Ticket, 1, 100)
		unlock(t, second.holds())
		wait := r.under(c, span, telemetry.SpanAcquire)
		require.Equal(t, "handoff", attrs(wait.Attributes)[telemetry.AttrPath])
		require.Empty(t, wait.Links)
	})
}
