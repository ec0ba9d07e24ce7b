package faulttest

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"os"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/trace"

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
	Holds  []blamerHold // all that there were, traced or not
	Errors []string
}

// blamerHold is a hold as its caller knows it.
type blamerHold struct {
	Key   string
	Token uint64
	Begin time.Time
}

// blamer is the child's side.
type blamer struct {
	order    blamerOrder
	c        *coordinator.Coordinator
	requests trace.Tracer

	mu     sync.Mutex
	report blamerReport
}

func playBlamer(args []string) {
	b := &blamer{}
	exitIf(json.Unmarshal([]byte(args[0]), &b.order))
	spans := &spanList{}
	provider := spans.provider(sdktrace.WithSampler(sdktrace.ParentBased(sdktrace.TraceIDRatioBased(b.order.Sampled))))
	b.requests = provider.Tracer("requests")
	option := patient(b.order.Addr)
	option.ClientName = "coordinator"
	var err error
	b.c, err = coordinator.New(option, coordinator.WithLogger(slog.New(slog.NewTextHandler(os.Stderr, nil))),
		coordinator.WithTelemetry(telemetry.Config{TracerProvider: provider, KeyAttribute: true}))
	exitIf(err)
	faults.Say("ready")
	faults.Hear()
	end := time.Now().Add(b.order.Lasting)
	var wg sync.WaitGroup
	for n := range b.order.Keys * b.order.Callers {
		wg.Go(func() {
			for time.Now().Before(end) {
				b.serve(fmt.Sprintf("k%d", n%b.order.Keys))
			}
		})
	}
	wg.Wait()
	exitIf(shut(b.c))
	b.report.Spans = spans.all()
	text, err := json.Marshal(b.report)
	exitIf(err)
	faults.Say("report %s", text)
}

// serve serves one request, which may wait in vain.
func (b *blamer) serve(key string) {
	ctx, span := b.requests.Start(context.Background(), "request")
	defer span.End()
	longest := b.order.Longest
	hold, err := b.c.Mutex(key).TryLockFor(ctx, max(longest, rand.N(8*longest)))
	if err != nil {
		return
	}
	begin := time.Now()
	time.Sleep(rand.N(longest))
	err = hold.Unlock()
	b.mu.Lock()
	defer b.mu.Unlock()
	b.report.Holds = append(b.report.Holds, blamerHold{key, hold.Token(), begin})
	if err != nil {
		b.report.Errors = append(b.report.Errors, err.Error())
	}
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
	var all blamerReport
	for _, child := range children {
		var report blamerReport
		require.NoError(t, json.Unmarshal([]byte(child.ExpectWithin(t, order.Lasting+hangs, "report")), &report))
		require.Empty(t, report.Errors)
		all.Spans, all.Holds = append(all.Spans, report.Spans...), append(all.Holds, report.Holds...)
	}
	require.Greater(t, killed, 10)
	requireTrueLinks(t, all)
}

// blur is by how much the times of two spans may be apart that are of one moment: each is told by two clocks, which
// can't be read at once.
const blur = 10 * time.Millisecond

// requireTrueLinks holds every link of every wait against all holds that there were.
func requireTrueLinks(t *testing.T, all blamerReport) {
	t.Helper()
	slices.SortFunc(all.Holds, func(a, b blamerHold) int { return cmp.Compare(a.Token, b.Token) })
	holds := map[spanID]exported{}
	for _, e := range named(all.Spans, telemetry.SpanHold) {
		holds[e.ID] = e
	}
	links := 0
	for _, wait := range named(all.Spans, telemetry.SpanAcquire) {
		for _, link := range wait.Links {
			links++
			hold, ok := holds[link.To]
			require.True(t, ok, "a link to a span that is no hold")
			requireInTheWay(t, all.Holds, hold, wait, link.Relation)
		}
	}
	t.Logf("%d holds, %d of them traced, %d links", len(all.Holds), len(holds), links)
	require.Greater(t, links, len(holds)/4, "most links are told")
}

// requireInTheWay wants a hold to be one that kept a call waiting: it began before the call went, and nobody had the key
// after it when the call came. (It may have ended by then, while the release of its lease was yet on its way.)
func requireInTheWay(t *testing.T, all []blamerHold, hold, wait exported, relation string) {
	t.Helper()
	key := hold.Attributes[string(telemetry.AttrKey)]
	require.Equal(t, wait.Attributes[string(telemetry.AttrKey)], key, "a hold of another key")
	require.NotEqual(t, wait.Parent, hold.Parent, "its own")
	require.Less(t, hold.Begin.Sub(wait.End), blur, "%s: the hold began when it had gone: %v, %v", relation, hold, wait)
	token := tokenOf(t, hold)
	next := slices.IndexFunc(all, func(h blamerHold) bool { return h.Key == key && h.Token > token })
	if next >= 0 {
		late := wait.Begin.Sub(all[next].Begin)
		require.Less(t, late, blur, "%s: another hold had begun when it came: %v, %v, %v", relation, hold, all[next], wait)
	}
	if relation == string(telemetry.LinkPredecessor) && wait.outcome() == telemetry.Acquired {
		require.Equal(t, tokenOf(t, wait), all[next].Token, "nobody held between the two: %v, %v", hold, wait)
	}
}

func tokenOf(t *testing.T, e exported) uint64 {
	t.Helper()
	token, err := strconv.ParseUint(e.Attributes[string(telemetry.AttrToken)], 10, 64)
	require.NoError(t, err)
	return token
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

// K2: the trace of a hold that is sent again, since its connection broke, does not come behind the word that the hold is
// over.
func TestTraceThatIsSentAgainDoesNotOutliveItsHold(t *testing.T) {
	t.Parallel()
	s := redistest.Start(t)
	proxy := faults.NewProxy(t, s.Addr())
	traces := coordinator.WithTelemetry(telemetry.Config{TracerProvider: new(spanList).provider(), Roots: -1})
	a, onlooker := steady(t, proxy.Addr(), traces), untraced(t, s)
	for round := range rounds(10, 100) {
		key := fmt.Sprint(round)
		var said, takenBack atomic.Int64
		proxy.OnCommand(func(cmd []string) faults.Action {
			switch {
			case !is("annotate")(cmd):
			case cmd[len(cmd)-1] == "":
				takenBack.Add(1)
			case said.Add(1) == 1:
				time.Sleep(100 * time.Millisecond) // of this connection only: what comes behind is cut with it
				return faults.Cut
			}
			return faults.Pass
		})
		first, err := a.Mutex(key).Lock(telemetry.Traced(t.Context()))
		require.NoError(t, err)
		second := lockLater(t.Context(), a.Mutex(key))
		eventually(t, hangs, "its trace is on its way", func() bool { return said.Load() > 0 && localWaiters(a, key) == 1 })
		require.NoError(t, first.Unlock())
		got := await(t, second, hangs, "the second")
		require.NoError(t, got.err)
		eventually(t, hangs, "both are sent", func() bool { return said.Load() > 1 && takenBack.Load() > 0 })
		eventually(t, soon, "it is taken back", func() bool { return inspect(t, onlooker, key).Holders[0].Trace == "" })
		require.NoError(t, got.hold.Unlock())
	}
}
