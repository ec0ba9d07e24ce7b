package segment

import (
	"fmt"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/rueidis"
	"github.com/stretchr/testify/require"

	"github.com/go-leasehold/leasehold/coordinator"
	"github.com/go-leasehold/leasehold/internal/faults"
	"github.com/go-leasehold/leasehold/internal/redistest"
)

// behindProxy is a stock in a process behind a proxy, that has been used, so that the server knows its scripts.
func behindProxy(t *testing.T, conf Config, units int64) (*Stock, *faults.Proxy) {
	t.Helper()
	proxy := faults.NewProxy(t, redistest.SharedServer(t).Addr())
	s := opened(t, processAt(t, rueidis.ClientOption{InitAddress: []string{proxy.Addr()}}, coordinator.WithUnavailableAfter(hangs)),
		redistest.Prefix(t), conf)
	require.NoError(t, s.Load(t.Context(), units))
	for i := range 3 {
		_, err := s.Deduct(t.Context(), Order{ID: fmt.Sprint("used ", i), User: fmt.Sprint("used ", i), Quantity: 1})
		require.NoError(t, err)
		_, err = s.Deduct(t.Context(), Order{User: fmt.Sprint("used ", i), Quantity: 1})
		require.NoError(t, err)
		require.NoError(t, s.Return(t.Context(), Order{ID: fmt.Sprint("used ", i), User: fmt.Sprint("used ", i)}))
	}
	return s, proxy
}

// runs matches the commands that run one of some scripts.
func runs(scripts ...*script) func(cmd []string) bool {
	return func(cmd []string) bool {
		return len(cmd) > 1 && slices.ContainsFunc(scripts, func(s *script) bool { return cmd[1] == s.sha() || cmd[1] == s.text })
	}
}

// TestLostReplyOfAnOrderWithAnID: it is sent again, and takes once.
func TestLostReplyOfAnOrderWithAnID(t *testing.T) {
	t.Parallel()
	s, proxy := behindProxy(t, Config{Segments: 1}, 100)
	sold := audited(t, s).Sold
	drop := proxy.DropReply(runs(deductScript, ordersScript))
	r, err := s.Deduct(t.Context(), Order{ID: "o", Quantity: 5})
	require.NoError(t, err)
	<-drop.Done()
	require.Equal(t, int64(5), r.Quantity)
	drop = proxy.DropReply(runs(ordersScript))
	v, err := s.Reserve(t.Context(), Order{ID: "v", Quantity: 7}, time.Hour)
	require.NoError(t, err)
	<-drop.Done()
	drop = proxy.DropReply(runs(ordersScript))
	require.NoError(t, v.Confirm(t.Context()))
	<-drop.Done()
	require.Equal(t, sold+12, audited(t, s).Sold)
	drop = proxy.DropReply(runs(ordersScript))
	require.NoError(t, s.Return(t.Context(), Order{ID: "o"}))
	<-drop.Done()
	drop = proxy.DropReply(runs(ordersScript))
	require.NoError(t, s.Restock(t.Context(), "r", 11))
	<-drop.Done()
	require.Equal(t, Books{Loaded: 111, Sold: sold + 7, Left: 104 - sold}, audited(t, s))
}

// TestLostReplyOfAnOrderWithoutAnID: it is not sent again, its units may be gone, and the error says so.
func TestLostReplyOfAnOrderWithoutAnID(t *testing.T) {
	t.Parallel()
	for _, limit := range []int64{0, 50} {
		s, proxy := behindProxy(t, Config{Segments: 1, PerUser: limit}, 100)
		sold := audited(t, s).Sold
		var scripts atomic.Int64
		is := runs(deductScript, ordersScript)
		proxy.OnCommand(func(cmd []string) faults.Action {
			if is(cmd) {
				scripts.Add(1)
			}
			return faults.Pass
		})
		drop := proxy.DropReply(is)
		_, err := s.Deduct(t.Context(), Order{User: "u", Quantity: 5})
		require.ErrorIs(t, err, ErrUncertain)
		<-drop.Done()
		require.Equal(t, int64(1), scripts.Load())
		require.Equal(t, sold+5, audited(t, s).Sold)
		_, err = s.Deduct(t.Context(), Order{User: "u", Quantity: 5})
		require.NoError(t, err)
		require.Equal(t, Books{Loaded: 100, Sold: sold + 10, Left: 90 - sold}, audited(t, s))
	}
}

// TestRefusedOrderWithoutAnID is sent again: what the server has not run takes nothing.
func TestRefusedOrderWithoutAnID(t *testing.T) {
	t.Parallel()
	s, proxy := behindProxy(t, Config{Segments: 1}, 100)
	sold := audited(t, s).Sold
	var failures atomic.Int64
	is := runs(deductScript, ordersScript)
	proxy.OnCommand(func(cmd []string) faults.Action {
		if is(cmd) && failures.Add(1) <= 3 {
			return faults.Fail("TRYAGAIN Multiple keys request during rehashing of slot")
		}
		return faults.Pass
	})
	_, err := s.Deduct(t.Context(), Order{Quantity: 5})
	require.NoError(t, err)
	require.Equal(t, int64(4), failures.Load())
	require.Equal(t, sold+5, audited(t, s).Sold)
}
