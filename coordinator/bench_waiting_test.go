package coordinator

import (
	"context"
	"runtime"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sync/semaphore"

	"github.com/go-leasehold/leasehold/internal/redistest"
)

// queue runs once n times, divided over goroutines that all wait before the first
// has its turn. Without that a round may pass with nobody ever waiting: a goroutine
// can be through with its part before the next has begun.
func queue(goroutines int, lock func() (unlock func())) func(n int) {
	return func(n int) {
		unlock := lock()
		var begun, wg sync.WaitGroup
		begun.Add(goroutines)
		for range goroutines {
			wg.Go(func() {
				begun.Done()
				for range n / goroutines {
					lock()()
				}
			})
		}
		begun.Wait()
		time.Sleep(time.Millisecond) // to the end of the first lock
		unlock()
		wg.Wait()
	}
}

// BenchmarkQueued is BenchmarkContended where every lock of both has to wait, without
// and with a context that can end.
func BenchmarkQueued(b *testing.B) {
	cancellable, cancel := context.WithCancel(context.Background())
	defer cancel()
	c := redisProcess(b, redistest.Start(b))
	for name, ctx := range map[string]context.Context{"background": context.Background(), "cancellable": cancellable} {
		b.Run(name, func(b *testing.B) {
			m, s := c.Mutex(name), semaphore.NewWeighted(1)
			duel(b, 200_000, "x-semaphore", queue(64, func() func() {
				h, err := m.Lock(ctx)
				if err != nil {
					b.Error(err)
				}
				return func() { _ = h.Unlock() }
			}), queue(64, func() func() {
				_ = s.Acquire(ctx, 1)
				return func() { s.Release(1) }
			}))
		})
	}
}

// BenchmarkWaiterMemory tells what a goroutine costs that waits, its stack included
// and its own structure not counted: for the lock, held by this process or by another
// one, and for a channel. With
// GODEBUG=adaptivestackstart=0 stacks begin with 2 KiB, and what is above that grew.
func BenchmarkWaiterMemory(b *testing.B) {
	const waiters = 10_000
	cancellable, cancel := context.WithCancel(context.Background())
	defer cancel()
	server := redistest.Start(b)
	m, elsewhere := redisProcess(b, server).Mutex("k"), redisProcess(b, server).Mutex("k")
	locked := func(ctx context.Context, by *Mutex) func() (func(), func()) {
		return func() (wait, release func()) {
			held, err := by.Lock(context.Background())
			require.NoError(b, err)
			return func() {
				if h, err := m.Lock(ctx); err == nil {
					_ = h.Unlock()
				}
			}, func() { _ = held.Unlock() }
		}
	}
	for name, begin := range map[string]func() (wait, release func()){
		"channel": func() (func(), func()) {
			c := make(chan struct{})
			return func() { <-c }, func() { close(c) }
		},
		"background":  locked(context.Background(), m),
		"cancellable": locked(cancellable, m),
		"elsewhere":   locked(cancellable, elsewhere),
	} {
		b.Run(name, func(b *testing.B) {
			var heaps, stacks []float64
			parked(waiters, func() (func(), func()) { // so that the goroutines themselves are there already
				c := make(chan struct{})
				return func() { <-c }, func() { close(c) }
			})
			for b.Loop() {
				heap, stack := parked(waiters, begin)
				heaps, stacks = append(heaps, heap), append(stacks, stack)
			}
			b.ReportMetric(0, "ns/op")
			b.ReportMetric(mid(heaps), "heap-bytes/waiter")
			b.ReportMetric(mid(stacks), "stack-bytes/waiter")
		})
	}
}

// parked has goroutines wait, and returns the bytes in use for each.
func parked(n int, begin func() (wait, release func())) (heap, stack float64) {
	wait, release := begin()
	heapBefore, stackBefore := heapInUse(), stackInUse()
	var begun, wg sync.WaitGroup
	begun.Add(n)
	for range n {
		wg.Go(func() {
			begun.Done()
			wait()
		})
	}
	begun.Wait()
	time.Sleep(100 * time.Millisecond) // until all are parked
	heap = float64(heapInUse()-heapBefore) / float64(n)
	stack = float64(stackInUse()-stackBefore) / float64(n)
	release()
	wg.Wait()
	return heap, stack
}

func stackInUse() int64 {
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int64(m.StackInuse)
}
