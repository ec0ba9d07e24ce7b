package segment

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/go-leasehold/leasehold/coordinator"
	"github.com/go-leasehold/leasehold/coordinator/coordinatortest"
	"github.com/go-leasehold/leasehold/internal/redistest"
)

// TestBadInput: each is refused with its own text, which names the value and the limit, and nothing is sent.
func TestBadInput(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t) // of its own, to count what is sent
	c := processAt(t, server.Option())
	s := opened(t, c, "stock", Config{Segments: 2})
	limited := opened(t, c, "limited", Config{PerUser: 3})
	ctx := t.Context()
	long := strings.Repeat("x", MaxID+1)
	good := Order{ID: "o", User: "u", Quantity: 1}
	deduct := func(s *Stock, o Order) error { _, err := s.Deduct(ctx, o); return err }
	reserve := func(o Order, ttl time.Duration) error { _, err := s.Reserve(ctx, o, ttl); return err }
	confirm := func(o Order) error { _, err := s.Confirm(ctx, o); return err }
	create := func(name string, conf Config) error { _, err := NewStock(c, name, conf); return err }

	server.Do(t, "FLUSHALL")
	quiet := func() int64 { time.Sleep(20 * time.Millisecond); return server.Commands() }
	before := quiet()
	for i, bad := range []struct {
		err   error
		parts []string // of the text
	}{
		{create("", Config{}), []string{"name is empty"}},
		{create(strings.Repeat("n", MaxName+1), Config{}), []string{"1025", "1024"}},
		{create("s", Config{Segments: -1}), []string{"-1", "1", "4096"}},
		{create("s", Config{Segments: 4097}), []string{"4097", "4096"}},
		{create("s", Config{Remember: time.Minute - 1}), []string{"59.999999999s", "1m0s", "8784h"}},
		{create("s", Config{Remember: -time.Hour}), []string{"-1h0m0s", "1m0s"}},
		{create("s", Config{Remember: MaxRemember + 1}), []string{"8784h0m0.000000001s", "8784h0m0s"}},
		{create("s", Config{Remember: time.Minute + time.Microsecond}), []string{"1m0.000001s", "milliseconds"}},
		{create("s", Config{PerUser: -1}), []string{"-1", "9007199254740991"}},
		{create("s", Config{PerUser: MaxUnits + 1}), []string{"9007199254740992", "9007199254740991"}},
		{create("s", Config{MaxWaiting: -1}), []string{"MaxWaiting of -1"}},
		{s.Load(ctx, -1), []string{"-1", "9007199254740991"}},
		{s.Load(ctx, MaxUnits+1), []string{"9007199254740992", "9007199254740991"}},
		{s.Reset(ctx, -1), []string{"-1", "9007199254740991"}},
		{s.Restock(ctx, "", 1), []string{"no ID"}},
		{s.Restock(ctx, long, 1), []string{"129", "128"}},
		{s.Restock(ctx, "r", 0), []string{"0", "9007199254740991"}},
		{s.Restock(ctx, "r", MaxUnits+1), []string{"9007199254740992", "9007199254740991"}},
		{deduct(s, Order{ID: "o"}), []string{"quantity of 0", "9007199254740991"}},
		{deduct(s, Order{ID: "o", Quantity: -1}), []string{"quantity of -1"}},
		{deduct(s, Order{ID: "o", Quantity: MaxUnits + 1}), []string{"9007199254740992", "9007199254740991"}},
		{deduct(s, Order{ID: long, Quantity: 1}), []string{"ID of 129 bytes", "128"}},
		{deduct(s, Order{ID: "o", User: long, Quantity: 1}), []string{"user of 129 bytes", "128"}},
		{deduct(limited, Order{ID: "o", Quantity: 1}), []string{"no User", "limit per user"}},
		{deduct(limited, Order{Quantity: 1}), []string{"no User"}},
		{reserve(Order{Quantity: 1}, time.Hour), []string{"no ID"}},
		{reserve(Order{ID: "o"}, time.Hour), []string{"quantity of 0"}},
		{reserve(good, time.Millisecond-1), []string{"999.999µs", "1ms", "8784h0m0s"}},
		{reserve(good, 0), []string{"0s", "1ms"}},
		{reserve(good, MaxReserve+1), []string{"8784h0m0.000000001s", "8784h0m0s"}},
		{confirm(Order{Quantity: 1}), []string{"no ID"}},
		{confirm(Order{ID: "o", Quantity: -1}), []string{"quantity of -1"}},
		{s.Cancel(ctx, Order{Quantity: 1}), []string{"no ID"}},
		{s.Cancel(ctx, Order{ID: long, Quantity: 1}), []string{"129", "128"}},
		{s.Return(ctx, Order{Quantity: 1}), []string{"no ID"}},
		{s.Return(ctx, Order{ID: "o", User: long, Quantity: 1}), []string{"129", "128"}},
		{lookup(ctx, s, "u", ""), []string{"no ID"}},
		{lookup(ctx, s, "u", long), []string{"129", "128"}},
		{s.WithSegment(ctx, "", 1, doesNothing), []string{"routing key is empty"}},
		{s.WithSegment(ctx, "k", 0, doesNothing), []string{"quantity of 0", "9007199254740991"}},
		{s.WithSegment(ctx, "k", 1, nil), []string{"function"}},
	} {
		require.ErrorIs(t, bad.err, coordinator.ErrInvalid, i)
		for _, part := range bad.parts {
			require.ErrorContains(t, bad.err, part, i)
		}
	}
	require.Equal(t, before, quiet())
	require.Empty(t, server.Keys(t, "*"))
}

func lookup(ctx context.Context, s *Stock, user, id string) error {
	_, err := s.Lookup(ctx, user, id)
	return err
}

// TestNilContexts are refused and not asked.
func TestNilContexts(t *testing.T) {
	t.Parallel()
	s := loaded(t, Config{Segments: 1}, 5)
	o := Order{ID: "o", Quantity: 1}
	var none context.Context
	for name, call := range map[string]func() error{
		"Load":        func() error { return s.Load(none, 1) },
		"Reset":       func() error { return s.Reset(none, 1) },
		"Drop":        func() error { return s.Drop(none) },
		"Deduct":      func() error { _, err := s.Deduct(none, o); return err },
		"Reserve":     func() error { _, err := s.Reserve(none, o, time.Hour); return err },
		"Confirm":     func() error { _, err := s.Confirm(none, o); return err },
		"Cancel":      func() error { return s.Cancel(none, o) },
		"Return":      func() error { return s.Return(none, o) },
		"Lookup":      func() error { _, err := s.Lookup(none, "", "o"); return err },
		"Restock":     func() error { return s.Restock(none, "r", 1) },
		"Remaining":   func() error { _, err := s.Remaining(none); return err },
		"Audit":       func() error { _, err := s.Audit(none); return err },
		"WithSegment": func() error { return s.WithSegment(none, "k", 1, doesNothing) },
	} {
		err := call()
		require.ErrorIs(t, err, coordinator.ErrInvalid, name)
		require.ErrorContains(t, err, "context is nil", name)
	}
	require.Equal(t, Books{Loaded: 5, Left: 5}, audited(t, s))
}

// TestNewStockNeedsRedis, and a coordinator.
func TestNewStockNeedsRedis(t *testing.T) {
	t.Parallel()
	_, err := NewStock(coordinatortest.New(t).Coordinator, "s", Config{})
	require.ErrorIs(t, err, coordinator.ErrNeedsRedis)
	_, err = NewStock(nil, "s", Config{})
	require.ErrorIs(t, err, coordinator.ErrInvalid)
}

// TestLimitsThemselvesPass: the longest names, the largest numbers, the shortest times.
func TestLimitsThemselvesPass(t *testing.T) {
	t.Parallel()
	c := processAt(t, redistest.Shared(t).Option())
	name := redistest.Prefix(t)
	name += strings.Repeat("}", MaxName-len(name))
	s := opened(t, c, name, Config{Segments: 1, Remember: MinRemember, PerUser: MaxUnits})
	require.NoError(t, s.Load(t.Context(), MaxUnits))
	o := Order{ID: strings.Repeat("\x00", MaxID), User: strings.Repeat("\xff", MaxID), Quantity: MaxUnits}
	_, err := s.Deduct(t.Context(), o)
	require.NoError(t, err)
	r, err := s.Deduct(t.Context(), o)
	require.NoError(t, err)
	require.True(t, r.Repeated)
	require.NoError(t, s.Return(t.Context(), o))
	for i, ttl := range []time.Duration{MaxReserve, time.Millisecond} {
		_, err = s.Reserve(t.Context(), Order{ID: fmt.Sprint(i), User: o.User, Quantity: 1}, ttl)
		require.NoError(t, err)
	}
	require.NoError(t, s.Drop(t.Context()))
	many := opened(t, c, redistest.Prefix(t), Config{Segments: MaxSegments, Remember: MaxRemember})
	require.NoError(t, many.Load(t.Context(), 10))
	_, err = many.Deduct(t.Context(), Order{ID: "o", Quantity: 10})
	require.NoError(t, err)
	require.NoError(t, many.Drop(t.Context()))
	require.Empty(t, keysOf(t, redistest.Shared(t), many.name))
}

// TestRestock adds once per ID, up to the limit of all units.
func TestRestock(t *testing.T) {
	t.Parallel()
	s := loaded(t, Config{Segments: 3}, 10)
	for range 2 {
		require.NoError(t, s.Restock(t.Context(), "r", 5))
		require.Equal(t, Books{Loaded: 15, Left: 15}, audited(t, s))
	}
	require.ErrorIs(t, s.Restock(t.Context(), "r", 6), ErrOrderMismatch)
	_, err := s.Deduct(t.Context(), Order{ID: "r", Quantity: 3}) // an order is not a restock
	require.NoError(t, err)
	require.ErrorIs(t, s.Return(t.Context(), Order{ID: "Rr", Quantity: 5}), ErrUnknownOrder)
	_, err = s.Deduct(t.Context(), Order{ID: "all", Quantity: 12})
	require.NoError(t, err)
	require.NoError(t, s.Restock(t.Context(), "max", MaxUnits-15))
	was := contents(t, redistest.Shared(t), s)
	err = s.Restock(t.Context(), "over", 1)
	require.ErrorIs(t, err, coordinator.ErrInvalid)
	require.ErrorContains(t, err, "9007199254740991")
	require.NoError(t, s.Restock(t.Context(), "max", MaxUnits-15), "again")
	require.Equal(t, was, contents(t, redistest.Shared(t), s))
	require.Equal(t, Books{Loaded: MaxUnits, Sold: 15, Left: MaxUnits - 15}, audited(t, s))
}
