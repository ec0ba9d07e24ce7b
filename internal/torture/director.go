package torture

import (
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"sort"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/go-leasehold/leasehold/internal/faults"
	"github.com/go-leasehold/leasehold/internal/history"
)

const (
	// searchLimit is how long the search for an order may take for one key. It takes far less than a second.
	searchLimit = time.Minute
	// lanes are the goroutines of a process.
	lanes = 7
)

// director is the parent of the processes of a run.
type director struct {
	t     testing.TB
	rnd   *rand.Rand
	w     *world
	fence *Fence
	order order
	dir   string

	cast    []*actor
	records []string
	done    []history.Event // what was done to processes, keys and servers
	troubles
}

// actor is a process, as its parent sees it.
type actor struct {
	*faults.Child
	number int
	ways   map[string]*faults.Proxy // by the address of the server behind; they outlive the process
}

// direct starts the processes of a run on a topology.
func direct(t testing.TB, w *world, seed uint64) *director {
	t.Helper()
	fence, err := newFence()
	require.NoError(t, err)
	d := &director{t: t, rnd: rand.New(rand.NewPCG(seed, 0)), w: w, fence: fence, dir: t.TempDir()}
	d.troubles.counts = map[string]int{}
	d.order = order{TTL: time.Second, Lanes: lanes, Places: places(), Fence: fence.addr()}
	for range 3 + d.rnd.IntN(3) {
		a := &actor{ways: map[string]*faults.Proxy{}}
		for _, s := range w.Servers() {
			a.ways[s.Addr()] = faults.NewProxy(t, s.Addr())
		}
		d.cast = append(d.cast, a)
		d.start(a)
	}
	for _, a := range d.cast {
		a.ExpectWithin(t, patience, "ready")
	}
	return d
}

// start starts a process in an actor's place.
func (d *director) start(a *actor) {
	d.order.Process++
	d.order.Seed = d.rnd.Uint64()
	d.order.Record = filepath.Join(d.dir, strconv.Itoa(d.order.Process))
	d.order.Way = d.w.way()
	for address, proxy := range a.ways {
		d.order.Way.Through[address] = proxy.Addr()
	}
	d.records = append(d.records, d.order.Record)
	text, err := json.Marshal(d.order)
	require.NoError(d.t, err)
	a.Child, a.number = faults.StartChild(d.t, "torture", string(text)), d.order.Process
}

// run makes one trouble after the other, and some beside each other, for about that long.
func (d *director) run(lasting time.Duration) {
	deck := d.deck()
	end := time.Now().Add(lasting)
	for n := 0; time.Now().Before(end); n++ {
		if n%len(deck) == 0 {
			d.rnd.Shuffle(len(deck), func(i, j int) { deck[i], deck[j] = deck[j], deck[i] })
		}
		gap := 30 + d.rnd.IntN(150)
		if d.rnd.IntN(10) == 0 {
			gap *= 10 // calm
		}
		d.endTroubles(time.Now().Add(time.Duration(gap) * time.Millisecond))
		deck[n%len(deck)](d)
	}
	d.endAll()
	for _, a := range d.cast {
		for _, p := range a.ways {
			p.Heal()
		}
	}
	d.w.Settle()
}

// end has every call end, and looks for what is left.
func (d *director) end() {
	t := d.t
	defer func() { // for the history of those that hang is worth a look
		for _, a := range d.cast {
			a.Kill()
		}
	}()
	for _, a := range d.cast {
		a.Send("end")
	}
	for _, a := range d.cast {
		a.ExpectWithin(t, patience+patience/4, "visited")
	}
	passed := 0
	for _, a := range d.cast {
		n, err := strconv.Atoi(a.ExpectWithin(t, patience+patience/4, "closed"))
		require.NoError(t, err)
		require.NoError(t, a.Wait())
		passed += n
	}
	t.Logf("%d reads of those who stayed took the short way", passed)
	d.w.requireQuiet(d.order.TTL)
}

// judge holds all that was recorded to what is promised.
func (d *director) judge() {
	t := d.t
	events := d.done
	for _, name := range d.records {
		file, err := os.Open(name)
		if errors.Is(err, os.ErrNotExist) {
			continue // killed before it began
		}
		require.NoError(t, err)
		more, err := history.Load(file)
		require.NoError(t, err)
		require.NoError(t, file.Close())
		events = append(events, more...)
	}
	counts := history.Count(events)
	begun := time.Now()
	rules := history.Rules{TTL: d.order.TTL, Limit: searchLimit}
	err := history.Check(events, rules)
	if err == nil {
		var overlaps []history.Overlap
		overlaps, err = history.Overlaps(events, rules)
		d.report(counts, overlaps)
	}
	log := d.fence.close()
	refused := 0
	for _, w := range log {
		if !w.Accepted {
			refused++
		}
	}
	t.Logf("fenced store: %d writes, %d refused; judged in %v", len(log), refused, time.Since(begun).Round(time.Millisecond))
	err = errors.Join(err, judgeWrites(log, events))
	if err != nil {
		dir := artifacts(t)
		paths, failed := history.Keep(dir, events, err)
		require.NoError(t, failed)
		paths = append(paths, filepath.Join(dir, "faults.txt"))
		require.NoError(t, os.WriteFile(paths[len(paths)-1], []byte(strings.Join(d.log, "\n")+"\n"), 0o600))
		require.NoError(t, err, "see %s", strings.Join(paths, " and "))
	}
	require.NotZero(t, counts["read"])
	require.NotZero(t, counts["write"])
}

// report says what there was.
func (d *director) report(counts map[string]int, overlaps []history.Overlap) {
	var longest, late time.Duration
	for _, o := range overlaps {
		longest, late = max(longest, o.For), max(late, o.AfterTheLoss)
	}
	d.t.Logf("%d processes; %d holds, %d calls refused, %d holds lost; %d pairs of holds met after a loss, for %v at most, and %v after it at the latest",
		d.order.Process, counts[string(history.Locked)], counts[string(history.Refused)], counts[string(history.Lost)],
		len(overlaps), longest.Round(time.Millisecond), late.Round(time.Millisecond))
	names := make([]string, 0, len(d.counts))
	for name := range d.counts {
		names = append(names, name)
	}
	sort.Strings(names)
	text := make([]string, len(names))
	for i, name := range names {
		text[i] = fmt.Sprintf("%d %s", d.counts[name], name)
	}
	d.t.Logf("faults: %s", strings.Join(text, ", "))
}

// artifacts is where something can be kept for longer than the test.
func artifacts(t testing.TB) string {
	t.Helper()
	if f := flag.Lookup("test.artifacts"); f != nil && f.Value.String() == "true" {
		return t.ArtifactDir()
	}
	//nolint:usetesting // the test's own directory goes with the test
	dir, err := os.MkdirTemp("", "leasehold-torture-")
	require.NoError(t, err)
	return dir
}
