package faulttest

import (
	"cmp"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/go-leasehold/leasehold/internal/faults"
	"github.com/go-leasehold/leasehold/internal/redistest"
)

// turnBudget is the default of WithHandoff: how many holds in a row a process may have while another one waits.
const turnBudget = 64

// G4: three processes with 200 waiters each, for a mutex and for mixtures of readers and writers. A release wakes up
// nobody but whom it lets in: hardly a process asks at all; no process has more holds in a row than its budget; each
// has its share; every exclusive hold has a token of its own.
func TestThreeProcessesShareTurnsWithoutAStorm(t *testing.T) {
	for name, order := range map[string]throngOrder{
		"mutex":                     {Mutexes: 200},
		"writers":                   {Writers: 200},
		"as many readers":           {Readers: 100, Writers: 100},
		"hardly any writer":         {Readers: 195, Writers: 5},
		"hardly any reader":         {Readers: 5, Writers: 195},
		"readers that keep a lease": {Readers: 150, Writers: 50, Shared: time.Hour},
	} {
		t.Run(name, func(t *testing.T) {
			server := redistest.Start(t)
			warm(t, server)
			order.TTL = 30 * time.Second
			var orders []throngOrder
			var nets []*wire
			for range 3 {
				proxy := faults.NewProxy(t, server.Addr())
				nets = append(nets, listen(proxy))
				order.Addr = proxy.Addr()
				orders = append(orders, order)
			}
			begun := time.Now()
			all := startThrong(t, orders...)
			time.Sleep(lasting(1500*time.Millisecond, 20*time.Second))
			reports := all.end(t)
			requireFewQuestions(t, nets, time.Since(begun), order.Readers == 0)
			requireTurns(t, reports)
			requireShares(t, reports, func(r throngReport) int { return r.Writes })
			if order.Readers > 0 {
				requireShares(t, reports, func(r throngReport) int { return r.Reads })
			}
		})
	}
}

// requireFewQuestions bounds what the processes ask: at most once for each release of any of them, and once in 100 ms
// at the head of a queue that stands still.
func requireFewQuestions(t *testing.T, nets []*wire, took time.Duration, exclusive bool) {
	t.Helper()
	releases := 0
	for _, net := range nets {
		releases += net.count(is("release"))
	}
	for _, net := range nets {
		asked := net.count(is("acquire"))
		t.Logf("asked %d times, %d releases", asked, releases)
		require.LessOrEqual(t, asked, releases+int(took/(100*time.Millisecond)))
		if exclusive { // then turns are short, and the releases let it in
			require.LessOrEqual(t, asked, 50+releases/4)
		}
	}
}

// requireTurns looks at the order of all exclusive holds, by their tokens, in the time when all processes took part.
func requireTurns(t *testing.T, reports []throngReport) {
	t.Helper()
	type owned struct {
		turn
		process int
	}
	var turns []owned
	from, to := uint64(0), ^uint64(0)
	for i, r := range reports {
		require.NotEmpty(t, r.Turns)
		from = max(from, r.Turns[0].First)
		to = min(to, r.Turns[len(r.Turns)-1].First)
		for _, own := range r.Turns {
			turns = append(turns, owned{own, i})
		}
	}
	slices.SortFunc(turns, func(a, b owned) int { return cmp.Compare(a.First, b.First) })
	most, row := 0, 0
	for i, one := range turns {
		if i > 0 {
			require.Greater(t, one.First, turns[i-1].last(), "a token was given twice")
		}
		if i > 0 && one.process == turns[i-1].process {
			row += one.Count
		} else {
			row = one.Count
		}
		if one.First > from && one.last() < to {
			most = max(most, row)
		}
	}
	t.Logf("%d turns, at most %d holds in a row", len(turns), most)
	require.LessOrEqual(t, most, turnBudget)
}

// requireShares wants no process to have less than half of an equal share.
func requireShares(t *testing.T, reports []throngReport, count func(throngReport) int) {
	t.Helper()
	var all []int
	sum := 0
	for _, r := range reports {
		all = append(all, count(r))
		sum += count(r)
	}
	t.Logf("holds: %v", all)
	require.GreaterOrEqual(t, slices.Min(all), sum/len(all)/2, "%v", all)
}
