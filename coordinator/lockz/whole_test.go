package lockz

import (
	"bytes"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	sdk "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/trace"

	"github.com/go-leasehold/leasehold/coordinator"
	"github.com/go-leasehold/leasehold/lease"
	"github.com/go-leasehold/leasehold/telemetry"
)

// All that is known of a key reaches the page.

// span is the nth of the spans of a test, and at is where the page says that it is.
func span(n byte) trace.SpanContext {
	return trace.NewSpanContext(trace.SpanContextConfig{
		TraceID: trace.TraceID{n}, SpanID: trace.SpanID{n, n}, TraceFlags: trace.FlagsSampled,
	})
}

func at(n byte) *Trace {
	id, spanID := span(n).TraceID().String(), span(n).SpanID().String()
	return &Trace{TraceID: id, SpanID: spanID, URL: "http://jaeger/" + id + "/" + spanID}
}

// allSet says that each field is set in one of the values at least, so that a new one
// is not forgotten, but for those named.
func allSet[T any](t *testing.T, values []T, but ...string) {
	t.Helper()
	for f := range fields(reflect.TypeFor[T]()) {
		set := false
		for _, v := range values {
			set = set || !reflect.ValueOf(v).FieldByIndex(f.Index).IsZero()
		}
		require.NotEqual(t, set, slices.Contains(but, f.Name), "%T.%s", values[0], f.Name)
	}
}

func named(key string) Name { return Name{Text: key, Bytes: len(key)} }

// keysOfAll are keys of which all is known: two callers who wait for each other, a
// read/write lock held here, and one held elsewhere.
var keysOfAll = []coordinator.KeySnapshot{
	{
		Key: "cart", Class: "carts", Kind: lease.Mutex, Phase: "held", Mode: lease.Exclusive, Owner: "here:1",
		Valid: 9 * time.Second, Wanted: true,
		Holds: []coordinator.HoldSnapshot{{
			Mode: lease.Exclusive, Token: 11, Count: 1, Age: 50 * time.Second, Path: telemetry.PathRedis,
			Trace: span(1), Owner: 1, Place: "cart.go:1",
		}},
		Waiters: []coordinator.WaiterSnapshot{
			{Mode: lease.Exclusive, Waited: 40 * time.Second, Owners: []int{2}, Trace: span(2), Place: "cart.go:2"},
		},
	},
	{
		Key: "order", Class: "orders", Kind: lease.Mutex, Phase: "held", Mode: lease.Exclusive, Owner: "here:2",
		Valid: 8 * time.Second,
		Holds: []coordinator.HoldSnapshot{{
			Mode: lease.Exclusive, Token: 12, Count: 1, Age: 49 * time.Second, Path: telemetry.PathRetained,
			Trace: span(3), Owner: 2, Place: "order.go:1",
		}},
		Waiters: []coordinator.WaiterSnapshot{
			{Mode: lease.Exclusive, Waited: 39 * time.Second, Owners: []int{1}, Trace: span(4), Place: "order.go:2"},
		},
	},
	{
		Key: "stock", Kind: lease.ReadWrite, Phase: "held", Mode: lease.Shared, Owner: "here:3", Valid: 7 * time.Second,
		Readers: 3,
		Holds: []coordinator.HoldSnapshot{
			{Mode: lease.Shared, Token: 13, Count: 2, Reads: 2, Age: 30 * time.Second, Path: telemetry.PathPassed, Owner: 3},
			{Mode: lease.Shared, Token: 13, Count: 1, Reads: 1, Age: 29 * time.Second, Path: telemetry.PathLocal},
			{Mode: lease.Shared, Token: 13, Count: 1, Reads: 1, Age: 28 * time.Second},
		},
		Waiters: []coordinator.WaiterSnapshot{
			{Mode: lease.Exclusive, Waited: 20 * time.Second, Trace: span(5)},
			{Mode: lease.Shared, Waited: 19 * time.Second},
			{Mode: lease.Shared, Waited: 18 * time.Second},
		},
	},
	{
		Key: "theirs", Kind: lease.Mutex, Phase: "queued", Mode: lease.Exclusive, Owner: "here:4",
		Holder: "there:1", HolderTrace: span(6), HolderTraceAge: 3 * time.Second, Rank: 2, Failure: errors.New("away"),
		Waiters: []coordinator.WaiterSnapshot{{Mode: lease.Exclusive, Try: true, Waited: 10 * time.Second}},
	},
}

func TestAllOfAKeyIsOnThePage(t *testing.T) {
	now := time.Date(2026, 5, 4, 3, 2, 1, 0, time.UTC)
	ago := func(seconds int) time.Time { return now.Add(-time.Duration(seconds) * time.Second) }
	h := &handler{}
	h.conf.telemetry.TraceURL = "http://jaeger/{trace}/{span}"
	p := &picture{h: h, asked: request{limit: 100, each: 2}, callers: map[int]int{}}
	p.At = now
	p.tell(t.Context(), coordinator.Snapshot{Keys: keysOfAll}, time.Millisecond)

	rank := 2
	cart := Key{
		Name: named("cart"), Class: "carts", Kind: "mutex", Phase: "held", Mode: "exclusive", Owner: "here:1", Valid: 9,
		Wanted: true, Cycle: true, LongestWait: 40, LongestHold: 50,
		Holds: []Hold{{
			Caller: 2, Mode: "exclusive", Token: 11, Count: 1, Age: 50, Since: ago(50), Path: "redis", Trace: at(1), Place: "cart.go:1",
		}},
		Waiters: []Waiter{{Callers: []int{1}, Mode: "exclusive", Age: 40, Since: ago(40), Trace: at(2), Place: "cart.go:2"}},
	}
	order := Key{
		Name: named("order"), Class: "orders", Kind: "mutex", Phase: "held", Mode: "exclusive", Owner: "here:2", Valid: 8,
		Cycle: true, LongestWait: 39, LongestHold: 49,
		Holds: []Hold{{
			Caller: 1, Mode: "exclusive", Token: 12, Count: 1, Age: 49, Since: ago(49), Path: "retained", Trace: at(3), Place: "order.go:1",
		}},
		Waiters: []Waiter{{Callers: []int{2}, Mode: "exclusive", Age: 39, Since: ago(39), Trace: at(4), Place: "order.go:2"}},
	}
	theirs := Key{
		Name: named("theirs"), Kind: "mutex", Phase: "queued", Mode: "exclusive", Owner: "here:4", Holder: "there:1",
		HolderTrace: at(6), HolderTraceAge: 3, Rank: &rank, Failure: "away", LongestWait: 10,
		Holds: []Hold{}, Waiters: []Waiter{{Mode: "exclusive", Try: true, Age: 10, Since: ago(10)}},
	}
	writer := Waiter{Mode: "exclusive", Age: 20, Since: ago(20), Trace: at(5)}
	stock := Key{
		Name: named("stock"), Kind: "read/write lock", Phase: "held", Mode: "shared", Owner: "here:3", Valid: 7,
		Readers: 3, LongestWait: 20, LongestHold: 30, MoreHolds: 1, MoreWaiters: 1,
		Holds: []Hold{
			{Mode: "shared", Token: 13, Count: 2, Reads: 2, Age: 30, Since: ago(30), Path: "passed"},
			{Mode: "shared", Token: 13, Count: 1, Reads: 1, Age: 29, Since: ago(29), Path: "local"},
		},
		Waiters: []Waiter{writer, {Mode: "shared", Age: 19, Since: ago(19)}},
	}
	require.Equal(t, []Key{cart, order, theirs, stock}, p.Keys)
	allSet(t, p.Keys)
	allSet(t, []Hold{cart.Holds[0], stock.Holds[0]})
	allSet(t, []Waiter{cart.Waiters[0], theirs.Waiters[0]})

	waits := []Wait{
		{Key: named("cart"), Mode: "exclusive", Age: 40, Callers: []int{1}, Has: []Name{named("order")}, For: []int{2}, Trace: at(2), Cycle: true},
		{Key: named("order"), Mode: "exclusive", Age: 39, Callers: []int{2}, Has: []Name{named("cart")}, For: []int{1}, Trace: at(4), Cycle: true},
		{Key: named("stock"), Mode: "exclusive", Age: 20, For: []int{3}, Trace: at(5)},
		{Key: named("stock"), Mode: "shared", Age: 19, Behind: &writer},
		{Key: named("stock"), Mode: "shared", Age: 18, Behind: &writer},
		{Key: named("theirs"), Mode: "exclusive", Age: 10, Holder: "there:1", HolderTrace: at(6)},
	}
	require.Equal(t, waits, p.Waits)
	allSet(t, waits)

	require.Equal(t, []Cycle{{Steps: []Step{
		{
			Caller: 1, Has: named("order"), Token: 12, Held: 49, Trace: at(3),
			Key: named("cart"), Mode: "exclusive", Age: 40, Place: "cart.go:2",
		},
		{
			Caller: 2, Has: named("cart"), Token: 11, Held: 50, Trace: at(1),
			Key: named("order"), Mode: "exclusive", Age: 39, Place: "order.go:2",
		},
	}}}, p.Cycles)
	allSet(t, p.Cycles[0].Steps, "Process", "Next")

	var body bytes.Buffer
	require.NoError(t, p.write(&body))
	shows(t, body.String(), `caller 1 waits for 40.0 s (<a href="`+at(2).URL+`"`) // in the tree
}

func TestAllOfAFleetKeyIsOnThePage(t *testing.T) {
	now := time.Date(2026, 5, 4, 3, 2, 1, 0, time.UTC)
	ago := func(seconds int) time.Time { return now.Add(-time.Duration(seconds) * time.Second) }
	onStage(t, func(t *testing.T, s *scene) {
		here := lease.Owner(s.Coordinator.ID(), 3)
		info := lease.Info{
			Key: "stock", Kind: lease.ReadWrite, Token: 17,
			Holders: []lease.Holder{
				{Owner: "there:1", Mode: lease.Exclusive, TTL: 5 * time.Second, Since: ago(30), Trace: telemetry.FormatTrace(span(1))},
			},
			Waiters: []lease.Waiter{
				{Owner: here, Mode: lease.Shared, TTL: 10 * time.Second, Since: ago(20)},
				{Owner: "far:2", Mode: lease.Exclusive, TTL: 9 * time.Second},
			},
		}
		h := s.page.(*handler)
		h.conf.telemetry.TraceURL = "http://jaeger/{trace}/{span}"
		got := h.fleetKey("stock", answer{info: info}, now)
		require.Equal(t, FleetKey{
			Name: named("stock"), Token: 17,
			Holders: []Process{{Owner: "there:1", Mode: "exclusive", TTL: 5, Since: ago(30), Age: 30, Trace: at(1)}},
			Waiters: []Process{
				{Owner: here, Here: true, Mode: "shared", TTL: 10, Since: ago(20), Age: 20},
				{Owner: "far:2", Mode: "exclusive", TTL: 9},
			},
		}, got)
		allSet(t, append(got.Holders, got.Waiters...))
		require.Equal(t, FleetKey{
			Name: named("k"), Error: "away", Holders: []Process{}, Waiters: []Process{},
		}, h.fleetKey("k", answer{err: errors.New("away")}, now))

		mine := lease.Info{Key: "cart", Kind: lease.Mutex,
			Holders: []lease.Holder{{Owner: here, Mode: lease.Exclusive, Since: ago(40)}},
			Waiters: []lease.Waiter{{Owner: "there:4", Mode: lease.Exclusive, Since: ago(10)}},
		}
		f := fleetLook{at: now, least: leastWait, here: s.Coordinator.ID()}
		require.Equal(t, []Cycle{{Possible: true, Steps: []Step{
			{Process: s.Coordinator.ID(), Has: named("cart"), Held: 40, Key: named("stock"), Mode: "shared", Age: 20},
			{Process: "there", Has: named("stock"), Held: 30, Key: named("cart"), Mode: "exclusive", Age: 10},
		}}}, fleetCycles(f.waits([]lease.Info{info, mine})))
	})
}

// From a real coordinator: the page leads from a wait to its request, and to the hold
// elsewhere that it waits for, without asking the store.
func TestAWaitLeadsToTracesHereAndElsewhere(t *testing.T) {
	provider := sdk.NewTracerProvider()
	traced := coordinator.WithTelemetry(telemetry.Config{TracerProvider: provider, TraceURL: "http://jaeger/{trace}/{span}"})
	onStage(t, func(t *testing.T, s *scene) {
		there := s.Another(traced)
		ctx, theirs := provider.Tracer("test").Start(s.ctx, "theirs")
		h, err := there.Mutex("k").Lock(ctx)
		require.NoError(t, err)
		is := trace.SpanContextFromContext(h.Context())
		ctx, ours := provider.Tracer("test").Start(s.ctx, "ours")
		s.queue(ctx, "k")
		time.Sleep(2 * time.Second)
		synctest.Wait()
		place := func(span trace.SpanContext) *Trace {
			trace, id := span.TraceID().String(), span.SpanID().String()
			return &Trace{TraceID: trace, SpanID: id, URL: "http://jaeger/" + trace + "/" + id}
		}
		p := s.json("/?format=json")
		k := p.key(t, "k")
		require.Equal(t, lease.Owner(there.ID(), 1), k.Holder)
		require.Equal(t, place(is), k.HolderTrace)
		require.Less(t, k.HolderTraceAge, Seconds(2))
		require.Equal(t, []Waiter{{Mode: "exclusive", Age: 2, Since: p.At.Add(-2 * time.Second), Trace: place(ours.SpanContext())}}, k.Waiters)
		body := s.get("/").Body.String()
		link := func(span trace.SpanContext) string {
			return fmt.Sprintf(`<a href="%s" target="_blank" rel="noopener noreferrer" title="%s">trace</a>`, place(span).URL, span.TraceID())
		}
		shows(t, body, `<small>held by <span class="text">`+k.Holder+`</span> (`+link(is)+`, heard of `)
		shows(t, body, `held by <span class="text">`+k.Holder+`</span> (`+link(is)+`)`) // in the tree
		shows(t, body, `since <time datetime="2000-01-01T00:00:00.000Z">00:00:00</time>, `+link(ours.SpanContext()))
		require.NoError(t, h.Unlock())
		theirs.End()
		ours.End()
	}, traced)
	require.NoError(t, provider.Shutdown(t.Context()))
}

// Since when is text, which can be read where nothing hovers; of yesterday with the day.
func TestSinceWhenIsText(t *testing.T) {
	since := func(age time.Duration) string {
		var text strings.Builder
		at := time.Date(2026, 5, 4, 3, 2, 1, 0, time.UTC)
		require.NoError(t, page.ExecuteTemplate(&text, "since", Waiter{Age: seconds(age), Since: at.Add(-age)}))
		return text.String()
	}
	require.Equal(t, `since <time datetime="2026-05-04T03:02:00.750Z">03:02:00</time>`, since(250*time.Millisecond))
	require.Equal(t, `since <time datetime="2026-05-03T03:02:02.000Z">03:02:02</time>`, since(24*time.Hour-time.Second))
	require.Equal(t, `since <time datetime="2026-05-03T03:02:01.000Z">2026-05-03 03:02:01</time>`, since(24*time.Hour))
	onStage(t, func(t *testing.T, s *scene) {
		s.lock(s.ctx, "k")
		time.Sleep(time.Second)
		s.queue(s.ctx, "k")
		body := s.get("/").Body.String()
		shows(t, body, `<small>since <time datetime="2000-01-01T00:00:00.000Z">00:00:00</time>, token `)
		shows(t, body, `<small>since <time datetime="2000-01-01T00:00:01.000Z">00:00:01</time></small>`)
	})
}
