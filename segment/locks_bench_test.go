package segment_test

import (
	"context"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/go-leasehold/leasehold/coordinator"
	"github.com/go-leasehold/leasehold/internal/redistest"
	"github.com/go-leasehold/leasehold/segment"
)

// The benchmarks tell ratios of what is measured side by side in one run, round by round, for no absolute time means
// anything on a shared machine. An iteration is a round; -benchtime 20x makes twenty.

// inTime returns how often a second goroutines, all at the same time, get through once. It is measured while all of
// them still go on: what is measured is locks that are always wanted, not how long the last one waits.
func inTime(goroutines int, d time.Duration, once func(goroutine int)) float64 {
	var done atomic.Int64
	var over atomic.Bool
	var wg sync.WaitGroup
	for g := range goroutines {
		wg.Go(func() {
			for !over.Load() {
				once(g)
				done.Add(1)
			}
		})
	}
	time.Sleep(d / 4) // until all have come
	from, began := done.Load(), time.Now()
	time.Sleep(d)
	n, took := done.Load()-from, time.Since(began)
	over.Store(true)
	wg.Wait()
	return float64(n) / took.Seconds()
}

func middle(v []float64) float64 {
	v = slices.Clone(v)
	slices.Sort(v)
	return v[len(v)/2]
}

// BenchmarkSegmentLocks is 256 goroutines, each with a routing key of its own, that work for a millisecond under their
// segment's lock, of 16; beside the same under one lock, and beside the same under 16 of sync.Mutex, which is all that
// could be had. One lock is x = 1.
func BenchmarkSegmentLocks(b *testing.B) {
	const goroutines, segments, d = 256, 16, 400 * time.Millisecond
	ctx := context.Background()
	c := lockProcess(b, redistest.Start(b))
	l, one := segment.NewLocks(c, "striped", segments), c.Mutex("one")
	var here [segments]sync.Mutex
	users := make([]string, goroutines)
	for g := range users {
		users[g] = "user-" + strconv.Itoa(g)
	}
	work := func(h *coordinator.Hold, err error) {
		if err != nil {
			b.Error(err)
			return
		}
		time.Sleep(time.Millisecond)
		if err := h.Unlock(); err != nil {
			b.Error(err)
		}
	}
	var striped, single, local []float64
	for b.Loop() {
		striped = append(striped, inTime(goroutines, d, func(g int) { work(l.Lock(ctx, users[g])) }))
		single = append(single, inTime(goroutines, d, func(int) { work(one.Lock(ctx)) }))
		local = append(local, inTime(goroutines, d, func(g int) {
			m := &here[l.Segment(users[g])]
			m.Lock()
			time.Sleep(time.Millisecond)
			m.Unlock()
		}))
	}
	b.ReportMetric(0, "ns/op")
	b.ReportMetric(middle(striped), "locks/s")
	b.ReportMetric(middle(single), "locks/s-one-lock")
	b.ReportMetric(middle(striped)/middle(single), "x-one-lock")
	b.ReportMetric(middle(striped)/middle(local), "x-sync-mutexes")
}

// BenchmarkSegmentLock is Lock and Unlock of a segment whose lease is here, which nobody else wants, beside the same
// with a mutex.
func BenchmarkSegmentLock(b *testing.B) {
	ctx := context.Background()
	c := lockProcess(b, redistest.Start(b), coordinator.WithRetention(time.Hour))
	l, m := segment.NewLocks(c, "striped", 16), c.Mutex("one")
	one := func(h *coordinator.Hold, err error) {
		if err != nil || h.Unlock() != nil {
			b.Error(err)
		}
	}
	spent := func(once func()) float64 {
		const n = 20_000
		start := time.Now()
		for range n {
			once()
		}
		return float64(time.Since(start).Nanoseconds()) / n
	}
	var ours, theirs []float64
	for b.Loop() {
		for range 10 { // short ones, that what else the machine does falls on both alike
			ours = append(ours, spent(func() { one(l.Lock(ctx, "user-1234567")) }))
			theirs = append(theirs, spent(func() { one(m.Lock(ctx)) }))
		}
	}
	b.ReportMetric(0, "ns/op")
	b.ReportMetric(middle(ours), "ns/lock")
	b.ReportMetric(middle(theirs), "ns/mutex")
	b.ReportMetric(middle(ours)/middle(theirs), "x-mutex")
}
