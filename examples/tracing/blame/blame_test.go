package blame

import (
	"bytes"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/otel/trace"
	"go.uber.org/goleak"
	"pgregory.net/rapid"

	"github.com/go-leasehold/leasehold/examples/tracing/otlp"
	"github.com/go-leasehold/leasehold/telemetry"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// id makes a span's name out of two letters: "a1" is span 1 of trace a.
func id(text string) otlp.Ref {
	return otlp.Ref{Trace: trace.TraceID{text[0]}, Span: trace.SpanID{text[1]}}
}

// spanAt is a span from one millisecond to another, below another one of its trace ("" is none).
func spanAt(is, below, service string, from, to int) otlp.Span {
	s := otlp.Span{Ref: id(is), Service: service, Start: time.UnixMilli(int64(from)), End: time.UnixMilli(int64(to))}
	if below != "" {
		s.Parent = id(below).Span
	}
	return s
}

func request(is, service, name string, from, to int) otlp.Span {
	s := spanAt(is, "", service, from, to)
	s.Name, s.Attributes = "POST /", map[string]string{RequestAttribute: name}
	return s
}

func hold(is, below, service, class string, from, to int) otlp.Span {
	s := spanAt(is, below, service, from, to)
	s.Scope, s.Name = telemetry.ScopeName, telemetry.SpanHold
	s.Attributes = map[string]string{string(telemetry.AttrClass): class, string(telemetry.AttrMode): "exclusive"}
	return s
}

// wait is a wait that was granted; links are "holder a1" and the like.
func wait(is, below, service, class string, from, to int, links ...string) otlp.Span {
	s := hold(is, below, service, class, from, to)
	s.Name = telemetry.SpanAcquire
	s.Attributes[string(telemetry.AttrOutcome)], s.Attributes[string(telemetry.AttrPath)] = "acquired", "handoff"
	for _, l := range links {
		relation, target, _ := strings.Cut(l, " ")
		s.Links = append(s.Links, otlp.Link{Ref: id(target), Attributes: map[string]string{string(telemetry.AttrLink): relation}})
	}
	return s
}

func trees(spans ...otlp.Span) string {
	var out bytes.Buffer
	New(spans).PrintTrees(&out)
	return out.String()
}

// The chain goes through processes and locks: c waits for b, which waits, two spans below its hold, for a.
func chain() []otlp.Span {
	return []otlp.Span{
		request("a1", "report", "nightly", 0, 1000), hold("a2", "a1", "report", "stock", 0, 1000),
		request("b1", "shop", "order", 10, 1020), hold("b2", "b1", "shop", "catalog", 10, 1020),
		spanAt("b3", "b2", "shop", 11, 1019), spanAt("b4", "b3", "inventory", 12, 1018),
		wait("b5", "b4", "inventory", "stock", 13, 1001, "holder a2"), hold("b6", "b4", "inventory", "stock", 1001, 1011),
		request("c1", "web", "price", 20, 1040), wait("c2", "c1", "web", "catalog", 20, 1021, "holder b2"),
		hold("c3", "c1", "web", "catalog", 1021, 1040),
	}
}

func TestChainIsATree(t *testing.T) {
	t.Parallel()
	require.Equal(t, ""+
		"\"order\" at shop, 1.01 s\n"+
		"└─ inventory waited 988 ms for stock (exclusive), granted: handoff\n"+
		"   └─ blocked by report's lock.hold (exclusive) in \"nightly\", 1.00 s  <== THE CULPRIT\n"+
		"\n"+
		"\"price\" at web, 1.02 s\n"+
		"└─ web waited 1.00 s for catalog (exclusive), granted: handoff\n"+
		"   └─ blocked by shop's lock.hold (exclusive) in \"order\", 1.01 s\n"+
		"      └─ inventory waited 988 ms for stock (exclusive), granted: handoff\n"+
		"         └─ blocked by report's lock.hold (exclusive) in \"nightly\", 1.00 s  <== THE CULPRIT\n"+
		"\n", trees(chain()...))
}

// Spans come in any order, and more than once.
func TestOrderOfSpansDoesNotMatter(t *testing.T) {
	t.Parallel()
	want := trees(chain()...)
	rapid.Check(t, func(t *rapid.T) {
		require.Equal(t, want, trees(rapid.Permutation(append(chain(), chain()...)).Draw(t, "spans")...))
	})
}

func TestCulpritIsTheSame(t *testing.T) {
	t.Parallel()
	culprits := New(chain()).Culprits()
	require.Equal(t, []Culprit{{
		Ref: id("a2"), Request: "nightly", Service: "report", Class: "stock", Mode: "exclusive",
		Held: time.Second, Waits: 2, Waited: 1989 * time.Millisecond,
	}}, culprits)
}

// All holds that were in the way are shown; that to blame is the one that was for longest.
func TestSeveralLinks(t *testing.T) {
	t.Parallel()
	spans := []otlp.Span{
		request("a1", "report", "nightly", 0, 900), hold("a2", "a1", "report", "stock", 0, 900),
		request("b1", "shop", "quick", 850, 960), hold("b2", "b1", "shop", "stock", 900, 950),
		request("c1", "web", "slow", 100, 1000), wait("c2", "c1", "web", "stock", 100, 950, "predecessor b2", "holder a2"),
	}
	require.Equal(t, ""+
		"\"slow\" at web, 900 ms\n"+
		"└─ web waited 850 ms for stock (exclusive), granted: handoff\n"+
		"   ├─ after shop's lock.hold (exclusive) in \"quick\", 50.0 ms\n"+
		"   └─ blocked by report's lock.hold (exclusive) in \"nightly\", 900 ms  <== THE CULPRIT\n"+
		"\n", trees(spans...))
	require.Equal(t, id("a2"), New(spans).Culprits()[0].Ref)
}

// A hold that waited only for a short part of the time is to blame itself.
func TestShortWaitIsNoExcuse(t *testing.T) {
	t.Parallel()
	for at, want := range map[int]string{100: "b2", 900: "a2"} { // until when the hold waited
		spans := []otlp.Span{
			request("a1", "x", "a", 0, at), hold("a2", "a1", "x", "other", 0, at),
			request("b1", "y", "b", 0, 1000), hold("b2", "b1", "y", "stock", 0, 1000),
			wait("b3", "b2", "y", "other", 0, at, "holder a2"),
			request("c1", "z", "c", 0, 1000), wait("c2", "c1", "z", "stock", 0, 1000, "holder b2"),
		}
		for _, r := range New(spans).Requests() {
			if r.Name == "c" {
				require.Equal(t, id(want), r.Waits[0].Culprit, at)
			}
		}
		require.Contains(t, trees(spans...), "   └─ blocked by y's lock.hold (exclusive) in \"b\", 1.00 s", "it is shown all the same")
		require.Contains(t, trees(spans...), "      └─ y waited")
	}
}

// Of many short holds, one after the other, none is to blame.
func TestQueueIsNobodysFault(t *testing.T) {
	t.Parallel()
	spans := []otlp.Span{request("z1", "x", "last", 0, 950), wait("z2", "z1", "x", "stock", 0, 900, "holder a2", "predecessor c2")}
	for i, name := range []string{"a", "b", "c"} {
		spans = append(spans, request(name+"1", "y", name, 0, 900), hold(name+"2", name+"1", "y", "stock", 300*i, 300*(i+1)))
	}
	require.Empty(t, New(spans).Culprits())
	require.NotContains(t, trees(spans...), "CULPRIT")
}

// What a hold waited for before or after it was in the way is none of the waiter's concern.
func TestOnlyWhatWasMeanwhileCounts(t *testing.T) {
	t.Parallel()
	out := trees(
		request("a1", "x", "a", 0, 1000), hold("a2", "a1", "x", "other", 0, 1000),
		request("b1", "y", "b", 0, 1000), hold("b2", "b1", "y", "stock", 0, 1000), wait("b3", "b2", "y", "other", 0, 100, "holder a2"),
		request("c1", "z", "c", 200, 1000), wait("c2", "c1", "z", "stock", 200, 1000, "holder b2"),
	)
	require.Contains(t, out, ""+
		"└─ z waited 800 ms for stock (exclusive), granted: handoff\n"+
		"   └─ blocked by y's lock.hold (exclusive) in \"b\", 1.00 s  <== THE CULPRIT\n\n")
}

// Two that wait for each other, by two locks: it is said, and nobody is to blame alone.
func TestCircle(t *testing.T) {
	t.Parallel()
	spans := []otlp.Span{
		request("a1", "x", "a", 0, 1000), hold("a2", "a1", "x", "one", 0, 1000), wait("a3", "a2", "x", "two", 1, 1000, "holder b2"),
		request("b1", "y", "b", 0, 1000), hold("b2", "b1", "y", "two", 0, 1000), wait("b3", "b2", "y", "one", 2, 1000, "holder a2"),
	}
	require.Equal(t, ""+
		"\"a\" at x, 1.00 s\n"+
		"└─ x waited 999 ms for two (exclusive), granted: handoff\n"+
		"   └─ blocked by y's lock.hold (exclusive) in \"b\", 1.00 s\n"+
		"      └─ y waited 998 ms for one (exclusive), granted: handoff\n"+
		"         └─ blocked by x's lock.hold (exclusive) in \"a\", 1.00 s\n"+
		"            └─ x waited 999 ms for two (exclusive), granted: handoff: A CIRCLE, they wait for each other\n"+
		"\n"+
		"\"b\" at y, 1.00 s\n"+
		"└─ y waited 998 ms for one (exclusive), granted: handoff\n"+
		"   └─ blocked by x's lock.hold (exclusive) in \"a\", 1.00 s\n"+
		"      └─ x waited 999 ms for two (exclusive), granted: handoff\n"+
		"         └─ blocked by y's lock.hold (exclusive) in \"b\", 1.00 s\n"+
		"            └─ y waited 998 ms for one (exclusive), granted: handoff: A CIRCLE, they wait for each other\n"+
		"\n", trees(spans...))
	require.Empty(t, New(spans).Culprits())
}

// A second way to the same wait is not followed again.
func TestSecondWayIsShort(t *testing.T) {
	t.Parallel()
	out := trees(
		request("a1", "x", "a", 0, 1000), hold("a2", "a1", "x", "deep", 0, 1000),
		request("b1", "y", "b", 0, 1000), hold("b2", "b1", "y", "one", 0, 1000), hold("b3", "b2", "y", "two", 0, 1000),
		wait("b4", "b3", "y", "deep", 0, 1000, "holder a2"),
		request("c1", "z", "c", 0, 1000), wait("c2", "c1", "z", "one", 0, 1000, "holder b2", "holder b3"),
	)
	require.Equal(t, 1, strings.Count(out, "granted: handoff (see above)\n"), out)
	require.Equal(t, 2, strings.Count(out, "<== THE CULPRIT"), out)
}

func TestWhatIsMissingIsSaid(t *testing.T) {
	t.Parallel()
	failed := wait("b2", "b9", "y", "stock", 0, 300, "holder a2")
	failed.Attributes[string(telemetry.AttrOutcome)], failed.Failed = "timeout", true
	unknown := wait("c2", "", "", "stock", 0, 300)
	unknown.Events = []otlp.Event{{Name: telemetry.EventDenied}}
	quick := wait("d2", "", "", "stock", 0, 1) // for the store's answer
	spans := []otlp.Span{failed, unknown, quick}
	require.Equal(t, ""+
		"\"lock.acquire\" at y, 300 ms\n"+
		"└─ y waited 300 ms for stock (exclusive), in vain: timeout\n"+
		"   └─ blocked by a hold that is not here: trace 61000000000000000000000000000000, span 3200000000000000\n"+
		"\n"+
		"\"lock.acquire\" at somebody, 300 ms\n"+
		"└─ somebody waited 300 ms for stock (exclusive), granted: handoff\n"+
		"   └─ for whom is not known, since that hold is not traced\n"+
		"\n", trees(spans...))
	require.Empty(t, New(spans).Culprits())
	all := New(spans).Requests()
	require.Len(t, all, 3)
	require.Equal(t, []bool{true, true, false}, []bool{all[0].Waits[0].Blocked, all[1].Waits[0].Blocked, all[2].Waits[0].Blocked})
	require.True(t, all[0].Waits[0].Failed)
}

func TestAlarmIsShownOnce(t *testing.T) {
	t.Parallel()
	spans := chain()
	alarm := otlp.Event{Name: telemetry.EventAlarm, Attributes: map[string]string{string(telemetry.AttrAlarm): "long_hold"}}
	spans[1].Events = []otlp.Event{{Name: "else"}, alarm, alarm}
	require.Contains(t, trees(spans...), "in \"nightly\", 1.00 s, alarm: long_hold  <==")
}

// Waits beside each other are counted once.
func TestTimeIsCountedOnce(t *testing.T) {
	t.Parallel()
	all := New([]otlp.Span{
		request("a1", "x", "a", 0, 1000),
		wait("a2", "a1", "x", "one", 100, 300), wait("a3", "a1", "x", "two", 200, 400), wait("a4", "a1", "x", "three", 250, 260),
		wait("a5", "a1", "x", "four", 900, 950),
	}).Requests()
	require.Len(t, all, 1)
	require.Equal(t, 350*time.Millisecond, all[0].Waited)
	require.Equal(t, time.Second, all[0].Took)
	require.Len(t, all[0].Waits, 4)
}

// Spans of others that have such names are none of ours.
func TestScopeCounts(t *testing.T) {
	t.Parallel()
	s := wait("a1", "", "x", "one", 0, 10, "holder a1")
	s.Scope = "somebody's"
	require.Empty(t, New([]otlp.Span{s}).Requests())
}

// However spans hang together, there is an end to it, and not too late.
func TestEveryGraphHasAnEnd(t *testing.T) {
	t.Parallel()
	name := rapid.Custom(func(t *rapid.T) string {
		return fmt.Sprintf("%c%c", rapid.ByteRange('a', 'c').Draw(t, "trace"), rapid.ByteRange('1', '9').Draw(t, "span"))
	})
	rapid.Check(t, func(t *rapid.T) {
		var spans []otlp.Span
		links := 0
		for range rapid.IntRange(0, 30).Draw(t, "spans") {
			from := rapid.IntRange(0, 10).Draw(t, "from")
			s := hold(name.Draw(t, "name"), name.Draw(t, "parent"), "x", "one", from, from+rapid.IntRange(-1, 10).Draw(t, "length"))
			if rapid.Bool().Draw(t, "waits") {
				s.Name = telemetry.SpanAcquire
				for _, to := range rapid.SliceOfN(name, 0, 4).Draw(t, "links") {
					s.Links = append(s.Links, otlp.Link{Ref: id(to)})
					links++
				}
			}
			spans = append(spans, s)
		}
		out := trees(spans...)
		// In each tree a wait is followed once, so each link is there once, with the waits below its hold.
		require.LessOrEqual(t, strings.Count(out, "\n"), (len(spans)+2)*(len(spans)+links*(len(spans)+1)+2))
		g := New(spans)
		for _, r := range g.Requests() {
			require.GreaterOrEqual(t, r.Waited, time.Duration(0))
		}
		for _, c := range g.Culprits() {
			require.Positive(t, c.Waits)
		}
	})
}

// A chain of any length is cut where nobody would read on, and a ladder with many ways down does not explode.
func TestDeepChainsAreCut(t *testing.T) {
	t.Parallel()
	const levels = 250
	var spans []otlp.Span
	at := func(level, n int) otlp.Ref {
		return otlp.Ref{Trace: trace.TraceID{1, byte(level)}, Span: trace.SpanID{byte(n)}}
	}
	for level := range levels {
		r, h, w := request("a1", "x", "a", 0, 1000), hold("a2", "a1", "x", "one", 0, 1000), wait("a3", "a2", "x", "two", 0, 1000)
		twin := hold("a4", "a2", "x", "one", 0, 1000)
		r.Ref, h.Ref, w.Ref, twin.Ref = at(level, 1), at(level, 2), at(level, 3), at(level, 4)
		h.Parent, twin.Parent, w.Parent = r.Span, h.Span, twin.Span
		w.Links = []otlp.Link{{Ref: at(level+1, 2)}, {Ref: at(level+1, 4)}}
		spans = append(spans, r, h, w, twin)
	}
	out := trees(spans...)
	require.Less(t, strings.Count(out, "\n"), levels*deepest*5)
	require.Contains(t, out, "granted: handoff ...\n")
}
