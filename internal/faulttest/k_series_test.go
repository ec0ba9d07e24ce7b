package faulttest

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/go-leasehold/leasehold/coordinator"
	"github.com/go-leasehold/leasehold/internal/redistest"
	"github.com/go-leasehold/leasehold/lease"
	"github.com/go-leasehold/leasehold/lease/memlease"
	"github.com/go-leasehold/leasehold/telemetry"
)

// classing are ways to make classes of keys, good and bad ones, how many classes come of it, the one for all others
// included, and how many keys the test has time for.
var classing = map[string]struct {
	of      func(key string) string
	classes int
	keys    int
}{
	"none":        {nil, 1, rounds(10_000, 100_000)},
	"one of four": {classOf, 4 + 1, rounds(10_000, 100_000)},
	"the key":     {func(key string) string { return key }, telemetry.MaxClasses + 1, 100_000},
	"nonsense":    {func(key string) string { return "\xff" + strings.Repeat(key, 20) }, telemetry.MaxClasses + 1, rounds(10_000, 100_000)},
	"panic":       {func(string) string { panic("no class today") }, 1, rounds(10_000, 100_000)},
}

// keyNumber is a key of one of four classes.
func keyNumber(n int) string {
	return fmt.Sprintf("%s:%d", []string{"order", "user", "stock", "cart"}[n%4], n)
}

// lockNumber locks the key of a number: of every four of a class one to write and one to read.
func lockNumber(c *coordinator.Coordinator, n int) (*coordinator.Hold, error) {
	ctx, key := context.Background(), keyNumber(n)
	switch n / 4 % 4 {
	case 0:
		return c.ReadWrite(key).Lock(ctx, lease.Exclusive)
	case 1:
		return c.ReadWrite(key).Lock(ctx, lease.Shared)
	}
	return c.Mutex(key).Lock(ctx)
}

// lockEach locks and unlocks the keys of these numbers, some goroutines at a time.
func lockEach(t *testing.T, c *coordinator.Coordinator, from, to int) {
	t.Helper()
	const workers = 8
	errs := make([]error, workers)
	var wg sync.WaitGroup
	for w := range workers {
		wg.Go(func() {
			for n := from + w; n < to && errs[w] == nil; n += workers {
				hold, err := lockNumber(c, n)
				if err == nil {
					err = hold.Unlock()
				}
				errs[w] = err
			}
		})
	}
	wg.Wait()
	for _, err := range errs {
		require.NoError(t, err)
	}
}

// seriesStay locks some keys, and then many more, and wants no metric to have grown a series for them.
func seriesStay(t *testing.T, c *coordinator.Coordinator, m *meter, classes, some, many int) {
	t.Helper()
	lockEach(t, c, 0, some)
	before := m.collect(t, c)
	lockEach(t, c, some, many)
	after := m.collect(t, c)
	require.Equal(t, before.series(), after.series(), "%d keys more", many-some)
	require.EqualValues(t, many, after.total(telemetry.MetricGrants, "", ""), "every lock was counted")
	require.EqualValues(t, many, after.total(telemetry.MetricHold, "", ""))
	require.Len(t, after.of(telemetry.MetricGrants, string(telemetry.AttrPath), string(telemetry.PathRedis)), classes)
	for name, n := range after.series() {
		require.LessOrEqual(t, n, classes*(6+1), "%s: no more than a few for each class", name) // the six paths
	}
	for _, p := range after {
		for _, value := range p.Attributes {
			require.LessOrEqual(t, len(value), telemetry.MaxClassName)
		}
		require.NotContains(t, slices.Collect(maps.Keys(p.Attributes)), string(telemetry.AttrKey))
	}
}

// K1: the number of series is the same with a thousand keys and with a hundred thousand.
func TestSeriesDoNotGrowWithKeys(t *testing.T) {
	t.Parallel()
	for name, by := range classing {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			server := memlease.NewServer()
			t.Cleanup(server.Close)
			m := newMeter()
			c := inMemory(t, server, coordinator.WithRetention(0),
				coordinator.WithTelemetry(telemetry.Config{MeterProvider: m.provider, KeyClass: by.of}))
			seriesStay(t, c, m, by.classes, 1000, by.keys)
		})
	}
}

// K1, on Redis.
func TestSeriesDoNotGrowWithKeysOnRedis(t *testing.T) {
	t.Parallel()
	s := redistest.Start(t)
	m := newMeter()
	c := steady(t, s.Addr(), coordinator.WithRetention(0),
		coordinator.WithTelemetry(telemetry.Config{MeterProvider: m.provider, KeyClass: classOf}))
	seriesStay(t, c, m, 4+1, 1000, rounds(5000, 100_000))
}
