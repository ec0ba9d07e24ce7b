package faulttest

import (
	"bufio"
	"context"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/go-leasehold/leasehold/coordinator"
	"github.com/go-leasehold/leasehold/internal/faults"
	"github.com/go-leasehold/leasehold/internal/redistest"
	"github.com/go-leasehold/leasehold/segment"
)

func init() { roles["vendor"] = playVendor }

const (
	historyUnits    = 400
	historySegments = 5
	historyUsers    = 40
	historyIDs      = 30 // of each user
	historyTTL      = 200 * time.Millisecond
)

// historyQuantity is what an order is of, whoever sends it.
func historyQuantity(user, id int) int64 { return int64(1 + (user+id)%3) }

// playVendor sells until it is told to stop. Before and after each call it writes down, in a file of its own, what it asks
// and what it was told.
func playVendor(args []string) {
	file, err := os.OpenFile(args[2], os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o600)
	exitIf(err)
	option := at(args[0])
	option.ClientName = "coordinator"
	c, err := coordinator.New(option, coordinator.WithLogger(slog.New(slog.NewTextHandler(os.Stderr, nil))))
	exitIf(err)
	s, err := segment.NewStock(c, args[1], segment.Config{Segments: historySegments})
	exitIf(err)
	faults.Say("ready %s", c.ID())
	ctx, stop := context.WithCancel(context.Background())
	var all sync.WaitGroup
	var number sync.Mutex
	calls := 0
	for range 8 {
		all.Go(func() {
			for ctx.Err() == nil {
				number.Lock()
				calls++
				n := calls
				number.Unlock()
				vend(s, file, n)
			}
		})
	}
	faults.Hear()
	stop()
	all.Wait()
	exitIf(shut(c))
	faults.Say("ended")
}

// vend does one thing to one order.
func vend(s *segment.Stock, file *os.File, n int) {
	what := []string{"deduct", "deduct", "deduct", "deduct", "deduct", "reserve", "confirm", "return", "cancel", "restock", "unnamed"}[rand.IntN(11)]
	user, id := rand.IntN(historyUsers), rand.IntN(historyIDs)
	o := segment.Order{User: strconv.Itoa(user), ID: strconv.Itoa(id), Quantity: historyQuantity(user, id)}
	switch what {
	case "restock":
		if rand.IntN(10) > 0 {
			return
		}
		o = segment.Order{User: "-", ID: "more" + strconv.Itoa(rand.IntN(30)), Quantity: 3}
	case "unnamed":
		o.ID = "-"
	}
	line := fmt.Sprintf("%d %s", n, sellerLine(what, o))
	write := func(text string) {
		if _, err := file.WriteString(text + "\n"); err != nil {
			os.Exit(4)
		}
	}
	write("ask " + line)
	if what == "unnamed" {
		o.ID, what = "", "deduct"
	}
	write("told " + line + " " + told(sell(s, what, o, []string{historyTTL.String()})))
}

// call is one call of a vendor, as its file has it.
type vended struct {
	what   string
	order  segment.Order
	answer string // empty: it was killed before it was told
}

// readVended reads a vendor's file.
func readVended(t *testing.T, path string) []vended {
	t.Helper()
	file, err := os.Open(path)
	require.NoError(t, err)
	defer file.Close()
	calls := map[string]*vended{}
	for lines := bufio.NewScanner(file); lines.Scan(); {
		w := strings.Fields(lines.Text())
		if len(w) < 6 {
			continue // the last line of one that was killed
		}
		quantity, err := strconv.ParseInt(w[5], 10, 64)
		require.NoError(t, err, lines.Text())
		switch w[0] {
		case "ask":
			calls[w[1]] = &vended{what: w[2], order: segment.Order{User: w[3], ID: w[4], Quantity: quantity}}
		case "told":
			calls[w[1]].answer = w[6]
		}
	}
	all := make([]vended, 0, len(calls))
	for _, c := range calls {
		all = append(all, *c)
	}
	return all
}

// Three processes sell one stock while they are killed, stopped and started anew, their connections are killed, and
// replies are lost. In the end what all of them were told is what the books have: no order twice, none lost, not one unit too many.
func TestWhatSellersWereToldIsWhatTheBooksHave(t *testing.T) {
	t.Parallel()
	s := redistest.Start(t)
	proxy := faults.NewProxy(t, s.Addr())
	stock := stockOf(t, process(t, s.Addr()), segment.Config{Segments: historySegments})
	require.NoError(t, stock.Load(t.Context(), historyUnits))
	dir := t.TempDir()
	var files []string
	start := func() *faults.Child {
		files = append(files, filepath.Join(dir, strconv.Itoa(len(files))))
		return faults.StartChild(t, "vendor", proxy.Addr(), "s", files[len(files)-1])
	}
	vendors := []*faults.Child{start(), start(), start()}
	for _, v := range vendors {
		v.Expect(t, "ready")
	}
	mischief := map[string]int{}
	for end := time.Now().Add(lasting(5*time.Second, 2*time.Minute)); time.Now().Before(end); {
		i := rand.IntN(len(vendors))
		what := []string{"kill", "stop", "cut", "lose", "lose"}[rand.IntN(5)]
		mischief[what]++
		switch what {
		case "kill":
			vendors[i].Kill()
			vendors[i] = start()
			vendors[i].Expect(t, "ready")
		case "stop":
			vendors[i].Stop()
			time.Sleep(time.Duration(rand.IntN(300)) * time.Millisecond)
			vendors[i].Cont()
		case "cut":
			if ids := coordinatorConnections(t, s); len(ids) > 0 {
				_, _ = s.DoErr("CLIENT", "KILL", "ID", ids[rand.IntN(len(ids))]) // it may be gone by itself
			}
		case "lose":
			proxy.DropReply(ofStock)
		}
		time.Sleep(time.Duration(rand.IntN(100)) * time.Millisecond)
	}
	for _, v := range vendors {
		v.Send("stop")
	}
	for _, v := range vendors {
		v.ExpectWithin(t, 2*hangs, "ended")
	}
	h := &history{orders: map[segment.Order][]vended{}, mischief: mischief}
	for _, path := range files {
		for _, c := range readVended(t, path) {
			h.orders[c.order] = append(h.orders[c.order], c)
		}
	}
	h.check(t, stock)
}

// history is all that vendors asked and were told, by order.
type history struct {
	orders   map[segment.Order][]vended
	mischief map[string]int
	answers  map[string]int
}

func (h *history) check(t *testing.T, stock *segment.Stock) {
	t.Helper()
	eventually(t, hangs, "all deadlines", func() bool { return balanced(t, stock).Reserved == 0 })
	h.answers = map[string]int{}
	loaded, sold, maybe := int64(historyUnits), int64(0), int64(0)
	for o, calls := range h.orders {
		for _, c := range calls {
			h.answers[c.what+" "+c.answer]++
		}
		switch {
		case strings.HasPrefix(o.ID, "more"):
			require.NoError(t, stock.Restock(t.Context(), o.ID, o.Quantity), "sent again, it is once")
			loaded += o.Quantity
		case o.ID == "-":
			for _, c := range calls {
				switch c.answer {
				case "ok":
					sold += o.Quantity
				case "", "uncertain":
					maybe += o.Quantity
				}
			}
		default:
			sold += h.order(t, stock, o, calls)
		}
	}
	books := balanced(t, stock)
	t.Logf("%v; %v; %+v, told %d sold and perhaps %d", h.mischief, h.answers, books, sold, maybe)
	require.Equal(t, loaded, books.Loaded, "each restock once")
	require.GreaterOrEqual(t, books.Sold, sold, "no unit that somebody was told to have is missing")
	require.LessOrEqual(t, books.Sold, sold+maybe, "no order took twice")
	require.GreaterOrEqual(t, books.Left, int64(0))
	for _, what := range []string{"deduct ok", "deduct soldout", "reserve ok", "confirm ok", "return ok", "deduct returned"} {
		require.Positive(t, h.answers[what], "%s: %v", what, h.answers)
	}
}

// order compares what is on record of an order with what was told of it, and returns the units that it has.
func (h *history) order(t *testing.T, stock *segment.Stock, o segment.Order, calls []vended) int64 {
	t.Helper()
	record, err := stock.Lookup(t.Context(), o.User, o.ID)
	require.NoError(t, err)
	asked, done := map[string]bool{}, map[string]bool{}
	open := false
	for _, c := range calls {
		asked[c.what] = true
		if c.answer == "ok" {
			done[c.what] = true
		}
		open = open || c.answer == "" || c.answer == "uncertain" || c.answer == "notdone"
	}
	about := fmt.Sprintf("%+v: %+v: %v", o, record, calls)
	has := done["deduct"] || done["confirm"]
	givesBack := asked["return"] || asked["cancel"]
	switch record.State {
	case segment.Taken:
		require.Equal(t, o.Quantity, record.Quantity, about)
		require.True(t, has || open, "nobody was told that it is taken: %s", about)
		require.False(t, done["return"], "it was returned: %s", about)
		return record.Quantity
	case segment.Returned:
		require.True(t, givesBack, about)
	case segment.Expired:
		require.True(t, asked["reserve"], about)
		require.False(t, has, "it was sold: %s", about)
	case segment.Unknown:
		require.False(t, has || done["reserve"] || done["return"], about)
	default:
		require.Fail(t, "no such state here", about)
	}
	if !givesBack {
		require.False(t, has, "its units were lost: %s", about)
	}
	return 0
}
