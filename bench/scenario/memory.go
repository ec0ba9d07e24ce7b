package scenario

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/go-leasehold/leasehold/bench/contender"
	"github.com/go-leasehold/leasehold/bench/harness"
	"github.com/go-leasehold/leasehold/bench/result"
)

// memoryTTL is so long that no renewal is under way while memory is read, and that a million locks live until they are all there.
const memoryTTL = 10 * time.Minute

func init() {
	serve("Memory", func(w *harness.Worker) any { return &Memory{worker: w} })
	register(harness.Scenario{
		Name:     "memory-idle",
		Title:    "Memory of keys that are not in use",
		Question: "What is left of a key that was locked once and unlocked?",
		Method: "64 goroutines lock and unlock so many keys, each once. Then, when retention is over, the heap, the goroutines and Redis's memory are compared with those before. " +
			"leasehold keeps a token counter in Redis for an hour.",
		Axis: "keys", Headline: result.HeapPerItem, TTL: memoryTTL, Rounds: 1, Main: "10000",
		Points: sizes,
		Enters: func(info contender.Info, p harness.Point) bool {
			return named(info, "leasehold") || p.X <= 100_000 && remembers(info)
		},
		Round: func(ctx context.Context, c *harness.Cast) (result.Round, error) {
			return footprint(ctx, c, "Memory.Idle")
		},
	})
	register(harness.Scenario{
		Name:     "memory-held",
		Title:    "Memory of held keys",
		Question: "What does a lock take while it is held?",
		Method:   "One process takes so many locks and keeps them. Heap, stacks, goroutines and Redis's memory are compared with those before.",
		Axis:     "keys", Headline: result.HeapPerItem, TTL: memoryTTL, Rounds: 1, Main: "10000",
		Points: sizes,
		Enters: func(info contender.Info, p harness.Point) bool {
			return named(info, "leasehold") || p.X <= 100_000 && remembers(info)
		},
		Round: func(ctx context.Context, c *harness.Cast) (result.Round, error) {
			return footprint(ctx, c, "Memory.Held")
		},
	})
	register(harness.Scenario{
		Name:     "memory-waiter",
		Title:    "Memory of waiting goroutines",
		Question: "What does a goroutine take that waits for a lock, over the goroutine itself?",
		Method: "One process has the key; so many goroutines of another one wait for it. Compared with as many goroutines that wait for a channel or " +
			"the end of their context, with nothing else, which are measured in the same process before. Stacks begin at 2 KiB " +
			"(GODEBUG=adaptivestackstart=0), for Go would else begin the later ones with as much as the earlier ones took.",
		Environment: []string{"GODEBUG=adaptivestackstart=0"},
		Axis:        "waiters", Headline: result.OverPark, TTL: memoryTTL, Rounds: 1, Main: "10000",
		Points: func(full bool) []harness.Point {
			if full {
				return numbers(1_000, 10_000, 100_000, 1_000_000)
			}
			return numbers(10_000)
		},
		Processes: func(harness.Point) int { return 2 },
		Enters: func(info contender.Info, p harness.Point) bool {
			// Those that poll ask Redis for each waiter: with ten thousand it does nothing else.
			return named(info, "leasehold") || p.X <= 10_000 && named(info, "rueidislock", "redislock", "redsync", "textbook", "semaphore")
		},
		Round: waiters,
	})
}

// remembers are peers without their variants, which remember nothing else.
func remembers(info contender.Info) bool { return locks(info) && info.Variant == "" }

func sizes(full bool) []harness.Point {
	if full {
		return numbers(10_000, 100_000, 1_000_000)
	}
	return numbers(10_000)
}

// MemoryArgs is how many keys or waiters there are to be.
type MemoryArgs struct {
	Prefix string
	N      int
}

// Footprint is what a process has more than before.
type Footprint struct{ Heap, Stacks, Goroutines float64 }

func (f Footprint) less(other Footprint) Footprint {
	return Footprint{f.Heap - other.Heap, f.Stacks - other.Stacks, f.Goroutines - other.Goroutines}
}

// Memory is the part of a process.
type Memory struct {
	worker *harness.Worker

	cancel context.CancelFunc // of those who wait, or hold
	done   sync.WaitGroup
	holds  []contender.Hold
}

// taken returns what this process has in use, behind a garbage collection: two, since the first only moves what pools keep.
func taken() Footprint {
	runtime.GC()
	runtime.GC()
	var stats runtime.MemStats
	runtime.ReadMemStats(&stats)
	return Footprint{float64(stats.HeapAlloc), float64(stats.StackInuse), float64(runtime.NumGoroutine())}
}

const (
	memoryGoroutines = 64
	settleFor        = 400 * time.Millisecond // longer than leases are retained
)

// Idle locks and unlocks each key once.
func (m *Memory) Idle(args MemoryArgs, grown *Footprint) error {
	before := taken()
	err := m.each(args, func(_ int, hold contender.Hold) error { return hold.Unlock() })
	time.Sleep(settleFor)
	*grown = taken().less(before)
	return err
}

// Held locks each key and keeps it. Release frees them.
func (m *Memory) Held(args MemoryArgs, grown *Footprint) error {
	m.holds = make([]contender.Hold, args.N)
	before := taken()
	err := m.each(args, func(i int, hold contender.Hold) error {
		m.holds[i] = hold
		return nil
	})
	time.Sleep(settleFor)
	*grown = taken().less(before)
	return err
}

// Release frees what Held took.
func (m *Memory) Release(harness.Nothing, *harness.Nothing) error {
	var next atomic.Int64
	for range memoryGoroutines {
		m.done.Go(func() {
			for i := next.Add(1) - 1; int(i) < len(m.holds); i = next.Add(1) - 1 {
				if m.holds[i] != nil {
					_ = m.holds[i].Unlock() // what matters was measured before
				}
			}
		})
	}
	m.done.Wait()
	m.holds = nil
	return nil
}

// each locks all keys, by several goroutines, and does something with each hold. It fails where a lock does not come in time.
func (m *Memory) each(args MemoryArgs, do func(int, contender.Hold) error) error {
	var next atomic.Int64
	errs := make(chan error, memoryGoroutines)
	for range memoryGoroutines {
		go func() {
			for i := next.Add(1) - 1; int(i) < args.N; i = next.Add(1) - 1 {
				hold, err := m.worker.Process().Mutex(args.Prefix + ":" + strconv.FormatInt(i, 10)).Lock(context.Background())
				if err == nil {
					err = do(int(i), hold)
				}
				if err != nil {
					errs <- err
					return
				}
			}
			errs <- nil
		}()
	}
	// The locks are asked for without a limit: a context that can end would be a part of what a hold takes.
	limit := 20*time.Second + time.Duration(args.N)*100*time.Microsecond
	late := time.After(limit)
	var all []error
	for range memoryGoroutines {
		select {
		case err := <-errs:
			all = append(all, err)
		case <-late:
			return errors.Join(append(all, fmt.Errorf("%d of %d goroutines still wait for a free lock after %v",
				memoryGoroutines-len(all), memoryGoroutines, limit))...)
		}
	}
	return errors.Join(all...)
}

// Park has goroutines wait for a channel or the end of a context, as whoever waits for something does, tells what they
// take, and ends them.
func (m *Memory) Park(n int, grown *Footprint) error {
	before, end := taken(), make(chan struct{})
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	for range n {
		m.done.Go(func() {
			select {
			case <-end:
			case <-ctx.Done():
			}
		})
	}
	time.Sleep(settleFor)
	*grown = taken().less(before)
	close(end)
	m.done.Wait()
	return nil
}

// Wait has goroutines wait for a key that another process has, and tells what they take. They wait until Leave.
func (m *Memory) Wait(args MemoryArgs, grown *Footprint) error {
	before := taken()
	ctx, cancel := context.WithCancel(context.Background())
	m.cancel = cancel
	mutex := m.worker.Process().Mutex(args.Prefix)
	var failed atomic.Int64
	for range args.N {
		m.done.Go(func() {
			hold, err := mutex.Lock(ctx)
			if err == nil {
				_ = hold.Unlock() // it was free, which is told below
			}
			if ctx.Err() == nil {
				failed.Add(1)
			}
		})
	}
	time.Sleep(settleFor + time.Duration(args.N)*2*time.Microsecond)
	*grown = taken().less(before)
	if n := failed.Load(); n > 0 {
		return fmt.Errorf("%d of %d did not wait", n, args.N)
	}
	return nil
}

// Leave ends those who wait.
func (m *Memory) Leave(harness.Nothing, *harness.Nothing) error {
	m.cancel()
	m.done.Wait()
	return nil
}

// footprint has a process use keys, and tells what one takes.
func footprint(ctx context.Context, c *harness.Cast, method string) (result.Round, error) {
	before, err := c.Server.Read(ctx)
	if err != nil {
		return nil, err
	}
	n := int(c.Point.X)
	var grown Footprint
	if err := c.Children[0].Call(ctx, method, MemoryArgs{c.Prefix(), n}, &grown); err != nil {
		return nil, err
	}
	after, err := c.Server.Read(ctx)
	if err != nil {
		return nil, err
	}
	round := per(grown, n)
	round[result.RedisPer] = (after.Memory - before.Memory) / float64(n)
	err = c.Children[0].Call(ctx, "Memory.Release", harness.Nothing{}, &harness.Nothing{})
	return round, errors.Join(err, c.Server.Forget(ctx))
}

func waiters(ctx context.Context, c *harness.Cast) (result.Round, error) {
	n := int(c.Point.X)
	holder, waiter := c.Children[0], c.Children[1]
	if c.Contender.Kind == contender.Limit { // which knows of one process
		holder = waiter
	}
	var parked, waiting Footprint
	if err := waiter.Call(ctx, "Memory.Park", n, &parked); err != nil {
		return nil, err
	}
	key := c.Key(0)
	if err := holder.Call(ctx, "Worker.Hold", key, &harness.Nothing{}); err != nil {
		return nil, err
	}
	if err := waiter.Call(ctx, "Memory.Wait", MemoryArgs{key, n}, &waiting); err != nil {
		return nil, err
	}
	round := per(waiting, n)
	round[result.OverPark] = (waiting.Heap + waiting.Stacks - parked.Heap - parked.Stacks) / float64(n)
	err := waiter.Call(ctx, "Memory.Leave", harness.Nothing{}, &harness.Nothing{})
	return round, errors.Join(err, holder.Call(ctx, "Worker.Release", key, &harness.Nothing{}))
}

// per is what one of n takes.
func per(f Footprint, n int) result.Round {
	return result.Round{
		result.HeapPerItem: f.Heap / float64(n), result.StackPer: f.Stacks / float64(n), result.Goroutines: f.Goroutines / float64(n),
	}
}
