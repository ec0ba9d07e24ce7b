package harness

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/HdrHistogram/hdrhistogram-go"

	"github.com/go-leasehold/leasehold/bench/contender"
)

// Action is what the goroutines of a load do, again and again.
type Action string

// The actions.
const (
	Lock Action = "lock" // Lock and Unlock
	Try  Action = "try"  // TryLock, and Unlock where it was got
	Read Action = "read" // RLock or, by LoadArgs.Reads, Lock, of a read/write lock
	Sell Action = "sell" // one unit
	Deny Action = "deny" // one unit of what is sold out
)

// LoadArgs is a load that one process makes.
type LoadArgs struct {
	Action     Action
	Goroutines int
	Prefix     string        // of keys
	Keys       int           // how many there are; 0 and 1: one
	Zipf       float64       // above 1: the first ones are chosen more often, by this exponent. 0: all alike
	Fresh      bool          // each operation has another key, which nobody had before
	Reads      int           // percent of reads
	Work       time.Duration // how long a lock is held, asleep
	Pause      time.Duration // between an operation and the next one
	Segments   int           // a lock is one of so many, chosen by the goroutine's name. 0: it is not segmented
	Units      int64         // of stock, that there are
	IDs        bool          // orders have IDs
	Start      time.Time     // when the goroutines begin
	Warm, For  time.Duration // how long they run before it counts, and how long it does
	Longer     int           // times as long as the plan says. 0: once
}

// Tally is what one process measured of a load.
type Tally struct {
	Counts     []int64 // operations of each goroutine
	Waits      *hdrhistogram.Snapshot
	Sent       float64       // commands
	CPU        float64       // microseconds
	Took       time.Duration // that was counted
	Violations int64
	Errors     int64
	FirstError string
}

const (
	// A wait is told to two digits, in nanoseconds, up to a minute; longer ones count as a minute.
	waitMax    = int64(time.Minute)
	waitDigits = 2
	// Of each goroutine that many operations are timed, and then one in so many. Reading the clock would be a good part of
	// what the quickest take.
	timedAtFirst = 64
	timedOneIn   = 16
	// drainFor is how long calls may take to come back once their context has ended.
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

	mu    sync.Mutex
	tally Tally                   // guarded by mu, as is waits
	waits *hdrhistogram.Histogram //
}

// Load runs a load to its end.
func (w *Worker) Load(args LoadArgs, tally *Tally) error {
	l := &load{
		worker: w, args: args, process: w.process, guarded: w.excludes,
		waits: hdrhistogram.New(1, waitMax, waitDigits),
	}
	l.tally.Counts = make([]int64, args.Goroutines)
	if err := l.prepare(); err != nil {
		return err
	}
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	time.Sleep(time.Until(args.Start))
	var wg sync.WaitGroup
	for i := range args.Goroutines {
		wg.Go(func() { l.goroutine(ctx, i) })
	}
	time.Sleep(time.Until(args.Start.Add(args.Warm)))
	w.guard.Take()
	sent, cpu, began := w.wire.Commands.Load(), cpuTime(), time.Now()
	l.phase.Store(counting)
	time.Sleep(time.Until(args.Start.Add(args.Warm + args.For)))
	l.phase.Store(over)
	l.tally.Took = time.Since(began)
	l.tally.Sent, l.tally.CPU = float64(w.wire.Commands.Load()-sent), cpuTime()-cpu
	cancel()
	if err := waitFor(&wg, drainFor); err != nil {
		return fmt.Errorf("%s: %w", w.info.Name, err)
	}
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

	counts bool          // it got its turn while it counted
	waited time.Duration // where it is timed
}

// granted notes that what was asked for is there.
func (l *load) granted(t *turn) {
	t.counts = l.phase.Load() == counting
	if !t.asked.IsZero() {
		t.waited = time.Since(t.asked)
	}
}

// goroutine does it again and again.
func (l *load) goroutine(ctx context.Context, number int) {
	random := rand.New(rand.NewPCG(uint64(number), uint64(l.worker.number)))
	choose := l.chooser(random)
	waits := hdrhistogram.New(1, waitMax, waitDigits)
	counted, timed := int64(0), 0
	for done := 0; l.phase.Load() != over; done++ {
		t := turn{goroutine: number, number: done, slot: choose()}
		if l.args.Action == Read {
			t.isRead = random.IntN(100) < l.args.Reads
		}
		if timed < timedAtFirst || done%timedOneIn == 0 {
			t.asked = time.Now()
		}
		err := l.once(ctx, &t)
		if l.args.Pause > 0 {
			time.Sleep(l.args.Pause)
		}
		switch {
		case err == nil && t.counts:
			counted++
			if !t.asked.IsZero() {
				timed++
				_ = waits.RecordValue(min(int64(t.waited), waitMax)) // within its limits
			}
		case err != nil && ctx.Err() == nil:
			l.failed(err)
		case err != nil && !t.asked.IsZero():
			// It never got its turn: it has waited for as long as this, at least.
			_ = waits.RecordValue(min(int64(time.Since(t.asked)), waitMax)) // within its limits
		}
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.tally.Counts[number] = counted
	l.waits.Merge(waits)
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
