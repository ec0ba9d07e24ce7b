package harness

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"runtime"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/HdrHistogram/hdrhistogram-go"

	"github.com/go-leasehold/leasehold/bench/contender"
)

const (
	// A wait is told to two digits, in nanoseconds, up to a minute; longer ones count as a minute.
	waitMax    = int64(time.Minute)
	waitDigits = 2
	// Of each goroutine that many operations are timed, and then one in so many, which stands for them all: reading the
	// clock would be a good part of what the quickest take. Which one is left to chance, for locks have rhythms of their
	// own: a lease may be passed on after each 64 grants. So the longest wait is the longest of those that were timed.
	timedAtFirst = 64
	timedOneIn   = 16
	// drainFor is Window.Drain.
	drainFor = 10 * time.Second
)

// keptMutexes is for how many keys a program would keep the handles. For more, each operation makes one.
const keptMutexes = 1024

// mutex returns the handle of a key.
func (l *load) mutex(slot int) contender.Mutex {
	if slot < len(l.mutexes) {
		return l.mutexes[slot]
	}
	return l.process.Mutex(l.keys[slot])
}

// The phases of a load.
const (
	warming int32 = iota
	counting
	cooling
	over
)

// load is a load that runs.
type load struct {
	worker   *Worker
	args     LoadArgs
	phase    atomic.Int32
	process  contender.Process
	stock    contender.Stock
	segments contender.Segments
	guarded  bool
	keys     []string
	mutexes  []contender.Mutex // of keys, where there are few
	ended    time.Time         // what counts; written before the phase is cooling

	mu    sync.Mutex
	tally Tally                   // guarded by mu, as is waits
	waits *hdrhistogram.Histogram //
}

// Prepare makes ready for Load, so that this is no part of it.
func (w *Worker) Prepare(args LoadArgs, _ *Nothing) error {
	if args.Goroutines < 1 {
		return fmt.Errorf("a load of %d goroutines: there has to be one", args.Goroutines)
	}
	if most := GuardSlots - Counters; args.Keys > most {
		return fmt.Errorf("a load of %d keys: %d are the most that can be guarded", args.Keys, most)
	}
	l := &load{
		worker: w, args: args, process: w.process, guarded: w.excludes,
		waits: hdrhistogram.New(1, waitMax, waitDigits), tally: Tally{Counts: make([]int64, args.Goroutines)},
	}
	w.load = nil
	if err := l.prepare(); err != nil {
		return err
	}
	w.load = l
	w.guard.Take() // of who came before
	runtime.GC()
	return nil
}

// Load runs what Prepare made ready to its end.
func (w *Worker) Load(window Window, tally *Tally) error {
	l := w.load
	if l == nil {
		return errors.New("there is no load: Prepare makes one ready")
	}
	w.load = nil
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	time.Sleep(time.Until(window.Start))
	var wg sync.WaitGroup
	for i := range l.args.Goroutines {
		wg.Go(func() { l.goroutine(ctx, i) })
	}
	time.Sleep(time.Until(window.Start.Add(window.Warm)))
	sent, cpu, began := w.wire.Commands.Load(), cpuTime(), time.Now()
	l.phase.Store(counting)
	time.Sleep(time.Until(window.Start.Add(window.Warm + window.For)))
	l.ended = time.Now()
	l.phase.Store(cooling)
	took := l.ended.Sub(began)
	sent, cpu = w.wire.Commands.Load()-sent, cpuTime()-cpu
	time.Sleep(window.Tail)
	l.phase.Store(over)
	cancel()
	if err := waitFor(&wg, window.Drain); err != nil {
		return fmt.Errorf("%s: %w", w.info.Name, err)
	}
	l.tally.Took, l.tally.Sent, l.tally.CPU = took, float64(sent), cpu
	l.tally.Violations = w.guard.Take()
	l.tally.Waits = l.waits.Export()
	*tally = l.tally
	return nil
}

// waitFor waits for goroutines, but not for ever: a lock that does not heed its context must not hang a run.
func waitFor(wg *sync.WaitGroup, limit time.Duration) error {
	done := make(chan struct{})
	go func() { wg.Wait(); close(done) }() // ends with the process where it hangs
	select {
	case <-done:
		return nil
	case <-time.After(limit):
		return fmt.Errorf("calls did not come back within %v after their context had ended", limit)
	}
}

// keyOf is the name of a key of a load.
func keyOf(prefix string, number int) string { return prefix + ":" + strconv.Itoa(number) }

func (l *load) prepare() error {
	l.keys = make([]string, max(1, l.args.Keys))
	for i := range l.keys {
		l.keys[i] = keyOf(l.args.Prefix, i)
	}
	if len(l.keys) <= keptMutexes {
		for _, key := range l.keys {
			l.mutexes = append(l.mutexes, l.process.Mutex(key))
		}
	}
	if l.args.Segments > 0 {
		segmenter, ok := l.process.(contender.Segmenter)
		if !ok {
			return fmt.Errorf("%s has no segmented locks", l.worker.info.Name)
		}
		var err error
		l.segments, err = segmenter.Segments(l.args.Prefix, l.args.Segments)
		return err
	}
	if l.args.Action != Sell && l.args.Action != Deny {
		return nil
	}
	seller, ok := l.process.(contender.Seller)
	if !ok {
		return fmt.Errorf("%s sells no stock", l.worker.info.Name)
	}
	var err error
	l.stock, err = seller.Stock(context.Background(), l.args.Prefix, l.args.Units)
	return err
}

// turn is one operation: what it is for, and what came of it.
type turn struct {
	goroutine, number int
	slot              int       // of the key
	isRead            bool      // of a read/write lock
	asked             time.Time // zero where it is not timed

	weight int64 // of how many its time stands for

	phase  int32         // in which it got its turn; over where it got none
	waited time.Duration // where it is timed
}

// granted notes that what was asked for is there.
func (l *load) granted(t *turn) {
	t.phase = l.phase.Load()
	if !t.asked.IsZero() {
		t.waited = time.Since(t.asked)
	}
}

// goroutine does it again and again.
func (l *load) goroutine(ctx context.Context, number int) {
	random := rand.New(rand.NewPCG(uint64(number), uint64(l.worker.number)))
	choose := l.chooser(random)
	waits := hdrhistogram.New(1, waitMax, waitDigits)
	counted, timed, next := int64(0), 0, 0
	for done := 0; l.phase.Load() != over; done++ {
		t := turn{goroutine: number, number: done, slot: choose(), weight: 1, phase: over}
		if l.args.Action == Read {
			t.isRead = random.IntN(100) < l.args.Reads
		}
		switch {
		case timed < timedAtFirst:
			t.asked = time.Now()
		case done >= next:
			t.asked, t.weight = time.Now(), timedOneIn
			next = done + 1 + random.IntN(2*timedOneIn-1)
		}
		err := l.once(ctx, &t)
		switch {
		case err != nil && ctx.Err() == nil:
			l.failed(err)
		case t.phase == counting:
			counted++
			if !t.asked.IsZero() {
				timed++
				record(waits, t.waited, t.weight)
			}
		case t.phase != warming && !t.asked.IsZero() && t.asked.Before(l.ended):
			// It had no turn when it was over: it has waited for as long as this, at least.
			record(waits, l.ended.Sub(t.asked), t.weight)
		}
		if l.args.Pause > 0 {
			pauseUntil(ctx, time.Now().Add(l.args.Pause))
		}
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.tally.Counts[number] = counted
	l.waits.Merge(waits)
}

func record(waits *hdrhistogram.Histogram, waited time.Duration, weight int64) {
	_ = waits.RecordValues(min(int64(waited), waitMax), weight) // within its limits
}

// chooser returns what chooses a key for each operation.
func (l *load) chooser(random *rand.Rand) func() int {
	n := len(l.keys)
	switch {
	case n == 1:
		return func() int { return 0 }
	case l.args.Zipf > 1:
		zipf := rand.NewZipf(random, l.args.Zipf, 1, uint64(n-1))
		return func() int { return int(zipf.Uint64()) }
	default:
		return func() int { return random.IntN(n) }
	}
}

// once does it once.
func (l *load) once(ctx context.Context, t *turn) error {
	switch l.args.Action {
	case Sell, Deny:
		return l.sell(ctx, t)
	case Read:
		return l.read(ctx, t)
	case Try:
		return l.try(ctx, t)
	default:
		return l.lock(ctx, t)
	}
}

func (l *load) lock(ctx context.Context, t *turn) error {
	var mutex contender.Mutex
	guarded := l.guarded
	switch {
	case l.args.Fresh: // nobody else knows the key
		key := l.keys[t.slot] + ":" + strconv.Itoa(l.worker.number) + ":" + strconv.Itoa(t.goroutine) + ":" + strconv.Itoa(t.number)
		mutex, guarded = l.process.Mutex(key), false
	case l.segments != nil: // which lock it is, is not known here
		mutex, guarded = l.segments.Mutex("user-"+strconv.Itoa(t.goroutine)), false
	default:
		mutex = l.mutex(t.slot)
	}
	hold, err := mutex.Lock(ctx)
	if err != nil {
		return err
	}
	l.granted(t)
	return l.inside(hold, t, guarded, l.worker.guard.Enter, l.worker.guard.Leave)
}

// inside is what is done under a lock.
func (l *load) inside(hold contender.Hold, t *turn, guarded bool, enter, leave func(int)) error {
	if guarded {
		enter(t.slot)
	}
	if l.args.Work > 0 {
		time.Sleep(l.args.Work)
	}
	if guarded {
		leave(t.slot)
	}
	return hold.Unlock()
}

func (l *load) try(ctx context.Context, t *turn) error {
	mutex, ok := l.mutex(t.slot).(contender.TryMutex)
	if !ok {
		return fmt.Errorf("%s has no TryLock", l.worker.info.Name)
	}
	hold, err := mutex.TryLock(ctx)
	if errors.Is(err, contender.ErrHeld) {
		l.granted(t) // the answer is what is measured
		return nil
	}
	if err != nil {
		return err
	}
	l.granted(t)
	if l.args.Taken {
		l.worker.guard.violations.Add(1)
	}
	return l.inside(hold, t, l.guarded, l.worker.guard.Enter, l.worker.guard.Leave)
}

func (l *load) read(ctx context.Context, t *turn) error {
	reader, ok := l.process.(contender.Reader)
	if !ok {
		return fmt.Errorf("%s has no read/write lock", l.worker.info.Name)
	}
	lock, guard := reader.RW(l.keys[t.slot]), l.worker.guard
	if t.isRead {
		hold, err := lock.RLock(ctx)
		if err != nil {
			return err
		}
		l.granted(t)
		return l.inside(hold, t, l.guarded, guard.EnterShared, guard.LeaveShared)
	}
	hold, err := lock.Lock(ctx)
	if err != nil {
		return err
	}
	l.granted(t)
	return l.inside(hold, t, l.guarded, guard.Enter, guard.Leave)
}

func (l *load) sell(ctx context.Context, t *turn) error {
	id := ""
	if l.args.IDs {
		id = strconv.Itoa(l.worker.number) + "-" + strconv.Itoa(t.goroutine) + "-" + strconv.Itoa(t.number)
	}
	sold, err := l.stock.Sell(ctx, id)
	if err == nil && sold == (l.args.Action == Deny) {
		err = fmt.Errorf("sold: %v, of a stock of %d units", sold, l.args.Units)
	}
	if err != nil {
		return err
	}
	l.granted(t)
	return nil
}

func (l *load) failed(err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.tally.Errors++
	if l.tally.FirstError == "" {
		l.tally.FirstError = err.Error()
	}
}
