package promtest

import (
	"context"
	"fmt"
	"math"
	"regexp"
	"slices"
	"testing"
	"time"

	"github.com/prometheus/prometheus/promql"
	"github.com/stretchr/testify/require"

	"github.com/go-leasehold/leasehold/coordinator"
	"github.com/go-leasehold/leasehold/internal/redistest"
	"github.com/go-leasehold/leasehold/lease"
	"github.com/go-leasehold/leasehold/segment"
	"github.com/go-leasehold/leasehold/telemetry"
)

// TestEveryQueryHasAnAnswer: of the page, the dashboard and, as far as they name what there is, the alert rules. Where a
// metric or an attribute gets another name, or is told no more, this is what fails.
func TestEveryQueryHasAnAnswer(t *testing.T) {
	samples := live(t, everythingHappens)
	samples = append(samples, sale(t, samples[len(samples)-1].at)...)
	s := newServer(t, samples)
	for _, q := range slices.Concat(documented(t), shown(t)) {
		s.readsWhatIsThere(t, q)
		s.answers(t, q)
	}
	for _, q := range alerted(t) {
		s.readsWhatIsThere(t, q)
	}
	s.offersAll(t)
}

// everythingHappens has all troubles within five minutes, as what is asked for is of the last five.
func everythingHappens(w *world) {
	w.trade("order:1", 4*time.Minute)
	w.call(func(ctx context.Context) { w.hold(ctx, w.a, "panic:1", 30*time.Second) }) // a long hold, and a callback that fails
	w.call(func(ctx context.Context) {
		if hold, err := w.a.Mutex("late:1", coordinator.MaxHold(20*time.Second)).Lock(ctx); err == nil {
			time.Sleep(25 * time.Second)
			_ = hold.Unlock()
		}
	})
	w.pass(3 * every)
	w.call(func(ctx context.Context) { w.hold(ctx, w.a, "lost:1", 20*time.Second) })
	w.pass(every)
	w.Lose("lost:1")
	w.pass(every)
	w.failRelease("late:2")
	w.pass(every)
	w.Server.DropEvents(func(string, lease.Event) bool { return true })
	w.pass(2 * every)
	w.Server.DropEvents(nil)
	w.call(func(ctx context.Context) { w.hold(ctx, w.a, "order:2", 3*time.Minute) })
	w.pass(every)
	w.giveUp("order:2", time.Minute)
	w.call(func(ctx context.Context) { w.hold(ctx, w.b, "order:2", 0) }) // waits to the end
	w.pass(4 * every)
}

// sale sells stock on a real server, with more to an order than each segment has left in the end, and says that it took
// some scrapes up to a given moment.
func sale(t *testing.T, end time.Time) (samples []sample) {
	t.Helper()
	server, p := redistest.Start(t), newProcess(t, "c")
	locks, err := coordinator.New(server.Option(),
		coordinator.WithTelemetry(telemetry.Config{MeterProvider: p.provider, KeyClass: classOf})) // a class that has no locks
	require.NoError(t, err)
	defer func() { _ = locks.Close(context.Background()) }() // which may find that the server is not back
	stock, err := segment.NewStock(locks, "sku:9", segment.Config{Segments: 2})
	require.NoError(t, err)
	require.NoError(t, stock.Load(t.Context(), 6))
	for i := range 6 {
		if i == 5 { // what is sent now is not answered
			server.Kill()
			ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
			require.Error(t, stock.Restock(ctx, "r", 1))
			cancel()
			server.Restart()
		}
		_, err := stock.Deduct(t.Context(), segment.Order{ID: fmt.Sprint(i), User: "u", Quantity: 2})
		if i == 5 {
			require.Error(t, err) // the server has lost what it had
		} else if i >= 3 {
			require.ErrorIs(t, err, segment.ErrSoldOut)
		} else {
			require.NoError(t, err)
		}
		require.NoError(t, locks.FlushTelemetry(t.Context()))
		samples = append(samples, p.scrape(t, end.Add(time.Duration(i-5)*every))...)
	}
	return samples
}

var legendLabel = regexp.MustCompile(`{{(\w+)}}`)

// readsWhatIsThere fails the test where a query selects or groups by what is not exported.
func (s *server) readsWhatIsThere(t *testing.T, q query) {
	t.Helper()
	selectors, by := named(t, q.expression)
	require.NotEmptyf(t, selectors, "%s reads nothing", q.from)
	labels := map[string]bool{}
	for _, selector := range selectors {
		series := s.series(t, selector.LabelMatchers)
		require.NotEmptyf(t, series, "%s: nothing is exported as %v", q.from, selector)
		for _, one := range series {
			for name := range one.Map() {
				labels[name] = true
			}
		}
	}
	for _, name := range by {
		require.Truef(t, labels[name], "%s groups by %s, which its metrics don't have", q.from, name)
	}
}

// answers fails the test where a query has no answer but zero, or one without what its legend shows.
func (s *server) answers(t *testing.T, q query) {
	t.Helper()
	result := s.query(t, q.expression)
	require.NotEmptyf(t, result, "%s: no answer to %s", q.from, q.expression)
	for _, x := range result {
		require.Falsef(t, math.IsInf(x.F, 0), "%s: %v", q.from, x)
		for _, name := range legendLabel.FindAllStringSubmatch(q.legend, -1) {
			require.Truef(t, x.Metric.Has(name[1]), "%s: its legend has {{%s}}, which is not in %v", q.from, name[1], x.Metric)
		}
	}
	some := slices.ContainsFunc(result, func(x promql.Sample) bool { return x.F > 0 })
	require.Truef(t, some, "%s: nothing but zero for %s: %v", q.from, q.expression, result)
	t.Logf("%s: %s\n%v", q.from, q.expression, result)
}
