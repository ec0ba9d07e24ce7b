package faulttest

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/trace"

	"github.com/go-leasehold/leasehold/coordinator"
	"github.com/go-leasehold/leasehold/internal/redistest"
	"github.com/go-leasehold/leasehold/lease/memlease"
	"github.com/go-leasehold/leasehold/rwlock"
	"github.com/go-leasehold/leasehold/telemetry"
)

// traced is a coordinator on a server in memory that traces every call, and its spans.
func traced(t *testing.T, conf telemetry.Config, opts ...coordinator.Option) (*coordinator.Coordinator, *spanList, *memlease.Server) {
	t.Helper()
	server := memlease.NewServer()
	t.Cleanup(server.Close)
	spans := &spanList{}
	conf.TracerProvider, conf.Roots = spans.provider(), 1_000_000
	return inMemory(t, server, append(opts, coordinator.WithTelemetry(conf))...), spans, server
}

// flushed are the spans that have ended, all of them.
func flushed(t *testing.T, c *coordinator.Coordinator, spans *spanList) []exported {
	t.Helper()
	require.NoError(t, c.FlushTelemetry(t.Context()))
	return spans.all()
}

// K3: the calls of ten thousand traced waiters are a span each, however they end. Half of them are cancelled in one
// instant, which is more than is kept: what is dropped then is counted.
func TestTenThousandTracedWaitersMakeASpanEach(t *testing.T) {
	t.Parallel()
	m := newMeter()
	c, spans, _ := traced(t, telemetry.Config{MeterProvider: m.provider})
	mutex := c.Mutex("k")
	hold := take(t, mutex)
	const waiters = 10_000
	ctx, cancel := context.WithCancel(t.Context())
	var got, left atomic.Int64
	flush := func(n int64) { // now and then
		if n%1000 == 0 && c.FlushTelemetry(context.Background()) != nil {
			t.Error("not flushed")
		}
	}
	var wg sync.WaitGroup
	for n := range waiters {
		mine := t.Context()
		if n%2 == 0 {
			mine = ctx
		}
		wg.Go(func() {
			hold, err := mutex.Lock(mine)
			if err != nil {
				flush(left.Add(1))
				return
			}
			if err := hold.Unlock(); err != nil {
				t.Error(err)
			}
			flush(got.Add(1))
		})
	}
	for localWaiters(c, "k") < waiters {
		time.Sleep(50 * time.Millisecond) // to count them is work
	}
	cancel()
	eventually(t, hangs, "half have gone", func() bool { return left.Load() == waiters/2 })
	require.NoError(t, hold.Unlock())
	wg.Wait()
	outcomes := map[telemetry.Outcome]int{}
	for _, e := range flushed(t, c, spans) {
		outcomes[e.outcome()]++
		require.LessOrEqual(t, len(e.Links), 6)
		require.LessOrEqual(t, len(e.Events), 70)
	}
	const half = waiters / 2
	require.LessOrEqual(t, outcomes[telemetry.Canceled], half)
	require.LessOrEqual(t, outcomes[telemetry.Acquired], half+1)
	dropped := m.collect(t, c).total(telemetry.MetricDropped, "", "")
	begun := int64(spans.begunSoFar()[telemetry.SpanHold])
	require.LessOrEqual(t, begun, int64(half+1))
	require.GreaterOrEqual(t, begun+dropped, int64(half+1), "a span is begun when it is needed, and that is when it ends")
	require.LessOrEqual(t, len(spans.all()), waiters+1+half+1)
	require.GreaterOrEqual(t, dropped+int64(len(spans.all())), int64(waiters+1+half+1), "%d were dropped", dropped)
	require.Less(t, dropped, int64(half))
}

// K2: a call that leaves in the very instant of its grant has one span that says what the caller was told, and a hold's
// span only if the caller had the hold. It is counted once.
func TestCallThatLeavesInTheInstantOfItsGrantIsTold(t *testing.T) {
	t.Parallel()
	c, spans, _ := traced(t, telemetry.Config{}, coordinator.WithRetention(0))
	tracer := spans.provider().Tracer("requests")
	said := map[spanID]error{}
	calls := rounds(300, 20_000)
	for range calls {
		hold := take(t, c.Mutex("k"))
		ctx, cancel := context.WithCancel(t.Context())
		ctx, span := tracer.Start(ctx, "request")
		waits := lockLater(ctx, c.Mutex("k"))
		eventually(t, hangs, "it waits", func() bool { return localWaiters(c, "k") == 1 })
		go cancel()
		require.NoError(t, hold.Unlock())
		got := await(t, waits, hangs, "an answer")
		said[idOf(span.SpanContext())] = got.err
		if got.err == nil {
			require.NoError(t, got.hold.Unlock())
		}
		span.End()
	}
	counted := stats(c)
	require.EqualValues(t, 2*calls, counted.Grants+counted.Canceled, "each once")
	ended := flushed(t, c, spans)
	holds := map[spanID]int{}
	for _, e := range named(ended, telemetry.SpanHold) {
		holds[e.Parent]++
	}
	waits := map[spanID][]telemetry.Outcome{}
	for _, e := range named(ended, telemetry.SpanAcquire) {
		waits[e.Parent] = append(waits[e.Parent], e.outcome())
	}
	for request, err := range said {
		want, had := telemetry.Acquired, 1
		if err != nil {
			want, had = telemetry.Canceled, 0
		}
		require.Equal(t, []telemetry.Outcome{want}, waits[request])
		require.Equal(t, had, holds[request])
	}
}

// K2: holds that are over before anybody can look at them have a span that ends, and says how.
func TestHoldThatIsOverAtOnceHasASpanThatEnds(t *testing.T) {
	t.Parallel()
	c, spans, _ := traced(t, telemetry.Config{})
	const times = 500
	var wg sync.WaitGroup
	for worker := range 4 {
		wg.Go(func() {
			for range times {
				hold, err := c.Mutex(fmt.Sprint(worker), coordinator.MaxHold(1)).Lock(context.Background())
				if err != nil {
					t.Error(err)
					return
				}
				if err := hold.Unlock(); err != nil && !errors.Is(err, coordinator.ErrHoldExpired) {
					t.Error(err)
				}
			}
		})
	}
	wg.Wait()
	holds := named(flushed(t, c, spans), telemetry.SpanHold)
	require.Len(t, holds, 4*times)
	require.Equal(t, 4*times, spans.begunSoFar()[telemetry.SpanHold])
}

// K2: Close tells what became of traced waits and holds, and loses no span of them.
func TestCloseTellsOfWaitsAndHolds(t *testing.T) {
	t.Parallel()
	c, spans, _ := traced(t, telemetry.Config{})
	const many = 100
	var holds []*coordinator.Hold
	var waits []<-chan outcome
	for n := range many {
		holds = append(holds, take(t, c.Mutex(fmt.Sprint(n))))
		waits = append(waits, lockLater(t.Context(), c.Mutex(fmt.Sprint(n))))
	}
	for n := range many {
		eventually(t, hangs, "it waits", func() bool { return localWaiters(c, fmt.Sprint(n)) == 1 })
	}
	over, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
	defer cancel()
	_ = c.Close(over) // says that holds were left
	for _, wait := range waits {
		require.ErrorIs(t, await(t, wait, hangs, "its end").err, coordinator.ErrClosed)
	}
	for _, hold := range holds {
		require.ErrorIs(t, hold.Unlock(), coordinator.ErrClosed)
	}
	eventually(t, hangs, "all spans", func() bool {
		closed := 0
		for _, e := range spans.all() {
			if e.outcome() == telemetry.Closed {
				closed++
			}
		}
		return closed == 2*many
	})
	require.Len(t, spans.all(), 3*many, "and the waits for the store at first")
	require.Equal(t, map[string]int{telemetry.SpanAcquire: 2 * many, telemetry.SpanHold: many}, spans.begunSoFar())
}

// K2: a traced hold that is taken away by force says so, and who came in leads to it.
func TestForcedUnlockOfATracedHoldIsTold(t *testing.T) {
	t.Parallel()
	s := redistest.Start(t)
	mine, theirs := &spanList{}, &spanList{}
	a := process(t, s.Addr(), coordinator.WithTelemetry(telemetry.Config{TracerProvider: mine.provider()}))
	b := process(t, s.Addr(), coordinator.WithTelemetry(telemetry.Config{TracerProvider: theirs.provider()}))
	hold := grab(t, a.Mutex("k"))
	forced := annotated(t, b, "k")
	waits := lockLater(t.Context(), b.Mutex("k"))
	awaitQueue(t, a, "k", 1)
	require.NoError(t, b.ForceUnlock(t.Context(), "k"))
	got := await(t, waits, hangs, "the lock")
	require.NoError(t, got.err)
	require.ErrorIs(t, ended(t, hold, hangs), coordinator.ErrLeaseLost)
	held := named(flushed(t, a, mine), telemetry.SpanHold)
	require.Len(t, held, 1)
	require.Equal(t, forced, held[0].ID.traceparent())
	require.Equal(t, telemetry.Lost, held[0].outcome())
	require.Equal(t, telemetry.CauseTakenAway, held[0].Attributes[string(telemetry.AttrCause)])
	wait := named(flushed(t, b, theirs), telemetry.SpanAcquire)
	require.Len(t, wait, 1)
	require.Equal(t, []spanID{held[0].ID}, wait[0].leadsTo())
	require.NoError(t, got.hold.Unlock())
}

// K2: a writer that becomes a reader is one hold from beginning to end; a writer elsewhere leads to it.
func TestDowngradeOfATracedWriterIsOneHold(t *testing.T) {
	t.Parallel()
	s := redistest.Start(t)
	mine, theirs := &spanList{}, &spanList{}
	a := process(t, s.Addr(), coordinator.WithTelemetry(telemetry.Config{TracerProvider: mine.provider()}))
	b := process(t, s.Addr(), coordinator.WithTelemetry(telemetry.Config{TracerProvider: theirs.provider()}))
	w := come(t, rwlock.New(a, "k").Lock)
	is := idOf(trace.SpanContextFromContext(w.Context()))
	require.Equal(t, is.traceparent(), annotated(t, b, "k"))
	r, err := w.Downgrade()
	require.NoError(t, err)
	require.Equal(t, is, idOf(trace.SpanContextFromContext(r.Context())))
	goOn(t, rwlock.New(b, "k").RLock)
	waits := later(t.Context(), rwlock.New(b, "k").Lock)
	awaitQueue(t, a, "k", 1)
	require.Empty(t, named(flushed(t, a, mine), telemetry.SpanHold), "it goes on")
	require.NoError(t, r.Unlock())
	got := await(t, waits, hangs, "the lock")
	require.NoError(t, got.err)
	require.NoError(t, got.hold.Unlock())
	held := named(flushed(t, a, mine), telemetry.SpanHold)
	require.Len(t, held, 1)
	require.Equal(t, is, held[0].ID)
	require.Equal(t, telemetry.Released, held[0].outcome())
	writes := 0
	for _, wait := range named(flushed(t, b, theirs), telemetry.SpanAcquire) {
		if wait.Attributes[string(telemetry.AttrMode)] == "exclusive" {
			writes++
			require.Equal(t, []spanID{is}, wait.leadsTo())
		}
	}
	require.Equal(t, 1, writes)
}

// K3: where one request of a hundred is sampled, the others make no span; those that are made have all ended.
func TestSampledRequestsMakeAllTheSpansThereAre(t *testing.T) {
	t.Parallel()
	server := memlease.NewServer()
	t.Cleanup(server.Close)
	spans, m := &spanList{}, newMeter()
	provider := spans.provider(sdktrace.WithSampler(sdktrace.ParentBased(sdktrace.TraceIDRatioBased(0.01))))
	conf := telemetry.Config{TracerProvider: provider, MeterProvider: m.provider, AllAcquires: true}
	pair := []*coordinator.Coordinator{
		inMemory(t, server, coordinator.WithTelemetry(conf)), inMemory(t, server, coordinator.WithTelemetry(conf)),
	}
	tracer := provider.Tracer("requests")
	var sampled atomic.Int64
	var wg sync.WaitGroup
	for worker := range 64 {
		wg.Go(func() {
			for range rounds(300, 10_000) {
				ctx, span := tracer.Start(context.Background(), "request")
				if span.SpanContext().IsSampled() {
					sampled.Add(1)
				}
				hold, err := pair[worker%2].Mutex(fmt.Sprint(rand.IntN(2))).Lock(ctx)
				if err == nil {
					err = hold.Unlock()
				}
				if err != nil {
					t.Error(err)
				}
				span.End()
			}
		})
	}
	wg.Wait()
	for _, c := range pair {
		require.NoError(t, c.FlushTelemetry(t.Context()))
	}
	n := int(sampled.Load())
	want := map[string]int{"request": n, telemetry.SpanAcquire: n, telemetry.SpanHold: n}
	require.Equal(t, want, spans.begunSoFar())
	ended := spans.all()
	require.Len(t, ended, 3*n)
	holds := map[spanID]bool{}
	for _, e := range named(ended, telemetry.SpanHold) {
		holds[e.ID] = true
	}
	for _, wait := range named(ended, telemetry.SpanAcquire) {
		for _, to := range wait.leadsTo() {
			require.True(t, holds[to], "every link leads to a hold that was sampled")
		}
	}
}
