package coordinator

import (
	"context"
	"fmt"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/go-leasehold/leasehold/lease"
	"github.com/go-leasehold/leasehold/telemetry"
)

// TestClassIsAskedForByWhoLocks: not under a mutex of the key, nor where the store
// is read, and once for each time that the key comes into use.
func TestClassIsAskedForByWhoLocks(t *testing.T) {
	var mu sync.Mutex
	var stacks []string
	var c *Coordinator
	conf := telemetry.Config{Roots: -1, KeyClass: func(string) string {
		mu.Lock()
		defer mu.Unlock()
		b := make([]byte, 1<<16)
		stacks = append(stacks, string(b[:runtime.Stack(b, false)]))
		if a, ok := c.actors.Load("k"); ok && !a.mu.TryLock() {
			stacks = append(stacks, "the mutex is held")
		} else if ok {
			a.mu.Unlock()
		}
		_ = c.Snapshot() // it may
		return "mine"
	}}
	asked := func() []string {
		mu.Lock()
		defer mu.Unlock()
		all := stacks
		stacks = nil
		return all
	}
	heard(t, conf, func(t *testing.T, s *script, made *Coordinator, r *listener) {
		c = made
		call := lockOf(t, c.Mutex("k"))
		all := asked()
		require.Len(t, all, 1)
		require.Contains(t, all[0], "(*Mutex).Lock")
		unlock(t, call.holdsAfter(s))
		for range 5 {
			unlock(t, lockOf(t, c.Mutex("k")).holds())
		}
		_ = r.collect()
		s.emit(lease.Wanted, "k", 1)
		s.next(lease.Release).end()
		s.emit(lease.Granted, "k", 99)
		s.next(lease.Release).end()
		require.Zero(t, c.live.Load())
		require.Empty(t, asked())

		unlock(t, lockOf(t, c.Mutex("k")).holdsAfter(s))
		require.Len(t, asked(), 1, "it came into use again")
		require.Equal(t, map[string]int64{"mine redis": 2, "mine retained": 5}, r.some(telemetry.MetricGrants), "in the same class")
	}, WithRetention(time.Minute))
}

func TestClassesAreKeptInBounds(t *testing.T) {
	long := strings.Repeat("x", 1000)
	conf := telemetry.Config{KeyClass: func(key string) string {
		switch key {
		case "panics":
			panic("a class")
		case "none":
			return ""
		case "long":
			return long
		case "bad":
			return "a\xffb"
		case "all bad":
			return strings.Repeat("a\xff", 500)
		case "cut":
			return strings.Repeat("x", telemetry.MaxClassName-1) + "é" // which a cut would split
		}
		return key
	}}
	heard(t, conf, func(t *testing.T, s *script, c *Coordinator, r *listener) {
		s.obey()
		for _, key := range []string{"panics", "none", "long", "bad", "all bad", "cut", telemetry.OtherClass} {
			unlock(t, lockWith(t, context.Background(), c.Mutex(key)).holds())
		}
		want := map[string]int64{
			"redis":                                  3, // other: none, panics, and by that name
			long[:64] + " redis":                     1,
			"a\uFFFDb redis":                         1,
			long[:63] + " redis":                     1,
			strings.Repeat("a\uFFFD", 16) + " redis": 1,
		}
		require.Equal(t, want, r.some(telemetry.MetricGrants))
		for _, span := range r.of(c, telemetry.SpanHold) {
			class := attrs(span.Attributes)[telemetry.AttrClass].(string)
			require.LessOrEqual(t, len(class), telemetry.MaxClassName)
		}
	})
}

// TestTooManyClassesAreOther: the first are kept apart, and stay so.
func TestTooManyClassesAreOther(t *testing.T) {
	conf := telemetry.Config{Roots: -1, KeyClass: func(key string) string { return key }}
	heard(t, conf, func(t *testing.T, s *script, c *Coordinator, r *listener) {
		s.obey()
		for range 2 {
			for i := range telemetry.MaxClasses + 20 {
				unlock(t, lockOf(t, c.Mutex(fmt.Sprintf("c%d", i))).holds())
			}
			time.Sleep(time.Second)
		}
		all := r.some(telemetry.MetricGrants)
		require.Len(t, all, telemetry.MaxClasses+1)
		require.Equal(t, int64(40), all["redis"], "what is left of both rounds")
		require.Equal(t, int64(2), all["c0 redis"])
		require.Equal(t, int64(2), all[fmt.Sprintf("c%d redis", telemetry.MaxClasses-1)])
	}, WithRetention(0))
}

// TestDurationsAreRecordedUpToARate: bursts in full, then one each recordEvery.
func TestDurationsAreRecordedUpToARate(t *testing.T) {
	heard(t, quietly, func(t *testing.T, s *script, c *Coordinator, r *listener) {
		s.obey()
		first := lockOf(t, c.Mutex("k")).holds()
		unlock(t, first)
		time.Sleep(time.Second)
		base := r.series(telemetry.MetricHold)["exclusive released"]
		burst := int64(recordBurst / recordEvery)
		m := c.Mutex("k")
		locks := func(n int64) int64 {
			before := r.series(telemetry.MetricHold)["exclusive released"]
			for range n {
				h, err := m.Lock(t.Context())
				require.NoError(t, err)
				require.NoError(t, h.Unlock())
			}
			return r.series(telemetry.MetricHold)["exclusive released"] - before
		}
		require.Equal(t, int64(1), base)
		require.Equal(t, burst, locks(burst))
		require.Zero(t, locks(1000))
		time.Sleep(10 * recordEvery)
		require.Equal(t, int64(10), locks(1000))
		time.Sleep(time.Hour)
		require.Equal(t, burst, locks(burst+1000))
		for range 1000 {
			time.Sleep(recordEvery)
			require.Equal(t, int64(1), locks(1))
		}
		require.Zero(t, locks(1000))
		m = c.Mutex("other")
		require.Equal(t, burst, locks(burst+1000), "each key has its own rate")
	}, WithRetention(2*time.Hour))
}

// TestWaitsAndHoldsAreApart: what waited is recorded in the one, what held in the
// other, each once, by how it ended.
func TestWaitsAndHoldsAreApart(t *testing.T) {
	heard(t, quietly, func(t *testing.T, s *script, c *Coordinator, r *listener) {
		h := lockOf(t, c.Mutex("k")).holdsAfter(s)
		next := lockOf(t, c.Mutex("k"))
		gone := begin(t, func() (*Hold, error) { return c.Mutex("k").TryLockFor(t.Context(), time.Millisecond) })
		tried := tryOf(t, c.Mutex("k"))
		time.Sleep(time.Millisecond)
		gone.fails(ErrNotAcquired)
		tried.fails(ErrNotAcquired)
		again := lockWith(t, h.Context(), c.Mutex("k")).holds()
		unlock(t, again)
		unlock(t, h)
		unlock(t, next.holds())
		require.Equal(t, map[string]int64{"exclusive acquired": 2, "exclusive timeout": 1, "exclusive busy": 1}, r.some(telemetry.MetricWait))
		require.Equal(t, map[string]int64{"acquired": 2, "timeout": 1, "busy": 1}, r.some(telemetry.MetricWaits))
		require.Equal(t, map[string]int64{"exclusive released": 2}, r.some(telemetry.MetricHold))
	})
}
