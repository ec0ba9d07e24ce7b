package segment

import (
	"context"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/go-leasehold/leasehold/coordinator"
	"github.com/go-leasehold/leasehold/internal/redistest"
)

// Bad input is refused by name, before anything is sent.
func TestAllInput(t *testing.T) {
	t.Parallel()
	c := processAt(t, redistest.Shared(t).Option())
	name := redistest.Prefix(t)
	var count sent
	a := through(t, opened(t, c, name+"a", Config{}), count.wrap)
	b := through(t, opened(t, c, name+"b", Config{}), count.wrap)
	other := through(t, opened(t, processAt(t, redistest.Shared(t).Option()), name+"other", Config{}), count.wrap)
	again := through(t, opened(t, c, name+"a", Config{Segments: 3}), count.wrap)
	limited := through(t, opened(t, c, name+"l", Config{PerUser: 1}), count.wrap)
	many := make([]Line, MaxLines+1)
	for i := range many {
		many[i] = Line{a, 1}
	}
	long := strings.Repeat("x", MaxID+1)
	for what, bad := range map[string]struct {
		id, user string
		lines    []Line
		text     []string
	}{
		"no lines":         {"o", "u", nil, []string{"no lines"}},
		"too many":         {"o", "u", many, []string{"65 lines", "64"}},
		"nil stock":        {"o", "u", []Line{{a, 1}, {nil, 1}}, []string{"line 1 is nil"}},
		"none":             {"o", "u", []Line{{a, 1}, {b, 0}}, []string{"quantity of 0", b.name, "9007199254740991"}},
		"negative":         {"o", "u", []Line{{a, 1}, {b, -1}}, []string{"quantity of -1", b.name}},
		"over":             {"o", "u", []Line{{a, 1}, {b, MaxUnits + 1}}, []string{"9007199254740992", "9007199254740991"}},
		"sum over":         {"o", "u", []Line{{a, MaxUnits}, {b, 1}, {a, 1}}, []string{a.name, "on top of 9007199254740991"}},
		"no ID":            {"", "u", []Line{{a, 1}, {b, 1}}, []string{"no ID"}},
		"long ID":          {long, "u", []Line{{a, 1}, {b, 1}}, []string{"129 bytes", "128"}},
		"long user":        {"o", long, []Line{{a, 1}, {b, 1}}, []string{"129 bytes", "128"}},
		"no user":          {"o", "", []Line{{a, 1}, {limited, 1}}, []string{limited.name, "no User"}},
		"coordinators":     {"o", "u", []Line{{a, 1}, {other, 1}}, []string{a.name, other.name, "different coordinators"}},
		"settings":         {"o", "u", []Line{{a, 1}, {again, 1}}, []string{a.name, "4:86400000:0", "3:86400000:0"}},
		"one stock, no ID": {"", "u", []Line{{a, 1}, {a, 1}}, []string{"no ID"}},
	} {
		_, err := DeductAll(t.Context(), bad.id, bad.user, bad.lines...)
		require.ErrorIs(t, err, coordinator.ErrInvalid, what)
		require.ErrorIs(t, ReturnAll(t.Context(), bad.id, bad.user, bad.lines...), coordinator.ErrInvalid, what)
		for _, text := range bad.text {
			require.ErrorContains(t, err, text, what)
		}
	}
	//nolint:staticcheck // a nil context is what is tested
	_, err := DeductAll(nil, "o", "u", Line{a, 1}, Line{b, 1})
	require.ErrorIs(t, err, coordinator.ErrInvalid)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	_, err = DeductAll(ctx, "o", "u", Line{a, 1}, Line{b, 1})
	require.ErrorIs(t, err, ErrNotDone)
	require.ErrorIs(t, err, context.Canceled)
	require.ErrorIs(t, ReturnAll(ctx, "o", "u", Line{a, 1}, Line{b, 1}), ErrNotDone)
	require.Zero(t, count.all())
}

// Stocks that are not loaded, or otherwise, are told, and what others held is back.
func TestAllOfStocksThatAreNotLoaded(t *testing.T) {
	t.Parallel()
	stocks := spanned(t, Config{Segments: 2}, 10, 10)
	c := stocks[0].c
	unloaded := opened(t, c, stocks[0].name+"x", Config{Segments: 2})
	other := opened(t, c, stocks[1].name, Config{Segments: 3})
	_, err := DeductAll(t.Context(), "o", "u", Line{stocks[0], 1}, Line{unloaded, 1})
	require.ErrorIs(t, err, ErrNotLoaded)
	require.ErrorContains(t, err, unloaded.name)
	_, err = DeductAll(t.Context(), "o", "u", Line{stocks[0], 1}, Line{other, 1})
	require.ErrorIs(t, err, ErrEpoch)
	require.Equal(t, Books{Loaded: 10, Left: 10}, audited(t, stocks[0]))
}

// Lines of one stock are summed, and an order of one stock is that of Deduct.
func TestLinesOfOneStock(t *testing.T) {
	t.Parallel()
	stocks := spanned(t, Config{Segments: 2}, 10, 10)
	a, b := stocks[0], stocks[1]
	_, err := DeductAll(t.Context(), "o", "u", Line{a, 1}, Line{b, 2}, Line{a, 3})
	require.NoError(t, err)
	r, err := DeductAll(t.Context(), "o", "u", Line{b, 2}, Line{a, 4})
	require.NoError(t, err)
	require.True(t, r.Repeated)
	_, err = DeductAll(t.Context(), "one", "u", Line{a, 1}, Line{a, 2})
	require.NoError(t, err)
	one, err := a.Deduct(t.Context(), Order{ID: "one", User: "u", Quantity: 3})
	require.NoError(t, err)
	require.True(t, one.Repeated)
	require.Equal(t, Books{Loaded: 10, Sold: 7, Left: 3}, audited(t, a))
	require.NoError(t, ReturnAll(t.Context(), "one", "u", Line{a, 3}))
	require.Equal(t, Books{Loaded: 10, Sold: 4, Left: 6}, audited(t, a))
}

// What is on record of one kind of order is no order of the other.
func TestMixedOrders(t *testing.T) {
	t.Parallel()
	stocks := spanned(t, Config{Segments: 2}, 10, 10, 10)
	ctx, o := t.Context(), Order{ID: "o", User: "u", Quantity: 1}
	_, err := DeductAll(ctx, "o", "u", lines(stocks, 1, 1)...)
	require.NoError(t, err)
	for _, s := range stocks[:2] {
		_, err = s.Deduct(ctx, o)
		require.ErrorIs(t, err, ErrOrderMismatch)
		_, err = s.Reserve(ctx, o, MaxReserve)
		require.ErrorIs(t, err, ErrOrderMismatch)
		require.ErrorIs(t, s.Return(ctx, o), ErrOrderMismatch)
		require.ErrorIs(t, s.Return(ctx, Order{ID: "o", User: "u"}), ErrOrderMismatch)
		require.ErrorIs(t, s.Cancel(ctx, o), ErrOrderMismatch)
		record, err := s.Lookup(ctx, "u", "o")
		require.NoError(t, err)
		require.Equal(t, Record{State: Taken, Quantity: 1}, record)
	}
	for what, l := range map[string][]Line{
		"another quantity of the first":  {{stocks[0], 2}, {stocks[1], 1}},
		"another quantity of the second": {{stocks[0], 1}, {stocks[1], 2}},
		"another second":                 {{stocks[0], 1}, {stocks[2], 1}},
		"another first":                  {{stocks[1], 1}, {stocks[2], 1}},
		"one more":                       lines(stocks, 1, 1, 1),
		"one alone":                      {{stocks[1], 1}},
	} {
		_, err = DeductAll(ctx, "o", "u", l...)
		require.ErrorIs(t, err, ErrOrderMismatch, what)
		require.ErrorIs(t, ReturnAll(ctx, "o", "u", l...), ErrOrderMismatch, what)
	}
	require.NoError(t, ReturnAll(ctx, "o", "u", lines(stocks, 1, 1)...))
	for _, s := range stocks[:2] {
		_, err = s.Deduct(ctx, o)
		require.ErrorIs(t, err, ErrOrderMismatch)
		record, err := s.Lookup(ctx, "u", "o")
		require.NoError(t, err)
		require.Equal(t, Record{State: Returned, Quantity: 1}, record)
	}
	// The other way round.
	_, err = stocks[1].Deduct(ctx, Order{ID: "p", User: "u", Quantity: 1})
	require.NoError(t, err)
	_, err = stocks[2].Reserve(ctx, Order{ID: "q", User: "u", Quantity: 1}, MaxReserve)
	require.NoError(t, err)
	for id, l := range map[string][]Line{"p": lines(stocks, 1, 1), "q": {{stocks[2], 1}, {stocks[0], 1}}} {
		_, err = DeductAll(ctx, id, "u", l...)
		require.ErrorIs(t, err, ErrOrderMismatch)
	}
	require.Equal(t, Books{Loaded: 10, Left: 10}, audited(t, stocks[0]))
	require.Equal(t, Books{Loaded: 10, Left: 9, Sold: 1}, audited(t, stocks[1]))
	require.Equal(t, Books{Loaded: 10, Left: 9, Reserved: 1}, audited(t, stocks[2]))
}
