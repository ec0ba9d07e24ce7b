package segment

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/go-leasehold/leasehold/coordinator"
	"github.com/go-leasehold/leasehold/internal/redistest"
)

// gate stops calls of one script on their way to the server.
type gate struct {
	script  string
	arrived chan struct{} // one for each call that is stopped
	open    chan struct{} // closed, it lets all through
	once    sync.Once
}

func newGate(t testing.TB, script string) *gate {
	g := &gate{script: script, arrived: make(chan struct{}, 1000), open: make(chan struct{})}
	t.Cleanup(g.release)
	return g
}

func (g *gate) release() { g.once.Do(func() { close(g.open) }) }

func (g *gate) wrap(s server) server {
	return &hooked{server: s, before: func(calls []call) []answer {
		for i := range calls {
			if calls[i].script.name == g.script {
				g.arrived <- struct{}{}
				<-g.open
				break
			}
		}
		return nil
	}}
}

// nothing waits in what carries calls to the segments.
func nothingWaits(s *Stock) bool {
	for _, h := range s.homes {
		h.lane.mu.Lock()
		n, flying := h.lane.waiting, h.lane.flying
		h.lane.mu.Unlock()
		h.puller.mu.Lock()
		waiting := len(h.puller.waiting)
		h.puller.mu.Unlock()
		if n != 0 || flying > 0 || waiting != 0 {
			return false
		}
	}
	return true
}

// warm has a handle know the epoch, and each segment's bucket of orders.
func warm(t testing.TB, s *Stock) {
	t.Helper()
	_, err := s.look()
	require.NoError(t, err)
}

// waitingAt returns how many calls wait at a segment's lane.
func waitingAt(h *home) int {
	h.lane.mu.Lock()
	defer h.lane.mu.Unlock()
	return h.lane.waiting
}

// deductions has calls to deduct one unit each made at the same time, and what waits for their ends.
func deductions(t *testing.T, s *Stock) (deduct func(of string, n int), end func()) {
	var calls sync.WaitGroup
	deduct = func(of string, n int) {
		for i := range n {
			calls.Go(func() {
				if _, err := s.Deduct(t.Context(), Order{ID: fmt.Sprint(of, i), Quantity: 1}); err != nil {
					t.Error(err)
				}
			})
		}
	}
	return deduct, func() { within(t, "the calls end", calls.Wait) }
}

// TestCallsTravelTogether: a script is on its way, and the few that come meanwhile go in the next.
func TestCallsTravelTogether(t *testing.T) {
	t.Parallel()
	s := loaded(t, Config{Segments: 1}, 1000)
	var scripts sent
	g := newGate(t, "deduct")
	s = through(t, through(t, s, scripts.wrap), g.wrap)
	warm(t, s)
	deduct, end := deductions(t, s)
	deduct("first", 1)
	<-g.arrived
	const n = minBeside - 1
	deduct("", n)
	eventually(t, "all wait", func() bool { return waitingAt(s.homes[0]) == n+1 })
	require.Empty(t, g.arrived, "they wait")
	g.release()
	end()
	require.Equal(t, 2, scripts.of("deduct"))
	require.Equal(t, int64(n+1), audited(t, s).Sold)
}

// TestManyLeaveBesideWhatIsOnItsWay, but there are never more than two scripts on their way.
func TestManyLeaveBesideWhatIsOnItsWay(t *testing.T) {
	t.Parallel()
	s := loaded(t, Config{Segments: 1}, 10_000)
	var scripts sent
	g := newGate(t, "deduct")
	s = through(t, through(t, s, scripts.wrap), g.wrap)
	warm(t, s)
	lane := &s.homes[0].lane
	deduct, end := deductions(t, s)
	deduct("first", 1)
	<-g.arrived
	deduct("beside", minBeside)
	<-g.arrived
	const n = 300
	deduct("late", n)
	eventually(t, "all wait", func() bool { return waitingAt(s.homes[0]) == 1+minBeside+n })
	require.Empty(t, g.arrived, "a third script waits")
	g.release()
	end()
	require.LessOrEqual(t, scripts.of("deduct"), 4)
	require.Equal(t, int64(1+minBeside+n), audited(t, s).Sold)
	eventually(t, "all has ended", func() bool { return nothingWaits(s) })
	lane.mu.Lock()
	defer lane.mu.Unlock()
	require.Empty(t, lane.next)
}

// TestCallsComeAndGoAtOneSegment: whatever leaves beside what, each call ends, and with the right answer.
func TestCallsComeAndGoAtOneSegment(t *testing.T) {
	t.Parallel()
	const callers, each = 3 * minBeside, 40
	s := loaded(t, Config{Segments: 1}, callers*each)
	var flying, most atomic.Int64
	s = through(t, s, func(inner server) server {
		return &hooked{server: inner, before: func(calls []call) []answer {
			if calls[0].script.name != "deduct" {
				return nil
			}
			now := flying.Add(1)
			for {
				m := most.Load()
				if now <= m || most.CompareAndSwap(m, now) {
					break
				}
			}
			time.Sleep(200 * time.Microsecond)
			flying.Add(-1)
			return nil
		}}
	})
	warm(t, s)
	var calls sync.WaitGroup
	for i := range callers {
		calls.Go(func() {
			for j := range each {
				o := Order{ID: fmt.Sprint(i, " ", j/2), Quantity: 1} // the same twice: the second is told so
				if j%4 == 3 {
					o.ID = "" // and some are counted only
				}
				if _, err := s.Deduct(t.Context(), o); err != nil {
					t.Error(err)
				}
			}
		})
	}
	within(t, "the calls end", calls.Wait)
	require.LessOrEqual(t, most.Load(), int64(maxFlying))
	require.Equal(t, int64(callers*each*3/4), audited(t, s).Sold)
	eventually(t, "all has ended", func() bool { return nothingWaits(s) })
}

// TestIdleCallCostsOneScript, and goes at once.
func TestIdleCallCostsOneScript(t *testing.T) {
	t.Parallel()
	s := loaded(t, Config{Segments: 4}, 1000)
	var scripts sent
	s = through(t, s, scripts.wrap)
	warm(t, s)
	before := scripts.all()
	const n = 30
	for i := range n {
		_, err := s.Deduct(t.Context(), Order{ID: fmt.Sprint(i), Quantity: 1})
		require.NoError(t, err)
	}
	require.Equal(t, before+n, scripts.all())
}

// TestEndedContextSendsNothing: a call whose context is over takes nothing, and says so.
func TestEndedContextSendsNothing(t *testing.T) {
	t.Parallel()
	s := loaded(t, Config{Segments: 1}, 1000)
	var scripts sent
	s = through(t, s, scripts.wrap)
	cause := errors.New("the user has gone")
	ctx, cancel := context.WithCancelCause(t.Context())
	cancel(cause)
	for i := range 20 {
		o := Order{ID: fmt.Sprint(i), Quantity: 1}
		for name, call := range map[string]func() error{
			"Deduct":      func() error { _, err := s.Deduct(ctx, o); return err },
			"nameless":    func() error { _, err := s.Deduct(ctx, Order{Quantity: 1}); return err },
			"Reserve":     func() error { _, err := s.Reserve(ctx, o, time.Minute); return err },
			"Confirm":     func() error { _, err := s.Confirm(ctx, o); return err },
			"Cancel":      func() error { return s.Cancel(ctx, o) },
			"Return":      func() error { return s.Return(ctx, o) },
			"Restock":     func() error { return s.Restock(ctx, o.ID, 1) },
			"Lookup":      func() error { _, err := s.Lookup(ctx, "", o.ID); return err },
			"Load":        func() error { return s.Load(ctx, 1) },
			"Reset":       func() error { return s.Reset(ctx, 1) },
			"Drop":        func() error { return s.Drop(ctx) },
			"Remaining":   func() error { _, err := s.Remaining(ctx); return err },
			"Audit":       func() error { _, err := s.Audit(ctx); return err },
			"WithSegment": func() error { return s.WithSegment(ctx, o.ID, 1, func(context.Context, Held) error { return nil }) },
		} {
			err := call()
			require.ErrorIs(t, err, cause, name)
			require.ErrorIs(t, err, context.Canceled, name)
			require.NotErrorIs(t, err, ErrUncertain, name)
		}
	}
	require.Equal(t, 0, scripts.all())
	require.Equal(t, Books{Loaded: 1000, Left: 1000}, audited(t, s))
}

// TestContextEndsBeforeSending: nothing is taken; and the others travel without it.
func TestContextEndsBeforeSending(t *testing.T) {
	t.Parallel()
	s := loaded(t, Config{Segments: 1}, 1000)
	g := newGate(t, "deduct")
	s = through(t, s, g.wrap)
	var calls sync.WaitGroup
	calls.Go(func() { _, _ = s.Deduct(t.Context(), Order{ID: "first", Quantity: 1}) })
	<-g.arrived
	cause := errors.New("the user has gone")
	ctx, cancel := context.WithCancelCause(t.Context())
	refused := make(chan error, 2)
	calls.Go(func() { _, err := s.Deduct(ctx, Order{ID: "left", Quantity: 1}); refused <- err })
	calls.Go(func() { _, err := s.Deduct(ctx, Order{Quantity: 1}); refused <- err })
	for _, o := range []Order{{ID: "stays", Quantity: 1}, {Quantity: 1}} {
		calls.Go(func() {
			if _, err := s.Deduct(t.Context(), o); err != nil {
				t.Error(err)
			}
		})
	}
	eventually(t, "all wait", func() bool { return waitingAt(s.homes[0]) == 5 })
	cancel(cause)
	for range 2 {
		err := <-refused
		require.ErrorIs(t, err, cause)
		require.ErrorIs(t, err, ErrNotDone)
		require.ErrorIs(t, err, context.Canceled)
		require.NotErrorIs(t, err, ErrUncertain)
	}
	g.release()
	within(t, "the calls end", calls.Wait)
	require.Equal(t, Books{Loaded: 1000, Sold: 3, Left: 997}, audited(t, s))
	require.Equal(t, isNone, remembered(t, s, Order{ID: "left", Quantity: 1}))
	eventually(t, "nothing waits", func() bool { return nothingWaits(s) })
}

// TestContextEndsInFlight: what became of the order is not known, and sending it again tells.
func TestContextEndsInFlight(t *testing.T) {
	t.Parallel()
	s := loaded(t, Config{Segments: 1}, 1000)
	g := newGate(t, "deduct")
	s = through(t, s, g.wrap)
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Millisecond)
	defer cancel()
	_, err := s.Deduct(ctx, Order{ID: "o", Quantity: 1})
	require.ErrorIs(t, err, ErrUncertain)
	require.ErrorIs(t, err, context.DeadlineExceeded)
	g.release()
	r, err := s.Deduct(t.Context(), Order{ID: "o", Quantity: 1})
	require.NoError(t, err)
	require.True(t, r.Repeated)
	require.Equal(t, int64(1), audited(t, s).Sold)
}

// TestMaxWaiting: one more than that is refused at once, also when they wait for units that are to be moved, and whoever left
// makes room.
func TestMaxWaiting(t *testing.T) {
	t.Parallel()
	for script, home := range map[string]int64{"deduct": 1000, "look": 0} {
		t.Run(script, func(t *testing.T) {
			s := loaded(t, Config{Segments: 1, MaxWaiting: 5}, home)
			g := newGate(t, script)
			s = through(t, s, g.wrap)
			ctx, cancel := context.WithCancel(t.Context())
			var calls sync.WaitGroup
			var refused, ended atomic.Int64
			const n = 50
			for i := range n {
				calls.Go(func() {
					_, err := s.Deduct(ctx, Order{ID: fmt.Sprint(i), Quantity: 1})
					if errors.Is(err, coordinator.ErrTooManyWaiters) {
						refused.Add(1)
					}
					ended.Add(1)
				})
				if i == 0 {
					<-g.arrived
				}
				if script == "look" {
					time.Sleep(time.Millisecond) // so that the lane is not what refuses them
				}
			}
			eventually(t, "45 are refused", func() bool { return refused.Load() == n-5 })
			require.Equal(t, int64(n-5), ended.Load())
			cancel()
			within(t, "the calls end", calls.Wait)
			g.release()
			eventually(t, "nothing waits", func() bool { return nothingWaits(s) })
			for i := range 10 {
				_, err := s.Deduct(t.Context(), Order{ID: fmt.Sprint("late", i), Quantity: 1})
				require.NotErrorIs(t, err, coordinator.ErrTooManyWaiters)
			}
		})
	}
}

// TestMaxWaitingIsTheCoordinators where the stock has none.
func TestMaxWaitingIsTheCoordinators(t *testing.T) {
	t.Parallel()
	c := processAt(t, redistest.Shared(t).Option(), coordinator.WithMaxWaiters(7))
	require.Equal(t, 7, opened(t, c, "any", Config{}).conf.MaxWaiting)
	require.Equal(t, 3, opened(t, c, "any", Config{MaxWaiting: 3}).conf.MaxWaiting)
}

// TestNamelessOrders: exactly as many are served as there are units, whatever travels together.
func TestNamelessOrders(t *testing.T) {
	t.Parallel()
	s := loaded(t, Config{Segments: 4}, 500)
	other := twin(t, s)
	var served, refused atomic.Int64
	var calls sync.WaitGroup
	for i := range 64 {
		from := []*Stock{s, other}[i%2]
		calls.Go(func() {
			for j := range 20 {
				q := int64(1 + (i+j)%3)
				switch _, err := from.Deduct(t.Context(), Order{Quantity: q}); {
				case err == nil:
					served.Add(q)
				case errors.Is(err, ErrSoldOut):
					refused.Add(1)
				default:
					t.Error(err)
				}
			}
		})
	}
	within(t, "the calls end", calls.Wait)
	books := audited(t, s)
	require.Equal(t, Books{Loaded: 500, Sold: 500}, books)
	require.Equal(t, int64(500), served.Load())
	require.Positive(t, refused.Load())
	for i := range s.homes {
		for _, bucket := range []int64{s.homes[i].bucket.Load()} {
			require.LessOrEqual(t, len(hashAt(t, redistest.Shared(t), s.homes[i].keys.orders(bucket))), 1, "nothing is on record")
		}
	}
}

// TestMoreThanAFlight: more calls at once than go in one script.
func TestMoreThanAFlight(t *testing.T) {
	t.Parallel()
	const n = 2*maxFlight + 500
	s := loaded(t, Config{Segments: 1}, n)
	g := newGate(t, "deduct")
	var scripts sent
	s = through(t, through(t, s, scripts.wrap), g.wrap)
	warm(t, s)
	var calls sync.WaitGroup
	for i := range n {
		calls.Go(func() {
			if _, err := s.Deduct(t.Context(), Order{ID: fmt.Sprint(i), Quantity: 1}); err != nil {
				t.Error(err)
			}
		})
	}
	eventually(t, "all wait", func() bool { return waitingAt(s.homes[0]) == n })
	g.release()
	within(t, "the calls end", calls.Wait)
	require.LessOrEqual(t, scripts.of("deduct"), 5, "the first alone, some beside it, and all others")
	require.Equal(t, int64(n), audited(t, s).Sold)
}
