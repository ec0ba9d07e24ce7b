package contender_test

import (
	"strconv"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/go-leasehold/leasehold/bench/contender"
	"github.com/go-leasehold/leasehold/internal/redistest"
)

func TestReadersShareAndWritersExclude(t *testing.T) {
	each(t, of("leasehold", "textbook", "mutex"), func(t *testing.T, info contender.Info) {
		processes := both(t, info)
		ctx, key := limited(t), redistest.Prefix(t)+"k"
		locks := [2]contender.RW{processes[0].(contender.Reader).RW(key), processes[1].(contender.Reader).RW(key)}

		var two [2]contender.Hold
		for i, lock := range locks {
			hold, err := lock.RLock(ctx)
			require.NoError(t, err, "two may read at the same time")
			two[i] = hold
		}
		for _, hold := range two {
			require.NoError(t, hold.Unlock())
		}

		const times = 6
		var s shared
		var turn, written atomic.Int64
		together(t, times, func(process int) error {
			if turn.Add(1)%3 == 0 {
				hold, err := locks[process].Lock(ctx)
				if err != nil {
					return err
				}
				s.write()
				written.Add(1)
				return hold.Unlock()
			}
			hold, err := locks[process].RLock(ctx)
			if err != nil {
				return err
			}
			s.read()
			return hold.Unlock()
		})
		require.Zero(t, s.wrong.Load(), "somebody was there beside a writer")
		require.Equal(t, written.Load(), s.sum.Load())
	})
}

func TestStockSellsWhatThereIs(t *testing.T) {
	each(t, of("leasehold", "textbook", "memory"), func(t *testing.T, info contender.Info) {
		processes := both(t, info)
		for _, ids := range []bool{false, true} {
			ctx, name := limited(t), redistest.Prefix(t)+"s"
			const units, tries = 25, 10 // by four
			var stocks [2]contender.Stock
			for i, p := range processes {
				var err error
				stocks[i], err = p.(contender.Seller).Stock(ctx, name, units)
				require.NoError(t, err)
			}
			var order, sold atomic.Int64
			together(t, tries, func(process int) error {
				id, n := "", order.Add(1)
				if ids {
					id = strconv.FormatInt(n, 10)
				}
				ok, err := stocks[process].Sell(ctx, id)
				if ok {
					sold.Add(1)
				}
				return err
			})
			if info.Name == "memory" { // it only knows that there is some
				require.EqualValues(t, 4*tries, sold.Load())
				continue
			}
			require.EqualValues(t, units, sold.Load(), "IDs: %v", ids)
			again, err := stocks[0].Sell(ctx, "")
			require.NoError(t, err)
			require.False(t, again)
		}
	})
}

func TestStockTakesAnOrderOnce(t *testing.T) {
	each(t, of("leasehold", "textbook"), func(t *testing.T, info contender.Info) {
		seller := opened(t, info, longTTL).(contender.Seller)
		ctx := limited(t)
		stock, err := seller.Stock(ctx, redistest.Prefix(t)+"s", 2)
		require.NoError(t, err)
		for _, order := range []struct {
			id   string
			sold bool
		}{{"a", true}, {"a", true}, {"b", true}, {"c", false}, {"a", true}} {
			sold, err := stock.Sell(ctx, order.id)
			require.NoError(t, err)
			require.Equal(t, order.sold, sold, order.id)
		}
	})
}

func TestMemoryKnowsWhatIsSoldOut(t *testing.T) {
	info, err := contender.Find("memory")
	require.NoError(t, err)
	ctx := limited(t)
	stock, err := opened(t, info, longTTL).(contender.Seller).Stock(ctx, "s", 0)
	require.NoError(t, err)
	sold, err := stock.Sell(ctx, "")
	require.NoError(t, err)
	require.False(t, sold)
}

// What excludes nobody sends one command for each sale, and sells what is not there.
func TestLimitsOfTheWireCountDown(t *testing.T) {
	each(t, func(info contender.Info) bool { return info.ExcludesNobody }, func(t *testing.T, info contender.Info) {
		ctx, name := limited(t), redistest.Prefix(t)+"s"
		p := opened(t, info, longTTL)
		stock, err := p.(contender.Seller).Stock(ctx, name, 2)
		require.NoError(t, err)
		for range 3 {
			sold, err := stock.Sell(ctx, "the same")
			require.NoError(t, err)
			require.True(t, sold)
		}
		require.Equal(t, int64(-1), number(t, redistest.Shared(t), "GET", name))
		for range 2 { // two holders
			_, err := p.Mutex("k").Lock(ctx)
			require.NoError(t, err)
		}
	})
}

func TestSegmentsExclude(t *testing.T) {
	each(t, of("leasehold", "memory"), func(t *testing.T, info contender.Info) {
		processes, name := both(t, info), redistest.Prefix(t)+"n"
		ctx := limited(t)
		var segments [2]contender.Segments
		for i, p := range processes {
			if i == 1 && inMemory(info) {
				segments[1] = segments[0]
				continue
			}
			var err error
			segments[i], err = p.(contender.Segmenter).Segments(name, 4)
			require.NoError(t, err)
		}
		const times = 4
		var s shared
		together(t, times, func(process int) error {
			hold, err := segments[process].Mutex("user").Lock(ctx)
			if err != nil {
				return err
			}
			s.write()
			return hold.Unlock()
		})
		require.Zero(t, s.wrong.Load(), "two holders of the same segment")
		require.EqualValues(t, 4*times, s.sum.Load())
	})
}
