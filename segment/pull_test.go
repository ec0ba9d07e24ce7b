package segment

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// TestUnitsAnywhereAreSold: of 16 segments with one unit each, one order takes some, all, or hears that it wants too many.
func TestUnitsAnywhereAreSold(t *testing.T) {
	t.Parallel()
	for _, q := range []int64{1, 2, 3, 15, 16, 17} {
		for verb := range 3 {
			s := loaded(t, Config{Segments: 16, PerUser: 100 * int64(verb%2)}, 16)
			o := Order{ID: fmt.Sprint(q), User: "u", Quantity: q}
			var err error
			sold := &Books{Loaded: 16}
			switch verb {
			case 0:
				_, err = s.Deduct(t.Context(), o)
				sold.Sold = q
			case 1:
				_, err = s.Reserve(t.Context(), o, time.Hour)
				sold.Reserved = q
			case 2:
				o.ID = ""
				_, err = s.Deduct(t.Context(), o)
				sold.Sold = q
			}
			if q > 16 {
				require.ErrorIs(t, err, ErrSoldOut)
				sold = &Books{Loaded: 16}
			} else {
				require.NoError(t, err)
			}
			sold.Left = 16 - sold.Sold - sold.Reserved
			require.Equal(t, *sold, audited(t, s))
		}
	}
}

// TestHotHome: all orders live at one segment, and take everything that there is.
func TestHotHome(t *testing.T) {
	t.Parallel()
	const units = 2000
	s := loaded(t, Config{Segments: 8}, units)
	var counted sent
	s = through(t, s, counted.wrap)
	var calls sync.WaitGroup
	var won, lost atomic.Int64
	for i := range 50 {
		calls.Go(func() {
			for j := range 50 {
				switch _, err := s.Deduct(t.Context(), Order{ID: fmt.Sprint(i, " ", j), User: "hot", Quantity: 1}); {
				case err == nil:
					won.Add(1)
				case errors.Is(err, ErrSoldOut):
					lost.Add(1)
				default:
					t.Error(err)
				}
			}
		})
	}
	within(t, "the calls end", calls.Wait)
	require.Equal(t, int64(units), won.Load())
	require.Equal(t, int64(500), lost.Load())
	require.Equal(t, Books{Loaded: units, Sold: units}, audited(t, s))
	require.Less(t, counted.of("give"), 200, "each takes half of the fullest")
}

// TestLastUnits: several processes with orders of several units sell until less is left than anybody wants, and no order is
// refused that could be served when nobody else was there.
func TestLastUnits(t *testing.T) {
	t.Parallel()
	for round := range 5 {
		units := int64(300 + round)
		s := loaded(t, Config{Segments: 4 + round}, units)
		fleet := []*Stock{s, twin(t, s), twin(t, s)}
		var calls sync.WaitGroup
		var sold atomic.Int64
		for i := range 30 {
			calls.Go(func() {
				for j := range 15 {
					o := Order{ID: fmt.Sprint(i, " ", j), Quantity: int64(1 + (i+j)%4)}
					switch _, err := fleet[i%3].Deduct(t.Context(), o); {
					case err == nil:
						sold.Add(o.Quantity)
					case !errors.Is(err, ErrSoldOut):
						t.Error(err)
					}
				}
			})
		}
		within(t, "the calls end", calls.Wait)
		require.Equal(t, Books{Loaded: units, Sold: sold.Load(), Left: units - sold.Load()}, audited(t, s))
		require.Equal(t, units, sold.Load(), "there were orders of one unit to the end")
	}
}

// floor is a lower bound of what is available while calls run: as if all that is in flight takes, and nothing that is given
// back is there before the call that does it has ended.
type floor struct {
	mu    sync.Mutex
	now   int64
	calls map[*int64]struct{} // the lowest since each call began
}

func (f *floor) change(n int64) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.now += n
	for lowest := range f.calls {
		*lowest = min(*lowest, f.now)
	}
}

// during notes the lowest bound while a call of an order runs, its own wish counted.
func (f *floor) during(quantity int64, call func() error) (lowest int64, err error) {
	f.mu.Lock()
	lowest = f.now
	f.calls[&lowest] = struct{}{}
	f.mu.Unlock()
	f.change(-quantity)
	err = call()
	f.mu.Lock()
	defer f.mu.Unlock()
	delete(f.calls, &lowest)
	return lowest, err
}

// TestSoldOutIsTrue: when an order is refused, then at some moment of its call less was available than it wanted.
func TestSoldOutIsTrue(t *testing.T) {
	t.Parallel()
	const units = 60
	s := loaded(t, Config{Segments: 6}, units)
	fleet := []*Stock{s, twin(t, s)}
	f := &floor{now: units, calls: map[*int64]struct{}{}}
	var calls sync.WaitGroup
	var refused, served atomic.Int64
	stop := time.Now().Add(2 * time.Second)
	for i := range 6 {
		calls.Go(func() {
			random := rand.New(rand.NewPCG(uint64(i), 7))
			for j := 0; time.Now().Before(stop); j++ {
				o := Order{ID: fmt.Sprint(i, " ", j), Quantity: 1 + random.Int64N(15)}
				from := fleet[random.IntN(2)]
				lowest, err := f.during(o.Quantity, func() error { _, err := from.Deduct(t.Context(), o); return err })
				switch {
				case err == nil:
					served.Add(1)
					if random.IntN(5) == 0 {
						continue // sold for good
					}
					if err := from.Return(t.Context(), o); err != nil {
						t.Error(err)
					}
					f.change(o.Quantity)
				case errors.Is(err, ErrSoldOut):
					refused.Add(1)
					f.change(o.Quantity)
					if lowest >= 0 {
						t.Errorf("an order of %d was refused, and %d were there all the time", o.Quantity, lowest+o.Quantity)
					}
					if random.IntN(3) == 0 {
						if err := from.Restock(t.Context(), "r "+o.ID, 20); err != nil {
							t.Error(err)
						}
						f.change(20)
					}
				default:
					t.Error(err)
				}
			}
		})
	}
	within(t, "the calls end", calls.Wait)
	require.Positive(t, refused.Load())
	require.Positive(t, served.Load())
	audited(t, s)
}

// TestLostReplies of gives and credits, and such as come twice: nothing is lost.
func TestLostReplies(t *testing.T) {
	t.Parallel()
	s := loaded(t, Config{Segments: 6}, 600)
	var lost atomic.Int64
	s = through(t, s, func(inner server) server {
		random, mu := rand.New(rand.NewPCG(1, 2)), sync.Mutex{}
		fails := func() bool { mu.Lock(); defer mu.Unlock(); return random.IntN(3) == 0 }
		return &hooked{server: inner, after: func(calls []call, answers []answer) {
			for i := range calls {
				if !calls[i].once && fails() {
					answers[i] = answer{err: errors.New("the reply was lost")}
					lost.Add(1)
				}
			}
		}}
	})
	var calls sync.WaitGroup
	for i := range 20 {
		calls.Go(func() {
			for j := range 10 {
				if _, err := s.Deduct(t.Context(), Order{ID: fmt.Sprint(i, " ", j), User: fmt.Sprint(i % 2), Quantity: 3}); err != nil {
					t.Error(err)
				}
			}
		})
	}
	within(t, "the calls end", calls.Wait)
	require.Positive(t, lost.Load())
	require.Equal(t, Books{Loaded: 600, Sold: 600}, audited(t, s))
}

// TestCrashBetweenGiveAndCredit, and at each other step of a pull: whoever looks next credits the units that are on their way.
func TestCrashBetweenGiveAndCredit(t *testing.T) {
	t.Parallel()
	seen := false
	for _, unsaid := range []bool{false, true} {
		for after := range 40 {
			s := loaded(t, Config{Segments: 3}, 9)
			id := idAt(s, 0, "o")
			m := &mortal{server: s.server, left: after, unsaid: unsaid}
			_, err := through(t, s, func(server) server { return m }).Deduct(t.Context(), Order{ID: id, Quantity: 9})
			require.Equal(t, m.died, err != nil)
			all, err := s.pass()
			require.NoError(t, err)
			seen = seen || all.underWay() > 0
			sold := all[0].took
			if after%2 == 0 {
				require.Equal(t, Books{Loaded: 9, Sold: sold, Left: 9 - sold}, audited(t, s), "an audit ends it")
			}
			r, err := s.Deduct(t.Context(), Order{ID: id, Quantity: 9})
			require.NoError(t, err)
			require.Equal(t, sold > 0, r.Repeated)
			require.Equal(t, Books{Loaded: 9, Sold: 9}, audited(t, s))
			if !m.died {
				break
			}
		}
	}
	require.True(t, seen, "units were on their way")
}

// gives has a donor give to a home, which does not hear of it, and returns the total.
func gives(t *testing.T, s *Stock, donor, home int, units int64) string {
	t.Helper()
	totals, err := s.give([]gift{{pair{donor, home}, 0, units}})
	require.NoError(t, err)
	return totals[0]
}

// TestRemainingCountsWhatIsOnItsWay.
func TestRemainingCountsWhatIsOnItsWay(t *testing.T) {
	t.Parallel()
	s := loaded(t, Config{Segments: 3}, 9)
	gives(t, s, 1, 0, 2)
	left, err := s.Remaining(t.Context())
	require.NoError(t, err)
	require.Equal(t, int64(9), left)
	all, err := s.pass()
	require.NoError(t, err)
	require.Equal(t, int64(2), all.underWay())
	require.Equal(t, Books{Loaded: 9, Left: 9}, audited(t, s))
	all, err = s.pass()
	require.NoError(t, err)
	require.Zero(t, all.underWay())
}

// splitLook does something between the looks at all segments but the last, and at the last, the first time.
type splitLook struct {
	server
	between func()
}

func (s *splitLook) run(ctx context.Context, calls []call) []answer {
	if between := s.between; between != nil && calls[0].script == lookScript && len(calls) > 1 {
		s.between = nil
		last := len(calls) - 1
		answers := s.server.run(ctx, calls[:last])
		between()
		return append(answers, s.server.run(ctx, calls[last:])...)
	}
	return s.server.run(ctx, calls)
}

// TestLookThatSeesTooLittle: units that come where it has looked, and go where it has not yet, are missing from its sum. The
// order was to be had at every moment, so it is not refused.
func TestLookThatSeesTooLittle(t *testing.T) {
	t.Parallel()
	s := loaded(t, Config{Segments: 3}, 6)
	for i := range 2 {
		_, err := s.Deduct(t.Context(), Order{ID: idAt(s, i, "first"), Quantity: 2})
		require.NoError(t, err)
	}
	looking := through(t, s, func(inner server) server {
		return &splitLook{server: inner, between: func() {
			if err := s.Restock(t.Context(), idAt(s, 1, "r"), 2); err != nil {
				t.Error(err)
			}
			if _, err := s.Deduct(t.Context(), Order{ID: idAt(s, 2, "second"), Quantity: 2}); err != nil {
				t.Error(err)
			}
		}}
	})
	_, err := looking.Deduct(t.Context(), Order{ID: idAt(s, 0, "third"), Quantity: 2})
	require.NoError(t, err)
	require.Equal(t, Books{Loaded: 8, Sold: 8}, audited(t, s))
}
