package faulttest

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/go-leasehold/leasehold/coordinator"
	"github.com/go-leasehold/leasehold/internal/redistest"
	"github.com/go-leasehold/leasehold/segment"
)

// L1: a thousand buyers want one to three units of ten, all at once, from three processes: what is left is never negative at any
// moment, sold and left are what was loaded, and whoever was refused wanted more than what is left.
func TestThousandBuyersOfTenUnitsGetExactlyTen(t *testing.T) {
	t.Parallel()
	const units, buyers = 10, 1000
	for round := range rounds(3, 30) {
		s := redistest.Start(t)
		var stocks []*segment.Stock
		for range 3 {
			stocks = append(stocks, stockOf(t, process(t, s.Addr()), segment.Config{Segments: 4}))
		}
		require.NoError(t, stocks[0].Load(t.Context(), units))
		watched := watchLeft(t, s)
		var all sync.WaitGroup
		var mu sync.Mutex
		sold, refused := int64(0), int64(3)
		for i := range buyers {
			q := 1 + rand.Int64N(3)
			all.Go(func() {
				o := segment.Order{ID: strconv.Itoa(i), Quantity: q}
				if round%3 == 2 {
					o.ID = "" // the same without IDs
				}
				_, err := stocks[i%3].Deduct(t.Context(), o)
				mu.Lock()
				defer mu.Unlock()
				switch {
				case err == nil:
					sold += q
				case errors.Is(err, segment.ErrSoldOut):
					refused = min(refused, q)
				default:
					t.Error(err)
				}
			})
		}
		within(t, hangs, "all are served or refused", all.Wait)
		watched.requireNone(t)
		books := balanced(t, stocks[0])
		require.Equal(t, sold, books.Sold, "what buyers were told")
		require.Equal(t, int64(units), books.Sold+books.Left)
		require.Less(t, books.Left, refused, "every unit that fits is sold")
	}
}

// watchLeft looks at all that is left, all the time.
func watchLeft(t *testing.T, s *redistest.Server) *forever {
	t.Helper()
	client := s.Client(t)
	w := &forever{quit: make(chan struct{}), seen: map[string]bool{}}
	const script = `local bad = {}
for _, name in ipairs(redis.call('KEYS', '*~stock:books*')) do
  for _, what in ipairs({'left', 'took', 'reserved'}) do
    if tonumber(redis.call('HGET', name, what) or 0) < 0 then bad[#bad + 1] = name .. ' ' .. what end
  end
end
return bad`
	w.done.Go(func() {
		for {
			select {
			case <-w.quit:
				return
			case <-time.After(time.Millisecond):
			}
			bad, err := client.Do(context.Background(), client.B().Eval().Script(script).Numkeys(0).Build()).AsStrSlice()
			if err != nil {
				t.Error(err)
				return
			}
			w.mu.Lock()
			for _, name := range bad {
				w.seen[name] = true
			}
			w.mu.Unlock()
		}
	})
	return w
}

// L3: sixteen segments with one unit each, orders of three from several processes at once: five are served, the others
// are sold out, and the last unit still goes to whoever wants one.
func TestOrdersSpanSegmentsThatHaveOneUnitEach(t *testing.T) {
	t.Parallel()
	for round := range rounds(3, 50) {
		s := redistest.Start(t)
		var stocks []*segment.Stock
		for range 3 {
			stocks = append(stocks, stockOf(t, process(t, s.Addr()), segment.Config{Segments: 16}))
		}
		require.Equal(t, 16, stocks[0].Segments())
		require.NoError(t, stocks[0].Load(t.Context(), 16))
		answers := make(chan string, 9)
		var all sync.WaitGroup
		for i := range cap(answers) {
			all.Go(func() {
				_, err := stocks[i%3].Deduct(t.Context(), segment.Order{ID: fmt.Sprintf("%d-%d", round, i), Quantity: 3})
				answers <- told(err)
			})
		}
		within(t, hangs, "no order waits for another for ever", all.Wait)
		count := map[string]int{}
		for range cap(answers) {
			count[<-answers]++
		}
		require.Equal(t, map[string]int{"ok": 5, "soldout": 4}, count)
		require.Equal(t, int64(1), balanced(t, stocks[1]).Left)
		_, err := stocks[2].Deduct(t.Context(), segment.Order{ID: "last", Quantity: 1})
		require.NoError(t, err)
	}
}

// L3: the segment of a hot user is empty, and the last unit is at one whose lock somebody holds: the unit is sold all the same.
// Who wants the lock and runs out of time is told that, and not that all is sold.
func TestLastUnitIsSoldWhateverIsLocked(t *testing.T) {
	t.Parallel()
	s := redistest.Start(t)
	slow := stockOf(t, process(t, s.Addr()), segment.Config{Segments: 4})
	others := stockOf(t, process(t, s.Addr()), segment.Config{Segments: 4})
	require.NoError(t, slow.Load(t.Context(), 2))
	inside, leave := make(chan int, 1), make(chan struct{})
	done := make(chan error, 1)
	key := routed("slow", 1, 4) // one of the two segments that have a unit
	go func() {                 // ends with leave
		done <- slow.WithSegment(t.Context(), key, 1, func(_ context.Context, seg segment.Held) error {
			inside <- seg.Index
			<-leave
			return nil
		})
	}()
	require.Equal(t, 1, await(t, inside, hangs, "the slow holder"))

	ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
	defer cancel()
	err := others.WithSegment(ctx, key, 1, func(context.Context, segment.Held) error { return nil })
	require.ErrorIs(t, err, context.DeadlineExceeded)
	require.NotErrorIs(t, err, segment.ErrSoldOut)

	for _, o := range []segment.Order{{User: routed("hot", 3, 4), ID: "a", Quantity: 1}, {User: routed("hot", 3, 4), ID: "b", Quantity: 1}} {
		_, err = others.Deduct(t.Context(), o)
		require.Equal(t, map[string]string{"a": "ok", "b": "soldout"}[o.ID], told(err), "the slow holder has the other unit")
	}
	close(leave)
	require.NoError(t, await(t, done, hangs, "the slow holder"))
	require.Equal(t, segment.Books{Loaded: 2, Sold: 2}, balanced(t, others))
}

// routed returns a routing key whose segment is the given one of n.
func routed(prefix string, index, n int) string {
	for i := 0; ; i++ {
		if key := fmt.Sprintf("%s%d", prefix, i); segment.Index(key, n) == index {
			return key
		}
	}
}

// L3: orders over two stocks that name them in opposite order, from two processes: none waits for another for ever, and all that were
// served have both.
func TestOrdersOverTwoStocksDoNotDeadlock(t *testing.T) {
	t.Parallel()
	s := redistest.Start(t)
	var stocks [2][2]*segment.Stock
	for p := range stocks {
		c := process(t, s.Addr())
		for i, name := range []string{"left shoe", "right shoe"} {
			stock, err := segment.NewStock(c, name, segment.Config{Segments: 3})
			require.NoError(t, err)
			stocks[p][i] = stock
		}
	}
	require.NoError(t, stocks[0][0].Load(t.Context(), 30))
	require.NoError(t, stocks[0][1].Load(t.Context(), 20))
	const buyers = 60
	answers := make(chan string, buyers)
	var all sync.WaitGroup
	for i := range buyers {
		all.Go(func() {
			pair := stocks[i%2]
			lines := []segment.Line{{Stock: pair[i/2%2], Quantity: 1}, {Stock: pair[1-i/2%2], Quantity: 1}}
			_, err := segment.DeductAll(t.Context(), strconv.Itoa(i), "user"+strconv.Itoa(i%7), lines...)
			answers <- told(err)
		})
	}
	within(t, hangs, "all are served or refused", all.Wait)
	count := map[string]int{}
	for range buyers {
		count[<-answers]++
	}
	require.Equal(t, map[string]int{"ok": 20, "soldout": 40}, count)
	require.Equal(t, segment.Books{Loaded: 30, Sold: 20, Left: 10}, balanced(t, stocks[1][0]))
	require.Equal(t, segment.Books{Loaded: 20, Sold: 20}, balanced(t, stocks[1][1]))
}

// L2: the database commits half a second after the function has returned, so outside the lock. Whoever has the lock meanwhile
// reads what was there before. The fence in the update refuses the late one, and nothing that was counted is lost.
func TestCommitAfterTheLockIsRefusedByTheFence(t *testing.T) {
	t.Parallel()
	const late = 500 * time.Millisecond
	s := redistest.Start(t)
	db := s.Client(t)
	wrong := stockOf(t, process(t, s.Addr()), segment.Config{Segments: 1})
	right := stockOf(t, process(t, s.Addr()), segment.Config{Segments: 1})
	require.NoError(t, wrong.Load(t.Context(), 10))
	read := func() int {
		message := s.Do(t, "HGET", "fenced:row", "value")
		text, _ := message.ToString()
		n, _ := strconv.Atoi(text)
		return n
	}
	committed := make(chan bool, 1)
	require.NoError(t, wrong.WithSegment(t.Context(), "any", 1, func(_ context.Context, seg segment.Held) error {
		value := strconv.Itoa(read() + 1)
		time.AfterFunc(late, func() { committed <- fencedWrite(db, "row", seg.Token, value) })
		return nil
	}))
	begin := time.Now()
	require.NoError(t, right.WithSegment(t.Context(), "any", 2, func(_ context.Context, seg segment.Held) error {
		require.True(t, fencedWrite(db, "row", seg.Token, strconv.Itoa(read()+2)))
		return nil
	}))
	if time.Since(begin) < late { // or else a stall of the machine had the late one come first
		require.False(t, await(t, committed, hangs, "the late commit"), "the database took a write of a lock that had passed on")
		require.Equal(t, 2, read())
	}
}

// L2: in the right order, with the commit inside the function, the lock lasts until it has ended, however long it takes.
func TestLockLastsUntilTheCommitHasEnded(t *testing.T) {
	t.Parallel()
	s := redistest.Start(t)
	db := s.Client(t)
	require.NoError(t, stockOf(t, process(t, s.Addr()), segment.Config{Segments: 1}).Load(t.Context(), 10))
	var all sync.WaitGroup
	for range 3 {
		stock := stockOf(t, process(t, s.Addr()), segment.Config{Segments: 1})
		all.Go(func() {
			err := stock.WithSegment(t.Context(), "any", 1, func(_ context.Context, seg segment.Held) error {
				message, err := s.DoErr("HGET", "fenced:row", "value")
				if err != nil {
					return err
				}
				text, _ := message.ToString()
				n, _ := strconv.Atoi(text)
				time.Sleep(500 * time.Millisecond) // the commit
				if !fencedWrite(db, "row", seg.Token, strconv.Itoa(n+1)) {
					return errors.New("the database refused it")
				}
				return nil
			})
			if err != nil {
				t.Error(err)
			}
		})
	}
	within(t, hangs, "one after the other", all.Wait)
	message := s.Do(t, "HGET", "fenced:row", "value")
	text, err := message.ToString()
	require.NoError(t, err)
	require.Equal(t, "3", text, "no commit read what was there before another")
}

// L2, with striped locks: a hold that is kept until the commit has ended keeps the next one out; one whose lease is lost under a
// commit is refused by the fence.
func TestStripedLockIsKeptUntilTheCommitHasEnded(t *testing.T) {
	t.Parallel()
	s := redistest.Start(t)
	db := s.Client(t)
	locks := func() *segment.Locks {
		return segment.NewLocks(process(t, s.Addr(), coordinator.WithRetention(0)), "rows", 4)
	}
	first, second := locks(), locks()
	hold, err := first.Lock(t.Context(), "row")
	require.NoError(t, err)
	_, err = second.TryLock(t.Context(), "row")
	require.ErrorIs(t, err, coordinator.ErrNotAcquired)
	for _, name := range s.Keys(t, "lock:*") { // somebody deletes the lock
		if !strings.HasPrefix(name, "lock:~") {
			s.Do(t, "DEL", name)
		}
	}
	ctx, cancel := context.WithTimeout(t.Context(), hangs)
	defer cancel()
	next, err := second.Lock(ctx, "row")
	require.NoError(t, err)
	require.True(t, fencedWrite(db, "row", next.Token(), "second"))
	require.False(t, fencedWrite(db, "row", hold.Token(), "first"), "the write of a lost lock")
	require.NoError(t, next.Unlock())
	_ = hold.Unlock() // it is lost
}
