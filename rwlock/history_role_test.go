package rwlock_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"os"
	"runtime/pprof"
	"sync"
	"sync/atomic"
	"time"

	"github.com/redis/rueidis"

	"github.com/go-leasehold/leasehold/coordinator"
	"github.com/go-leasehold/leasehold/internal/faults"
	"github.com/go-leasehold/leasehold/internal/history"
	"github.com/go-leasehold/leasehold/rwlock"
)

func init() { roles["history"] = playHistory }

// historyOrder is what a process of a history is to do.
type historyOrder struct {
	Addr    string
	Record  string // the file to write to
	Process int    // its number
	Seed    uint64
	TTL     time.Duration
	Lanes   int // goroutines
	// Keys is how many there are at a time. All processes go on to new ones now and then, so that the history of one
	// stays short: to the last of them each Period, to each one before it after four times as long. On the first,
	// leases live long enough to be renewed: one goroutine of each process has long holds of it.
	Keys   int
	Period time.Duration
}

// key is the one of that number at this moment.
func (o *historyOrder) key(number int) string {
	return fmt.Sprintf("%d-%d", number, history.Now()/int64(o.Period<<(2*(o.Keys-1-number))))
}

// actors is a process of a history: goroutines that lock at random.
type actors struct {
	order historyOrder
	c     *coordinator.Coordinator
	rec   *history.Recorder
	end   atomic.Bool

	mu    sync.Mutex
	locks map[string]*rwlock.Lock // kept, for readers' short way begins in them
}

func playHistory(args []string) {
	a := &actors{locks: map[string]*rwlock.Lock{}}
	orExit(json.Unmarshal([]byte(args[0]), &a.order))
	file, err := os.Create(a.order.Record)
	orExit(err)
	a.rec = history.NewRecorder(file, a.order.Process)
	a.rec.Refusal, a.rec.Over = mayRefuse, mayEnd
	a.c, err = coordinator.New(
		rueidis.ClientOption{InitAddress: []string{a.order.Addr}, ClientName: historyClient}, a.options()...)
	orExit(err)
	faults.Say("ready")
	var wg sync.WaitGroup
	for i := range a.order.Lanes {
		wg.Go(func() {
			l := newLane(a, i)
			for !a.end.Load() {
				l.visit()
			}
		})
	}
	faults.Hear() // the end
	time.AfterFunc(historyPatience, func() {
		_ = pprof.Lookup("goroutine").WriteTo(os.Stderr, 1) // the parent says it is late, whatever becomes of this
		os.Exit(4)
	})
	a.end.Store(true)
	wg.Wait()
	faults.Say("visited")
	ctx, cancel := context.WithTimeout(context.Background(), historyPatience)
	defer cancel()
	orExit(a.c.Close(ctx))
	orExit(a.rec.Err())
	orExit(file.Close())
	faults.Say("closed %d", a.c.Snapshot().Stats.Passed)
}

func orExit(err error) {
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(3)
	}
}

// mayRefuse says that a call to lock may fail so.
func mayRefuse(err error) bool {
	return errors.Is(err, coordinator.ErrNotAcquired) || errors.Is(err, coordinator.ErrUnavailable) ||
		errors.Is(err, coordinator.ErrUpgrade)
}

// mayEnd says that a hold may end so.
func mayEnd(err error) bool {
	return errors.Is(err, coordinator.ErrLeaseLost) || errors.Is(err, coordinator.ErrHoldExpired)
}

// options are different in each process, as versions of a program are.
func (a *actors) options() []coordinator.Option {
	rnd := rand.New(rand.NewPCG(a.order.Seed, 0))
	opts := []coordinator.Option{
		coordinator.WithTTL(a.order.TTL), coordinator.WithTokenRetention(time.Minute), coordinator.WithUnavailableAfter(0),
		coordinator.WithLogger(slog.New(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: slog.LevelError}))),
		coordinator.WithSharedRetention(oneOf(rnd, 0, 20*time.Millisecond, time.Hour)),
		coordinator.WithRetention(oneOf(rnd, 0, 50*time.Millisecond)),
		coordinator.WithHandoff(oneOf(rnd, 1, 3, 64), oneOf(rnd, time.Millisecond, 5*time.Millisecond)),
	}
	if rnd.IntN(8) == 0 {
		opts = append(opts, coordinator.WithDebug())
	}
	return opts
}

func oneOf[T any](rnd *rand.Rand, from ...T) T { return from[rnd.IntN(len(from))] }

// lock returns a handle on a key: one for all, or sometimes a new one, with a limit now and then.
func (a *actors) lock(rnd *rand.Rand, key string) *rwlock.Lock {
	switch rnd.IntN(20) {
	case 0:
		return rwlock.New(a.c, key)
	case 1:
		return rwlock.New(a.c, key, coordinator.MaxHold(time.Duration(1+rnd.IntN(3000))*time.Microsecond))
	case 2:
		return rwlock.New(a.c, key, coordinator.Fair())
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	l := a.locks[key]
	if l == nil {
		l = rwlock.New(a.c, key)
		a.locks[key] = l
	}
	return l
}

// lane is one goroutine.
type lane struct {
	*history.Lane
	a     *actors
	slow  bool // keeps to the first key
	rnd   *rand.Rand
	owner history.ID      // of calls with ctx
	ctx   context.Context // has an owner
}

func newLane(a *actors, number int) *lane {
	return &lane{
		Lane: a.rec.Lane(number), a: a, slow: number == 0, rnd: rand.New(rand.NewPCG(a.order.Seed, uint64(1+number))),
		owner: a.rec.ID(), ctx: coordinator.WithOwner(context.Background()),
	}
}

// chance is true in so many of a hundred cases.
func (l *lane) chance(percent int) bool { return l.rnd.IntN(100) < percent }

// visit locks, stays and unlocks. The first keys are mostly read, the last mostly written.
func (l *lane) visit() {
	at := 0
	if !l.slow {
		at = 1 + l.rnd.IntN(l.a.order.Keys-1)
	}
	key, mode := l.a.order.key(at), history.Read
	if l.chance(10 + 90*at/l.a.order.Keys) {
		mode = history.Write
	}
	lock := l.a.lock(l.rnd, key)
	ctx, owner := context.Background(), history.ID("")
	if l.chance(20) {
		ctx, owner = l.ctx, l.owner
	}
	if l.chance(30) {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, time.Duration(l.rnd.IntN(4000))*time.Microsecond)
		defer cancel()
	}
	l.enter(ctx, lock, mode, owner, 0)
	if l.chance(30) && !l.slow {
		for range l.rnd.IntN(8) { // reads in a row open the short way
			l.enter(context.Background(), lock, history.Read, "", 0)
		}
	}
}

// enter locks by one of the ways there are. The hold is owner's, if that is not "".
func (l *lane) enter(ctx context.Context, lock *rwlock.Lock, mode history.Mode, owner history.ID, depth int) {
	wait := time.Duration(l.rnd.IntN(5000)) * time.Microsecond
	ways := map[history.Mode][]func() (rwlock.Hold, error){
		history.Read: {
			func() (rwlock.Hold, error) { return lock.RLock(ctx) },
			func() (rwlock.Hold, error) { return lock.TryRLock(ctx) },
			func() (rwlock.Hold, error) { return lock.TryRLockFor(ctx, wait) },
		},
		history.Write: {
			func() (rwlock.Hold, error) { return lock.Lock(ctx) },
			func() (rwlock.Hold, error) { return lock.TryLock(ctx) },
			func() (rwlock.Hold, error) { return lock.TryLockFor(ctx, wait) },
		},
	}[mode]
	way := l.rnd.IntN(5) // the first is the most frequent
	if way == 4 {
		l.do(ctx, lock, mode, owner, depth)
		return
	}
	name := [...]string{"Lock", "TryLock", "TryLockFor", "Lock"}[way]
	way %= 3
	h := l.Lock(lock.Key(), mode, owner, name, func() (history.Hold, error) { return ways[way]() })
	if h != nil {
		l.stay(lock, h, mode, depth)
	}
}

// do locks by Read or Write.
func (l *lane) do(ctx context.Context, lock *rwlock.Lock, mode history.Mode, owner history.ID, depth int) {
	way, name := lock.Read, "Read"
	if mode == history.Write {
		way, name = lock.Write, "Write"
	}
	call, left := history.Now(), int64(0)
	var h *history.Handle
	err := way(ctx, func(ctx context.Context) error {
		h = l.Entered(lock.Key(), mode, owner, name, call, rwlock.Hold{Hold: coordinator.HoldFrom(ctx)})
		l.inside(lock, h, ctx, mode, depth)
		left = history.Now()
		return nil
	})
	if h == nil {
		l.Refused(lock.Key(), mode, name, call, err)
		return
	}
	h.Left(name, left, err)
}

// stay is the time inside, and the end of it.
func (l *lane) stay(lock *rwlock.Lock, h *history.Handle, mode history.Mode, depth int) {
	l.inside(lock, h, nil, mode, depth)
	if mode == history.Write && l.chance(10) {
		l.outlive(lock, h)
		return
	}
	if mode == history.Write && l.chance(30) {
		next := h.Downgrade(func() (history.Hold, error) { return h.Hold.(rwlock.Hold).Downgrade() })
		if next == nil {
			return
		}
		if err := h.Hold.Unlock(); !errors.Is(err, coordinator.ErrNotHeld) {
			l.Odd(lock.Key(), history.Now(), "Unlock after Downgrade of %s: %v", h.ID, err)
		}
		h = next
		l.inside(lock, h, nil, history.Read, depth)
	}
	h.Unlock()
}

// outlive unlocks a write hold whose owner goes on reading, which is a downgrade.
func (l *lane) outlive(lock *rwlock.Lock, h *history.Handle) {
	ctx := h.Hold.(rwlock.Hold).Context()
	r := l.Lock(lock.Key(), history.Read, h.Owner, "RLock", func() (history.Hold, error) { return lock.RLock(ctx) })
	h.Unlock()
	if r != nil {
		l.inside(lock, r, nil, history.Read, 2)
		r.Unlock()
	}
}

// inside is some time in which a hold is asked now and then, and its owner comes in again. ctx is the hold's, or nil.
func (l *lane) inside(lock *rwlock.Lock, h *history.Handle, ctx context.Context, mode history.Mode, depth int) {
	pauses := max(0, l.rnd.IntN(6)-2)
	if l.slow {
		pauses = l.rnd.IntN(12)
	}
	for range pauses {
		l.pause()
		if !h.Valid() && l.chance(50) {
			return
		}
	}
	if depth < 2 && l.chance(15) {
		if ctx == nil {
			ctx = h.Hold.(rwlock.Hold).Context()
		}
		again := history.Read
		if l.chance(30) {
			again = history.Write // of a read hold: it is refused
		}
		l.enter(ctx, lock, again, h.Owner, depth+1)
		if l.chance(50) {
			h.Valid()
		}
	}
}

// pause is mostly short, but for the slow lane.
func (l *lane) pause() {
	switch {
	case !l.slow:
		time.Sleep(time.Duration(l.rnd.IntN(1000)) * time.Microsecond)
	case !l.a.end.Load():
		time.Sleep(l.a.order.TTL * time.Duration(l.rnd.IntN(25)) / 100)
	}
}
