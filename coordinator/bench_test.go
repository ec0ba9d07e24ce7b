package coordinator

import (
	"context"
	"fmt"
	"os"
	"runtime"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/rueidis"
	"github.com/stretchr/testify/require"
	"golang.org/x/sync/semaphore"

	"github.com/go-leasehold/leasehold/internal/redistest"
)

// The benchmarks tell ratios of what is measured side by side in one run, round
// by round, for no absolute time means anything on a shared machine. An
// iteration is a round; -benchtime 20x makes twenty. The median of the rounds is
// reported, and the spread with -v.

// duel runs two contenders in turn, each for a round of n operations, and
// reports how often the first's time goes into the second's.
func duel(b *testing.B, n int, unit string, first, second func(n int)) {
	first(n) // warm
	second(n)
	var ratios, ours, theirs []float64
	for b.Loop() {
		t := time.Now()
		first(n)
		one := time.Since(t)
		t = time.Now()
		second(n)
		two := time.Since(t)
		ratios = append(ratios, float64(one)/float64(two))
		ours = append(ours, float64(one.Nanoseconds())/float64(n))
		theirs = append(theirs, float64(two.Nanoseconds())/float64(n))
	}
	b.ReportMetric(0, "ns/op")
	b.ReportMetric(mid(ours), "ns/ours")
	b.ReportMetric(mid(theirs), "ns/theirs")
	b.ReportMetric(mid(ratios), unit)
	b.Logf("ratios %.2f to %.2f in %d rounds", slices.Min(ratios), slices.Max(ratios), len(ratios))
}

func mid(v []float64) float64 {
	v = slices.Clone(v)
	slices.Sort(v)
	return v[len(v)/2]
}

// crowd runs once n times, divided over goroutines.
func crowd(goroutines int, once func()) func(n int) {
	return func(n int) {
		var wg sync.WaitGroup
		for range goroutines {
			wg.Go(func() {
				for range n / goroutines {
					once()
				}
			})
		}
		wg.Wait()
	}
}

// BenchmarkContended is 64 goroutines on one key in one process, beside an
// in-process semaphore used the same way: time as a multiple of its time (the
// floor of 0.9 of its throughput is 1.11).
func BenchmarkContended(b *testing.B) {
	ctx := context.Background()
	m := redisProcess(b, redistest.Start(b)).Mutex("k")
	s := semaphore.NewWeighted(1)
	duel(b, 500_000, "x-semaphore", crowd(64, func() {
		h, err := m.Lock(ctx)
		if err != nil {
			b.Error(err)
			return
		}
		_ = h.Unlock()
	}), crowd(64, func() {
		_ = s.Acquire(ctx, 1)
		s.Release(1)
	}))
}

// BenchmarkRelock is one goroutine locking a retained key again and again,
// beside a look-up in a sync.Map and a semaphore: at most 4 times that.
func BenchmarkRelock(b *testing.B) {
	ctx := context.Background()
	m := redisProcess(b, redistest.Start(b)).Mutex("k")
	var table sync.Map
	table.Store("k", semaphore.NewWeighted(1))
	relock := func() {
		h, err := m.Lock(ctx)
		if err != nil {
			b.Fatal(err)
		}
		_ = h.Unlock()
	}
	duel(b, 1_000_000, "x-map+semaphore", crowd(1, relock), crowd(1, func() {
		v, _ := table.Load("k")
		s := v.(*semaphore.Weighted)
		_ = s.Acquire(ctx, 1)
		s.Release(1)
	}))
	b.ReportMetric(testing.AllocsPerRun(1000, relock), "allocs/lock")
}

// BenchmarkShared is 4 coordinators with 16 goroutines each on one key, for a
// second a round: Redis commands executed per lock, those inside scripts
// counted, and the slowest coordinator's share of the fastest's.
func BenchmarkShared(b *testing.B) {
	s := redistest.Start(b)
	var processes []*Coordinator
	for range 4 {
		processes = append(processes, redisProcess(b, s))
	}
	var commands, shares, rates []float64
	for b.Loop() {
		counts := make([]atomic.Int64, len(processes))
		before := s.Commands()
		end := time.Now().Add(time.Second)
		var wg sync.WaitGroup
		for i, c := range processes {
			for range 16 {
				wg.Go(func() {
					m := c.Mutex("k")
					for time.Now().Before(end) {
						h, err := m.Lock(context.Background())
						if err != nil {
							b.Error(err)
							return
						}
						counts[i].Add(1)
						_ = h.Unlock()
					}
				})
			}
		}
		wg.Wait()
		total, least, most := int64(0), counts[0].Load(), int64(0)
		for i := range counts {
			n := counts[i].Load()
			total, least, most = total+n, min(least, n), max(most, n)
		}
		commands = append(commands, float64(s.Commands()-before)/float64(total))
		shares = append(shares, float64(least)/float64(most))
		rates = append(rates, float64(total))
	}
	b.ReportMetric(0, "ns/op")
	b.ReportMetric(mid(rates), "locks/s")
	b.ReportMetric(mid(commands), "commands/lock")
	b.ReportMetric(mid(shares), "slowest/fastest")
}

// BenchmarkHandoff is the time from Unlock in one process to the end of Lock in
// another, beside that of a PING sent after the same idle time; and beside the
// floor, which is the time from sending a script that does nothing but publish
// to another client's hearing of it: no hand-off by a script and a message can
// be quicker.
func BenchmarkHandoff(b *testing.B) {
	for _, idle := range []time.Duration{time.Millisecond, 5 * time.Millisecond, 20 * time.Millisecond} {
		b.Run("idle="+idle.String(), func(b *testing.B) { handoffs(b, idle) })
	}
}

func handoffs(b *testing.B, idle time.Duration) {
	ctx := context.Background()
	s := redistest.Start(b)
	holder, waiter, client := redisProcess(b, s), redisProcess(b, s), s.Client(b)
	floor := publishing(b, s)
	var passes, pings, floors []float64
	held, err := holder.Mutex("k").Lock(ctx)
	require.NoError(b, err)
	for b.Loop() {
		got, granted := make(chan *Hold, 1), time.Time{}
		go func() {
			h, err := waiter.Mutex("k").Lock(ctx)
			granted = time.Now()
			if err != nil {
				b.Error(err)
			}
			got <- h
		}()
		time.Sleep(idle)
		start := time.Now()
		_ = held.Unlock()
		held = <-got
		passes = append(passes, float64(granted.Sub(start).Microseconds()))
		holder, waiter = waiter, holder

		time.Sleep(idle)
		start = time.Now()
		if err := client.Do(ctx, client.B().Ping().Build()).Error(); err != nil {
			b.Fatal(err)
		}
		pings = append(pings, float64(time.Since(start).Microseconds()))

		time.Sleep(idle)
		floors = append(floors, float64(floor().Microseconds()))
	}
	_ = held.Unlock()
	b.ReportMetric(0, "ns/op")
	b.ReportMetric(mid(passes), "us/handoff")
	b.ReportMetric(mid(pings), "us/ping")
	b.ReportMetric(mid(floors), "us/floor")
	b.ReportMetric(mid(passes)/mid(pings), "x-ping")
	b.ReportMetric(mid(passes)/mid(floors), "x-floor")
}

// publishing returns what sends a script that only publishes, and tells how long
// it took until another client heard of it.
func publishing(b *testing.B, s *redistest.Server) func() time.Duration {
	ctx, cancel := context.WithCancel(context.Background())
	option := s.Option()
	option.PipelineMultiplex = -1
	clients := make([]rueidis.Client, 2)
	for i := range clients {
		client, err := rueidis.NewClient(option)
		require.NoError(b, err)
		clients[i] = client
		b.Cleanup(client.Close)
	}
	heard, ready := make(chan time.Time, 1), make(chan struct{})
	go func() { // ends with the client
		subscribe := rueidis.WithOnSubscriptionHook(ctx, func(rueidis.PubSubSubscription) { close(ready) })
		_ = clients[1].Receive(subscribe, clients[1].B().Subscribe().Channel("floor").Build(), func(rueidis.PubSubMessage) {
			heard <- time.Now()
		})
	}()
	<-ready
	b.Cleanup(cancel)
	const text = "return redis.call('PUBLISH', 'floor', ARGV[1])"
	sha, err := clients[0].Do(ctx, clients[0].B().ScriptLoad().Script(text).Build()).ToString()
	require.NoError(b, err)
	return func() time.Duration {
		start := time.Now()
		sent := make(chan error, 1)
		go func() {
			sent <- clients[0].Do(ctx, clients[0].B().Evalsha().Sha1(sha).Numkeys(0).Arg("grant").Build()).Error()
		}()
		d := (<-heard).Sub(start)
		require.NoError(b, <-sent)
		return d
	}
}

// BenchmarkFresh is the first Lock of a key that nobody has, beside a PING: one
// round trip. The Unlock is left to retention.
func BenchmarkFresh(b *testing.B) {
	ctx := context.Background()
	s := redistest.Start(b)
	c, client := redisProcess(b, s), s.Client(b)
	key := 0
	duel(b, 500, "x-ping", crowd(1, func() {
		key++
		h, err := c.Mutex("k" + strconv.Itoa(key)).Lock(ctx)
		if err != nil {
			b.Fatal(err)
		}
		_ = h.Unlock()
	}), crowd(1, func() {
		if err := client.Do(ctx, client.B().Ping().Build()).Error(); err != nil {
			b.Fatal(err)
		}
	}))
	for c.live.Load() > 0 { // until the last idle lease is given up
		time.Sleep(10 * time.Millisecond)
	}
	before := c.Snapshot().Stats.Commands
	h, err := c.Mutex("one more").Lock(ctx)
	require.NoError(b, err)
	b.ReportMetric(float64(c.Snapshot().Stats.Commands-before), "requests/lock")
	_ = h.Unlock()
}

// BenchmarkMillionKeys locks and unlocks a million distinct keys once
// (LEASEHOLD_KEYS sets another number), from 256 goroutines, and tells what is
// left of heap and goroutines when the last lease has been given up.
func BenchmarkMillionKeys(b *testing.B) {
	keys := 1_000_000
	if v := os.Getenv("LEASEHOLD_KEYS"); v != "" {
		n, err := strconv.Atoi(v)
		require.NoError(b, err)
		keys = n
	}
	c := redisProcess(b, redistest.Start(b))
	for b.Loop() {
		heap, goroutines := heapInUse(), runtime.NumGoroutine()
		var next atomic.Int64
		crowd(256, func() {
			h, err := c.Mutex(fmt.Sprintf("key-%d", next.Add(1))).Lock(context.Background())
			if err != nil {
				b.Error(err)
				return
			}
			_ = h.Unlock()
		})(keys)
		for c.live.Load() > 0 {
			time.Sleep(10 * time.Millisecond)
		}
		b.ReportMetric(float64(heapInUse()-heap)/float64(keys), "bytes-left/key")
		b.ReportMetric(float64(runtime.NumGoroutine()-goroutines), "goroutines-left")
	}
	b.ReportMetric(float64(keys)*float64(b.N)/b.Elapsed().Seconds(), "keys/s")
}

func heapInUse() int64 {
	runtime.GC()
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc)
}
