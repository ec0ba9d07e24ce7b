package segment

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/go-leasehold/leasehold/coordinator"
	"github.com/go-leasehold/leasehold/coordinator/coordinatortest"
	"github.com/go-leasehold/leasehold/internal/redistest"
)

// outside is a server for use inside a bubble of synctest, whose time it goes by: what it asks of Redis is asked outside, and
// no time passes meanwhile.
type outside struct {
	clock    *serverClock
	requests chan request
	replies  chan chan []answer // of which each is used by one call at a time
}

type request struct {
	calls []call
	now   time.Time
	reply chan []answer
}

func newOutside(t *testing.T, name string) *outside {
	c := processAt(t, redistest.Shared(t).Option())
	o := &outside{newClock(t, redistest.Shared(t), name), make(chan request), make(chan chan []answer, 64)}
	for range cap(o.replies) {
		o.replies <- make(chan []answer, 1)
	}
	inner := o.clock.wrap(redis{c})
	var served sync.WaitGroup
	served.Go(func() {
		for r := range o.requests {
			o.clock.set(t, r.now)
			r.reply <- inner.run(context.Background(), r.calls)
		}
	})
	t.Cleanup(func() {
		close(o.requests)
		served.Wait()
	})
	return o
}

func (o *outside) run(_ context.Context, calls []call) []answer {
	reply := <-o.replies
	o.requests <- request{calls, time.Now(), reply}
	answers := <-reply
	o.replies <- reply
	return answers
}

// lockedBubble runs a test in virtual time, with a loaded stock of 10 units in 2 segments.
func lockedBubble(t *testing.T, wrap func(server) server, test func(t *testing.T, s *Stock)) {
	t.Helper()
	name := redistest.Prefix(t)
	o := newOutside(t, name)
	synctest.Test(t, func(t *testing.T) {
		h := coordinatortest.New(t)
		conf, err := Config{Segments: 2}.withDefaults(0)
		require.NoError(t, err)
		s := newStock(h.Coordinator, name, conf, h.Coordinator.Settings(), wrap(o))
		require.NoError(t, s.Load(t.Context(), 10))
		test(t, s)
		time.Sleep(time.Minute) // nothing that is still to happen is missed
	})
}

func asIs(s server) server { return s }

// TestWithSegmentKeepsItsUnits for as long as the function runs, and sells them when it has ended.
func TestWithSegmentKeepsItsUnits(t *testing.T) {
	t.Parallel()
	lockedBubble(t, asIs, func(t *testing.T, s *Stock) {
		err := s.WithSegment(t.Context(), "k", 3, func(ctx context.Context, seg Held) error {
			for range 20 {
				time.Sleep(lockedFor / 2)
				require.NoError(t, ctx.Err())
				require.Equal(t, Books{Loaded: 10, Reserved: 3, Left: 7}, audited(t, s))
			}
			require.Equal(t, Index("k", 2), seg.Index)
			require.Equal(t, int64(3), seg.Quantity)
			return nil
		})
		require.NoError(t, err)
		time.Sleep(10 * lockedFor)
		require.Equal(t, Books{Loaded: 10, Sold: 3, Left: 7}, audited(t, s))
	})
}

// TestWithSegmentThatIsCutOff for longer than the units are kept says that they have gone back under the function.
func TestWithSegmentThatIsCutOff(t *testing.T) {
	t.Parallel()
	var off atomic.Bool
	cut := func(s server) server {
		return &hooked{server: s, before: func(calls []call) []answer {
			if off.Load() {
				return failAll(calls, errors.New("the network is down"))
			}
			return nil
		}}
	}
	lockedBubble(t, cut, func(t *testing.T, s *Stock) {
		err := s.WithSegment(t.Context(), "k", 3, func(context.Context, Held) error {
			off.Store(true)
			time.Sleep(lockedFor + time.Second)
			off.Store(false)
			return nil
		})
		require.ErrorIs(t, err, ErrExpired)
		require.Equal(t, Books{Loaded: 10, Left: 10}, audited(t, s))
	})
}

// TestWithSegmentOfACrash: the units come back by themselves.
func TestWithSegmentOfACrash(t *testing.T) {
	t.Parallel()
	s, clock := loadedAt(t, Config{Segments: 1}, 10)
	var dead atomic.Bool
	dying := through(t, s, func(s server) server {
		return &hooked{server: s, before: func(calls []call) []answer {
			if dead.Load() {
				return failAll(calls, errGone)
			}
			return nil
		}}
	})
	_ = dying.WithSegment(t.Context(), "k", 3, func(context.Context, Held) error { dead.Store(true); return nil })
	clock.add(t, lockedFor-time.Second)
	require.Equal(t, Books{Loaded: 10, Reserved: 3, Left: 7}, audited(t, s))
	clock.add(t, time.Second)
	require.Equal(t, Books{Loaded: 10, Left: 10}, audited(t, s))
}

// TestWithSegmentExcludes others at the same segment, of whatever process, and no other segment; tokens grow.
func TestWithSegmentExcludes(t *testing.T) {
	t.Parallel()
	s := loaded(t, Config{Segments: 2}, 1000)
	fleet := []*Stock{s, twin(t, s)}
	var inside [2]atomic.Int64
	var newest [2]uint64 // written under the segments' locks
	var calls sync.WaitGroup
	for i := range 8 {
		calls.Go(func() {
			for j := range 15 {
				err := fleet[i%2].WithSegment(t.Context(), fmt.Sprint(i, j), 2, func(ctx context.Context, seg Held) error {
					if inside[seg.Index].Add(1) != 1 {
						t.Error("two are inside")
					}
					if seg.Token <= newest[seg.Index] {
						t.Errorf("token %d after %d", seg.Token, newest[seg.Index])
					}
					newest[seg.Index] = seg.Token
					time.Sleep(time.Duration(j%3) * time.Millisecond)
					inside[seg.Index].Add(-1)
					return ctx.Err()
				})
				if err != nil {
					t.Error(err)
				}
			}
		})
	}
	within(t, "the calls end", calls.Wait)
	require.Equal(t, Books{Loaded: 1000, Sold: 240, Left: 760}, audited(t, s))
	// Inside one, the other is free.
	first, second := idAt(s, 0, "k"), idAt(s, 1, "k")
	require.NoError(t, s.WithSegment(t.Context(), first, 1, func(ctx context.Context, _ Held) error {
		return fleet[1].WithSegment(ctx, second, 1, doesNothing)
	}))
}

// TestWithSegmentGivesBack what a function that fails, panics, or loses its lock had.
func TestWithSegmentGivesBack(t *testing.T) {
	t.Parallel()
	s := loaded(t, Config{Segments: 2}, 10)
	failure := errors.New("the row is not there")
	for name, fn := range map[string]func(ctx context.Context, seg Held) error{
		"error": func(context.Context, Held) error { return failure },
		"lost lock": func(ctx context.Context, seg Held) error {
			if err := s.c.ForceUnlock(ctx, s.lockKey(seg.Index)); err != nil {
				return err
			}
			<-ctx.Done()
			return fmt.Errorf("%w: %w", failure, context.Cause(ctx))
		},
	} {
		within(t, name, func() {
			err := s.WithSegment(t.Context(), "k", 3, fn)
			if !errors.Is(err, failure) {
				t.Error(name, err)
			}
		})
		require.Equal(t, Books{Loaded: 10, Left: 10}, audited(t, s), name)
	}
	require.PanicsWithValue(t, "oh", func() {
		_ = s.WithSegment(t.Context(), "k", 3, func(context.Context, Held) error { panic("oh") })
	})
	require.Equal(t, Books{Loaded: 10, Left: 10}, audited(t, s))
	ctx, cancel := context.WithCancel(t.Context())
	err := s.WithSegment(ctx, "k", 3, func(ctx context.Context, _ Held) error {
		cancel()
		<-ctx.Done()
		return ctx.Err()
	})
	require.ErrorIs(t, err, context.Canceled)
	require.Equal(t, Books{Loaded: 10, Left: 10}, audited(t, s), "though its context is over")
	require.NoError(t, s.WithSegment(t.Context(), "k", 10, doesNothing), "units are moved, and the lock is free")
	require.ErrorIs(t, s.WithSegment(t.Context(), "k", 1, doesNothing), ErrSoldOut)
	require.Equal(t, Books{Loaded: 10, Sold: 10}, audited(t, s))
}

// TestAllEndsWithTheCoordinator: calls in flight, calls to come, and no goroutine is left (TestMain looks).
func TestAllEndsWithTheCoordinator(t *testing.T) {
	t.Parallel()
	for _, units := range []int64{1000, 0} { // home has some; all wait for units
		server := redistest.Start(t)
		s := opened(t, processAt(t, server.Option(), coordinator.WithUnavailableAfter(0)), "stock", Config{Segments: 3})
		require.NoError(t, s.Load(t.Context(), units))
		server.Pause()
		var calls sync.WaitGroup
		for i := range 30 {
			calls.Go(func() {
				o := Order{ID: fmt.Sprint(i % 20), Quantity: 1}
				if i%5 == 0 {
					o.ID = ""
				}
				_, err := s.Deduct(context.Background(), o)
				if !errors.Is(err, coordinator.ErrClosed) {
					t.Errorf("%q: %v", o.ID, err)
				}
			})
		}
		calls.Go(func() { _, _ = s.Audit(context.Background()) })
		calls.Go(func() { _ = s.WithSegment(context.Background(), "k", 1, doesNothing) })
		time.Sleep(20 * time.Millisecond)
		ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
		_ = s.c.Close(ctx)
		cancel()
		within(t, "the calls end", calls.Wait)
		server.Resume()
		_, err := s.Deduct(t.Context(), Order{ID: "late", Quantity: 1})
		require.ErrorIs(t, err, coordinator.ErrClosed)
		require.ErrorIs(t, s.WithSegment(t.Context(), "k", 1, doesNothing), coordinator.ErrClosed)
		require.ErrorIs(t, s.Load(t.Context(), 1), coordinator.ErrClosed)
		_, err = s.Audit(t.Context())
		require.ErrorIs(t, err, coordinator.ErrClosed)
		eventually(t, "nothing waits", func() bool { return nothingWaits(s) })
	}
}
