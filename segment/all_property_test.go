package segment

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/go-leasehold/leasehold/coordinator"
	"github.com/go-leasehold/leasehold/internal/redistest"
)

// fair is a plan: stocks, and what processes do with them, some of it at the same time.
type fair struct {
	Stocks, Segments, Processes int
	Units, Limit                int64
	Acts                        [][]doing
	Edge                        int // seconds from its beginning to the next bucket of orders
}

// doing is a deed of a process.
type doing struct {
	Process, Order int
	What           doingKind
	Hasty          bool // its caller soon leaves
	Ills           []ill
}

type doingKind int

const (
	deductsAll doingKind = iota
	returnsAll
	deductsOne // the same user and ID, of one stock alone
	asks       // how many remain, of all stocks
	audits
	passes // time does: more than a part lasts
	passesLong
)

func (a doing) String() string {
	what := [...]string{"deducts all", "returns all", "deducts one", "asks", "audits", "time passes", "much time passes"}
	return fmt.Sprintf("%d %s of %d (hasty %t) %v", a.Process, what[a.What], a.Order, a.Hasty, a.Ills)
}

var drawIll = rapid.Custom(func(r *rapid.T) ill {
	return ill{
		rapid.IntRange(0, 14).Draw(r, "at"), illness(rapid.IntRange(0, int(illnesses)-1).Draw(r, "what")), rapid.IntRange(0, 30).Draw(r, "later"),
	}
})

func drawDoing(processes int) *rapid.Generator[doing] {
	return rapid.Custom(func(r *rapid.T) doing {
		kinds := []doingKind{deductsAll, deductsAll, deductsAll, deductsAll, deductsAll, returnsAll, returnsAll, deductsOne, asks, audits, passes, passesLong}
		return doing{
			Process: rapid.IntRange(0, processes-1).Draw(r, "process"), Order: rapid.IntRange(0, 5).Draw(r, "order"),
			What: rapid.SampledFrom(kinds).Draw(r, "what"), Hasty: rapid.IntRange(0, 7).Draw(r, "hasty") == 7,
			Ills: rapid.SliceOfN(drawIll, 0, 2).Draw(r, "ills"),
		}
	})
}

var drawFair = rapid.Custom(func(r *rapid.T) *fair {
	f := &fair{
		Stocks: rapid.IntRange(2, 3).Draw(r, "stocks"), Segments: rapid.IntRange(1, 4).Draw(r, "segments"),
		Processes: rapid.IntRange(1, 3).Draw(r, "processes"), Units: int64(rapid.IntRange(1, 12).Draw(r, "units")),
		Limit: int64(rapid.SampledFrom([]int{0, 0, 4}).Draw(r, "limit")),
	}
	f.Acts = rapid.SliceOfN(rapid.SliceOfN(drawDoing(f.Processes), 1, 3), 1, 8).Draw(r, "acts")
	f.Edge = rapid.IntRange(1, 120).Draw(r, "edge") // time passes at the end, too: most fairs go on to the next bucket
	return f
})

// fairground is a fair that takes place.
type fairground struct {
	*fair
	t        *testing.T
	fail     func(format string, args ...any)
	conf     Config
	names    []string
	settings coordinator.Settings
	clock    *serverClock
	late     *stragglers
	all      []*coordinator.Coordinator
	shops    []*unwell
	stocks   [][]*Stock // of each process

	mu   sync.Mutex
	said map[string]int // how often an order was told something
}

// orders of a fair: two users have three each; each third and fourth are one ID with other lines.
func (g *fairground) order(n int) (id, user string, quantities []int64) {
	id, user = fmt.Sprint("o", n/2), fmt.Sprint("u", n/2%2)
	all := [][]int64{{1, 2, 1}, {1, 2, 1}, {2, 1, 0}, {0, 1, 2}, {3, 3, 3}, {3, 3, 1}}
	return id, user, all[n][:g.Stocks]
}

func (g *fairground) lines(stocks []*Stock, n int) (lines []Line) {
	_, _, quantities := g.order(n)
	for i, q := range quantities {
		if q > 0 {
			lines = append(lines, Line{stocks[i], q})
		}
	}
	return lines
}

func newFairground(t *testing.T, f *fair, all []*coordinator.Coordinator, fail func(string, ...any)) *fairground {
	g := &fairground{fair: f, t: t, all: all, fail: fail, said: map[string]int{}}
	g.conf = Config{Segments: f.Segments, Remember: time.Hour, PerUser: f.Limit}
	prefix := redistest.Prefix(t)
	g.names = []string{prefix + "b 1:{%\x00", prefix + "a", prefix + "c}=0:9:9 "}[:f.Stocks]
	g.clock = newClock(t, redistest.Shared(t), prefix)
	g.clock.edge(t, g.conf.Remember, -time.Duration(f.Edge)*time.Second)
	g.settings = all[0].Settings()
	g.late = &stragglers{server: g.clock.wrap(redis{all[0]})}
	for _, s := range g.clean() {
		require.NoError(t, s.Load(t.Context(), f.Units))
	}
	g.settings.UnavailableAfter = 30 * time.Millisecond
	for range f.Processes {
		g.shops, g.stocks = append(g.shops, nil), append(g.stocks, nil)
		g.open(len(g.shops) - 1)
	}
	return g
}

// clean are handles on which nothing befalls.
func (g *fairground) clean() []*Stock {
	settings := g.all[0].Settings()
	return handles(g.all[0], g.names, g.conf, settings, g.late.server)
}

// open starts a process, the first time or again.
func (g *fairground) open(i int) {
	g.shops[i] = &unwell{late: g.late}
	c := g.all[1+i%(len(g.all)-1)]
	g.stocks[i] = handles(c, g.names, g.conf, g.settings, g.shops[i])
}

// together does acts at the same time, while time passes.
func (g *fairground) together(acts []doing) {
	for _, a := range acts {
		if g.shops[a.Process].isDead() {
			g.open(a.Process)
		}
	}
	var all sync.WaitGroup
	for _, a := range acts {
		g.shops[a.Process].begin(a.Ills)
		switch a.What {
		case passes:
			g.clock.add(g.t, partLasts+time.Second)
		case passesLong:
			g.clock.add(g.t, 7*partLasts)
		default:
			all.Go(func() { g.act(&a) })
		}
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		all.Wait()
	}()
	for {
		select {
		case <-done:
			return
		case <-time.After(20 * time.Millisecond):
			g.clock.add(g.t, 300*time.Millisecond)
		}
	}
}

func (g *fairground) act(a *doing) {
	d := hangs
	if a.Hasty {
		d = 3 * time.Millisecond
	}
	ctx, cancel := context.WithTimeout(context.Background(), d)
	defer cancel()
	stocks := g.stocks[a.Process]
	id, user, quantities := g.order(a.Order)
	switch a.What {
	case deductsAll:
		r, err := DeductAll(ctx, id, user, g.lines(stocks, a.Order)...)
		g.tell(a, "deduct", r.Repeated, err)
	case returnsAll:
		g.tell(a, "return", false, ReturnAll(ctx, id, user, g.lines(stocks, a.Order)...))
	case deductsOne:
		r, err := stocks[1].Deduct(ctx, Order{ID: id, User: user, Quantity: quantities[1]})
		g.tell(a, "one", r.Repeated, err)
	case asks:
		for _, s := range stocks {
			_, err := s.Remaining(ctx)
			g.tell(a, "ask", false, err)
		}
	case audits:
		for _, s := range stocks {
			if _, err := s.Audit(ctx); errors.Is(err, ErrAudit) {
				g.fail("%v: %v", a, err)
			}
		}
	}
	if !a.Hasty && ctx.Err() != nil {
		g.fail("hangs: %v", a)
	}
}

// answersOf are the errors that there may be, by name.
var answersOf = []struct {
	name string
	err  error
}{
	{"uncertain", ErrUncertain}, {"gone", errGone}, {"mismatch", ErrOrderMismatch}, {"returned", ErrReturned}, {"unknown", ErrUnknownOrder},
	{"sold out", ErrSoldOut}, {"limit", ErrUserLimit}, {"not done", ErrNotDone}, {"unavailable", coordinator.ErrUnavailable},
	{"left", context.DeadlineExceeded},
}

func (g *fairground) tell(a *doing, what string, repeated bool, err error) {
	answer := "fine"
	if repeated {
		answer = "repeated"
	}
	if err != nil {
		answer = ""
		for _, known := range answersOf {
			if errors.Is(err, known.err) {
				answer = known.name
				break
			}
		}
		if answer == "" {
			g.fail("%v: %v", a, err)
		}
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	id, _, _ := g.order(a.Order)
	g.said[what+" "+answer]++
	g.said[fmt.Sprint(what, " ", a.Order, " ", answer)]++
	g.said[fmt.Sprint(what, " ", id, " ", answer)]++
}

// settle ends everything, as whoever comes later does.
func (g *fairground) settle(stocks []*Stock) []Books {
	for range 3 {
		g.late.pass(1 << 30)
		g.clock.add(g.t, partLasts+time.Second)
		for _, s := range stocks {
			if _, err := s.Audit(context.Background()); err != nil {
				g.fail("at the end: %v", err)
			}
		}
	}
	books := make([]Books, len(stocks))
	for i, s := range stocks {
		audit, err := s.Audit(context.Background())
		if err != nil || !audit.Still || audit.Open != 0 || audit.UnderWay != 0 || audit.Loaded != g.Units || audit.Left < 0 {
			g.fail("at the end: %v: %+v", err, audit)
		}
		books[i] = audit.Books
		for _, h := range s.homes {
			if open := hashAt(g.t, redistest.Shared(g.t), h.keys.open); len(open) > 1 {
				g.fail("left open: %v", open)
			}
		}
	}
	return books
}

// recorded is what stands of an order at a home: kind and quantity, attempt, lines.
func (g *fairground) recorded(s *Stock, id, user string) (kind string, quantity int64, attempt, lines string) {
	o := Order{ID: id, User: user}
	r, err := onRecord(g.t, s.home(&o), o.field())
	if err != nil {
		g.fail("%v", err)
	}
	if r == "" {
		return "", 0, "", ""
	}
	fields := append(strings.Split(r, " "), "", "")
	_, err = fmt.Sscan(fields[0][1:], &quantity)
	require.NoError(g.t, err)
	return fields[0][:1], quantity, fields[1], fields[2]
}

// judge compares what stands on record with what there should be: all or none of each order, and of each stock what is
// sold; and what was told.
func (g *fairground) judge(stocks []*Stock, books []Books) {
	sold := make([]int64, len(stocks))
	byUser := map[string]int64{}
	for n := 0; n < 6; n += 2 {
		id, user, _ := g.order(n)
		attempts := map[string][]int64{} // taken, by attempt and lines
		returned := false
		for i, s := range stocks {
			kind, quantity, attempt, lines := g.recorded(s, id, user)
			returned = returned || kind == "r" && attempt != ""
			if kind != "t" {
				continue
			}
			sold[i] += quantity
			byUser[fmt.Sprint(user, i)] += quantity
			if attempt != "" {
				if attempts[attempt+lines] == nil {
					attempts[attempt+lines] = make([]int64, len(stocks))
				}
				attempts[attempt+lines][i] = quantity
			}
		}
		if len(attempts) > 1 || len(attempts) > 0 && returned {
			g.fail("order %s is taken twice, or is returned in part: %v", id, attempts)
		}
		for _, took := range attempts {
			g.whole(id, n, took)
		}
		g.agree(id, n, len(attempts) > 0, returned)
	}
	for i := range stocks {
		if books[i].Sold != sold[i] {
			g.fail("stock %d: %d are sold, and on record are %d", i, books[i].Sold, sold[i])
		}
	}
	for user, n := range byUser {
		if g.Limit > 0 && n > g.Limit {
			g.fail("user and stock %s have %d", user, n)
		}
	}
}

// whole says that what was taken is all of one set of lines.
func (g *fairground) whole(id string, n int, took []int64) {
	_, _, one := g.order(n)
	_, _, other := g.order(n + 1)
	if fmt.Sprint(took) != fmt.Sprint(one) && fmt.Sprint(took) != fmt.Sprint(other) {
		g.fail("order %s is taken in part: %v", id, took)
	}
}

// agree compares with what was told.
func (g *fairground) agree(id string, n int, taken, returned bool) {
	said := func(what string) int { return g.said[what] }
	all := said("deduct " + id + " fine")
	switch {
	case n == 2 && g.Stocks == 2:
		return // its second lines are of one stock
	case all > 1:
		g.fail("order %s was taken %d times", id, all)
	case all > 0 && !taken && !returned:
		g.fail("order %s was taken, and is not on record", id)
	case said("return "+id+" fine") > 0 && !returned:
		g.fail("order %s was returned, and is not on record as that", id)
	case (said("deduct "+id+" returned") > 0 || said("return "+id+" unknown") > 0) && !returned:
		g.fail("order %s is not returned, as was told", id)
	case said("deduct "+id+" repeated") > 0 && !taken && !returned:
		g.fail("order %s was taken before, and is not on record", id)
	}
}

// again sends all orders once more, with nothing in the way: each gets the answer that is on record, or is served
// where that is possible.
func (g *fairground) again(stocks []*Stock) {
	for n := range 6 {
		id, user, quantities := g.order(n)
		lines := g.lines(stocks, n)
		if len(lines) < 2 {
			continue
		}
		var before string
		enough := true
		for i, s := range stocks {
			if quantities[i] == 0 {
				continue
			}
			kind, _, attempt, of := g.recorded(s, id, user)
			if kind != "" && (attempt == "" || of != linesOf(partsOf(g.t, id, user, lines))) {
				kind = "m"
			}
			if before == "" || kind == "m" {
				before = kind
			}
			left, err := s.Remaining(context.Background())
			require.NoError(g.t, err)
			enough = enough && left >= quantities[i]
		}
		r, err := DeductAll(context.Background(), id, user, lines...)
		ok := false
		switch before {
		case "":
			ok = err == nil && !r.Repeated && enough || errors.Is(err, ErrSoldOut) && !enough ||
				errors.Is(err, ErrUserLimit) && g.Limit > 0
		case "t":
			ok = err == nil && r.Repeated
		case "r":
			ok = errors.Is(err, ErrReturned)
		case "m":
			ok = errors.Is(err, ErrOrderMismatch) || errors.Is(err, ErrSoldOut) && !enough || errors.Is(err, ErrUserLimit)
		}
		if !ok {
			g.fail("order %d, on record %q, enough %t: %v, %v", n, before, enough, r, err)
		}
	}
}

func partsOf(t *testing.T, id, user string, lines []Line) []part {
	t.Helper()
	parts, err := summed(t.Context(), id, user, lines)
	require.NoError(t, err)
	return parts
}

// takesPlace has a fair take place, from beginning to end, and returns what is wrong with it, and what was told.
func (f *fair) takesPlace(t *testing.T, all []*coordinator.Coordinator) (failures []string, told map[string]int) {
	var mu sync.Mutex
	g := newFairground(t, f, all, func(format string, args ...any) {
		mu.Lock()
		defer mu.Unlock()
		failures = append(failures, fmt.Sprintf(format, args...))
	})
	for _, acts := range g.Acts {
		g.together(acts)
	}
	for i := range g.shops {
		g.shops[i].begin([]ill{{What: diesBefore}}) // whatever it still does is not to be done
	}
	stocks := g.clean()
	g.judge(stocks, g.settle(stocks))
	g.again(stocks)
	g.judge(stocks, g.settle(stocks))
	mu.Lock()
	defer mu.Unlock()
	g.mu.Lock()
	defer g.mu.Unlock()
	return failures, maps.Clone(g.said)
}

// Whatever befalls commands and processes: an order over several stocks is taken as a whole or not at all, once,
// as was told, and nothing stays open.
func TestAllOrNoneUnderFaults(t *testing.T) {
	t.Parallel()
	all := visitors(t)
	rapid.Check(t, func(r *rapid.T) {
		if failures, told := drawFair.Draw(r, "fair").takesPlace(t, all); len(failures) > 0 {
			r.Fatalf("%s\ntold: %v", strings.Join(failures, "\n"), told)
		}
	})
}
