package rwlock_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/otel/attribute"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"
	"go.opentelemetry.io/otel/trace"

	"github.com/go-leasehold/leasehold/coordinator"
	"github.com/go-leasehold/leasehold/coordinator/coordinatortest"
	"github.com/go-leasehold/leasehold/rwlock"
	"github.com/go-leasehold/leasehold/telemetry"
)

// traces are the spans of a process. A call without a span of the test's begins none.
type traces struct {
	t        *testing.T
	c        *coordinator.Coordinator
	exporter *tracetest.InMemoryExporter
	provider *sdktrace.TracerProvider
}

// traced runs a test in virtual time.
func traced(t *testing.T, test func(t *testing.T, h *coordinatortest.Harness, s *traces)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		s := &traces{t: t, exporter: tracetest.NewInMemoryExporter()}
		s.provider = sdktrace.NewTracerProvider(sdktrace.WithSyncer(s.exporter))
		h := coordinatortest.New(t, coordinator.WithTelemetry(telemetry.Config{TracerProvider: s.provider, Roots: -1}))
		s.c = h.Coordinator
		test(t, h, s)
	})
}

// request returns a context with a span, as a request has it.
func (s *traces) request() (context.Context, trace.SpanContext) {
	ctx, span := s.provider.Tracer("test").Start(s.t.Context(), "request", trace.WithNewRoot())
	return ctx, span.SpanContext()
}

// under returns the spans below a request that have ended, by name.
func (s *traces) under(of trace.SpanContext) map[string][]tracetest.SpanStub {
	s.t.Helper()
	require.NoError(s.t, s.c.FlushTelemetry(s.t.Context()))
	found := map[string][]tracetest.SpanStub{}
	for _, span := range s.exporter.GetSpans() {
		if span.Parent.SpanID() == of.SpanID() {
			found[span.Name] = append(found[span.Name], span)
		}
	}
	return found
}

// hold returns the one hold below a request.
func (s *traces) hold(of trace.SpanContext) tracetest.SpanStub {
	s.t.Helper()
	holds := s.under(of)[telemetry.SpanHold]
	require.Len(s.t, holds, 1)
	return holds[0]
}

// wait returns the one wait below a request.
func (s *traces) wait(of trace.SpanContext) tracetest.SpanStub {
	s.t.Helper()
	waits := s.under(of)[telemetry.SpanAcquire]
	require.Len(s.t, waits, 1)
	return waits[0]
}

// value returns an attribute.
func value(span tracetest.SpanStub, key attribute.Key) string {
	for _, a := range span.Attributes {
		if a.Key == key {
			return a.Value.AsString()
		}
	}
	return ""
}

// leads are the spans that a span has links to.
func leads(span tracetest.SpanStub) (to []trace.SpanID) {
	for _, l := range span.Links {
		to = append(to, l.SpanContext.SpanID())
	}
	return to
}

// TestEachWayInIsAHold below the caller's span, of its mode, and is what the work finds in its context.
func TestEachWayInIsAHold(t *testing.T) {
	traced(t, func(t *testing.T, h *coordinatortest.Harness, s *traces) {
		l := rwlock.New(h.Coordinator, "k")
		call := func(lock func(context.Context) (rwlock.Hold, error)) func(context.Context) trace.SpanContext {
			return func(ctx context.Context) trace.SpanContext {
				hold, err := lock(ctx)
				require.NoError(t, err)
				defer unlock(t, hold)
				return trace.SpanContextFromContext(hold.Context())
			}
		}
		do := func(do func(context.Context, func(context.Context) error) error) func(context.Context) trace.SpanContext {
			return func(ctx context.Context) (found trace.SpanContext) {
				require.NoError(t, do(ctx, func(ctx context.Context) error {
					found = trace.SpanContextFromContext(ctx)
					return nil
				}))
				return found
			}
		}
		for name, way := range map[string]struct {
			mode string
			in   func(context.Context) trace.SpanContext
		}{
			"RLock":    {"shared", call(l.RLock)},
			"TryRLock": {"shared", call(l.TryRLock)},
			"TryRLockFor": {"shared", call(func(ctx context.Context) (rwlock.Hold, error) {
				return l.TryRLockFor(ctx, time.Second)
			})},
			"Lock":    {"exclusive", call(l.Lock)},
			"TryLock": {"exclusive", call(l.TryLock)},
			"TryLockFor": {"exclusive", call(func(ctx context.Context) (rwlock.Hold, error) {
				return l.TryLockFor(ctx, time.Second)
			})},
			"Read":  {"shared", do(l.Read)},
			"Write": {"exclusive", do(l.Write)},
		} {
			for range 3 { // whatever the process has by then
				ctx, request := s.request()
				inside := way.in(ctx)
				hold := s.hold(request)
				require.Equal(t, hold.SpanContext.SpanID(), inside.SpanID(), name)
				require.Equal(t, request.TraceID(), inside.TraceID(), name)
				require.Equal(t, way.mode, value(hold, telemetry.AttrMode), name)
				require.Equal(t, string(telemetry.Released), value(hold, telemetry.AttrOutcome), name)
			}
		}
	})
}

// TestReadsWithNoTraceAreNone, beside one that has; they pass, and it is told all the same.
func TestReadsWithNoTraceAreNone(t *testing.T) {
	traced(t, func(t *testing.T, h *coordinatortest.Harness, s *traces) {
		l := rwlock.New(h.Coordinator, "k")
		first := passing(t, h.Coordinator, l)
		ctx, request := s.request()
		hold, err := l.RLock(ctx)
		require.NoError(t, err)
		second := read(t, l)
		unlock(t, hold, first, second)
		require.Equal(t, "shared", value(s.hold(request), telemetry.AttrMode))
		require.Len(t, s.exporter.GetSpans(), 1)
	})
}

// TestWriterLeadsToReaders: all that were inside when it came, and are traced; and the reader behind it to the writer.
func TestWriterLeadsToReaders(t *testing.T) {
	traced(t, func(t *testing.T, h *coordinatortest.Harness, s *traces) {
		l := rwlock.New(h.Coordinator, "k")
		one, two := s.reads(l), s.reads(l)
		ctx, writes := s.request()
		writer := begin(t, func(context.Context) (rwlock.Hold, error) { return l.Lock(ctx) })
		synctest.Wait()
		writer.waits(t)
		late, reads := s.request()
		reader := begin(t, func(context.Context) (rwlock.Hold, error) { return l.RLock(late) })
		synctest.Wait()
		reader.waits(t)
		time.Sleep(20 * time.Millisecond)
		unlock(t, one.hold)
		time.Sleep(20 * time.Millisecond)
		unlock(t, two.hold)
		w := writer.granted(t)
		time.Sleep(20 * time.Millisecond)
		unlock(t, w)
		unlock(t, reader.granted(t))

		wait := s.wait(writes)
		require.Equal(t, "exclusive", value(wait, telemetry.AttrMode))
		require.Equal(t, 40*time.Millisecond, wait.EndTime.Sub(wait.StartTime))
		require.ElementsMatch(t, []trace.SpanID{s.hold(one.request).SpanContext.SpanID(), s.hold(two.request).SpanContext.SpanID()}, leads(wait))
		wait = s.wait(reads)
		require.Equal(t, "shared", value(wait, telemetry.AttrMode))
		require.Equal(t, 60*time.Millisecond, wait.EndTime.Sub(wait.StartTime))
		require.Contains(t, leads(wait), s.hold(writes).SpanContext.SpanID())
		require.Equal(t, "shared", value(s.hold(reads), telemetry.AttrMode))
	})
}

// tracedRead is a request that reads.
type tracedRead struct {
	request trace.SpanContext
	hold    rwlock.Hold
}

func (s *traces) reads(l *rwlock.Lock) tracedRead {
	s.t.Helper()
	ctx, request := s.request()
	hold, err := l.RLock(ctx)
	require.NoError(s.t, err)
	return tracedRead{request, hold}
}

// TestDowngradeIsOneHold, from the write to the end of the read: nobody else could write meanwhile. A writer that waits for
// the reading leads to it.
func TestDowngradeIsOneHold(t *testing.T) {
	traced(t, func(t *testing.T, h *coordinatortest.Harness, s *traces) {
		l := rwlock.New(h.Coordinator, "k")
		ctx, request := s.request()
		w, err := l.Lock(ctx)
		require.NoError(t, err)
		before := trace.SpanContextFromContext(w.Context())
		time.Sleep(10 * time.Millisecond)
		r, err := w.Downgrade()
		require.NoError(t, err)
		require.Equal(t, before, trace.SpanContextFromContext(r.Context()))
		require.Empty(t, s.under(request)[telemetry.SpanHold], "it goes on")
		next, writes := s.request()
		writer := begin(t, func(context.Context) (rwlock.Hold, error) { return l.Lock(next) })
		synctest.Wait()
		time.Sleep(20 * time.Millisecond)
		unlock(t, r)
		unlock(t, writer.granted(t))
		hold := s.hold(request)
		require.Equal(t, before.SpanID(), hold.SpanContext.SpanID())
		require.Equal(t, 30*time.Millisecond, hold.EndTime.Sub(hold.StartTime))
		require.Equal(t, "exclusive", value(hold, telemetry.AttrMode), "which is how it began")
		require.Len(t, hold.Events, 1)
		require.Equal(t, telemetry.EventDowngraded, hold.Events[0].Name)
		require.Equal(t, 10*time.Millisecond, hold.Events[0].Time.Sub(hold.StartTime), "and until when")
		require.Equal(t, []trace.SpanID{before.SpanID()}, leads(s.wait(writes)))
	})
}

// TestReadingInsideAWriteIsNoOtherHold: it is the same owner's.
func TestReadingInsideAWriteIsNoOtherHold(t *testing.T) {
	traced(t, func(t *testing.T, h *coordinatortest.Harness, s *traces) {
		l := rwlock.New(h.Coordinator, "k")
		ctx, request := s.request()
		require.NoError(t, l.Write(ctx, func(ctx context.Context) error {
			outer := trace.SpanContextFromContext(ctx)
			return l.Read(ctx, func(ctx context.Context) error {
				require.Equal(t, outer, trace.SpanContextFromContext(ctx))
				return nil
			})
		}))
		hold := s.hold(request)
		require.Equal(t, "exclusive", value(hold, telemetry.AttrMode))
		require.Empty(t, s.under(hold.SpanContext))
	})
}

// TestRefusedUpgradeIsNoWait, but where each call has a span.
func TestRefusedUpgradeIsNoWait(t *testing.T) {
	traced(t, func(t *testing.T, h *coordinatortest.Harness, s *traces) {
		l := rwlock.New(h.Coordinator, "k")
		ctx, request := s.request()
		require.NoError(t, l.Read(ctx, func(ctx context.Context) error {
			_, err := l.Lock(telemetry.Traced(ctx))
			require.ErrorIs(t, err, coordinator.ErrUpgrade)
			return nil
		}))
		hold := s.hold(request)
		refused := s.wait(hold.SpanContext)
		require.Equal(t, "exclusive", value(refused, telemetry.AttrMode))
		require.Equal(t, string(telemetry.Refused), value(refused, telemetry.AttrOutcome))
	})
}

// TestLostReadIsToldSo: its span ends when the lease is lost, and not when the reader notices.
func TestLostReadIsToldSo(t *testing.T) {
	traced(t, func(t *testing.T, h *coordinatortest.Harness, s *traces) {
		l := rwlock.New(h.Coordinator, "k")
		r := s.reads(l)
		time.Sleep(time.Second)
		h.Lose("k")
		<-r.hold.Context().Done()
		lost := time.Now()
		time.Sleep(time.Minute)
		require.ErrorIs(t, r.hold.Unlock(), coordinator.ErrLeaseLost)
		hold := s.hold(r.request)
		require.Equal(t, string(telemetry.Lost), value(hold, telemetry.AttrOutcome))
		require.True(t, lost.Equal(hold.EndTime), "%v, %v", lost, hold.EndTime)
	})
}
