package coordinator

import (
	"context"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sync/semaphore"

	"github.com/go-leasehold/leasehold/lease/memlease"
)

func benchProcess(b *testing.B) *Coordinator {
	s := memlease.NewServer()
	b.Cleanup(s.Close)
	c, err := NewWithStore(s.Store())
	require.NoError(b, err)
	b.Cleanup(func() { _ = c.Close(context.Background()) })
	return c
}

func BenchmarkRelock(b *testing.B) {
	ctx := context.Background()
	b.Run("lock=leasehold", func(b *testing.B) {
		m := benchProcess(b).Mutex("k")
		b.ReportAllocs()
		for b.Loop() {
			h, err := m.Lock(ctx)
			if err != nil {
				b.Fatal(err)
			}
			_ = h.Unlock()
		}
	})
	b.Run("lock=map+semaphore", func(b *testing.B) {
		var m sync.Map
		m.Store("k", semaphore.NewWeighted(1))
		b.ReportAllocs()
		for b.Loop() {
			v, _ := m.Load("k")
			s := v.(*semaphore.Weighted)
			_ = s.Acquire(ctx, 1)
			s.Release(1)
		}
	})
}

func contend(b *testing.B, goroutines int, once func()) {
	var wg sync.WaitGroup
	each := b.N/goroutines + 1
	b.ResetTimer()
	start := time.Now()
	for range goroutines {
		wg.Go(func() {
			for range each {
				once()
			}
		})
	}
	wg.Wait()
	b.ReportMetric(float64(each*goroutines)/time.Since(start).Seconds(), "locks/s")
}

func BenchmarkContended(b *testing.B) {
	ctx := context.Background()
	b.Run("lock=leasehold", func(b *testing.B) {
		m := benchProcess(b).Mutex("k")
		b.ReportAllocs()
		contend(b, 64, func() {
			h, err := m.Lock(ctx)
			if err != nil {
				b.Error(err)
				return
			}
			_ = h.Unlock()
		})
	})
	b.Run("lock=semaphore", func(b *testing.B) {
		s := semaphore.NewWeighted(1)
		b.ReportAllocs()
		contend(b, 64, func() {
			_ = s.Acquire(ctx, 1)
			s.Release(1)
		})
	})
}
