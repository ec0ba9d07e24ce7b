package rwlock_test

import (
	"context"
	"runtime"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/redis/rueidis"
	"github.com/stretchr/testify/require"

	"github.com/go-leasehold/leasehold/coordinator"
	"github.com/go-leasehold/leasehold/internal/redistest"
	"github.com/go-leasehold/leasehold/rwlock"
)

// The benchmarks tell ratios of what is measured side by side in one run, round
// by round, for no absolute time means anything on a shared machine. An
// iteration is a round; -benchtime 20x makes twenty.

// spent runs once n times on each of some goroutines, and returns how long one
// took, of all that were done.
func spent(goroutines, n int, once func(i int)) float64 {
	var wg sync.WaitGroup
	start := time.Now()
	for range goroutines {
		wg.Go(func() {
			for i := range n {
				once(i)
			}
		})
	}
	wg.Wait()
	return float64(time.Since(start).Nanoseconds()) / float64(goroutines*n)
}

func mid(v []float64) float64 { return rank(v, 50) }

// rank returns the value that percent of all are below.
func rank(v []float64, percent int) float64 {
	v = slices.Clone(v)
	slices.Sort(v)
	return v[min(len(v)-1, len(v)*percent/100)]
}

// reading is RLock and Unlock.
func reading(b *testing.B, l *rwlock.Lock) func(int) {
	ctx := context.Background()
	return func(int) {
		h, err := l.RLock(ctx)
		if err != nil {
			b.Error(err)
			return
		}
		if err := h.Unlock(); err != nil {
			b.Error(err)
		}
	}
}

// asking is a read/write lock that asks Redis each time, in the simplest way that
// excludes anybody: one script to lock, one to unlock, tried again after a
// millisecond where somebody is in the way.
type asking struct {
	client rueidis.Client
	take   *rueidis.Lua
	give   *rueidis.Lua
}

func newAsking(client rueidis.Client) *asking {
	return &asking{
		client: client,
		take: rueidis.NewLuaScript(`
local writers, readers = redis.call('HGET', KEYS[1], 'write'), redis.call('HGET', KEYS[1], 'read')
if writers and tonumber(writers) > 0 or ARGV[1] == 'write' and readers and tonumber(readers) > 0 then
  return 0
end
redis.call('PEXPIRE', KEYS[1], 30000)
return redis.call('HINCRBY', KEYS[1], ARGV[1], 1)`),
		give: rueidis.NewLuaScript(`return redis.call('HINCRBY', KEYS[1], ARGV[1], -1)`),
	}
}

func (a *asking) once(b *testing.B, mode string) {
	ctx, keys, args := context.Background(), []string{"asking"}, []string{mode}
	for {
		n, err := a.take.Exec(ctx, a.client, keys, args).AsInt64()
		if err != nil {
			b.Error(err)
			return
		}
		if n > 0 {
			break
		}
		time.Sleep(time.Millisecond)
	}
	if err := a.give.Exec(ctx, a.client, keys, args).Error(); err != nil {
		b.Error(err)
	}
}

// BenchmarkRead is RLock and Unlock under a read lease that is here, on all cores,
// beside sync.RWMutex used the same way, and beside a read lock that asks Redis
// each time.
func BenchmarkRead(b *testing.B) {
	s := redistest.Start(b)
	l := rwlock.New(process(b, s, coordinator.WithSharedRetention(time.Hour)), "k")
	read := reading(b, l)
	for range 3 {
		read(0) // the lease comes, the gate opens
	}
	var m sync.RWMutex
	ask := newAsking(s.Client(b))
	cores := runtime.GOMAXPROCS(0)
	var ours, theirs, asked []float64
	for b.Loop() {
		for range 10 { // short ones, that what else the machine does falls on all alike
			ours = append(ours, spent(cores, 50_000, read))
			theirs = append(theirs, spent(cores, 50_000, func(int) {
				m.RLock()
				m.RUnlock() //nolint:staticcheck // nothing is what is measured
			}))
		}
		asked = append(asked, spent(cores, 500, func(int) { ask.once(b, "read") }))
	}
	b.ReportMetric(0, "ns/op")
	b.ReportMetric(mid(ours), "ns/read")
	b.ReportMetric(mid(theirs), "ns/rwmutex")
	b.ReportMetric(mid(theirs)/mid(ours), "x-rwmutex")
	b.ReportMetric(mid(asked)/mid(ours), "x-asking")
	b.ReportMetric(testing.AllocsPerRun(1000, func() { read(0) }), "allocs/read")
}

// BenchmarkReadMostly is 99 reads to a write by three coordinators on one key,
// with 8 goroutines each, beside the same with a lock that asks Redis each time,
// and beside nothing but a round trip (a PING) in place of each lock.
func BenchmarkReadMostly(b *testing.B) {
	ctx := context.Background()
	s := redistest.Start(b)
	var locks []*rwlock.Lock
	var all []*coordinator.Coordinator
	for range 3 {
		c := process(b, s, coordinator.WithSharedRetention(time.Hour))
		all = append(all, c)
		locks = append(locks, rwlock.New(c, "k"))
	}
	client := s.Client(b)
	ask := newAsking(client)
	ping := client.B().Ping().Build().Pin()
	const goroutines, n = 8, 20_000
	var ours, asked, pings, commands []float64
	for b.Loop() {
		before := commandsOf(all)
		var wg sync.WaitGroup
		start := time.Now()
		for _, l := range locks {
			read := reading(b, l)
			wg.Go(func() {
				spent(goroutines, n, func(i int) {
					if i%100 != 99 {
						read(i)
						return
					}
					h, err := l.Lock(ctx)
					if err != nil {
						b.Error(err)
						return
					}
					_ = h.Unlock()
				})
			})
		}
		wg.Wait()
		ours = append(ours, float64(time.Since(start).Nanoseconds())/float64(len(locks)*goroutines*n))
		commands = append(commands, float64(commandsOf(all)-before)/float64(len(locks)*goroutines*n))
		asked = append(asked, spent(len(locks)*goroutines, 200, func(i int) {
			if i%100 != 99 {
				ask.once(b, "read")
			} else {
				ask.once(b, "write")
			}
		}))
		pings = append(pings, spent(len(locks)*goroutines, 200, func(int) {
			if err := client.Do(ctx, ping).Error(); err != nil {
				b.Error(err)
			}
		}))
	}
	b.ReportMetric(0, "ns/op")
	b.ReportMetric(mid(ours), "ns/lock")
	b.ReportMetric(mid(asked), "ns/asking")
	b.ReportMetric(mid(asked)/mid(ours), "x-asking")
	b.ReportMetric(mid(pings)/mid(ours), "x-ping")
	b.ReportMetric(mid(commands), "requests/lock")
}

func commandsOf(all []*coordinator.Coordinator) (n uint64) {
	for _, c := range all {
		n += c.Snapshot().Stats.Commands
	}
	return n
}

// BenchmarkWriterEnters is how long a writer waits for three processes that read
// all the time, holding for a millisecond, beside how long it waits when nobody
// reads: the 99th of a hundred. The readers' longest hold in a round is told too.
func BenchmarkWriterEnters(b *testing.B) {
	ctx := context.Background()
	s := redistest.Start(b)
	writer := rwlock.New(process(b, s, coordinator.WithRetention(0)), "k")
	var readers []*rwlock.Lock
	for range 3 {
		readers = append(readers, rwlock.New(process(b, s, coordinator.WithSharedRetention(time.Hour)), "k"))
	}
	write := func(into *[]float64) {
		start := time.Now()
		h, err := writer.Lock(ctx)
		if err != nil {
			b.Error(err)
			return
		}
		*into = append(*into, float64(time.Since(start).Microseconds()))
		_ = h.Unlock()
		time.Sleep(2 * time.Millisecond)
	}
	var alone, beside, longest []float64
	for b.Loop() {
		for range 100 {
			write(&alone)
		}
		stop := make(chan struct{})
		var wg sync.WaitGroup
		var mu sync.Mutex
		for _, l := range readers {
			for range 2 {
				wg.Go(func() {
					most := steadily(b, l, stop)
					mu.Lock()
					defer mu.Unlock()
					longest = append(longest, float64(most.Microseconds()))
				})
			}
		}
		for range 100 {
			write(&beside)
		}
		close(stop)
		wg.Wait()
	}
	require.NotEmpty(b, alone)
	b.ReportMetric(0, "ns/op")
	b.ReportMetric(rank(alone, 99), "us/p99-alone")
	b.ReportMetric(rank(beside, 99), "us/p99-beside-readers")
	b.ReportMetric(mid(alone), "us/p50-alone")
	b.ReportMetric(mid(beside), "us/p50-beside-readers")
	b.ReportMetric(slices.Max(longest), "us/longest-read")
	b.ReportMetric((rank(beside, 99)-slices.Max(longest))/rank(alone, 99), "x-alone")
}

// steadily reads until it is stopped, and returns the longest hold.
func steadily(b *testing.B, l *rwlock.Lock, stop <-chan struct{}) (most time.Duration) {
	for {
		select {
		case <-stop:
			return most
		default:
		}
		h, err := l.RLock(context.Background())
		if err != nil {
			b.Error(err)
			return most
		}
		start := time.Now()
		time.Sleep(time.Millisecond)
		most = max(most, time.Since(start))
		_ = h.Unlock()
	}
}
