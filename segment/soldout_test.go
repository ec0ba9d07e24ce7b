package segment

import (
	"context"
	"errors"
	"fmt"
	"os"
	"testing"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/redis/rueidis"
	"github.com/stretchr/testify/require"

	"github.com/go-leasehold/leasehold/internal/redistest"
)

// noticed is the second within which a process notices what it was not told, with room for a busy machine.
const noticed = 20 * time.Second

// isSoldOut requires that an order of some units is sold out.
func isSoldOut(t *testing.T, s *Stock, id string, quantity int64) {
	t.Helper()
	_, err := s.Deduct(t.Context(), Order{ID: id, Quantity: quantity})
	require.ErrorIs(t, err, ErrSoldOut)
}

// knows waits until the process answers an order of one unit by itself.
func knows(t *testing.T, s *Stock, quantity int64) {
	t.Helper()
	n := 0
	eventually(t, "the process knows that it is sold out", func() bool {
		n++
		isSoldOut(t, s, fmt.Sprint("probe ", n), quantity)
		return s.sold.known.Load() != nil
	})
}

// triesToKnow is knows for where somebody may give units back meanwhile.
func triesToKnow(t *testing.T, s *Stock) {
	t.Helper()
	n := 0
	eventually(t, "the process knows that it is sold out, or has bought", func() bool {
		n++
		_, err := s.Deduct(t.Context(), Order{ID: fmt.Sprint("try ", n, time.Now()), Quantity: 1})
		return err == nil || s.sold.known.Load() != nil
	})
}

// drain buys what there is, until the process knows that it is sold out.
func drain(t *testing.T, s *Stock) {
	t.Helper()
	for n := 0; ; n++ {
		if _, err := s.Deduct(t.Context(), Order{ID: fmt.Sprint("drain ", n, time.Now()), Quantity: 1}); err != nil {
			require.ErrorIs(t, err, ErrSoldOut)
			break
		}
	}
	knows(t, s, 1)
}

// soldOutStock is on a server of its own, and knows that it is sold out but for some units.
func soldOutStock(t *testing.T, segments int, units, left int64) (*redistest.Server, *Stock) {
	t.Helper()
	server := redistest.Start(t)
	s := opened(t, processAt(t, server.Option()), "stock", Config{Segments: segments})
	require.NoError(t, s.Load(t.Context(), units))
	for i := range units - left {
		_, err := s.Deduct(t.Context(), Order{ID: fmt.Sprint("sold ", i), Quantity: 1})
		require.NoError(t, err)
	}
	knows(t, s, left+1)
	return server, s
}

// TestSoldOutWithNoCommand: after the proof nothing is asked for orders that are not on record.
func TestSoldOutWithNoCommand(t *testing.T) {
	t.Parallel()
	server, s := soldOutStock(t, 4, 20, 0)
	before := server.Commands()
	const n = 20_000
	for i := range n {
		o := Order{ID: fmt.Sprint("late ", i), User: fmt.Sprint(i % 10), Quantity: 1}
		_, err := s.Deduct(t.Context(), o)
		require.ErrorIs(t, err, ErrSoldOut)
		if i%10 == 0 {
			_, err = s.Deduct(t.Context(), Order{Quantity: 3})
			require.ErrorIs(t, err, ErrSoldOut)
			_, err = s.Reserve(t.Context(), o, time.Minute)
			require.ErrorIs(t, err, ErrSoldOut)
		}
	}
	// What it compares once in a while is a few commands, however many orders there are.
	require.Less(t, server.Commands()-before, int64(n/20))
	for i := range 20 {
		r, err := s.Deduct(t.Context(), Order{ID: fmt.Sprint("sold ", i), Quantity: 1})
		require.NoError(t, err, "what is on record is asked for")
		require.True(t, r.Repeated)
	}
	_, err := s.Deduct(t.Context(), Order{ID: "sold 3", Quantity: 2})
	require.ErrorIs(t, err, ErrOrderMismatch)
	require.Equal(t, Books{Loaded: 20, Sold: 20}, audited(t, s))
}

// TestSmallerOrdersAreServed while larger ones are known to be too large.
func TestSmallerOrdersAreServed(t *testing.T) {
	t.Parallel()
	_, s := soldOutStock(t, 4, 20, 3)
	isSoldOut(t, s, "four", 4)
	_, err := s.Deduct(t.Context(), Order{ID: "three", Quantity: 3})
	require.NoError(t, err)
	isSoldOut(t, s, "one", 1)
	require.Equal(t, Books{Loaded: 20, Sold: 20}, audited(t, s))
}

// TestSoldOutNoMore: whoever gives units back in this process, its next order finds them.
func TestSoldOutNoMore(t *testing.T) {
	t.Parallel()
	_, s := soldOutStock(t, 3, 12, 0)
	_, err := s.Deduct(t.Context(), Order{ID: "never", Quantity: 1})
	require.ErrorIs(t, err, ErrSoldOut)
	for i, back := range []func() error{
		func() error { return s.Return(t.Context(), Order{ID: "sold 1", Quantity: 1}) },
		func() error { return s.Restock(t.Context(), "r", 1) },
		func() error {
			if err := s.Restock(t.Context(), "r2", 1); err != nil {
				return err
			}
			o := Order{ID: "reserved", Quantity: 1}
			if _, err := s.Reserve(t.Context(), o, time.Hour); err != nil {
				return err
			}
			knows(t, s, 1)
			return s.Cancel(t.Context(), o)
		},
		func() error {
			err := s.WithSegment(t.Context(), "k", 1, doesNothing)
			if !errors.Is(err, ErrSoldOut) {
				return fmt.Errorf("not sold out: %w", err)
			}
			if err := s.Restock(t.Context(), "r3", 1); err != nil {
				return err
			}
			failure := errors.New("it failed")
			return ignore(s.WithSegment(t.Context(), "k", 1, func(context.Context, Held) error { knows(t, s, 1); return failure }), failure)
		},
	} {
		knows(t, s, 1)
		require.NoError(t, back(), i)
		_, err := s.Deduct(t.Context(), Order{ID: fmt.Sprint("next ", i), Quantity: 1})
		require.NoError(t, err, i)
	}
}

// TestSoldOutEndsByNotice: what another process gives back is told, and not found out by looking.
func TestSoldOutEndsByNotice(t *testing.T) {
	t.Parallel()
	server := redistest.Alone(t)
	first := opened(t, processAt(t, server.Option()), "stock", Config{Segments: 3})
	first.sold.every = 24 * time.Hour // it never looks
	require.NoError(t, first.Load(t.Context(), 3))
	other := opened(t, processAt(t, server.Option()), "stock", first.conf)
	for round, o := range []Order{{ID: "a", Quantity: 1}, {ID: "b", Quantity: 1}, {ID: "c", Quantity: 1}} {
		_, err := other.Deduct(t.Context(), o)
		require.NoError(t, err, round)
	}
	for _, id := range []string{"a", "b", "c"} {
		knows(t, first, 1)
		require.NoError(t, other.Return(t.Context(), Order{ID: id, Quantity: 1}))
		eventually(t, "it is told", func() bool { return first.sold.known.Load() == nil })
		_, err := first.Deduct(t.Context(), Order{ID: "again " + id, Quantity: 1})
		require.NoError(t, err)
	}
	knows(t, first, 1)
	require.NoError(t, other.Restock(t.Context(), "more", 1))
	eventually(t, "it is told", func() bool { return first.sold.known.Load() == nil })
}

// TestSoldOutNoMoreElsewhere: what changes elsewhere is known within a second.
func TestSoldOutNoMoreElsewhere(t *testing.T) {
	t.Parallel()
	server, s := soldOutStock(t, 3, 12, 0)
	other := opened(t, processAt(t, server.Option()), s.name, s.conf)
	kill := func() { server.Do(t, "CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes") }
	for _, c := range []struct {
		name   string
		change func()
	}{
		{"return", func() { require.NoError(t, other.Return(t.Context(), Order{ID: "sold 1", Quantity: 1})) }},
		{"restock", func() { require.NoError(t, other.Restock(t.Context(), "r", 1)) }},
		{"cancel", func() {
			require.NoError(t, other.Restock(t.Context(), "r2", 1))
			_, err := other.Reserve(t.Context(), Order{ID: "reserved", Quantity: 1}, time.Hour)
			require.NoError(t, err)
			knows(t, s, 1)
			require.NoError(t, other.Cancel(t.Context(), Order{ID: "reserved", Quantity: 1}))
		}},
		{"a reservation's deadline", func() {
			require.NoError(t, other.Restock(t.Context(), "r3", 2))
			_, err := other.Reserve(t.Context(), Order{ID: "lapses", Quantity: 2}, 300*time.Millisecond)
			require.NoError(t, err)
			triesToKnow(t, s)
		}},
		{"a reservation's deadline that nobody looks at", func() {
			require.NoError(t, s.Restock(t.Context(), "r4", 2))
			_, err := s.Reserve(t.Context(), Order{ID: "lapses, too", Quantity: 2}, time.Second)
			require.NoError(t, err)
			triesToKnow(t, s)
		}},
		{"a restock while connections are cut", func() { kill(); require.NoError(t, other.Restock(t.Context(), "r5", 1)); kill() }},
		{"a reset", func() { require.NoError(t, other.Reset(t.Context(), 1)) }},
		{"a flush", func() { server.Do(t, "FLUSHALL"); require.NoError(t, other.Load(t.Context(), 1)) }},
		{"a deletion", func() {
			for _, h := range s.homes {
				server.Do(t, "DEL", h.keys.books)
			}
			server.Do(t, "DEL", s.meta)
			require.NoError(t, other.Load(t.Context(), 1))
		}},
		{"a drop", func() { require.NoError(t, other.Drop(t.Context())); require.NoError(t, other.Load(t.Context(), 1)) }},
	} {
		t.Run(c.name, func(t *testing.T) {
			drain(t, s)
			c.change()
			began, n := time.Now(), 0
			for {
				n++
				_, err := s.Deduct(t.Context(), Order{ID: fmt.Sprint("after ", c.name, n), Quantity: 1})
				if err == nil {
					break
				}
				require.True(t, errors.Is(err, ErrSoldOut) || errors.Is(err, ErrEpoch) || errors.Is(err, ErrNotLoaded), "%v", err)
				require.Less(t, time.Since(began), noticed)
				time.Sleep(time.Millisecond)
			}
			audited(t, s)
		})
	}
}

// TestWatchingEnds when nobody asks any more, and with the coordinator.
func TestWatchingEnds(t *testing.T) {
	t.Parallel()
	server, s := soldOutStock(t, 3, 12, 0)
	known := s.sold.known.Load()
	require.NotNil(t, known)
	if os.Getenv("LEASEHOLD_TORTURE") == "" {
		require.NoError(t, shut(s.c))
		eventually(t, "closed", func() bool { return s.sold.known.Load() == nil })
		return
	}
	eventually(t, "what is known is dropped when nobody uses it", func() bool { return s.sold.known.Load() != known })
	before := server.Commands()
	time.Sleep(3 * verifyEvery)
	require.Less(t, server.Commands()-before, int64(len(s.homes)+3), "the process compares no more")
	knows(t, s, 1)
	require.NoError(t, shut(s.c))
	eventually(t, "closed", func() bool { return s.sold.known.Load() == nil })
}

// TestSoldOutWithNoTracking: without client-side caching the process asks each time.
func TestSoldOutWithNoTracking(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	mini := miniredis.RunT(t)
	cacheless := server.Option()
	cacheless.DisableCache = true
	old := server.Option()
	old.AlwaysRESP2, old.DisableCache = true, true
	for name, option := range map[string]rueidis.ClientOption{
		"DisableCache": cacheless, "RESP2": old, "miniredis": {InitAddress: []string{mini.Addr()}, DisableCache: true},
	} {
		t.Run(name, func(t *testing.T) {
			s := opened(t, processAt(t, option), name, Config{Segments: 3})
			require.NoError(t, s.Load(t.Context(), 6))
			for i := range 6 {
				_, err := s.Deduct(t.Context(), Order{ID: fmt.Sprint("sold ", i), Quantity: 1})
				require.NoError(t, err)
			}
			for i := range 20 {
				isSoldOut(t, s, fmt.Sprint("late ", i), 1)
				require.Nil(t, s.sold.known.Load())
			}
			require.NoError(t, s.Return(t.Context(), Order{ID: "sold 3", Quantity: 1}))
			_, err := s.Deduct(t.Context(), Order{ID: "next", Quantity: 1})
			require.NoError(t, err)
			require.NoError(t, s.Restock(t.Context(), "r", 5))
			r, err := s.Reserve(t.Context(), Order{ID: "v", Quantity: 5}, time.Hour)
			require.NoError(t, err)
			require.NoError(t, r.Confirm(t.Context()))
			require.NoError(t, ignore(s.WithSegment(t.Context(), "k", 1, doesNothing), ErrSoldOut))
			require.Equal(t, Books{Loaded: 11, Sold: 11}, audited(t, s))
		})
	}
}
