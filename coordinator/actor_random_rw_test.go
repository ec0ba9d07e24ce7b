package coordinator

import (
	"context"
	"errors"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/go-leasehold/leasehold/lease"
	"github.com/go-leasehold/leasehold/lease/memlease"
)

// TestRandomReadersAndWritersUnderFaults is TestRandomLoadUnderFaults for one
// read/write lock: reads in rows that open the gate, contexts that make ordinary
// holds of them, re-entry, and downgrades of every kind.
func TestRandomReadersAndWritersUnderFaults(t *testing.T) {
	manyRuns(t, "50")
	rapid.Check(t, func(r *rapid.T) { drawRWPlan(r, true).check(r, t) })
}

// TestRandomReadersAndWritersForgetNobody has leases of an hour and no faults, so
// that whoever is not told of its turn waits for a third of that.
func TestRandomReadersAndWritersForgetNobody(t *testing.T) {
	manyRuns(t, "50")
	rapid.Check(t, func(r *rapid.T) { drawRWPlan(r, false).check(r, t) })
}

// rwPlan is everything that happens in one run to the key keyNames[1].
type rwPlan struct {
	plan
	SharedRetention time.Duration
	Crew            []rwWorker
	longest         time.Duration // that a run without faults may take
	writes          int           // guarded by mu, like the next
	seen            map[string]map[uint64]int
}

// rwWorker is a goroutine of a process, with a handle of its own.
type rwWorker struct {
	Process int
	MaxHold time.Duration
	Fair    bool
	Steps   []rwStep
}

// rwStep is what it does next.
type rwStep struct {
	What        string
	How, N      int
	Pause, Hold time.Duration
	Limit       time.Duration // of the wait; 0: none
	Ask         bool          // for the hold's context
	Twice       bool          // Unlock, by two at once
}

var rwSteps = []string{
	"reads", "reads", "read", "read and enter again", "read and try to write",
	"write", "downgrade", "write twice, downgrade one", "unlock the write first", "Read", "Write",
}

func drawRWPlan(r *rapid.T, faults bool) *rwPlan {
	ms := func(label string, least, most int) time.Duration {
		return time.Duration(rapid.IntRange(least, most).Draw(r, label)) * time.Millisecond
	}
	keep := []time.Duration{50 * time.Millisecond, 0, time.Millisecond, 2 * time.Second}
	p := &rwPlan{}
	p.TTL = rapid.SampledFrom([]time.Duration{300 * time.Millisecond, time.Second, 3 * time.Second}).Draw(r, "ttl")
	p.Retention = rapid.SampledFrom(keep).Draw(r, "retention")
	p.SharedRetention = rapid.SampledFrom(keep).Draw(r, "sharedRetention")
	p.Slice = ms("slice", 0, 20)
	p.Budget = rapid.SampledFrom([]int{64, 1, 4}).Draw(r, "budget")
	p.Latency = ms("latency", 0, 20)
	p.NoTracking, p.NoReceipts = rapid.Bool().Draw(r, "noTracking"), rapid.Bool().Draw(r, "noReceipts")
	p.Seed = rapid.Uint64().Draw(r, "seed")
	p.processes = rapid.IntRange(1, 4).Draw(r, "processes")
	p.longest = 30 * time.Second
	for range rapid.IntRange(2, 10).Draw(r, "workers") {
		w := rwWorker{Process: rapid.IntRange(0, p.processes-1).Draw(r, "process"), Fair: rapid.Bool().Draw(r, "fair")}
		if rapid.IntRange(0, 4).Draw(r, "limited") == 0 {
			w.MaxHold = ms("maxHold", 1, 300)
		}
		for range rapid.IntRange(1, 8).Draw(r, "steps") {
			s := rwStep{
				What: rapid.SampledFrom(rwSteps).Draw(r, "what"), How: rapid.IntRange(0, 2).Draw(r, "how"),
				N:     rapid.IntRange(1, 12).Draw(r, "n"),
				Pause: ms("pause", 0, 300), Hold: ms("hold", 0, 200),
				Ask: rapid.Bool().Draw(r, "ask"), Twice: rapid.Bool().Draw(r, "twice"),
			}
			switch rapid.IntRange(0, 4).Draw(r, "special") {
			case 0:
				s.Hold = 2 * p.TTL
			case 1:
				s.Hold = 0
			case 2:
				s.Limit = ms("limit", 1, 300)
			}
			p.longest += s.Pause + 2*s.Hold + time.Second
			w.Steps = append(w.Steps, s)
		}
		p.Crew = append(p.Crew, w)
	}
	if !faults {
		p.TTL = time.Hour
		return p
	}
	for range rapid.IntRange(0, 12).Draw(r, "faults") {
		p.Faults = append(p.Faults, fault{
			At: ms("at", 0, 3000), Lasts: ms("lasts", 0, 2000), What: rapid.SampledFrom(faultKind).Draw(r, "what"),
			Process: rapid.IntRange(0, p.processes-1).Draw(r, "process"), Key: 1, N: rapid.IntRange(1, 5).Draw(r, "n"),
		})
	}
	return p
}

func (p *rwPlan) check(r *rapid.T, t *testing.T) {
	var err error
	synctest.Test(t, func(t *testing.T) { err = p.run(t) })
	if err != nil {
		r.Fatalf("%v\nshared retention %v, crew %+v\n%+v", err, p.SharedRetention, p.Crew, &p.plan)
	}
}

// run lets it all happen, and returns what went wrong first.
func (p *rwPlan) run(t *testing.T) error {
	p.active, p.seen = make(map[*watchedHold]bool), make(map[string]map[uint64]int)
	p.start(t)
	defer p.server.Close()
	stop, begin := make(chan struct{}), time.Now()
	var faults, work sync.WaitGroup
	for _, f := range p.Faults {
		faults.Go(func() { p.befall(f) })
	}
	for _, w := range p.Crew {
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
	if took := time.Since(begin); len(p.Faults) == 0 && took > p.longest {
		p.fail("it took %v, and should have taken %v at most", took, p.longest)
	}
	faults.Wait()
	if len(p.Faults) > 0 {
		time.Sleep(time.Minute) // a process that was killed gives up one ticket after the other
	}
	time.Sleep(4*time.Second + 2*max(p.Retention, p.SharedRetention))
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

func (p *rwPlan) start(t *testing.T) {
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
		c, err := NewWithStore(s, WithTTL(p.TTL), WithRetention(p.Retention), WithSharedRetention(p.SharedRetention),
			WithHandoff(p.Budget, p.Slice), WithLogger(quiet), WithTokenRetention(2*time.Hour))
		require.NoError(t, err)
		p.stores, p.coordinators = append(p.stores, s), append(p.coordinators, c)
	}
}

// work takes a worker's steps.
func (p *rwPlan) work(w rwWorker) {
	c := p.coordinators[w.Process]
	var opts []MutexOption
	if w.MaxHold > 0 {
		opts = append(opts, MaxHold(w.MaxHold))
	}
	if w.Fair {
		opts = append(opts, Fair())
	}
	l := c.ReadWrite(keyNames[1], opts...)
	for _, s := range w.Steps {
		time.Sleep(s.Pause)
		ctx, cancel := context.WithCancel(context.Background())
		if s.Limit > 0 {
			time.AfterFunc(s.Limit, cancel)
		}
		p.step(ctx, l, s)
		cancel()
	}
}

// step takes one.
func (p *rwPlan) step(ctx context.Context, l *ReadWrite, s rwStep) {
	n, mode := 1, lease.Exclusive
	switch s.What {
	case "reads":
		n, mode, s.Hold = s.N, lease.Shared, 0
	case "read", "read and enter again", "read and try to write":
		mode = lease.Shared
	case "Read", "Write":
		if s.What == "Read" {
			mode = lease.Shared
		}
		p.do(ctx, l, mode, s)
		return
	}
	for range n {
		h, err := p.lock(ctx, l, mode, s)
		if err != nil {
			p.refused(err)
			continue
		}
		p.inside(l, h, mode, s)
	}
}

func (p *rwPlan) lock(ctx context.Context, l *ReadWrite, mode lease.Mode, s rwStep) (*Hold, error) {
	switch {
	case s.How == 1:
		return l.TryLock(ctx, mode)
	case s.How == 2 && s.Limit > 0:
		return l.TryLockFor(context.WithoutCancel(ctx), mode, s.Limit)
	}
	return l.Lock(ctx, mode)
}

// refused checks the error of a call.
func (p *rwPlan) refused(err error) {
	var w *WaitError
	if !errors.As(err, &w) || !errors.Is(err, ErrNotAcquired) && !errors.Is(err, ErrUnavailable) {
		p.fail("Lock: %v", err)
	}
}

// do reads or writes with a function.
func (p *rwPlan) do(ctx context.Context, l *ReadWrite, mode lease.Mode, s rwStep) {
	called := false
	err := l.Do(ctx, mode, func(ctx context.Context) error {
		called = true
		h := HoldFrom(ctx)
		x := p.in(h, l, mode)
		if s.Ask {
			select {
			case <-ctx.Done():
			case <-time.After(s.Hold):
			}
		} else {
			time.Sleep(s.Hold)
		}
		p.out(x)
		return nil
	})
	switch {
	case !called:
		p.refused(err)
	case err != nil && !errors.Is(err, ErrLeaseLost) && !errors.Is(err, ErrHoldExpired):
		p.fail("Do: %v", err)
	}
}

// in notes a hold that was granted, and checks it against all before it.
func (p *rwPlan) in(h *Hold, l *ReadWrite, mode lease.Mode) *watchedHold {
	x := p.note(h, l, mode)
	p.mu.Lock()
	defer p.mu.Unlock()
	token, least := x.Token(), p.newestExclusive[1] // reads may have the token of the write before them
	if mode == lease.Exclusive {
		p.writes++
		least = p.newestAll[1] + 1
		p.newestExclusive[1] = max(p.newestExclusive[1], token)
	}
	p.newestAll[1] = max(p.newestAll[1], token)
	if token < least && p.counted() {
		p.failLocked("%v: token %d, and at least %d is due", mode, token, least)
	}
	p.compare(x)
	return x
}

// note has a hold watched over.
func (p *rwPlan) note(h *Hold, l *ReadWrite, mode lease.Mode) *watchedHold {
	x := &watchedHold{Hold: h, key: 1, shared: mode == lease.Shared, id: l.c.ID()}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.active[x] = true
	p.exclusion()
	return x
}

// counted says whether tokens tell what has been. A lease that was taken away may
// be made again by a late copy of its own acquire, after others have written.
func (p *rwPlan) counted() bool {
	return p.undisturbed(1) && (p.outside[1].IsZero() || !slices.ContainsFunc(p.Faults, func(f fault) bool {
		return strings.HasPrefix(f.What, "late copy")
	}))
}

// compare checks that two holds of a process have the same token only if nobody
// wrote in between.
func (p *rwPlan) compare(x *watchedHold) {
	if !p.counted() {
		clear(p.seen) // who does not know yet that it has lost the key may write
		return
	}
	if !x.Valid() {
		return
	}
	seen := p.seen[x.id]
	if seen == nil {
		seen = make(map[uint64]int)
		p.seen[x.id] = seen
	}
	if n, ok := seen[x.Token()]; ok && n != p.writes {
		p.failLocked("token %d was seen after %d writes, and again after %d", x.Token(), n, p.writes)
	}
	seen[x.Token()] = p.writes
}

// out forgets a hold.
func (p *rwPlan) out(x *watchedHold) {
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.active, x)
}
