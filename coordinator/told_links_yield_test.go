package coordinator

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/otel/trace"

	"github.com/go-leasehold/leasehold/lease"
	"github.com/go-leasehold/leasehold/telemetry"
)

// To which holds a wait leads that goes on when its process gives the lease back.

func TestWriterLeadsToTheReadersInItsWay(t *testing.T) {
	heard(t, quietly, func(t *testing.T, s *script, c *Coordinator, r *listener) {
		l := c.ReadWrite("k")
		s.obey()
		var holds []*Hold
		var spans []trace.SpanContext
		for range maxBlockers + 2 {
			ctx, _ := r.request(t.Context(), "request")
			h, err := l.Lock(ctx, lease.Shared)
			require.NoError(t, err)
			holds, spans = append(holds, h), append(spans, spanOf(h))
		}
		time.Sleep(time.Millisecond)
		ctx, span := r.request(t.Context(), "writer")
		w := begin(t, func() (*Hold, error) { return l.Lock(ctx, lease.Exclusive) })
		ctx2, span2 := r.request(t.Context(), "reader behind")
		behind := begin(t, func() (*Hold, error) { return l.Lock(ctx2, lease.Shared) })
		for _, h := range holds {
			time.Sleep(time.Millisecond)
			unlock(t, h)
		}
		writer := spanOf(w.holds())
		time.Sleep(time.Millisecond)
		unlock(t, w.holds())
		unlock(t, behind.holds())
		var want []string
		for _, is := range spans[:maxBlockers] {
			want = append(want, lead(telemetry.LinkHolder, is))
		}
		last := lead(telemetry.LinkPredecessor, spans[len(spans)-1])
		require.Equal(t, append(want, last), leads(r.under(c, span.SpanContext(), telemetry.SpanAcquire)))
		require.Equal(t, lead(telemetry.LinkPredecessor, writer), leads(r.under(c, span2.SpanContext(), telemetry.SpanAcquire))[maxBlockers],
			"the writer, for which it let its turn go")
	}, WithRetention(time.Minute))
}

// TestWaitOverSeveralLeasesLeadsToAllInItsWay: the lease went to another process and
// came back while it waited.
func TestWaitOverSeveralLeasesLeadsToAllInItsWay(t *testing.T) {
	heard(t, quietly, func(t *testing.T, s *script, c *Coordinator, r *listener) {
		first, _ := r.tracedLock(t, c.Mutex("k"))
		q := s.next(lease.Acquire)
		answer := q.waiting()
		answer.Trace = telemetry.FormatTrace(elsewhere(1))
		q.reply(answer)
		second, span := r.tracedLock(t, c.Mutex("k"))
		s.tell(lease.Event{Type: lease.Traced, Key: "k", Ticket: q.Ticket, Trace: telemetry.FormatTrace(elsewhere(1))})
		time.Sleep(time.Second / 2)
		if look := s.take(); look != nil {
			look.reply(answer)
		}
		s.grant(q.Ticket, 1, 100)
		held := spanOf(first.holds())
		s.emit(lease.Wanted, "k", q.Ticket)
		s.next(lease.Annotate).end()
		time.Sleep(50 * time.Millisecond) // the turn of this process is over
		unlock(t, first.holds())
		release := s.next(lease.Release)
		require.NotNil(t, release.Next, "the second call waits on")
		again := release.waiting()
		again.Trace = telemetry.FormatTrace(elsewhere(2))
		release.reply(again)
		time.Sleep(time.Second / 2)
		if look := s.take(); look != nil {
			look.reply(again)
		}
		s.grant(release.Next.Ticket, 101, 200)
		unlock(t, second.holds())
		links := leads(r.under(c, span, telemetry.SpanAcquire))
		require.Contains(t, links, lead(telemetry.LinkHolder, elsewhere(2)))
		require.Contains(t, links, lead(telemetry.LinkHolder, elsewhere(1)), "it had the key when the wait began")
		require.Contains(t, links, lead(telemetry.LinkHolder, held), "it came in between")
	})
}

// TestReadHoldThatStaysIsSaidWhenAnotherLeaves: who comes then is to find it.
func TestReadHoldThatStaysIsSaidWhenAnotherLeaves(t *testing.T) {
	heard(t, quietly, func(t *testing.T, s *script, c *Coordinator, r *listener) {
		l := c.ReadWrite("k")
		ctx, _ := r.request(t.Context(), "first")
		first := begin(t, func() (*Hold, error) { return l.Lock(ctx, lease.Shared) }).holdsAfter(s)
		ctx2, _ := r.request(t.Context(), "second")
		second, err := l.Lock(ctx2, lease.Shared)
		require.NoError(t, err)
		stays, leaves := first, second
		time.Sleep(checkHoldAfter)
		var said string
		for q := s.take(); q != nil; q = s.take() {
			require.Equal(t, lease.Annotate, q.Op)
			said = q.Trace
			q.end()
		}
		if said == telemetry.FormatTrace(spanOf(first)) {
			stays, leaves = second, first
		}
		unlock(t, leaves)
		q := s.next(lease.Annotate)
		annotatedBy(t, q, spanOf(stays))
		q.end()
		unlock(t, stays)
	}, WithRetention(time.Minute))
}
