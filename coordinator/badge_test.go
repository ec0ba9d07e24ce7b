package coordinator

import (
	"bytes"
	"context"
	"log/slog"
	"runtime"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/go-leasehold/leasehold/lease"
	"github.com/go-leasehold/leasehold/lease/memlease"
)

func TestStripesForAnyNumberOfCores(t *testing.T) {
	before := runtime.GOMAXPROCS(0)
	defer runtime.GOMAXPROCS(before)
	for cores, want := range map[int]int{1: 1, 2: 2, 3: 4, 4: 4, 5: 8, 64: 64} {
		runtime.GOMAXPROCS(cores)
		require.Len(t, newStripes(), want, "%d cores", cores)
	}
}

// Whoever goes out goes out where it came in, also when cores are in each other's way.
func TestGateIsDesertedOnlyWhenAllHaveGoneOut(t *testing.T) {
	g := &gate{stripes: make([]stripe, 2)}
	first := g.enter()
	require.False(t, g.deserted())
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() {
			for range 2000 {
				b := g.enter()
				if g.deserted() {
					t.Error("somebody is inside")
				}
				if b.slot%3 == 0 {
					g.goBack(b)
				} else {
					g.goOut(b)
				}
			}
		})
	}
	wg.Wait()
	require.Equal(t, 1, g.readers())
	require.False(t, g.deserted())
	g.goOut(first)
	require.True(t, g.deserted())
	require.Zero(t, g.readers())
}

// A hold that passed the gate and is dropped without Unlock is told, as any other.
func TestForgottenHoldThatPassedIsTold(t *testing.T) {
	var log safeBuffer
	server := memlease.NewServer()
	defer server.Close()
	c, err := NewWithStore(server.Store(), WithSharedRetention(time.Hour), WithLogger(slog.New(slog.NewTextHandler(&log, nil))))
	require.NoError(t, err)
	l := c.ReadWrite("k")
	for c.Snapshot().Stats.Passed == 0 {
		h, err := l.Lock(t.Context(), lease.Shared)
		require.NoError(t, err)
		require.NoError(t, h.Unlock())
	}
	require.Zero(t, c.Snapshot().Stats.Abandoned)
	func() {
		h, err := l.Lock(t.Context(), lease.Shared)
		require.NoError(t, err)
		require.Equal(t, passing, h.way())
	}()
	require.Eventually(t, func() bool {
		runtime.GC()
		return c.Snapshot().Stats.Abandoned == 1
	}, 30*time.Second, time.Millisecond)
	require.Eventually(t, func() bool { return bytes.Contains(log.bytes(), []byte("garbage-collected")) }, 30*time.Second, time.Millisecond)

	ctx, cancel := context.WithTimeout(context.Background(), time.Millisecond)
	defer cancel()
	require.NoError(t, c.Close(ctx)) // nobody can unlock it now
}

// safeBuffer is a buffer to log to.
type safeBuffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (s *safeBuffer) Write(p []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.b.Write(p)
}

func (s *safeBuffer) bytes() []byte {
	s.mu.Lock()
	defer s.mu.Unlock()
	return bytes.Clone(s.b.Bytes())
}
