package faulttest

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/go-leasehold/leasehold/internal/faults"
	"github.com/go-leasehold/leasehold/internal/redistest"
	"github.com/go-leasehold/leasehold/segment"
)

// attempt is one run of a scenario: a stock of four units in four segments, and a process that is killed at a step.
type attempt struct {
	stock  *segment.Stock
	child  *seller
	killed func() bool
}

// steps runs a scenario with a process that is killed at the first, the second, ... script of the stock that it sends, until it
// comes to its end before that.
func steps(t *testing.T, scenario func(t *testing.T, a *attempt)) {
	t.Helper()
	for _, when := range []string{"before", "after"} {
		t.Run(when, func(t *testing.T) {
			t.Parallel()
			s := redistest.Start(t)
			knowsScripts(t, s)
			c := process(t, s.Addr())
			step := int64(1)
			for ; ; step += int64(rounds(2, 1)) {
				name := fmt.Sprintf("s%d", step)
				a := &attempt{stock: namedStock(t, c, name, segment.Config{Segments: 4})}
				require.NoError(t, a.stock.Load(t.Context(), 4))
				proxy := faults.NewProxy(t, s.Addr())
				a.child = startSeller(t, proxy.Addr(), name, 4)
				a.killed = killAtStep(proxy, a.child.Child, step, when).Load
				scenario(t, a)
				if !a.killed() {
					break
				}
			}
			require.Greater(t, step, int64(8), "it has some steps")
		})
	}
}

// runs has the child do what it is told, and waits for its end.
func (a *attempt) runs(t *testing.T, lines ...string) {
	t.Helper()
	for _, line := range lines {
		a.child.Send(line)
	}
	a.child.CloseInput()
	await(t, a.child.Done(), hangs, "the end of the child")
}

// L5: a process is killed at any step of selling three units, which it has to fetch from other segments. Nothing is lost: an
// audit finds all that was loaded, and the order, sent again by another process, has its units, once.
func TestSellerKilledAtAnyStepLosesNoUnits(t *testing.T) {
	t.Parallel()
	order := segment.Order{User: "u", ID: "o", Quantity: 3}
	steps(t, func(t *testing.T, a *attempt) {
		a.runs(t, sellerLine("deduct", order))
		books := balanced(t, a.stock)
		require.Contains(t, []int64{0, 3}, books.Sold)
		require.True(t, a.killed() || books.Sold == 3)
		receipt, err := a.stock.Deduct(t.Context(), order)
		require.NoError(t, err)
		require.Equal(t, books.Sold == 3, receipt.Repeated)
		require.Equal(t, segment.Books{Loaded: 4, Sold: 3, Left: 1}, balanced(t, a.stock))
		_, err = a.stock.Deduct(t.Context(), segment.Order{User: "v", ID: "o", Quantity: 1})
		require.NoError(t, err, "the last unit, wherever it is")
	})
}

// L5: a process is killed at any step of reserving three units and confirming them. What is not confirmed comes back by itself,
// once; what is stays sold; in between an audit finds loaded = sold + reserved + left.
func TestReservationOfAKilledProcessComesBackOnce(t *testing.T) {
	t.Parallel()
	const ttl = 300 * time.Millisecond
	order := segment.Order{User: "u", ID: "o", Quantity: 3}
	steps(t, func(t *testing.T, a *attempt) {
		a.runs(t, sellerLine("reserve", order, ttl.String()), sellerLine("confirm", order))
		balanced(t, a.stock)
		var books segment.Books
		eventually(t, hangs, "the deadline", func() bool {
			books = balanced(t, a.stock)
			return books.Reserved == 0
		})
		record, err := a.stock.Lookup(t.Context(), order.User, order.ID)
		require.NoError(t, err)
		require.Equal(t, record.State == segment.Taken, books.Sold == 3)
		switch record.State {
		case segment.Taken:
			_, err = a.stock.Confirm(t.Context(), order)
			require.NoError(t, err, "the payment, told again")
		case segment.Expired:
			_, err = a.stock.Confirm(t.Context(), order)
			require.ErrorIs(t, err, segment.ErrExpired)
			require.NoError(t, a.stock.Cancel(t.Context(), order), "it comes back once")
			require.Equal(t, segment.Books{Loaded: 4, Left: 4}, balanced(t, a.stock))
		default:
			require.Equal(t, segment.Unknown, record.State)
			require.True(t, a.killed())
		}
		_, err = a.stock.Deduct(t.Context(), segment.Order{User: "v", ID: "o", Quantity: 4 - books.Sold})
		require.NoError(t, err, "everything that came back can be sold")
		require.Zero(t, balanced(t, a.stock).Left)
	})
}

// L5: a process stands still between reserving and confirming. Its reservation ends and the units are sold to another: the
// confirmation that comes then is refused, again and from everywhere, and nothing is sold twice.
func TestLateConfirmationAfterResaleIsRefused(t *testing.T) {
	t.Parallel()
	const ttl = 400 * time.Millisecond
	s := redistest.Start(t)
	stock := stockOf(t, process(t, s.Addr()), segment.Config{Segments: 4})
	require.NoError(t, stock.Load(t.Context(), 4))
	first := startSeller(t, s.Addr(), "s", 4)
	late, other := segment.Order{User: "u", ID: "o", Quantity: 3}, segment.Order{User: "v", ID: "o", Quantity: 3}
	require.Equal(t, "ok", first.ask(t, "reserve", late, ttl.String()))
	first.Stop()
	first.Send(sellerLine("confirm", late)) // the payment arrives, and is not read
	eventually(t, hangs, "the units are back", func() bool {
		_, err := stock.Deduct(t.Context(), other)
		require.Contains(t, []string{"ok", "soldout"}, told(err))
		return err == nil
	})
	first.Cont()
	require.Equal(t, "expired", first.Expect(t, "told"))
	require.Equal(t, "expired", first.ask(t, "confirm", late))
	_, err := stock.Confirm(t.Context(), late)
	require.ErrorIs(t, err, segment.ErrExpired)
	require.Equal(t, "expired", first.ask(t, "deduct", late), "its ID is used up")
	require.Equal(t, segment.Books{Loaded: 4, Sold: 3, Left: 1}, balanced(t, stock))
}

// L5: a process that knows that all is sold, and answers so with no command, sells what comes back from a reservation of which
// nobody heard any more.
func TestReservationThatEndsIsSoldByWhoKnewItSoldOut(t *testing.T) {
	t.Parallel()
	const ttl = 1500 * time.Millisecond
	s := redistest.Start(t)
	stock := stockOf(t, process(t, s.Addr()), segment.Config{Segments: 4})
	require.NoError(t, stock.Load(t.Context(), 4))
	first := startSeller(t, s.Addr(), "s", 4)
	require.Equal(t, "ok", first.ask(t, "reserve", segment.Order{User: "u", ID: "o", Quantity: 4}, ttl.String()))
	first.Kill()
	n := 0
	eventually(t, hangs, "the units are back", func() bool {
		n++
		_, err := stock.Deduct(t.Context(), segment.Order{User: "v", ID: fmt.Sprintf("o%d", n), Quantity: 1})
		require.Contains(t, []string{"ok", "soldout"}, told(err))
		return err == nil
	})
	require.Positive(t, stock.Snapshot().Known, "some were refused with no command")
	require.Equal(t, segment.Books{Loaded: 4, Sold: 1, Left: 3}, balanced(t, stock))
}
