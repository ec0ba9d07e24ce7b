package segment

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/go-leasehold/leasehold/coordinator"
	"github.com/go-leasehold/leasehold/internal/redistest"
)

// mortal is a process that dies after a number of calls, with or without the answer to the last. Calls of one pipeline count
// one by one.
type mortal struct {
	server
	mu     sync.Mutex
	left   int
	unsaid bool
	died   bool
}

func (s *mortal) run(ctx context.Context, calls []call) []answer {
	s.mu.Lock()
	defer s.mu.Unlock()
	answers := failAll(calls, errGone)
	for i := range calls {
		if s.left == 0 {
			s.died = true
			return answers
		}
		s.left--
		a := s.server.run(ctx, calls[i:i+1])[0]
		if s.left == 0 && s.unsaid {
			s.died = true
			return answers
		}
		answers[i] = a
	}
	return answers
}

// deaths runs a test with a process that dies after each possible number of calls, until it gets through.
func deaths(t *testing.T, test func(t *testing.T, wrap func(server) server) (died bool)) {
	for _, unsaid := range []bool{false, true} {
		for after := 0; ; after++ {
			died := false
			t.Run(fmt.Sprintf("after %d calls, last answer lost: %v", after, unsaid), func(t *testing.T) {
				died = test(t, func(s server) server { return &mortal{server: s, left: after, unsaid: unsaid} })
			})
			if !died && !t.Failed() {
				require.Greater(t, after, 4, "it dies at each step")
				break
			}
			require.Less(t, after, 200, "it never gets through")
		}
	}
}

// dieIn is a handle on a stock in a process that dies.
func dieIn(t *testing.T, s *Stock, conf Config, wrap func(server) server) (*Stock, *mortal) {
	t.Helper()
	other := opened(t, s.c, s.name, conf)
	m := wrap(other.server).(*mortal)
	return newStock(s.c, s.name, other.conf, s.settings, m), m
}

func TestLoadIsForOnce(t *testing.T) {
	t.Parallel()
	c := processAt(t, redistest.Shared(t).Option())
	s := opened(t, c, redistest.Prefix(t), Config{Segments: 3})
	_, err := s.Deduct(t.Context(), Order{ID: "o", Quantity: 1})
	require.ErrorIs(t, err, ErrNotLoaded)
	_, err = s.Remaining(t.Context())
	require.ErrorIs(t, err, ErrNotLoaded)
	_, err = s.Audit(t.Context())
	require.ErrorIs(t, err, ErrNotLoaded)
	require.ErrorIs(t, s.Restock(t.Context(), "r", 1), ErrNotLoaded)
	require.Empty(t, keysOf(t, redistest.Shared(t), s.name))

	require.NoError(t, s.Load(t.Context(), 10))
	_, err = s.Deduct(t.Context(), Order{ID: "o", Quantity: 1})
	require.NoError(t, err)
	for _, units := range []int64{10, 11, 0} {
		for _, from := range []*Stock{s, opened(t, c, s.name, Config{Segments: 3})} {
			err := from.Load(t.Context(), units)
			require.ErrorIs(t, err, ErrLoaded)
			require.NotErrorIs(t, err, ErrUncertain)
		}
		err := opened(t, c, s.name, Config{Segments: 4}).Load(t.Context(), units)
		require.ErrorIs(t, err, ErrEpoch)
		require.NotErrorIs(t, err, ErrLoaded, "which every process expects when it starts")
	}
	require.Equal(t, Books{Loaded: 10, Sold: 1, Left: 9}, audited(t, s))
}

// TestSharesAreEven: and sum up, whatever the number.
func TestSharesAreEven(t *testing.T) {
	t.Parallel()
	for _, units := range []int64{0, 1, 2, 3, 4, 100, 101, 102, 1 << 40, MaxUnits} {
		for _, n := range []int{1, 2, 3, 16, 4096} {
			var sum, least, most int64 = 0, MaxUnits, 0
			for i := range n {
				part := share(units, i, n)
				sum, least, most = sum+part, min(least, part), max(most, part)
			}
			require.Equal(t, units, sum)
			require.LessOrEqual(t, most-least, int64(1))
		}
	}
	s := loaded(t, Config{Segments: 3}, 10)
	audit, err := s.Audit(t.Context())
	require.NoError(t, err)
	require.Equal(t, []Books{{Loaded: 4, Left: 4}, {Loaded: 3, Left: 3}, {Loaded: 3, Left: 3}}, audit.Segments)
}

// TestOneOfManyLoads: every process of a fleet loads when it starts, and one of them does.
func TestOneOfManyLoads(t *testing.T) {
	t.Parallel()
	const processes, calls, rounds = 4, 6, 10
	var fleet []*coordinator.Coordinator
	for range processes {
		fleet = append(fleet, processAt(t, redistest.Shared(t).Option()))
	}
	for range rounds {
		name := redistest.Prefix(t)
		var loads sync.WaitGroup
		var won atomic.Int64
		for i := range processes * calls {
			s := opened(t, fleet[i%processes], name, Config{Segments: 5})
			loads.Go(func() {
				switch err := s.Load(t.Context(), 101); {
				case err == nil:
					won.Add(1)
					if _, err := s.Deduct(t.Context(), Order{ID: "o", Quantity: 1}); err != nil {
						t.Error(err)
					}
				case !errors.Is(err, ErrLoaded):
					t.Error(err)
				}
			})
		}
		within(t, "the loads end", loads.Wait)
		require.Equal(t, int64(1), won.Load())
		require.Equal(t, Books{Loaded: 101, Sold: 1, Left: 100}, audited(t, opened(t, fleet[0], name, Config{Segments: 5})))
	}
}

// TestLoadAfterACrash: at whichever step; the next one ends it.
func TestLoadAfterACrash(t *testing.T) {
	t.Parallel()
	c := processAt(t, redistest.Shared(t).Option())
	conf := Config{Segments: 3}
	deaths(t, func(t *testing.T, wrap func(server) server) bool {
		s := opened(t, c, redistest.Prefix(t), conf)
		dying, m := dieIn(t, s, conf, wrap)
		err := dying.Load(t.Context(), 10)
		require.Equal(t, m.died, err != nil)
		found, err := s.ask()
		switch began := len(keysOf(t, redistest.Shared(t), s.name)) > 0; {
		case found != "":
			require.ErrorIs(t, s.Load(t.Context(), 10), ErrLoaded)
		case began:
			require.ErrorIs(t, err, ErrNotLoaded)
			_, err = s.Deduct(t.Context(), Order{ID: "o", Quantity: 1})
			require.ErrorIs(t, err, ErrNotLoaded)
			err = s.Load(t.Context(), 11)
			require.ErrorIs(t, err, ErrNotLoaded)
			require.NotErrorIs(t, err, ErrLoaded)
			require.ErrorContains(t, err, "Reset")
			require.ErrorContains(t, err, "10")
			require.ErrorIs(t, opened(t, c, s.name, Config{Segments: 4}).Load(t.Context(), 10), ErrNotLoaded)
			fallthrough
		default:
			require.NoError(t, s.Load(t.Context(), 10))
		}
		require.Equal(t, Books{Loaded: 10, Left: 10}, audited(t, s))
		require.ErrorIs(t, s.Load(t.Context(), 10), ErrLoaded)
		return err != nil || m.died
	})
}

// segmentsLeft are the segments that a stock has keys of, as a set.
func segmentsLeft(t *testing.T, s *Stock) map[string]bool {
	t.Helper()
	all := map[string]bool{}
	for _, key := range keysOf(t, redistest.Shared(t), s.name) {
		_, tag, _ := strings.Cut(key, "{")
		_, i, _ := strings.Cut(strings.TrimSuffix(tag, "}"), "/")
		all[i] = true
	}
	return all
}

func segmentsTo(n int) map[string]bool {
	all := map[string]bool{}
	for i := range n {
		all[fmt.Sprint(i)] = true
	}
	return all
}

// sellSome has a stock that was in use: with orders, reservations and units that were moved.
func sellSome(t *testing.T, s *Stock) {
	t.Helper()
	for i := range 20 {
		_, err := s.Deduct(t.Context(), Order{ID: fmt.Sprint("d", i), User: fmt.Sprint(i), Quantity: 1})
		require.NoError(t, err)
		_, err = s.Reserve(t.Context(), Order{ID: fmt.Sprint("r", i), User: fmt.Sprint(i), Quantity: 1}, time.Hour)
		require.NoError(t, err)
	}
	_, err := s.Deduct(t.Context(), Order{ID: "large", User: "large", Quantity: 40})
	require.NoError(t, err)
}

// TestResetAfterACrash: to fewer segments, or to more; once again, and all of the old is gone.
func TestResetAfterACrash(t *testing.T) {
	t.Parallel()
	c := processAt(t, redistest.Shared(t).Option())
	for _, n := range []int{2, 5} {
		for _, then := range []int{1, n, 7} {
			t.Run(fmt.Sprintf("from 3 to %d, then to %d", n, then), func(t *testing.T) {
				deaths(t, func(t *testing.T, wrap func(server) server) bool {
					s := opened(t, c, redistest.Prefix(t), Config{Segments: 3})
					require.NoError(t, s.Load(t.Context(), 100))
					sellSome(t, s)
					conf := Config{Segments: n, PerUser: 60}
					dying, m := dieIn(t, s, conf, wrap)
					_ = dying.Reset(t.Context(), 50)
					again := opened(t, c, s.name, Config{Segments: then})
					require.NoError(t, again.Reset(t.Context(), 70))
					require.Equal(t, Books{Loaded: 70, Left: 70}, audited(t, again))
					require.Equal(t, segmentsTo(then), segmentsLeft(t, s))
					_, err := again.Deduct(t.Context(), Order{ID: "d1", User: "1", Quantity: 1})
					require.NoError(t, err)
					if then != 3 {
						_, err = s.Deduct(t.Context(), Order{ID: "d1", User: "1", Quantity: 1})
						require.True(t, errors.Is(err, ErrEpoch) || errors.Is(err, ErrNotLoaded), err)
					}
					return m.died
				})
			})
		}
	}
}

// TestResetThatCrashedIsLoadedOn: Load with what it was about ends it.
func TestResetThatCrashedIsLoadedOn(t *testing.T) {
	t.Parallel()
	c := processAt(t, redistest.Shared(t).Option())
	deaths(t, func(t *testing.T, wrap func(server) server) bool {
		s := opened(t, c, redistest.Prefix(t), Config{Segments: 4})
		require.NoError(t, s.Load(t.Context(), 100))
		sellSome(t, s)
		conf := Config{Segments: 2}
		dying, m := dieIn(t, s, conf, wrap)
		err := dying.Reset(t.Context(), 50)
		again := opened(t, c, s.name, conf)
		err2 := again.Load(t.Context(), 50)
		if err2 == nil {
			require.Error(t, err)
			require.Equal(t, Books{Loaded: 50, Left: 50}, audited(t, again))
			require.Equal(t, segmentsTo(2), segmentsLeft(t, s))
		} else {
			require.True(t, errors.Is(err2, ErrEpoch) || errors.Is(err2, ErrLoaded), "it had not begun, or had ended: %v", err2)
		}
		return m.died
	})
}

// TestResetUnderARunningProcess: it hears of it once, and goes on with the new stock.
func TestResetUnderARunningProcess(t *testing.T) {
	t.Parallel()
	s := loaded(t, Config{Segments: 1}, 10)
	other := twin(t, s)
	o := Order{ID: "o", Quantity: 1}
	_, err := other.Deduct(t.Context(), o)
	require.NoError(t, err)
	for round := range int64(3) {
		require.NoError(t, s.Reset(t.Context(), 20+round))
		_, err = other.Deduct(t.Context(), o)
		require.ErrorIs(t, err, ErrEpoch)
		r, err := other.Deduct(t.Context(), o)
		require.NoError(t, err)
		require.False(t, r.Repeated)
		require.Equal(t, Books{Loaded: 20 + round, Sold: 1, Left: 19 + round}, audited(t, s))
	}
}

// TestResetMeetsEveryMethodOnce with ErrEpoch.
func TestResetMeetsEveryMethodOnce(t *testing.T) {
	t.Parallel()
	s := loaded(t, Config{Segments: 2}, 10)
	other := twin(t, s)
	o := Order{ID: "o", Quantity: 1}
	for name, method := range map[string]func() error{
		"Deduct":      func() error { _, err := other.Deduct(t.Context(), o); return err },
		"nameless":    func() error { _, err := other.Deduct(t.Context(), Order{Quantity: 1}); return err },
		"Reserve":     func() error { _, err := other.Reserve(t.Context(), Order{ID: "v", Quantity: 1}, time.Hour); return err },
		"Return":      func() error { return ignore(other.Return(t.Context(), o), ErrUnknownOrder) },
		"Restock":     func() error { return other.Restock(t.Context(), "r", 1) },
		"Remaining":   func() error { _, err := other.Remaining(t.Context()); return err },
		"Audit":       func() error { _, err := other.Audit(t.Context()); return err },
		"WithSegment": func() error { return other.WithSegment(t.Context(), "k", 1, doesNothing) },
	} {
		require.NoError(t, ignore(method(), ErrReturned), name)
		require.NoError(t, s.Reset(t.Context(), 10))
		require.ErrorIs(t, method(), ErrEpoch, name)
		require.NoError(t, ignore(method(), ErrReturned), name)
	}
}

func doesNothing(context.Context, Held) error { return nil }

// ignore is nil for an error that is expected.
func ignore(err, expected error) error {
	if errors.Is(err, expected) {
		return nil
	}
	return err
}

// TestOtherSettings are refused, and the text says both.
func TestOtherSettings(t *testing.T) {
	t.Parallel()
	s := loaded(t, Config{Segments: 2, PerUser: 3}, 10)
	was := contents(t, redistest.Shared(t), s)
	for _, conf := range []Config{
		{Segments: 3, PerUser: 3}, {Segments: 2}, {Segments: 2, PerUser: 4}, {Segments: 2, PerUser: 3, Remember: time.Hour},
	} {
		other := opened(t, s.c, s.name, conf)
		_, err := other.Deduct(t.Context(), Order{ID: "o", User: "u", Quantity: 1})
		require.ErrorIs(t, err, ErrEpoch)
		require.ErrorContains(t, err, other.conf.terms())
		require.ErrorContains(t, err, s.conf.terms())
		_, err = other.Audit(t.Context())
		require.ErrorIs(t, err, ErrEpoch)
		require.ErrorIs(t, other.WithSegment(t.Context(), "k", 1, doesNothing), ErrEpoch)
	}
	require.Equal(t, was, contents(t, redistest.Shared(t), s))
	same := opened(t, s.c, s.name, Config{Segments: 2, PerUser: 3, MaxWaiting: 17, Remember: DefaultRemember})
	_, err := same.Deduct(t.Context(), Order{ID: "o", User: "u", Quantity: 1})
	require.NoError(t, err)
}

// TestDropLeavesNothing, nor does it when it is sent again after a crash; and the stock can be loaded anew.
func TestDropLeavesNothing(t *testing.T) {
	t.Parallel()
	c := processAt(t, redistest.Shared(t).Option())
	deaths(t, func(t *testing.T, wrap func(server) server) bool {
		s := opened(t, c, redistest.Prefix(t), Config{Segments: 4, PerUser: 50})
		require.NoError(t, s.Load(t.Context(), 100))
		sellSome(t, s)
		require.NoError(t, s.WithSegment(t.Context(), "k", 1, doesNothing))
		dying, m := dieIn(t, s, Config{Segments: 2}, wrap)
		_ = dying.Drop(t.Context())
		require.NoError(t, opened(t, c, s.name, Config{Segments: 1}).Drop(t.Context()))
		require.Empty(t, keysOf(t, redistest.Shared(t), s.name))
		eventually(t, "only the counters of its locks stay for a while", func() bool {
			return !slices.ContainsFunc(redistest.Shared(t).Keys(t, "*"+s.name+"*"), func(key string) bool { return !strings.Contains(key, "~token") })
		})
		_, err := s.Deduct(t.Context(), Order{ID: "d1", User: "1", Quantity: 1})
		require.ErrorIs(t, err, ErrNotLoaded)
		require.NoError(t, s.Load(t.Context(), 30))
		require.Equal(t, Books{Loaded: 30, Left: 30}, audited(t, s))
		return m.died
	})
	s := opened(t, c, redistest.Prefix(t), Config{})
	require.NoError(t, s.Drop(t.Context()), "of what is not there")
}

// TestLoadWhoseContextEnds says that it is not done, and Load again ends it.
func TestLoadWhoseContextEnds(t *testing.T) {
	t.Parallel()
	c := processAt(t, redistest.Shared(t).Option())
	s := opened(t, c, redistest.Prefix(t), Config{Segments: 3})
	cause := errors.New("no time left")
	ctx, cancel := context.WithCancelCause(t.Context())
	failing := through(t, s, func(s server) server {
		return &hooked{server: s, after: func(calls []call, _ []answer) {
			if calls[0].script == loadBeginScript {
				cancel(cause)
			}
		}}
	})
	err := failing.Load(ctx, 10)
	require.ErrorIs(t, err, cause)
	_, err = s.Remaining(t.Context())
	require.ErrorIs(t, err, ErrNotLoaded)
	require.NoError(t, s.Load(t.Context(), 10))
	require.Equal(t, Books{Loaded: 10, Left: 10}, audited(t, s))
}
