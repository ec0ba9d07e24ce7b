package segment

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/go-leasehold/leasehold/coordinator"
	"github.com/go-leasehold/leasehold/internal/redistest"
)

// spanned are stocks of one coordinator, each with units.
func spanned(t testing.TB, conf Config, units ...int64) []*Stock {
	t.Helper()
	c := processAt(t, redistest.Shared(t).Option())
	prefix := redistest.Prefix(t)
	stocks := make([]*Stock, len(units))
	for i, n := range units {
		stocks[i] = opened(t, c, prefix+string(rune('a'+i)), conf)
		require.NoError(t, stocks[i].Load(t.Context(), n))
	}
	return stocks
}

func lines(stocks []*Stock, quantities ...int64) []Line {
	all := make([]Line, len(quantities))
	for i, q := range quantities {
		all[i] = Line{stocks[i], q}
	}
	return all
}

func TestDeductAll(t *testing.T) {
	t.Parallel()
	stocks := spanned(t, Config{Segments: 4}, 10, 10, 10)
	r, err := DeductAll(t.Context(), "o1", "u", lines(stocks, 1, 2, 3)...)
	require.NoError(t, err)
	require.False(t, r.Repeated)
	for i, s := range stocks {
		require.Equal(t, Books{Loaded: 10, Sold: int64(i + 1), Left: 10 - int64(i+1)}, audited(t, s))
	}
	r, err = DeductAll(t.Context(), "o1", "u", lines(stocks, 1, 2, 3)...)
	require.NoError(t, err)
	require.True(t, r.Repeated)
	for i, s := range stocks {
		require.Equal(t, Books{Loaded: 10, Sold: int64(i + 1), Left: 10 - int64(i+1)}, audited(t, s))
	}
	_, err = DeductAll(t.Context(), "o2", "u", lines(stocks, 1, 2, 8)...)
	require.ErrorIs(t, err, ErrSoldOut)
	_, err = DeductAll(t.Context(), "o3", "u", lines(stocks, 9, 8, 7)...)
	require.NoError(t, err)
	require.NoError(t, ReturnAll(t.Context(), "o3", "u", lines(stocks, 9, 8, 7)...))
	require.NoError(t, ReturnAll(t.Context(), "o3", "u", lines(stocks, 9, 8, 7)...))
	_, err = DeductAll(t.Context(), "o3", "u", lines(stocks, 9, 8, 7)...)
	require.ErrorIs(t, err, ErrReturned)
	require.ErrorIs(t, ReturnAll(t.Context(), "o9", "u", lines(stocks, 9, 8, 7)...), ErrUnknownOrder)
	_, err = DeductAll(t.Context(), "o9", "u", lines(stocks, 9, 8, 7)...)
	require.ErrorIs(t, err, ErrReturned)
	_, err = DeductAll(t.Context(), "o1", "u", lines(stocks, 1, 2, 4)...)
	require.ErrorIs(t, err, ErrOrderMismatch)
	for i, s := range stocks {
		require.Equal(t, Books{Loaded: 10, Sold: int64(i + 1), Left: 10 - int64(i+1)}, audited(t, s))
	}
}

// twins are the same stocks in another process.
func twins(t testing.TB, stocks []*Stock) []*Stock {
	t.Helper()
	c := processAt(t, redistest.Shared(t).Option())
	all := make([]*Stock, len(stocks))
	for i, s := range stocks {
		all[i] = opened(t, c, s.name, s.conf)
	}
	return all
}

// Units are moved to the homes of all parts, by pullers of two processes side by side, in orders of stocks in all
// directions: what there is is sold to the last unit, no unit twice, and nobody waits for ever.
func TestSpanningOrdersSellEverything(t *testing.T) {
	t.Parallel()
	const units, buyers = 90, 12
	stocks := spanned(t, Config{Segments: 8}, units, units, units)
	processes := [][]*Stock{stocks, twins(t, stocks)}
	ctx, cancel := context.WithTimeout(t.Context(), hangs)
	defer cancel()
	var mu sync.Mutex
	sold := make([]int64, len(stocks))
	var all sync.WaitGroup
	for b := range buyers {
		all.Go(func() {
			s := processes[b%2]
			for n := 0; ; n++ {
				one, other := (b+n)%3, (b+n+1+b%2)%3
				q := int64(1 + n%2)
				_, err := DeductAll(ctx, fmt.Sprint(b, "-", n), fmt.Sprint("u", b), Line{s[one], q}, Line{s[other], 3 - q})
				if errors.Is(err, ErrSoldOut) {
					return
				}
				if err != nil {
					t.Error(err)
					return
				}
				mu.Lock()
				sold[one] += q
				sold[other] += 3 - q
				mu.Unlock()
			}
		})
	}
	all.Wait()
	var left int64
	for i, s := range stocks {
		require.Equal(t, Books{Loaded: units, Sold: sold[i], Left: units - sold[i]}, audited(t, s))
		left += units - sold[i]
	}
	// At the end somebody may want what is left of one stock and not of another.
	for i := range stocks {
		for q := units - sold[i]; q > 0; q-- {
			_, err := stocks[i].Deduct(ctx, Order{ID: fmt.Sprint("rest", q), User: "u", Quantity: 1})
			require.NoError(t, err)
		}
	}
	require.Less(t, left, int64(len(stocks)*units), "nothing was sold")
}

// An order of all that there is, wherever it is.
func TestSpanningOrderOfEverything(t *testing.T) {
	t.Parallel()
	stocks := spanned(t, Config{Segments: 5}, 23, 17)
	_, err := DeductAll(t.Context(), "more", "u", lines(stocks, 23, 18)...)
	require.ErrorIs(t, err, ErrSoldOut)
	require.ErrorContains(t, err, stocks[1].name)
	_, err = DeductAll(t.Context(), "more", "u", lines(stocks, 24, 17)...)
	require.ErrorIs(t, err, ErrSoldOut)
	require.ErrorContains(t, err, stocks[0].name)
	_, err = DeductAll(t.Context(), "all", "u", lines(stocks, 23, 17)...)
	require.NoError(t, err)
	require.Equal(t, Books{Loaded: 23, Sold: 23}, audited(t, stocks[0]))
	require.Equal(t, Books{Loaded: 17, Sold: 17}, audited(t, stocks[1]))
}

// The limit of one stock is that of the order, and what was held of the other is back.
func TestSpanningOrdersAndTheLimitPerUser(t *testing.T) {
	t.Parallel()
	stocks := spanned(t, Config{Segments: 4, PerUser: 3}, 20, 20)
	_, err := DeductAll(t.Context(), "o", "u", lines(stocks, 1, 2)...)
	require.NoError(t, err)
	for _, l := range [][]Line{lines(stocks, 2, 2), lines(stocks, 3, 1)} {
		_, err = DeductAll(t.Context(), "p", "u", l...)
		require.ErrorIs(t, err, ErrUserLimit)
	}
	_, err = DeductAll(t.Context(), "p", "u", lines(stocks, 2, 1)...)
	require.NoError(t, err)
	_, err = stocks[0].Deduct(t.Context(), Order{ID: "q", User: "u", Quantity: 1})
	require.ErrorIs(t, err, ErrUserLimit)
	require.NoError(t, ReturnAll(t.Context(), "o", "u", lines(stocks, 1, 2)...))
	_, err = DeductAll(t.Context(), "q", "u", lines(stocks, 1, 2)...)
	require.NoError(t, err)
	for _, s := range stocks {
		require.EqualValues(t, 3, audited(t, s).Sold)
	}
}

// Twins of one order, of several processes at once: one takes it, the others are told that.
func TestTwinsOfSpanningOrder(t *testing.T) {
	t.Parallel()
	stocks := spanned(t, Config{Segments: 4}, 20, 20, 20)
	processes := [][]*Stock{stocks, twins(t, stocks), twins(t, stocks)}
	ctx, cancel := context.WithTimeout(t.Context(), hangs)
	defer cancel()
	for n := range 5 {
		taken := make(chan bool, 9)
		var all sync.WaitGroup
		for i := range 9 {
			all.Go(func() {
				r, err := DeductAll(ctx, fmt.Sprint(n), "u", lines(processes[i%3], 1, 2, 1)...)
				if err != nil {
					t.Error(err)
				}
				taken <- !r.Repeated
			})
		}
		all.Wait()
		close(taken)
		sum := 0
		for first := range taken {
			if first {
				sum++
			}
		}
		require.Equal(t, 1, sum)
	}
	for i, q := range []int64{5, 10, 5} {
		require.Equal(t, q, audited(t, stocks[i]).Sold)
	}
}

// What a process knows to be sold out it answers with no command, but not of what is on record.
func TestSpanningOrdersWhereSoldOutIsKnown(t *testing.T) {
	t.Parallel()
	stocks := spanned(t, Config{Segments: 2}, 9, 2)
	_, err := DeductAll(t.Context(), "o", "u", lines(stocks, 2, 2)...)
	require.NoError(t, err)
	eventually(t, "it is known", func() bool {
		_, err := DeductAll(t.Context(), "p", "u", lines(stocks, 1, 1)...)
		require.ErrorIs(t, err, ErrSoldOut)
		return stocks[1].sold.known.Load() != nil
	})
	var count sent
	for _, s := range stocks {
		s.server = count.wrap(s.server)
	}
	_, err = DeductAll(t.Context(), "p", "u", lines(stocks, 1, 1)...)
	require.ErrorIs(t, err, ErrSoldOut)
	require.ErrorContains(t, err, stocks[1].name)
	require.Zero(t, count.all())
	r, err := DeductAll(t.Context(), "o", "u", lines(stocks, 2, 2)...)
	require.NoError(t, err)
	require.True(t, r.Repeated)
	require.NoError(t, ReturnAll(t.Context(), "o", "u", lines(stocks, 2, 2)...))
	_, err = DeductAll(t.Context(), "p", "u", lines(stocks, 1, 1)...)
	require.NoError(t, err, "what this very process gave back it must not take for sold out")
}

// A caller who leaves is told what can be told, and what was held for it is back.
func TestCallerLeavesSpanningOrder(t *testing.T) {
	t.Parallel()
	for verb, want := range map[string]error{"begin": ErrNotDone, "prepare": ErrNotDone, "commit": ErrUncertain, "finish": nil} {
		t.Run(verb, func(t *testing.T) {
			t.Parallel()
			stocks := spanned(t, Config{Segments: 2}, 9, 9)
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			left := make(chan struct{})
			at := &hooked{server: stocks[0].server, before: func(calls []call) []answer {
				if calls[0].script == partsScript && calls[0].args[4] == verb {
					cancel()
					<-left
				}
				return nil
			}}
			for _, s := range stocks {
				s.server = at
			}
			_, err := DeductAll(ctx, "o", "u", lines(stocks, 1, 2)...)
			close(left)
			if want == nil {
				require.NoError(t, err)
			} else {
				require.ErrorIs(t, err, want)
				require.ErrorIs(t, err, context.Canceled)
			}
			taken := !errors.Is(want, ErrNotDone)
			eventually(t, "it is ended", func() bool {
				one, other := audited(t, stocks[0]), audited(t, stocks[1])
				return one.Open == 0 && other.Open == 0 && (one.Sold == 1) == taken && (other.Sold == 2) == taken
			})
		})
	}
}

// An order that is short waits for the parts of others, which may go back.
func TestSpanningOrderWaitsForParts(t *testing.T) {
	t.Parallel()
	m := newMarket(t, Config{Segments: 3}, 9, 9)
	u := &unwell{late: m.late}
	dead := m.processOf(u)
	_, _ = dead[0].Remaining(t.Context()) // so that the order's first command is its own
	_, _ = dead[1].Remaining(t.Context())
	u.begin([]ill{{At: 0, What: diesAfter}})
	_, err := DeductAll(t.Context(), "o", "u", lines(dead, 3, 2)...) // what its home has
	require.ErrorIs(t, err, errGone)
	other := m.process()
	done := make(chan error, 1)
	go func() {
		_, err := DeductAll(context.WithoutCancel(t.Context()), "p", "v", lines(other, 8, 1)...)
		done <- err
	}()
	select {
	case err := <-done:
		require.Fail(t, "it didn't wait", "%v", err)
	case <-time.After(100 * time.Millisecond): // a wait that is too short proves less, and fails nothing
	}
	m.clock.add(t, partLasts+time.Millisecond)
	within(t, "the order", func() { err = <-done })
	require.NoError(t, err)
	require.Equal(t, Books{Loaded: 9, Sold: 8, Left: 1}, audited(t, other[0]))
}

// After the coordinator is closed nothing is done.
func TestSpanningOrdersAfterClose(t *testing.T) {
	t.Parallel()
	stocks := spanned(t, Config{Segments: 2}, 9, 9)
	require.NoError(t, shut(stocks[0].c))
	_, err := DeductAll(t.Context(), "o", "u", lines(stocks, 1, 2)...)
	require.ErrorIs(t, err, coordinator.ErrClosed)
	require.ErrorIs(t, ReturnAll(t.Context(), "o", "u", lines(stocks, 1, 2)...), coordinator.ErrClosed)
}
