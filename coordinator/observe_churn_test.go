package coordinator

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/sdk/metric/metricdata"

	"github.com/go-leasehold/leasehold/lease"
	"github.com/go-leasehold/leasehold/telemetry"
)

// obeying is a coordinator in real time on a store that grants everything.
func obeying(t *testing.T, r *listener, conf telemetry.Config, opts ...Option) *Coordinator {
	t.Helper()
	s := &script{
		t: t, caps: lease.Capabilities{Server: "script", Notices: true, Receipts: true},
		flying: make(map[string]*sent), arrived: make(chan struct{}, 1), obeying: true,
	}
	c, err := NewWithStore(s, append([]Option{WithTelemetry(r.config(conf))}, opts...)...)
	require.NoError(t, err)
	return c
}

// counters are all counters of a collection, by name and labels.
func (r *listener) counters() map[string]int64 {
	r.t.Helper()
	all := map[string]int64{}
	for name, m := range r.collect() {
		sum, ok := m.Data.(metricdata.Sum[int64])
		if !ok || !sum.IsMonotonic {
			continue
		}
		for _, p := range sum.DataPoints {
			all[name+" "+p.Attributes.Encoded(labels)] = p.Value
		}
	}
	return all
}

var labels = attribute.DefaultEncoder()

// TestCountersDoNotGoBack, also where keys come and go while they are counted, and
// several collect at once. At the end they are exact.
func TestCountersDoNotGoBack(t *testing.T) {
	r := listen(t)
	class := func(key string) string { return key[:1] }
	c := obeying(t, r, telemetry.Config{Roots: -1, KeyClass: class}, WithRetention(0), WithSharedRetention(minGateRetention))
	const callers, calls = 4, 2000
	var work, watch sync.WaitGroup
	var over atomic.Bool
	for i := range callers {
		work.Go(func() {
			for n := range calls {
				key := fmt.Sprintf("%c%d", 'a'+n%3, (n+i)%40)
				h, err := c.Mutex(key).Lock(context.Background())
				if err != nil || h.Unlock() != nil {
					t.Errorf("%v", err)
					return
				}
			}
		})
	}
	work.Go(func() { // readers, most of whom pass the gate
		for range calls {
			if err := c.ReadWrite("read").Do(context.Background(), lease.Shared, func(context.Context) error { return nil }); err != nil {
				t.Errorf("%v", err)
				return
			}
		}
	})
	const collections = 100
	for range 2 {
		watch.Go(func() {
			before := map[string]int64{}
			for n := 0; n < collections || !over.Load(); n++ {
				now := r.counters()
				for k, v := range before {
					if now[k] < v {
						t.Errorf("%s went back from %d to %d", k, v, now[k])
					}
				}
				before = now
			}
		})
	}
	work.Wait()
	over.Store(true)
	watch.Wait()
	require.Eventually(t, func() bool { return c.live.Load() == 0 }, 10*time.Second, time.Millisecond)
	var grants int64
	for _, n := range r.series(telemetry.MetricGrants) {
		grants += n
	}
	require.Equal(t, int64((callers+1)*calls), grants)
	require.Equal(t, c.Snapshot().Stats.Commands, uint64(total(r.series(telemetry.MetricCommands))))
	at := func(path string) (n int64) {
		for k, v := range r.series(telemetry.MetricGrants) {
			if strings.HasSuffix(k, path) {
				n += v
			}
		}
		return n
	}
	require.Equal(t, int64((callers+1)*calls), total(r.series(telemetry.MetricWaits))+at("retained")+at("passed"), "who waited, and who did not")
	passed := r.series(telemetry.MetricGrants)["r passed"]
	require.Equal(t, int64((callers+1)*calls)-passed, total(r.series(telemetry.MetricHold)), "all but those that pass are timed")
	require.NoError(t, c.Close(context.Background()))
}

func total(series map[string]int64) (n int64) {
	for _, v := range series {
		n += v
	}
	return n
}

// TestStrayNoticesDoNotMoveCounts from one class to another, where a call for the
// key comes while its ticket is released.
func TestStrayNoticesDoNotMoveCounts(t *testing.T) {
	conf := telemetry.Config{Roots: -1, KeyClass: func(string) string { return "mine" }}
	heard(t, conf, func(t *testing.T, s *script, c *Coordinator, r *listener) {
		s.emit(lease.Granted, "k", 77)
		q := s.next(lease.Release)
		before := r.series(telemetry.MetricCommands)
		require.Equal(t, map[string]int64{"": 1}, before)
		call := lockOf(t, c.Mutex("k"))
		q.end()
		s.next(lease.Acquire).held(1, 100)
		unlock(t, call.holds())
		require.GreaterOrEqual(t, r.series(telemetry.MetricCommands)[""], before[""], "what was counted went elsewhere")
	})
}

// TestSeriesDoNotGrowWithKeys: a hundred thousand of them are as few as one.
func TestSeriesDoNotGrowWithKeys(t *testing.T) {
	for name, x := range map[string]struct {
		keys  int
		class func(string) string
	}{
		"no classes":   {5_000, nil},
		"the key":      {100_000, func(key string) string { return key }},
		"a part of it": {5_000, func(key string) string { return key[:1] }},
	} {
		t.Run(name, func(t *testing.T) {
			r := listen(t)
			c := obeying(t, r, telemetry.Config{Roots: -1, KeyClass: x.class, HoldAlarm: time.Hour}, WithRetention(0))
			use := func(from, to int) {
				for i := from; i < to; i++ {
					h, err := c.Mutex(fmt.Sprintf("%d", i)).Lock(context.Background())
					require.NoError(t, err)
					require.NoError(t, h.Unlock())
				}
			}
			use(0, 1000)
			before := r.points()
			use(1000, x.keys)
			require.Equal(t, before, r.points())
			for metric, n := range before {
				require.LessOrEqual(t, n, 7*(telemetry.MaxClasses+1), metric) // seven outcomes of a wait are the most
			}
			require.Equal(t, int64(x.keys), total(r.series(telemetry.MetricHold)), "and none is left out")
			require.NoError(t, c.Close(context.Background()))
		})
	}
}

// points are how many series each metric has.
func (r *listener) points() map[string]int {
	r.t.Helper()
	n := map[string]int{}
	for name, m := range r.collect() {
		switch d := m.Data.(type) {
		case metricdata.Sum[int64]:
			n[name] = len(d.DataPoints)
		case metricdata.Histogram[float64]:
			n[name] = len(d.DataPoints)
		}
	}
	return n
}
