package segment

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	sdk "go.opentelemetry.io/otel/sdk/metric"
	"go.opentelemetry.io/otel/sdk/metric/metricdata"

	"github.com/go-leasehold/leasehold/coordinator"
	"github.com/go-leasehold/leasehold/internal/redistest"
	"github.com/go-leasehold/leasehold/telemetry"
)

// meter reads the metrics of a process.
type meter struct {
	t      testing.TB
	reader *sdk.ManualReader
	class  func(string) string
}

func newMeter(t testing.TB, class func(string) string) *meter {
	return &meter{t, sdk.NewManualReader(), class}
}

func (m *meter) option() coordinator.Option {
	return coordinator.WithTelemetry(telemetry.Config{
		MeterProvider: sdk.NewMeterProvider(sdk.WithReader(m.reader)), KeyClass: m.class,
	})
}

// collect returns all metrics of stocks, without what their names have in common.
func (m *meter) collect() map[string]metricdata.Aggregation {
	m.t.Helper()
	var all metricdata.ResourceMetrics
	require.NoError(m.t, m.reader.Collect(context.Background(), &all))
	found := map[string]metricdata.Aggregation{}
	for _, scope := range all.ScopeMetrics {
		for _, x := range scope.Metrics {
			if name, ok := strings.CutPrefix(x.Name, "leasehold.stock."); ok {
				found[name] = x.Data
			}
		}
	}
	return found
}

// sums returns the sums that are not 0, by metric, class, operation and outcome, as far as it has them.
func (m *meter) sums() map[string]int64 {
	m.t.Helper()
	sums := map[string]int64{}
	for name, data := range m.collect() {
		sum, ok := data.(metricdata.Sum[int64])
		if !ok {
			continue
		}
		for _, point := range sum.DataPoints {
			words := []string{name}
			for _, key := range []string{string(telemetry.AttrClass), string(telemetry.AttrOperation), string(telemetry.AttrOutcome)} {
				for _, a := range point.Attributes.ToSlice() {
					if string(a.Key) == key {
						words = append(words, a.Value.AsString())
					}
				}
			}
			require.NotContains(m.t, sums, strings.Join(words, " "))
			require.GreaterOrEqual(m.t, point.Value, int64(0), words)
			if point.Value != 0 {
				sums[strings.Join(words, " ")] = point.Value
			}
		}
	}
	return sums
}

// only returns the sums of some metrics.
func (m *meter) only(names ...string) map[string]int64 {
	m.t.Helper()
	sums := m.sums()
	for key := range sums {
		if name, _, _ := strings.Cut(key, " "); !slices.Contains(names, name) {
			delete(sums, key)
		}
	}
	return sums
}

// series counts the series of all metrics of stocks; a histogram is one.
func (m *meter) series() (n int) {
	m.t.Helper()
	for _, data := range m.collect() {
		switch d := data.(type) {
		case metricdata.Sum[int64]:
			n += len(d.DataPoints)
		case metricdata.Histogram[int64]:
			n += len(d.DataPoints)
		}
	}
	return n
}

// batches returns how many commands with orders there were, and how many orders they carried.
func (m *meter) batches() (commands, orders int64) {
	m.t.Helper()
	h, _ := m.collect()["batch.size"].(metricdata.Histogram[int64])
	for _, point := range h.DataPoints {
		commands, orders = commands+int64(point.Count), orders+point.Sum
	}
	return commands, orders
}

// named is a class function that takes what is before the first blank.
func named(name string) string {
	class, _, _ := strings.Cut(name, " ")
	return class
}

// counter makes calls of which only the numbers matter.
type counter struct {
	t    *testing.T
	s    *Stock
	gone context.Context // canceled
	late context.Context // its deadline has passed
}

func (c *counter) deduct(ctx context.Context, id string, n int64) {
	_, _ = c.s.Deduct(ctx, Order{ID: id, User: "u", Quantity: n})
}

func (c *counter) reserve(id string, n int64, ttl time.Duration) {
	_, _ = c.s.Reserve(c.t.Context(), Order{ID: id, User: "u", Quantity: n}, ttl)
}

// alone has calls of one stock come to all that they may.
func (c *counter) alone() {
	ctx, s := c.t.Context(), c.s
	order := func(id string) Order { return Order{ID: id, User: "u"} }
	c.deduct(ctx, "o1", 3)
	c.deduct(ctx, "o1", 3) // repeated
	c.deduct(ctx, "o1", 2) // refused: another quantity
	c.deduct(ctx, "", 1)
	_, _ = s.Deduct(ctx, Order{Quantity: 2})
	c.deduct(ctx, "o2", 1000) // sold out
	c.deduct(c.gone, "o3", 1) // canceled
	c.deduct(c.late, "o3", 1) // timeout
	c.deduct(ctx, "o3", 0)    // bad input
	c.reserve("r1", 4, time.Hour)
	c.reserve("r1", 4, time.Hour) // repeated
	c.reserve("r2", 1, time.Hour)
	c.reserve("r3", 1, 0) // bad input
	for range 2 {         // the second is repeated
		_, _ = s.Confirm(ctx, order("r1"))
		_ = s.Cancel(ctx, order("r2"))
		_ = s.Return(ctx, order("o1"))
		_ = s.Restock(ctx, "s1", 10)
		_, _ = s.Confirm(ctx, order("nobody's")) // refused
	}
	_ = s.Return(ctx, order("never")) // refused
	_, _ = s.Lookup(ctx, "u", "o1")
	require.NoError(c.t, s.WithSegment(ctx, "u", 2, func(context.Context, Held) error { return nil }))
	require.Error(c.t, s.WithSegment(ctx, "u", 1, func(context.Context, Held) error { return context.Canceled }))
}

// limited has calls of a stock with a limit of 3 a user come to the rest.
func (c *counter) limited() {
	c.deduct(c.t.Context(), "o1", 2)
	c.deduct(c.t.Context(), "o2", 2) // limited
	c.reserve("r1", 1, time.Millisecond)
	eventually(c.t, "the reservation is over", func() bool {
		r, err := c.s.Lookup(c.t.Context(), "u", "r1")
		return err == nil && r.State == Expired
	})
	_, _ = c.s.Confirm(c.t.Context(), Order{ID: "r1", User: "u"}) // expired
}

// together has calls of both stocks.
func (c *counter) together(other *Stock) {
	ctx, lines := c.t.Context(), []Line{{c.s, 1}, {other, 1}}
	for range 2 {
		_, _ = DeductAll(ctx, "all", "v", lines...)
	}
	for range 2 {
		_ = ReturnAll(ctx, "all", "v", lines...)
	}
	_, _ = DeductAll(ctx, "much", "v", Line{c.s, 1}, Line{other, 4}) // limited
	_, _ = DeductAll(ctx, "", "v", lines...)                         // bad input
	_, _ = DeductAll(c.gone, "o", "v", lines...)                     // canceled
	_, _ = DeductAll(ctx, "one", "v", lines[0])                      // which is a Deduct
}

// TestEveryAnswerIsCounted: each operation with each outcome that one process alone can have.
func TestEveryAnswerIsCounted(t *testing.T) {
	t.Parallel()
	ctx, m := t.Context(), newMeter(t, named)
	c := processAt(t, redistest.Shared(t).Option(), m.option())
	s := opened(t, c, "shoes "+redistest.Prefix(t), Config{Segments: 1})
	other := opened(t, c, "hats "+redistest.Prefix(t), Config{Segments: 2, PerUser: 3})
	require.NoError(t, s.Load(ctx, 20))
	require.NoError(t, other.Load(ctx, 20))
	gone, cancel := context.WithCancel(ctx)
	cancel()
	late, cancel := context.WithDeadline(ctx, time.Now().Add(-time.Second))
	defer cancel()
	shoes, hats := counter{t, s, gone, late}, counter{t, other, gone, late}
	shoes.alone()
	hats.limited()
	shoes.together(other)
	require.Equal(t, map[string]int64{
		"orders shoes deduct done": 4, "units shoes deduct": 7,
		"orders shoes deduct repeated": 1, "orders shoes deduct refused": 1, "orders shoes deduct sold_out": 1,
		"orders shoes deduct canceled": 1, "orders shoes deduct timeout": 1,
		"orders shoes reserve done": 4, "units shoes reserve": 8, "orders shoes reserve repeated": 1,
		"orders shoes confirm done": 2, "units shoes confirm": 6, "orders shoes confirm repeated": 1, "orders shoes confirm refused": 2,
		"orders shoes cancel done": 2, "units shoes cancel": 2, "orders shoes cancel repeated": 1,
		"orders shoes return done": 1, "units shoes return": 3, "orders shoes return repeated": 1, "orders shoes return refused": 1,
		"orders shoes restock done": 1, "units shoes restock": 10, "orders shoes restock repeated": 1,
		"orders shoes deduct_all done": 1, "units shoes deduct_all": 1, "orders shoes deduct_all repeated": 1,
		"orders shoes deduct_all limited": 1, "orders shoes deduct_all canceled": 1,
		"orders shoes return_all done": 2, "units shoes return_all": 2,
		"orders hats deduct done": 1, "units hats deduct": 2, "orders hats deduct limited": 1,
		"orders hats reserve done": 1, "units hats reserve": 1, "orders hats confirm expired": 1,
		"orders hats deduct_all done": 1, "units hats deduct_all": 1, "orders hats deduct_all repeated": 1,
		"orders hats deduct_all limited": 1, "orders hats deduct_all canceled": 1,
		"orders hats return_all done": 2, "units hats return_all": 2,
	}, m.only("orders", "units"))
}

// ledger counts what callers were told.
type ledger struct {
	mu   sync.Mutex
	told map[string]int64
}

func (l *ledger) note(op telemetry.Operation, repeated bool, err error) {
	out := toldOf(err)
	if repeated {
		out = telemetry.Repeated
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.told[fmt.Sprintf("orders other %s %s", op, out)]++
}

// merged is a count in which done and repeated are one, for operations that don't tell their callers which.
func merged(all map[string]int64) map[string]int64 {
	sums := map[string]int64{}
	for key, n := range all {
		for _, op := range []string{"cancel", "return", "return_all", "restock"} {
			key = strings.Replace(key, op+" repeated", op+" done", 1)
		}
		sums[key] += n
	}
	return sums
}

// hasty returns a context as impatient callers have them.
func hasty(t testing.TB) (context.Context, context.CancelFunc) {
	soon := rand.N(3 * time.Millisecond)
	switch rand.N(6) {
	case 0, 1:
		return context.WithTimeout(t.Context(), soon)
	case 2:
		ctx, cancel := context.WithCancel(t.Context())
		time.AfterFunc(soon, cancel)
		return ctx, cancel
	case 3:
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		return ctx, cancel
	}
	return context.WithCancel(t.Context())
}

// unsteady loses some answers and some calls.
func unsteady(s server) server {
	return &hooked{
		server: s,
		before: func(calls []call) []answer {
			if rand.N(30) == 0 {
				return failAll(calls, errUnreachable)
			}
			return nil
		},
		after: func(_ []call, answers []answer) {
			if rand.N(30) == 0 {
				for i := range answers {
					answers[i] = answer{err: errLost}
				}
			}
		},
	}
}

// once makes a random call.
func (l *ledger) once(ctx context.Context, s, other *Stock) {
	o := Order{ID: fmt.Sprint("o", rand.N(40)), User: fmt.Sprint("u", rand.N(3)), Quantity: 1}
	lines := []Line{{s, 1}, {other, 1}}
	spans := o.ID // of an order that may be both
	if rand.N(2) == 0 {
		spans = "all" + o.ID
	}
	switch rand.N(12) {
	case 0, 1:
		r, err := s.Deduct(ctx, o)
		l.note(telemetry.OperationDeduct, r.Repeated, err)
	case 2, 3:
		r, err := s.Deduct(ctx, Order{Quantity: 1 + rand.Int64N(2)})
		l.note(telemetry.OperationDeduct, r.Repeated, err)
	case 4:
		r, err := s.Reserve(ctx, o, time.Duration(1+rand.N(50))*time.Millisecond)
		l.note(telemetry.OperationReserve, r != nil && r.Repeated, err)
	case 5:
		r, err := s.Confirm(ctx, o)
		l.note(telemetry.OperationConfirm, r.Repeated, err)
	case 6:
		l.note(telemetry.OperationCancel, false, s.Cancel(ctx, o))
	case 7:
		l.note(telemetry.OperationReturn, false, s.Return(ctx, o))
	case 8:
		l.note(telemetry.OperationRestock, false, s.Restock(ctx, o.ID, 1))
	case 9:
		r, err := DeductAll(ctx, spans, o.User, lines...)
		l.note(telemetry.OperationDeductAll, r.Repeated, err)
	case 10:
		l.note(telemetry.OperationReturnAll, false, ReturnAll(ctx, spans, o.User, lines...))
	default:
		_, _ = s.Lookup(ctx, o.User, o.ID)
	}
}

// TestCallersAreCountedAsTheyWereTold: random calls of impatient callers over a connection that loses things, each
// counted once, whatever became of it.
func TestCallersAreCountedAsTheyWereTold(t *testing.T) {
	t.Parallel()
	m := newMeter(t, named)
	c := processAt(t, redistest.Shared(t).Option(), m.option(), coordinator.WithUnavailableAfter(20*time.Millisecond))
	calm := opened(t, c, "other "+redistest.Prefix(t), Config{Segments: 2, MaxWaiting: 6})
	aside := opened(t, c, "aside "+redistest.Prefix(t), Config{Segments: 1})
	require.NoError(t, calm.Load(t.Context(), 60))
	require.NoError(t, aside.Load(t.Context(), 1000))
	s := through(t, calm, unsteady)
	l := ledger{told: map[string]int64{}}
	var all sync.WaitGroup
	for range 24 {
		all.Go(func() {
			for range 60 {
				ctx, cancel := hasty(t)
				l.once(ctx, s, aside)
				cancel()
			}
		})
	}
	all.Wait()
	counted := m.only("orders")
	for key := range counted {
		if strings.Contains(key, " aside ") {
			delete(counted, key)
		}
	}
	require.Equal(t, merged(l.told), merged(counted))
	outcomes := map[string]bool{}
	for key := range counted {
		outcomes[key[strings.LastIndex(key, " ")+1:]] = true
	}
	for _, often := range []telemetry.Outcome{telemetry.Done, telemetry.Repeated, telemetry.Refused, telemetry.Canceled, telemetry.Timeout} {
		require.True(t, outcomes[string(often)], often)
	}
}
