package segment

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/go-leasehold/leasehold/coordinator"
	"github.com/go-leasehold/leasehold/internal/redistest"
)

// market is stocks that go by a clock, of which processes have handles.
type market struct {
	*testing.T
	c     *coordinator.Coordinator
	names []string
	conf  Config
	clock *serverClock
	late  *stragglers
}

func newMarket(t *testing.T, conf Config, units ...int64) *market {
	t.Helper()
	prefix := redistest.Prefix(t)
	m := &market{T: t, c: processAt(t, redistest.Shared(t).Option()), conf: conf, clock: newClock(t, redistest.Shared(t), prefix)}
	m.late = &stragglers{server: m.clock.wrap(redis{m.c})}
	for i := range units {
		m.names = append(m.names, prefix+string(rune('a'+i)))
	}
	for i, s := range m.process() {
		require.NoError(t, s.Load(t.Context(), units[i]))
	}
	return m
}

// process returns handles, on whose commands something may befall.
func (m *market) process(ills ...ill) []*Stock {
	return m.processOf(&unwell{late: m.late, ills: ills})
}

func (m *market) processOf(u *unwell) []*Stock {
	settings := m.c.Settings()
	settings.UnavailableAfter = 30 * time.Millisecond
	if m.conf.Remember == 0 {
		m.conf.Remember = time.Hour
	}
	conf, err := m.conf.withDefaults(0)
	require.NoError(m, err)
	return handles(m.c, m.names, conf, settings, u)
}

// pass moves the clock from a goroutine that is not the test's.
func (m *market) pass(d time.Duration) {
	shown, err := m.clock.server.DoErr("GET", m.clock.key)
	text, _ := shown.ToString()
	var seconds, µs int64
	if _, failure := fmt.Sscan(text, &seconds, &µs); err != nil || failure != nil {
		m.Error(err, failure)
		return
	}
	at := seconds*1e6 + µs + d.Microseconds()
	if _, err := m.clock.server.DoErr("SET", m.clock.key, number(at/1e6)+" "+number(at%1e6)); err != nil {
		m.Error(err)
	}
}

// A process may die at every command: what it held is back, or its order is taken, as soon as anybody looks after the
// part's deadline; and another process that sends the order again has it taken once.
func TestProcessDiesAtEveryCommand(t *testing.T) {
	t.Parallel()
	for _, what := range []illness{diesBefore, diesAfter} {
		for at := 0; at < 12; at++ {
			for _, again := range []bool{false, true} {
				t.Run(fmt.Sprint(ill{At: at, What: what}, again), func(t *testing.T) {
					t.Parallel()
					m := newMarket(t, Config{Segments: 2}, 9, 9, 9)
					u := &unwell{late: m.late, ills: []ill{{At: at, What: what}}}
					_, err := DeductAll(t.Context(), "o", "u", lines(m.processOf(u), 1, 2, 3)...)
					require.True(t, u.isDead() || err == nil)
					other := m.process()
					if again {
						m.clock.add(t, time.Second) // then it is not taken to be at work any more
						_, err := DeductAll(t.Context(), "o", "u", lines(other, 1, 2, 3)...)
						require.NoError(t, err)
					}
					m.clock.add(t, partLasts+time.Millisecond)
					var sold int64
					for i, s := range other {
						left, err := s.Remaining(t.Context())
						require.NoError(t, err)
						books := audited(t, s)
						require.Zero(t, books.Open)
						require.Equal(t, left, books.Left)
						require.Contains(t, []int64{0, int64(i + 1)}, books.Sold)
						sold += books.Sold
					}
					require.Contains(t, []int64{0, 6}, sold)
					if again || err == nil {
						require.EqualValues(t, 6, sold)
					}
				})
			}
		}
	}
}

// ReturnAll goes forward only: what is decided is done by whoever looks.
func TestReturningProcessDiesAtEveryCommand(t *testing.T) {
	t.Parallel()
	for _, what := range []illness{diesBefore, diesAfter} {
		for at := 0; at < 10; at++ {
			m := newMarket(t, Config{Segments: 2}, 9, 9)
			first := m.process()
			_, err := DeductAll(t.Context(), "o", "u", lines(first, 1, 2)...)
			require.NoError(t, err)
			_ = ReturnAll(t.Context(), "o", "u", lines(m.process(ill{At: at, What: what}), 1, 2)...)
			m.clock.add(t, partLasts+time.Millisecond)
			other := m.process()
			var sold int64
			for _, s := range other {
				sold += audited(t, s).Sold
			}
			require.Contains(t, []int64{0, 3}, sold, at)
			require.NoError(t, ReturnAll(t.Context(), "o", "u", lines(other, 1, 2)...))
			for _, s := range other {
				require.Equal(t, Books{Loaded: 9, Left: 9}, audited(t, s))
			}
		}
	}
}

// What decides, or would, may be gone: then the parts elsewhere go back.
func TestFirstStockIsGone(t *testing.T) {
	t.Parallel()
	for name, gone := range map[string]func(ctx context.Context, first *Stock) error{
		"reset":   func(ctx context.Context, first *Stock) error { return first.Reset(ctx, 5) },
		"dropped": func(ctx context.Context, first *Stock) error { return first.Drop(ctx) },
	} {
		for _, at := range []int{4, 5, 6} { // which parts it has, or that it is done
			t.Run(fmt.Sprint(name, at), func(t *testing.T) {
				t.Parallel()
				m := newMarket(t, Config{Segments: 2}, 9, 9)
				u := &unwell{late: m.late}
				stocks := m.processOf(u)
				_, _ = stocks[0].Remaining(t.Context()) // so that the order's own commands are the same ones each time
				_, _ = stocks[1].Remaining(t.Context())
				u.begin([]ill{{At: at - 4, What: diesAfter}})
				_, err := DeductAll(t.Context(), "o", "u", lines(stocks, 1, 2)...)
				require.ErrorIs(t, err, errGone)
				other := m.process()
				require.NoError(t, gone(t.Context(), other[0]))
				m.clock.add(t, partLasts+time.Millisecond)
				require.Equal(t, Books{Loaded: 9, Left: 9}, audited(t, other[1]))
			})
		}
	}
}

// Where the server is cut off when it is decided, the order is sent again.
func TestSentAgainAfterUncertain(t *testing.T) {
	t.Parallel()
	for at := 0; at < 12; at++ {
		m := newMarket(t, Config{Segments: 2}, 9, 9)
		stocks := m.process(ill{At: at, What: cutOff})
		_, err := DeductAll(t.Context(), "o", "u", lines(stocks, 1, 2)...)
		if err != nil {
			require.ErrorIs(t, err, ErrUncertain)
		}
		m.clock.add(t, 2*time.Second)
		_, err = DeductAll(t.Context(), "o", "u", lines(stocks, 1, 2)...)
		for err != nil { // it was cut off for longer than it waits
			require.ErrorIs(t, err, ErrUncertain)
			_, err = DeductAll(t.Context(), "o", "u", lines(stocks, 1, 2)...)
		}
		m.clock.add(t, partLasts+time.Millisecond)
		for i, s := range m.process() {
			require.Equal(t, Books{Loaded: 9, Sold: int64(i + 1), Left: int64(8 - i)}, audited(t, s))
		}
	}
}

// An order of one stock that meets a part of its own user and ID waits for the end of it.
func TestPlainOrderMeetsPart(t *testing.T) {
	t.Parallel()
	m := newMarket(t, Config{Segments: 1}, 9, 9)
	u := &unwell{late: m.late}
	stocks := m.processOf(u)
	_, _ = stocks[0].Remaining(t.Context())
	_, _ = stocks[1].Remaining(t.Context())
	u.begin([]ill{{At: 1, What: diesAfter}})
	_, err := DeductAll(t.Context(), "o", "u", lines(stocks, 1, 2)...)
	require.ErrorIs(t, err, errGone)
	other := m.process()
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	record, err := other[1].Lookup(t.Context(), "u", "o")
	require.NoError(t, err)
	require.Equal(t, Undecided, record.State)
	_, err = other[1].Deduct(ctx, Order{ID: "o", User: "u", Quantity: 2})
	require.ErrorIs(t, err, context.DeadlineExceeded)
	m.clock.add(t, partLasts+time.Millisecond)
	r, err := other[1].Deduct(t.Context(), Order{ID: "o", User: "u", Quantity: 2})
	require.NoError(t, err)
	require.False(t, r.Repeated)
	_, err = DeductAll(t.Context(), "o", "u", lines(other, 1, 2)...)
	require.ErrorIs(t, err, ErrOrderMismatch)
	require.Equal(t, Books{Loaded: 9, Left: 9}, audited(t, other[0]))
	require.Equal(t, Books{Loaded: 9, Left: 7, Sold: 2}, audited(t, other[1]))
}

// The clocks of servers that are far apart are told, not tried for ever.
func TestClocksApart(t *testing.T) {
	t.Parallel()
	m := newMarket(t, Config{Segments: 1}, 9, 9)
	stocks := m.process()
	require.NoError(t, stocks[1].Reset(t.Context(), 9))
	ahead := &hooked{server: stocks[1].server}
	ahead.before = func(calls []call) []answer {
		if calls[0].script == partsScript && calls[0].args[4] == "prepare" {
			m.pass(time.Minute)
		}
		return nil
	}
	for _, s := range stocks {
		s.server = ahead
	}
	_, err := DeductAll(t.Context(), "o", "u", lines(stocks, 1, 2)...)
	require.ErrorIs(t, err, errClocks)
	require.ErrorIs(t, err, coordinator.ErrUnavailable)
	require.ErrorContains(t, err, m.names[1])
}

// A twin may take the order when the other has just been refused: then that one is told so.
func TestTwinTakesAfterRefusal(t *testing.T) {
	t.Parallel()
	m := newMarket(t, Config{Segments: 2}, 9, 9)
	stocks, other := m.process(), m.process()
	last := &hooked{server: stocks[0].server}
	asked := false // by the order's goroutine, which has ended when it is looked at
	last.before = func(calls []call) []answer {
		if asked || calls[0].script != partsScript || calls[0].args[4] != "abort" {
			return nil
		}
		asked = true
		m.pass(time.Second) // then what was begun is not taken to be at work any more
		if err := other[1].Restock(t.Context(), "more", 1); err != nil {
			t.Error(err)
		}
		if r, err := DeductAll(t.Context(), "o", "u", lines(other, 1, 10)...); err != nil || r.Repeated {
			t.Error(r, err)
		}
		return nil
	}
	for _, s := range stocks {
		s.server = last
	}
	r, err := DeductAll(t.Context(), "o", "u", lines(stocks, 1, 10)...)
	require.NoError(t, err)
	require.True(t, r.Repeated)
	require.True(t, asked)
	require.Equal(t, Books{Loaded: 10, Sold: 10}, audited(t, other[1]))
}
