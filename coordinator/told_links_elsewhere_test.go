package coordinator

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/otel/trace"

	"github.com/go-leasehold/leasehold/lease"
	"github.com/go-leasehold/leasehold/telemetry"
)

// To which holds in other processes a wait leads, and to which of this one theirs do.

// traced is what a test's store tells of a hold elsewhere.
func (s *script) traced(ticket lease.Ticket, n byte) {
	s.tell(lease.Event{Type: lease.Traced, Key: "k", Ticket: ticket, Trace: telemetry.FormatTrace(elsewhere(n))})
}

// TestWaitLeadsToTheFirstAndTheNewestOfManyElsewhere: the one that was in the way when it came, and the last.
func TestWaitLeadsToTheFirstAndTheNewestOfManyElsewhere(t *testing.T) {
	heard(t, quietly, func(t *testing.T, s *script, c *Coordinator, r *listener) {
		call, span := r.tracedLock(t, c.Mutex("k"))
		q := s.next(lease.Acquire)
		answer := q.waiting()
		answer.Trace = telemetry.FormatTrace(elsewhere(1))
		q.reply(answer)
		const many = maxBlockers + 3
		for n := byte(2); n <= many; n++ {
			time.Sleep(time.Millisecond)
			s.traced(q.Ticket, n)
		}
		s.grant(q.Ticket, 1, 100)
		unlock(t, call.holds())
		want := []string{lead(telemetry.LinkHolder, elsewhere(1))}
		for n := byte(many - maxBlockers + 2); n <= many; n++ {
			want = append(want, lead(telemetry.LinkHolder, elsewhere(n)))
		}
		require.Equal(t, want, leads(r.under(c, span, telemetry.SpanAcquire)))
	})
}

// TestWaitThatJoinsAnotherLeadsToWhoHasTheKeyNow: what was heard when the lease was asked for, by a call that is not
// traced, is of a holder before. It has the key looked at, and not at each call anew.
func TestWaitThatJoinsAnotherLeadsToWhoHasTheKeyNow(t *testing.T) {
	for name, after := range map[string]time.Duration{"at once": checkHoldAfter, "soon": checkHoldAfter / 4} {
		t.Run(name, func(t *testing.T) {
			heard(t, quietly, func(t *testing.T, s *script, c *Coordinator, r *listener) {
				first := lockOf(t, c.Mutex("k"))
				q := s.next(lease.Acquire)
				require.False(t, q.Traced)
				q.waits()
				time.Sleep(after)
				second, span := r.tracedLock(t, c.Mutex("k"))
				look := s.after(checkHoldAfter-after, lease.Acquire)
				require.True(t, look.Traced)
				now := look.waiting()
				now.Holder, now.Trace = "other:2", telemetry.FormatTrace(elsewhere(2))
				look.reply(now)
				s.quiet(checkHoldAfter)
				s.grant(q.Ticket, 1, 100)
				unlock(t, first.holds())
				unlock(t, second.holds())
				require.Equal(t, []string{lead(telemetry.LinkHolder, elsewhere(2))}, leads(r.under(c, span, telemetry.SpanAcquire)))
			})
		})
	}
}

// TestReaderThatIsTracedIsSaidAmongOthersThatAreNot: wherever it is among them.
func TestReaderThatIsTracedIsSaidAmongOthersThatAreNot(t *testing.T) {
	heard(t, quietly, func(t *testing.T, s *script, c *Coordinator, r *listener) {
		l := c.ReadWrite("k")
		a := reads(t, l)
		q := s.next(lease.Acquire)
		q.held(1, 100)
		before := a.holds()
		ctx, _ := r.request(t.Context(), "request")
		traced, err := l.Lock(ctx, lease.Shared)
		require.NoError(t, err)
		behind := reads(t, l).holds()
		s.emit(lease.Wanted, "k", q.Ticket)
		said := s.next(lease.Annotate)
		annotatedBy(t, said, spanOf(traced))
		said.end()
		for _, h := range []*Hold{before, behind, traced} {
			unlock(t, h)
		}
	}, WithRetention(time.Minute))
}

// TestWriterElsewhereLeadsToTheOneReaderThatIsTraced, though others were before it, and are after it.
func TestWriterElsewhereLeadsToTheOneReaderThatIsTraced(t *testing.T) {
	together(t, 2, quietly, func(t *testing.T, f *fleet) {
		l := f.c[0].ReadWrite("k")
		var holds []*Hold
		var is trace.SpanContext
		for i := range 3 {
			ctx := context.Background()
			if i == 1 {
				ctx, _ = f.r[0].request(ctx, "request")
			}
			h, err := l.Lock(ctx, lease.Shared)
			require.NoError(t, err)
			if i == 1 {
				is = spanOf(h)
			}
			holds = append(holds, h)
		}
		ctx, span := f.r[1].request(t.Context(), "writer")
		w := begin(t, func() (*Hold, error) { return f.c[1].ReadWrite("k").Lock(ctx, lease.Exclusive) })
		time.Sleep(checkHoldAfter / 2) // before they are looked at for another reason
		unlock(t, holds[1])
		time.Sleep(5 * time.Millisecond)
		unlock(t, holds[0])
		unlock(t, holds[2])
		time.Sleep(5 * time.Millisecond)
		synctest.Wait()
		unlock(t, w.holds())
		require.Equal(t, []string{lead(telemetry.LinkHolder, is)}, leads(f.r[1].under(f.c[1], span.SpanContext(), telemetry.SpanAcquire)))
	})
}
