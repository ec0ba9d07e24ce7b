package faulttest

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"os"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"

	"github.com/go-leasehold/leasehold/coordinator"
	"github.com/go-leasehold/leasehold/internal/faults"
	"github.com/go-leasehold/leasehold/internal/redistest"
	"github.com/go-leasehold/leasehold/telemetry"
)

func init() { roles["blamer"] = playBlamer }

// blamerOrder is what a process does that locks all the time, and has some of its requests traced.
type blamerOrder struct {
	Addr    string
	Keys    int
	Callers int           // of each key
	Longest time.Duration // of a hold
	Lasting time.Duration
	Sampled float64 // of the requests
}

// blamerReport is what became of it.
type blamerReport struct {
	Spans  []exported
	Errors []string
}

func playBlamer(args []string) {
	var order blamerOrder
	exitIf(json.Unmarshal([]byte(args[0]), &order))
	spans := &spanList{}
	provider := spans.provider(sdktrace.WithSampler(sdktrace.ParentBased(sdktrace.TraceIDRatioBased(order.Sampled))))
	option := patient(order.Addr)
	option.ClientName = "coordinator"
	c, err := coordinator.New(option, coordinator.WithLogger(slog.New(slog.NewTextHandler(os.Stderr, nil))),
		coordinator.WithTelemetry(telemetry.Config{TracerProvider: provider, KeyAttribute: true}))
	exitIf(err)
	faults.Say("ready")
	faults.Hear()
	var report blamerReport
	var mu sync.Mutex
	ctx, cancel := context.WithTimeout(context.Background(), order.Lasting)
	requests := provider.Tracer("requests")
	var wg sync.WaitGroup
	for i := range order.Keys * order.Callers {
		wg.Go(func() {
			for ctx.Err() == nil {
				request, span := requests.Start(context.WithoutCancel(ctx), "request")
				limit := time.Duration(rand.Int64N(int64(8 * order.Longest))) // some wait in vain
				hold, err := c.Mutex(fmt.Sprintf("k%d", i%order.Keys)).TryLockFor(request, max(limit, order.Longest))
				if err == nil {
					time.Sleep(time.Duration(rand.Int64N(int64(order.Longest))))
					err = hold.Unlock()
					if err != nil {
						mu.Lock()
						report.Errors = append(report.Errors, err.Error())
						mu.Unlock()
					}
				}
				span.End()
			}
		})
	}
	wg.Wait()
	cancel()
	exitIf(shut(c))
	report.Spans = spans.all()
	text, err := json.Marshal(report)
	exitIf(err)
	faults.Say("report %s", text)
}

// K2: connections are killed at random, and with them what was to be told. A link that is missing is one thing; none is
// ever wrong.
func TestNoWaitLeadsToAHoldThatWasNotInItsWay(t *testing.T) {
	s := redistest.Start(t)
	order := blamerOrder{
		Addr: s.Addr(), Keys: 8, Callers: 2, Longest: 150 * time.Millisecond, Sampled: 0.5, Lasting: lasting(6*time.Second, time.Minute),
	}
	text, err := json.Marshal(order)
	require.NoError(t, err)
	children := make([]*faults.Child, 3)
	for i := range children {
		children[i] = faults.StartChild(t, "blamer", string(text))
	}
	for _, child := range children {
		child.Expect(t, "ready")
	}
	for _, child := range children {
		child.Send("go")
	}
	killed := 0
	for end := time.Now().Add(order.Lasting); time.Now().Before(end); time.Sleep(rand.N(200 * time.Millisecond)) {
		if ids := coordinatorConnections(t, s); len(ids) > 0 {
			s.Do(t, "CLIENT", "KILL", "ID", ids[rand.IntN(len(ids))])
			killed++
		}
	}
	var spans []exported
	for _, child := range children {
		var report blamerReport
		require.NoError(t, json.Unmarshal([]byte(child.ExpectWithin(t, order.Lasting+hangs, "report")), &report))
		require.Empty(t, report.Errors)
		spans = append(spans, report.Spans...)
	}
	require.Greater(t, killed, 10)
	requireTrueLinks(t, spans)
}

// blur is by how much the times of two spans may be apart that are of one moment: each is told by two clocks, which
// can't be read at once.
const blur = 10 * time.Millisecond

// requireTrueLinks holds every link of every wait against all holds that there were.
func requireTrueLinks(t *testing.T, spans []exported) {
	t.Helper()
	key := string(telemetry.AttrKey)
	holds := map[spanID]exported{}
	for _, e := range named(spans, telemetry.SpanHold) {
		holds[e.ID] = e
	}
	links := 0
	for _, wait := range named(spans, telemetry.SpanAcquire) {
		for _, link := range wait.Links {
			links++
			hold, ok := holds[link.To]
			require.True(t, ok, "a link to a span that is no hold")
			require.Equal(t, wait.Attributes[key], hold.Attributes[key], "a hold of another key")
			require.NotEqual(t, wait.Parent, hold.Parent, "its own")
			require.Less(t, wait.Begin.Sub(hold.End), blur, "%s: the hold was over when it came: %v, %v", link.Relation, hold, wait)
			require.Less(t, hold.Begin.Sub(wait.End), blur, "%s: the hold began when it had gone: %v, %v", link.Relation, hold, wait)
		}
	}
	t.Logf("%d holds, %d links", len(holds), links)
	require.Greater(t, links, len(holds)/4, "most links are told")
}

// K2: a call that comes while its process waits already was never kept waiting by a hold that is over.
func TestLaterWaitDoesNotLeadToAHoldThatIsOver(t *testing.T) {
	t.Parallel()
	s := redistest.Start(t)
	spans := &spanList{}
	traces := coordinator.WithTelemetry(telemetry.Config{TracerProvider: spans.provider()})
	a, between := process(t, s.Addr(), traces), untraced(t, s)
	b := join(t, untracked(s.Addr()), traces) // nothing tells it that the holder is another one
	first := take(t, a.Mutex("k"))
	annotated(t, between, "k")
	second := lockLater(t.Context(), between.Mutex("k"))
	awaitQueue(t, between, "k", 1)
	third := lockLater(t.Context(), b.Mutex("k"))
	awaitQueue(t, between, "k", 2)
	require.NoError(t, first.Unlock())
	got := await(t, second, hangs, "the second")
	require.NoError(t, got.err)
	_, err := b.Mutex("k").TryLockFor(t.Context(), 10*time.Millisecond)
	require.ErrorIs(t, err, coordinator.ErrNotAcquired)
	require.NoError(t, b.FlushTelemetry(t.Context()))
	for _, wait := range named(spans.all(), telemetry.SpanAcquire) {
		if wait.outcome() == telemetry.Timeout {
			require.Empty(t, wait.Links, "it came when that hold was over")
		}
	}
	require.NoError(t, got.hold.Unlock())
	got = await(t, third, hangs, "the third")
	require.NoError(t, got.err)
	require.NoError(t, got.hold.Unlock())
}

// K2: what takes a trace back from Redis may be lost; it is said again. Who comes then waits for a hold that nobody
// traces, and is not led to the one before.
func TestTraceThatCouldNotBeTakenBackLeadsNobodyAstray(t *testing.T) {
	t.Parallel()
	for name, lose := range map[string]faults.Action{
		"cut": faults.Cut, "refused": faults.Fail("BUSY Redis is busy running a script."), "unanswered": faults.Silence,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			const ttl = 3 * time.Second
			s := redistest.Start(t)
			proxy := faults.NewProxy(t, s.Addr())
			spans := &spanList{}
			traces := coordinator.WithTelemetry(telemetry.Config{TracerProvider: spans.provider(), Roots: -1})
			a, b := steady(t, proxy.Addr(), traces, coordinator.WithTTL(ttl)), steady(t, s.Addr(), traces, coordinator.WithTTL(ttl))
			first, err := a.Mutex("k").Lock(telemetry.Traced(t.Context()))
			require.NoError(t, err)
			annotated(t, b, "k")
			second := lockLater(t.Context(), a.Mutex("k"))
			eventually(t, hangs, "it waits", func() bool { return localWaiters(a, "k") == 1 })
			var lost atomic.Int64
			proxy.OnCommand(func(cmd []string) faults.Action {
				if is("annotate")(cmd) && cmd[len(cmd)-1] == "" && lost.Add(1) == 1 {
					return lose
				}
				return faults.Pass
			})
			require.NoError(t, first.Unlock())
			got := await(t, second, hangs, "the second")
			require.NoError(t, got.err)
			eventually(t, hangs, "it is lost", func() bool { return lost.Load() > 0 })
			eventually(t, hangs, "it is said again", func() bool { return inspect(t, b, "k").Holders[0].Trace == "" })
			_, err = b.Mutex("k").TryLockFor(telemetry.Traced(t.Context()), 300*time.Millisecond)
			require.ErrorIs(t, err, coordinator.ErrNotAcquired)
			require.NoError(t, b.FlushTelemetry(t.Context()))
			failed := 0
			for _, wait := range named(spans.all(), telemetry.SpanAcquire) {
				if wait.outcome() == telemetry.Timeout {
					failed++
					require.Empty(t, wait.Links)
				}
			}
			require.Equal(t, 1, failed)
			require.NoError(t, got.hold.Unlock())
		})
	}
}
