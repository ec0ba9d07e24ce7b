package coordinator

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"math/rand/v2"
	"os"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/go-leasehold/leasehold/lease"
	"github.com/go-leasehold/leasehold/lease/memlease"
)

// TestRandomLoadUnderFaults runs several processes on one server, in virtual
// time, and has everything befall them that a network and an operator can do.
// However that goes: holds exclude each other, tokens grow, every wait ends, and
// nothing is left at the end. rapid tells the seed of a run that fails.
// LEASEHOLD_TORTURE=1 makes 5,000 runs, a larger number as many as it says.
func TestRandomLoadUnderFaults(t *testing.T) {
	manyRuns(t, "50")
	rapid.Check(t, func(r *rapid.T) {
		p := drawPlan(r)
		var err error
		synctest.Test(t, func(t *testing.T) { err = p.run(t) })
		if err != nil {
			r.Fatalf("%v\n%+v", err, p)
		}
	})
}

// manyRuns sets how often rapid runs a test: in normal runs n times.
func manyRuns(t *testing.T, n string) {
	t.Helper()
	switch env := os.Getenv("LEASEHOLD_TORTURE"); env {
	case "":
	case "1":
		n = "5000"
	default:
		n = env
	}
	before := flag.Lookup("rapid.checks").Value.String()
	require.NoError(t, flag.Set("rapid.checks", n))
	t.Cleanup(func() { require.NoError(t, flag.Set("rapid.checks", before)) })
}

// plan is everything that happens in one run.
type plan struct {
	TTL, Retention, Slice      time.Duration
	Budget                     int
	Latency                    time.Duration // the longest of one way
	NoTracking, NoReceipts     bool
	Seed                       uint64 // of the latencies
	Workers                    []worker
	Faults                     []fault
	processes                  int
	outside                    [2]time.Time // when a key was last changed behind everybody's back
	server                     *memlease.Server
	stores                     []*memlease.Store
	coordinators               []*Coordinator
	cached                     []*handle // of each process, for each key: what a Cached TryLock remembers
	mu                         sync.Mutex
	err                        error
	active                     map[*watchedHold]bool
	newestExclusive, newestAll [2]uint64
}

// worker is a goroutine of a process.
type worker struct {
	Process int
	Steps   []step
}

// step is one call to lock.
type step struct {
	Key, How              int // 0: a mutex, 1: a read/write lock
	Shared, Reenter, Fair bool
	Cached                bool // of a TryLock to write
	Pause, Hold           time.Duration
	Limit                 time.Duration // of the wait; 0: none
	MaxHold               time.Duration
}

// fault befalls at its time, and lasts.
type fault struct {
	At, Lasts time.Duration
	What      string
	Process   int
	Key, N    int
}

var (
	keyNames  = [2]string{"mutex", "rw"}
	errLost   = errors.New("the reply was lost")
	faultKind = []string{
		"reply lost", "re-sent", "refused", "late copy", "late copy of a re-sent one", "delay",
		"disconnect", "drop events", "down", "delete", "force", "kill",
	}
)

func drawPlan(r *rapid.T) *plan {
	ms := func(label string, least, most int) time.Duration {
		return time.Duration(rapid.IntRange(least, most).Draw(r, label)) * time.Millisecond
	}
	p := &plan{
		TTL:        rapid.SampledFrom([]time.Duration{300 * time.Millisecond, time.Second, 3 * time.Second}).Draw(r, "ttl"),
		Retention:  rapid.SampledFrom([]time.Duration{50 * time.Millisecond, 0, 2 * time.Second}).Draw(r, "retention"),
		Slice:      ms("slice", 0, 20),
		Budget:     rapid.SampledFrom([]int{64, 1, 4}).Draw(r, "budget"),
		Latency:    ms("latency", 0, 20),
		NoTracking: rapid.Bool().Draw(r, "noTracking"),
		NoReceipts: rapid.Bool().Draw(r, "noReceipts"),
		Seed:       rapid.Uint64().Draw(r, "seed"),
		processes:  rapid.IntRange(2, 4).Draw(r, "processes"),
	}
	for range rapid.IntRange(2, 10).Draw(r, "workers") {
		w := worker{Process: rapid.IntRange(0, p.processes-1).Draw(r, "process")}
		for range rapid.IntRange(1, 8).Draw(r, "steps") {
			s := step{
				Key: rapid.IntRange(0, 1).Draw(r, "key"), How: rapid.IntRange(0, 2).Draw(r, "how"),
				Reenter: rapid.Bool().Draw(r, "reenter"), Fair: rapid.Bool().Draw(r, "fair"),
				Pause: ms("pause", 0, 300), Hold: ms("hold", 0, 200),
			}
			s.Shared = s.Key == 1 && rapid.Bool().Draw(r, "shared")
			s.Cached = s.How == 1 && !s.Shared && rapid.Bool().Draw(r, "cached")
			switch rapid.IntRange(0, 4).Draw(r, "special") {
			case 0:
				s.Hold = 2 * p.TTL
			case 1:
				s.MaxHold = ms("maxHold", 1, 300)
			case 2:
				s.Limit = ms("limit", 1, 300)
			}
			w.Steps = append(w.Steps, s)
		}
		p.Workers = append(p.Workers, w)
	}
	for range rapid.IntRange(0, 12).Draw(r, "faults") {
		p.Faults = append(p.Faults, fault{
			At: ms("at", 0, 3000), Lasts: ms("lasts", 0, 2000), What: rapid.SampledFrom(faultKind).Draw(r, "what"),
			Process: rapid.IntRange(0, p.processes-1).Draw(r, "process"),
			Key:     rapid.IntRange(0, 1).Draw(r, "key"), N: rapid.IntRange(1, 5).Draw(r, "n"),
		})
	}
	return p
}

// watchedHold is a hold that is watched over.
type watchedHold struct {
	*Hold
	key    int
	shared bool
	id     string
}

// run lets it all happen, and returns what went wrong first.
func (p *plan) run(t *testing.T) error {
	p.active = make(map[*watchedHold]bool)
	p.start(t)
	defer p.server.Close()
	stop := make(chan struct{})
	var faults, work sync.WaitGroup
	for _, f := range p.Faults {
		faults.Go(func() { p.befall(f) })
	}
	for _, w := range p.Workers {
		work.Go(func() { p.work(w) })
	}
	watched := make(chan struct{})
	go func() { defer close(watched); p.watchOver(stop) }()
	done := make(chan struct{})
	go func() { work.Wait(); close(done) }()
	select {
	case <-done:
	case <-time.After(10 * time.Minute):
		p.fail("a wait does not end: %+v", p.snapshots())
	}
	faults.Wait()
	// What is left ends by itself: leases with their TTL, late copies within 2 s.
	time.Sleep(4*time.Second + 3*p.TTL + p.Retention)
	synctest.Wait()
	close(stop)
	<-watched
	p.checkEmpty()
	for _, c := range p.coordinators {
		ctx, cancel := context.WithTimeout(context.Background(), time.Second)
		_ = c.Close(ctx) // a killed one can't
		cancel()
	}
	<-done
	return p.err
}

func (p *plan) start(t *testing.T) {
	random := rand.New(rand.NewPCG(p.Seed, 1))
	var mu sync.Mutex
	opts := []memlease.Option{memlease.WithLatencyFunc(func(memlease.Leg) time.Duration {
		mu.Lock()
		defer mu.Unlock()
		return time.Duration(random.Int64N(int64(p.Latency) + 1))
	})}
	if p.NoTracking {
		opts = append(opts, memlease.WithoutTracking())
	}
	if p.NoReceipts {
		opts = append(opts, memlease.WithoutReceipts())
	}
	p.server = memlease.NewServer(opts...)
	for range p.processes {
		s := p.server.Store()
		c, err := NewWithStore(s, WithTTL(p.TTL), WithRetention(p.Retention), WithHandoff(p.Budget, p.Slice), WithLogger(quiet))
		require.NoError(t, err)
		p.stores, p.coordinators = append(p.stores, s), append(p.coordinators, c)
		for key, name := range keyNames {
			p.cached = append(p.cached, &handle{c: c, key: name, kind: kindOf(key), conf: mutexConfig{ttl: p.TTL, cached: true}})
		}
	}
}

func (p *plan) snapshots() (all []Snapshot) {
	for _, c := range p.coordinators {
		all = append(all, c.Snapshot())
	}
	return all
}

func (p *plan) fail(format string, args ...any) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.failLocked(format, args...)
}

func (p *plan) failLocked(format string, args ...any) {
	if p.err == nil {
		p.err = fmt.Errorf(format, args...)
	}
}

// checkEmpty finds what is left.
func (p *plan) checkEmpty() {
	for i, c := range p.coordinators {
		if n := c.live.Load(); n != 0 {
			p.fail("process %d still has %d actors: %+v", i, n, c.Snapshot().Keys)
		}
	}
	for _, l := range p.cached {
		if at := l.at.Load(); at != nil && at.denial.Load() != nil {
			p.fail("%s: nobody has it, and a Cached TryLock would be denied: %+v", l.key, at.denial.Load())
		}
	}
	for _, key := range keyNames {
		info, err := p.server.Inspect(key)
		if err != nil || len(info.Holders)+len(info.Waiters) > 0 {
			p.fail("left in the store: %+v, %v", info, err)
		}
	}
}

// kindOf returns what a key of the plan is used as.
func kindOf(key int) lease.Kind { return lease.Mutex + lease.Kind(key) }
