package segment

import (
	"context"
	"fmt"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"
	"weak"

	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/otel/metric"
	"go.opentelemetry.io/otel/metric/noop"

	"github.com/go-leasehold/leasehold/coordinator"
	"github.com/go-leasehold/leasehold/internal/redistest"
	"github.com/go-leasehold/leasehold/telemetry"
)

// TestCommandsAndBatchesAreCounted beside what goes over the wire.
func TestCommandsAndBatchesAreCounted(t *testing.T) {
	t.Parallel()
	m, on := newMeter(t, named), sent{}
	calm := opened(t, processAt(t, redistest.Shared(t).Option(), m.option()), "wired "+redistest.Prefix(t), Config{Segments: 2})
	s := through(t, calm, on.wrap)
	require.NoError(t, s.Load(t.Context(), 1_000_000))
	var all sync.WaitGroup
	for i := range 64 {
		all.Go(func() {
			for j := range 20 {
				_, err := s.Deduct(t.Context(), Order{ID: fmt.Sprint(i, " ", j), Quantity: 1})
				require.NoError(t, err)
			}
		})
	}
	all.Wait()
	commands, orders := m.batches()
	require.EqualValues(t, 64*20, orders)
	require.Equal(t, s.Snapshot().Orders, orders)
	require.EqualValues(t, on.of("deduct")+on.of("orders"), commands)
	require.Less(t, commands, orders, "they travel together")
	require.Equal(t, map[string]int64{"commands wired": int64(on.all())}, m.only("commands", "failures", "moves", "moved", "looks"))
}

// TestFailuresAreCounted: what was not answered, or with an error of the server; not what the scripts themselves refuse.
func TestFailuresAreCounted(t *testing.T) {
	t.Parallel()
	m := newMeter(t, named)
	var lost atomic.Int64
	s := opened(t, processAt(t, redistest.Shared(t).Option(), m.option()), "shaky "+redistest.Prefix(t), Config{Segments: 1})
	s = through(t, s, func(inner server) server {
		return &hooked{server: inner, after: func(calls []call, answers []answer) {
			if lost.Add(-1) >= 0 {
				answers[0] = answer{err: errLost}
			}
		}}
	})
	_, err := s.Deduct(t.Context(), Order{ID: "o", Quantity: 1})
	require.ErrorIs(t, err, ErrNotLoaded)
	require.NoError(t, s.Load(t.Context(), 10))
	require.ErrorIs(t, s.Load(t.Context(), 10), ErrLoaded)
	require.Empty(t, m.only("failures"))
	lost.Store(2)
	r, err := s.Deduct(t.Context(), Order{ID: "o", Quantity: 3})
	require.NoError(t, err)
	require.True(t, r.Repeated, "the first copy took")
	require.Equal(t, map[string]int64{
		"failures shaky": 2, "orders shaky deduct refused": 1, "orders shaky deduct repeated": 1,
	}, m.only("failures", "orders", "units"))
}

// TestTroubleIsCounted as its callers were told: they may have taken, have not, or there is no coordinator any more.
func TestTroubleIsCounted(t *testing.T) {
	t.Parallel()
	m := newMeter(t, named)
	c := processAt(t, redistest.Shared(t).Option(), m.option(), coordinator.WithUnavailableAfter(20*time.Millisecond))
	calm := opened(t, c, "cut "+redistest.Prefix(t), Config{Segments: 1})
	require.NoError(t, calm.Load(t.Context(), 10))
	var trouble error
	s := through(t, calm, func(inner server) server {
		return &hooked{server: inner, before: func(calls []call) []answer {
			if trouble != nil {
				return failAll(calls, trouble)
			}
			return nil
		}}
	})
	require.ErrorIs(t, s.Return(t.Context(), Order{ID: "unknown", Quantity: 1}), ErrUnknownOrder)
	o := Order{ID: "o", Quantity: 1}
	trouble = errLost
	_, err := s.Deduct(t.Context(), o)
	require.ErrorIs(t, err, ErrUncertain)
	_, err = s.Deduct(t.Context(), Order{Quantity: 1})
	require.ErrorIs(t, err, ErrUncertain)
	trouble = errUnreachable
	_, err = s.Reserve(t.Context(), o, time.Minute)
	require.ErrorIs(t, err, coordinator.ErrUnavailable)
	_, err = s.Deduct(t.Context(), Order{Quantity: 1})
	require.ErrorIs(t, err, coordinator.ErrUnavailable)
	trouble = nil
	sums := m.only("orders") // Close ends the collecting
	require.NoError(t, shut(c))
	_, err = s.Confirm(t.Context(), o)
	require.ErrorIs(t, err, coordinator.ErrClosed)
	require.Equal(t, telemetry.Closed, toldOf(err))
	require.Equal(t, map[string]int64{
		"orders cut return refused": 1, "orders cut deduct uncertain": 2, "orders cut deduct unavailable": 1, "orders cut reserve unavailable": 1,
	}, sums)
}

// TestMovesAreCounted, and the units that were given each time: what is wanted, or half of what is there.
func TestMovesAreCounted(t *testing.T) {
	t.Parallel()
	m := newMeter(t, named)
	s := opened(t, processAt(t, redistest.Shared(t).Option(), m.option()), "spread "+redistest.Prefix(t), Config{Segments: 2})
	require.NoError(t, s.Load(t.Context(), 20))
	for i, quantity := range []int64{12, 5} { // there are 10, and then 3
		_, err := s.Deduct(t.Context(), Order{ID: idAt(s, 0, fmt.Sprint(i)), Quantity: quantity})
		require.NoError(t, err)
	}
	require.Equal(t, map[string]int64{"moves spread": 2, "moved spread": 5 + 2, "looks spread": 2}, m.only("moves", "moved", "looks"))
	require.EqualValues(t, 2, s.Snapshot().Moves)
}

// TestOrderThatWaitsForAnAttemptIsCountedOnce: its home says again and again that it is busy.
func TestOrderThatWaitsForAnAttemptIsCountedOnce(t *testing.T) {
	t.Parallel()
	m, b := newMeter(t, named), newBench(t)
	b.situations()["begun"]()
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	s := through(t, b.stock, func(inner server) server {
		return &hooked{server: inner, after: func(calls []call, _ []answer) {
			if calls[0].script == partsScript { // it has asked what is in the way
				cancel()
			}
		}}
	})
	s.told = processAt(t, redistest.Shared(t).Option(), m.option()).Telemetry().Class("busy").Stocks()
	o := Order{ID: "o", User: "u", Quantity: 2}
	_, err := s.Deduct(ctx, o)
	require.ErrorIs(t, err, context.Canceled)
	require.Equal(t, map[string]int64{"orders busy deduct canceled": 1}, m.only("orders", "units"))
	b.clock.add(t, partLasts+time.Millisecond)
	_, err = s.Deduct(t.Context(), o)
	require.NoError(t, err)
	require.Equal(t, map[string]int64{
		"orders busy deduct canceled": 1, "orders busy deduct done": 1, "units busy deduct": 2,
	}, m.only("orders", "units"))
}

// TestKnownAnswersAreCounted, to the last one, also when the stock they were of is used no more.
func TestKnownAnswersAreCounted(t *testing.T) {
	t.Parallel()
	m := newMeter(t, named)
	server := redistest.Alone(t)
	c := processAt(t, server.Option(), m.option())
	told := func() int64 { // how many orders were told that it is sold out; the stock goes out of use
		s, other := opened(t, c, "gone", Config{Segments: 2}), opened(t, c, "there", Config{Segments: 1})
		s.sold.every = 25 * time.Millisecond // so that nothing keeps it for long when it is out of use
		require.NoError(t, s.Load(t.Context(), 2))
		require.NoError(t, other.Load(t.Context(), 2))
		drain(t, s)
		var refused atomic.Int64
		var all sync.WaitGroup
		for i := range 16 {
			all.Go(func() {
				for j := range 100 {
					o := Order{ID: fmt.Sprint("late ", i, " ", j), User: "u", Quantity: 1}
					_, err := s.Deduct(t.Context(), o)
					require.ErrorIs(t, err, ErrSoldOut)
					_, err = s.Reserve(t.Context(), o, time.Minute)
					require.ErrorIs(t, err, ErrSoldOut)
					_, err = DeductAll(t.Context(), o.ID, o.User, Line{s, 1}, Line{other, 1})
					require.ErrorIs(t, err, ErrSoldOut)
					refused.Add(1)
				}
			})
		}
		all.Wait()
		sums, n := m.only("orders", "sold_out.known"), refused.Load()
		require.Equal(t, n, sums["orders gone reserve sold_out"])
		require.Equal(t, n, sums["orders gone deduct_all sold_out"])
		require.Equal(t, n, sums["orders there deduct_all sold_out"], "an order is counted at each of its stocks")
		require.GreaterOrEqual(t, sums["orders gone deduct sold_out"], n, "there were some to find out")
		require.Positive(t, sums["sold_out.known gone reserve"])
		require.Positive(t, sums["sold_out.known gone deduct_all"])
		known := sums["sold_out.known gone deduct"] + sums["sold_out.known gone reserve"] + sums["sold_out.known gone deduct_all"]
		require.Equal(t, s.Snapshot().Known, known)
		require.Positive(t, known)
		dies := weak.Make(s)
		s, other = nil, nil
		eventually(t, "nothing keeps the stock", func() bool {
			runtime.GC()
			return dies.Value() == nil
		})
		return known
	}()
	for range 10 { // in whatever order the rest of it goes
		runtime.GC()
		sums, known := m.only("sold_out.known"), int64(0)
		for _, n := range sums {
			known += n
		}
		require.Equal(t, told, known)
	}
}

// TestSeriesDoNotGrowWithStocks: whatever KeyClass returns, which is asked once for each handle.
func TestSeriesDoNotGrowWithStocks(t *testing.T) {
	t.Parallel()
	const stocks, used = 10_000, 200
	var asked atomic.Int64
	m := newMeter(t, func(name string) string { asked.Add(1); return name })
	c := processAt(t, redistest.Shared(t).Option(), m.option())
	some := 0
	for i := range stocks {
		s := opened(t, c, fmt.Sprint("stock ", i), Config{Segments: 1})
		if i < used {
			_, err := s.Deduct(t.Context(), Order{ID: "o", Quantity: 1})
			require.ErrorIs(t, err, ErrNotLoaded)
		}
		if i == used {
			some = m.series()
		}
	}
	require.EqualValues(t, stocks, asked.Load())
	require.Equal(t, some, m.series())
	const each = 11 + 1 + 1 + 5 // outcomes of a deduction, units, known, and what has the class alone
	require.LessOrEqual(t, some, (telemetry.MaxClasses+1)*(each+1))
	require.EqualValues(t, used-telemetry.MaxClasses, m.only("orders")["orders other deduct refused"])
}

// TestClassesAreOfNames: of what users have named, and not of the keys that are made of that.
func TestClassesAreOfNames(t *testing.T) {
	t.Parallel()
	var mu sync.Mutex
	asked := map[string]bool{}
	m := newMeter(t, func(name string) string {
		mu.Lock()
		defer mu.Unlock()
		asked[name] = true
		return "all"
	})
	c := processAt(t, redistest.Shared(t).Option(), m.option())
	name := redistest.Prefix(t)
	cart, sku := "cart{"+name+"}", "sku%"+name
	locks := NewLocks(c, cart, 3)
	hold, err := locks.Lock(t.Context(), "user")
	require.NoError(t, err)
	require.NoError(t, hold.Unlock())
	all, err := locks.LockAll(t.Context())
	require.NoError(t, err)
	require.NoError(t, all.Unlock())
	own := NewLocks(c, "own "+cart, 3, coordinator.ClassAs("ours"))
	require.NoError(t, own.Do(t.Context(), "user", func(context.Context) error { return nil }))

	s := opened(t, c, sku, Config{Segments: 2})
	require.NoError(t, s.Load(t.Context(), 10))
	require.NoError(t, s.WithSegment(t.Context(), "user", 1, func(context.Context, Held) error { return nil }))
	eventually(t, "a puller's turn", func() bool { return s.homes[0].puller.turn().Unlock() == nil })
	mu.Lock()
	defer mu.Unlock()
	require.Equal(t, map[string]bool{cart: true, "ours": true, sku: true}, asked)
}

// TestAFlightThatLandsIsNotLeft: a caller whose context ends while the answers are being counted waits for its own, which is there.
func TestAFlightThatLandsIsNotLeft(t *testing.T) {
	t.Parallel()
	s := loaded(t, Config{Segments: 1}, 10)
	l, o := &s.homes[0].lane, order{verb: deduct, field: "0:o", quantity: 1}
	f := &flight{landed: make(chan struct{})}
	at, _ := f.board(&o)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	f.sent = true
	_, left := l.leave(ctx, f, at, &o)
	require.True(t, left)
	f.landing = true
	_, left = l.leave(ctx, f, at, &o)
	require.False(t, left)
	require.Equal(t, []int{at}, f.left)
}

// broken is a provider whose meters take no batch sizes, but panic.
type broken struct{ noop.MeterProvider }

func (broken) Meter(string, ...metric.MeterOption) metric.Meter { return brokenMeter{} }

type brokenMeter struct{ noop.Meter }

func (brokenMeter) Float64Histogram(string, ...metric.Float64HistogramOption) (metric.Float64Histogram, error) {
	return durations{}, nil
}

func (brokenMeter) Int64Histogram(string, ...metric.Int64HistogramOption) (metric.Int64Histogram, error) {
	return sizes{}, nil
}

type durations struct{ noop.Float64Histogram }

func (durations) Enabled(context.Context) bool { return true }

type sizes struct{ noop.Int64Histogram }

func (sizes) Record(context.Context, int64, ...metric.RecordOption) { panic("no sizes") }

// TestABrokenMeterStopsNoOrder: nor does a class function that panics.
func TestABrokenMeterStopsNoOrder(t *testing.T) {
	t.Parallel()
	s := loaded(t, Config{Segments: 1}, 10, coordinator.WithTelemetry(telemetry.Config{
		MeterProvider: broken{}, KeyClass: func(string) string { panic("no class") },
	}))
	for i := range 10 {
		_, err := s.Deduct(t.Context(), Order{ID: fmt.Sprint(i), Quantity: 1})
		require.NoError(t, err)
	}
	require.EqualValues(t, 10, audited(t, s).Sold)
}

// TestWatchedAnswersCostNothingMore: what is answered with no command, and counted all the same.
func TestWatchedAnswersCostNothingMore(t *testing.T) {
	m := newMeter(t, named)
	server := redistest.Alone(t)
	s := opened(t, processAt(t, server.Option(), m.option()), "gone", Config{Segments: 1})
	require.NoError(t, s.Load(t.Context(), 1))
	drain(t, s)
	o := Order{ID: "late", User: "u", Quantity: 1}
	ctx := t.Context()
	eventually(t, "1000 answers in a row with no command", func() bool {
		return testing.AllocsPerRun(1000, func() { _, _ = s.Deduct(ctx, o) }) == 0
	})
	require.GreaterOrEqual(t, m.only("sold_out.known")["sold_out.known gone deduct"], int64(1000))
}

// TestNothingIsToldOfNoStock: there is no series where there is none.
func TestNothingIsToldOfNoStock(t *testing.T) {
	t.Parallel()
	m := newMeter(t, named)
	c := processAt(t, redistest.Shared(t).Option(), m.option())
	hold, err := NewLocks(c, redistest.Prefix(t), 2).Lock(t.Context(), "user")
	require.NoError(t, err)
	require.NoError(t, hold.Unlock())
	require.Empty(t, m.collect())
	s := opened(t, c, "new "+redistest.Prefix(t), Config{Segments: 1})
	require.Empty(t, m.sums())
	zeros := m.series()
	require.Positive(t, zeros, "a first failure is seen as a step")
	require.NoError(t, s.Load(t.Context(), 1))
	require.Equal(t, zeros, m.series())
	for name := range m.collect() {
		require.False(t, strings.HasPrefix(name, "leasehold"), name)
	}
}
