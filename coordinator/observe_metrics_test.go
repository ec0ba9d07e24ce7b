package coordinator

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/otel/sdk/metric/metricdata"

	"github.com/go-leasehold/leasehold/lease"
	"github.com/go-leasehold/leasehold/lease/memlease"
	"github.com/go-leasehold/leasehold/telemetry"
)

// shapes are the metrics with unit, kind and labels. Those of stock are tested by
// package segment.
var shapes = map[string]string{
	telemetry.MetricWait:     "s histogram leasehold.key.class leasehold.mode leasehold.outcome",
	telemetry.MetricHold:     "s histogram leasehold.key.class leasehold.mode leasehold.outcome",
	telemetry.MetricLateness: "s histogram leasehold.key.class",

	telemetry.MetricWaiters: "{waiter} now leasehold.key.class",
	telemetry.MetricHolds:   "{lock} now leasehold.key.class",
	telemetry.MetricLeases:  "{lease} now leasehold.key.class",
	telemetry.MetricKeys:    "{key} now leasehold.key.class",

	telemetry.MetricWaits:          "{wait} sum leasehold.key.class leasehold.outcome",
	telemetry.MetricGrants:         "{lock} sum leasehold.key.class leasehold.path",
	telemetry.MetricHandoffs:       "{handoff} sum leasehold.handoff leasehold.key.class",
	telemetry.MetricYields:         "{handoff} sum leasehold.key.class",
	telemetry.MetricRenewals:       "{renewal} sum leasehold.key.class",
	telemetry.MetricLosses:         "{lease} sum leasehold.cause leasehold.key.class",
	telemetry.MetricExpired:        "{lock} sum leasehold.key.class",
	telemetry.MetricMissed:         "{notice} sum leasehold.key.class leasehold.notice",
	telemetry.MetricCommands:       "{command} sum leasehold.key.class",
	telemetry.MetricFailures:       "{command} sum leasehold.key.class",
	telemetry.MetricFailedReleases: "{lease} sum leasehold.key.class",
	telemetry.MetricAlarms:         "{alarm} sum leasehold.alarm leasehold.key.class",
	telemetry.MetricDropped:        "{record} sum",
}

// shape describes a metric as shapes does.
func shape(m metricdata.Metrics) string {
	parts := []string{m.Unit}
	keys := map[string]bool{}
	switch d := m.Data.(type) {
	case metricdata.Sum[int64]:
		kind := "now"
		if d.IsMonotonic {
			kind = "sum"
		}
		parts = append(parts, kind)
		for _, p := range d.DataPoints {
			for _, kv := range p.Attributes.ToSlice() {
				keys[string(kv.Key)] = true
			}
		}
	case metricdata.Histogram[float64]:
		parts = append(parts, "histogram")
		for _, p := range d.DataPoints {
			for _, kv := range p.Attributes.ToSlice() {
				keys[string(kv.Key)] = true
			}
		}
	}
	var labels []string
	for k := range keys {
		labels = append(labels, k)
	}
	slices.Sort(labels)
	return strings.Join(append(parts, labels...), " ")
}

func TestEveryMetricIsAsItIsNamed(t *testing.T) {
	heard(t, quietly, func(t *testing.T, s *script, c *Coordinator, r *listener) {
		h := lockOf(t, c.Mutex("k")).holdsAfter(s)
		s.after(time.Second, lease.Renew).held(0, 0)
		unlock(t, h)
		require.NoError(t, c.FlushTelemetry(t.Context()))
		got := map[string]string{}
		for name, m := range r.collect() {
			require.NotEmpty(t, m.Description, name)
			if !strings.HasPrefix(name, "leasehold.stock.") {
				got[name] = shape(m)
			}
		}
		require.Equal(t, shapes, got)
	})
}

// TestCountersBeginWithZero: what is seldom is seen as a step by who computes rates.
func TestCountersBeginWithZero(t *testing.T) {
	heard(t, quietly, func(t *testing.T, _ *script, _ *Coordinator, r *listener) {
		for name, labels := range map[string][]string{
			telemetry.MetricLosses:         {"not_renewed", "taken_away"},
			telemetry.MetricMissed:         {"grant", "want"},
			telemetry.MetricAlarms:         {"long_hold", "long_wait", "late_renewal"},
			telemetry.MetricGrants:         {"retained", "passed", "local", "redis", "handoff", "reentry"},
			telemetry.MetricHandoffs:       {"local", "remote"},
			telemetry.MetricWaits:          {"acquired", "busy", "timeout", "canceled", "refused", "unavailable", "closed"},
			telemetry.MetricExpired:        {""},
			telemetry.MetricFailures:       {""},
			telemetry.MetricFailedReleases: {""},
			telemetry.MetricDropped:        {""},
		} {
			all := r.series(name)
			require.Len(t, all, len(labels), "%s: %v", name, all)
			for _, l := range labels {
				require.Contains(t, all, l, name)
				require.Zero(t, all[l])
			}
		}
	})
}

func TestWhatThereIsNow(t *testing.T) {
	heard(t, quietly, func(t *testing.T, s *script, c *Coordinator, r *listener) {
		now := func() string {
			return fmt.Sprintf("%d keys %d leases %d holds %d waiters", r.series(telemetry.MetricKeys)[""],
				r.series(telemetry.MetricLeases)[""], r.series(telemetry.MetricHolds)[""], r.series(telemetry.MetricWaiters)[""])
		}
		require.Equal(t, "0 keys 0 leases 0 holds 0 waiters", now())
		first := lockOf(t, c.Mutex("k"))
		require.Equal(t, "1 keys 0 leases 0 holds 1 waiters", now())
		h := first.holdsAfter(s)
		second := lockOf(t, c.Mutex("k"))
		require.Equal(t, "1 keys 1 leases 1 holds 1 waiters", now())
		again := lockWith(t, h.Context(), c.Mutex("k")).holds()
		require.Equal(t, "1 keys 1 leases 1 holds 1 waiters", now(), "a hold has many handles")
		unlock(t, again)
		unlock(t, h)
		unlock(t, second.holds())
		require.Equal(t, "1 keys 1 leases 0 holds 0 waiters", now())

		l := c.ReadWrite("r")
		reader := begin(t, func() (*Hold, error) { return l.Lock(t.Context(), lease.Shared) })
		s.next(lease.Acquire).held(1, 100)
		s.obey()
		unlock(t, reader.holds())
		unlock(t, reads(t, l).holds())
		before := r.series(telemetry.MetricGrants)["passed"]
		a, b := passes(t, l), passes(t, l)
		require.Equal(t, before+2, r.series(telemetry.MetricGrants)["passed"], "also while the gate is open")
		require.Equal(t, "2 keys 2 leases 2 holds 0 waiters", now(), "those that passed the gate hold, too")
		unlock(t, a)
		unlock(t, b)
		time.Sleep(time.Minute + time.Second)
		synctest.Wait()
		require.Equal(t, "0 keys 0 leases 0 holds 0 waiters", now())
	}, WithRetention(time.Minute))
}

// fleet is some coordinators on one server, each with a listener.
type fleet struct {
	server *memlease.Server
	c      []*Coordinator
	r      []*listener
}

// together runs a test with coordinators on a server in memory, in virtual time.
func together(t *testing.T, n int, conf telemetry.Config, test func(t *testing.T, f *fleet), opts ...memlease.Option) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		opts = append([]memlease.Option{memlease.WithLatency(time.Millisecond, time.Millisecond, time.Millisecond)}, opts...)
		f := &fleet{server: memlease.NewServer(opts...)}
		defer f.server.Close()
		for range n {
			r := listen(t)
			c, err := NewWithStore(f.server.Store(), WithTTL(3*time.Second), WithTelemetry(r.config(conf)))
			require.NoError(t, err)
			f.c, f.r = append(f.c, c), append(f.r, r)
		}
		defer func() {
			for i, c := range f.c {
				require.NoError(t, c.Close(context.Background()))
				require.Empty(t, f.r[i].live.names(), "spans that never end")
			}
		}()
		test(t, f)
	})
}

// TestNoticesThatWereMissedAreCounted: what they would have told was found by looking.
func TestNoticesThatWereMissedAreCounted(t *testing.T) {
	lost := map[string]lease.EventType{"grant": lease.Granted, "want": lease.Wanted}
	for notice, typ := range lost {
		t.Run(notice, func(t *testing.T) {
			together(t, 2, quietly, func(t *testing.T, f *fleet) {
				f.server.DropEvents(func(_ string, e lease.Event) bool { return e.Type == typ })
				first := lockOf(t, f.c[0].Mutex("k"))
				time.Sleep(10 * time.Millisecond)
				second := lockOf(t, f.c[1].Mutex("k"))
				time.Sleep(time.Second)
				unlock(t, first.holds())
				time.Sleep(3 * time.Second)
				unlock(t, second.holds())
				missed := map[string]int64{}
				for _, r := range f.r {
					for k, n := range r.some(telemetry.MetricMissed) {
						missed[k] += n
					}
				}
				require.Equal(t, map[string]int64{notice: 1}, missed)
				path := map[string]string{"grant": "redis", "want": "handoff"}[notice]
				require.Equal(t, map[string]int64{path: 1}, f.r[1].some(telemetry.MetricGrants))
			}, memlease.WithoutTracking())
		})
	}
}

// TestNoNoticeIsMissedWhereNoneIsLost: that is how the other numbers get their sense.
func TestNoNoticeIsMissedWhereNoneIsLost(t *testing.T) {
	together(t, 3, quietly, func(t *testing.T, f *fleet) {
		done := make(chan error)
		for i := range 12 {
			go func() {
				for range 20 {
					h, err := f.c[i%3].Mutex("k").Lock(context.Background())
					if err != nil {
						done <- err
						return
					}
					time.Sleep(time.Millisecond)
					if err := h.Unlock(); err != nil {
						done <- err
						return
					}
				}
				done <- nil
			}()
		}
		for range 12 {
			require.NoError(t, <-done)
		}
		var grants, holds, waits, remote, handed, yields int64
		for _, r := range f.r {
			require.Empty(t, r.some(telemetry.MetricMissed))
			for path, n := range r.some(telemetry.MetricGrants) {
				grants += n
				if path == "handoff" {
					handed += n
				}
			}
			holds += r.series(telemetry.MetricHold)["exclusive released"]
			waits += r.series(telemetry.MetricWait)["exclusive acquired"] + r.series(telemetry.MetricGrants)["retained"]
			require.Equal(t, r.series(telemetry.MetricWait)["exclusive acquired"], r.series(telemetry.MetricWaits)["acquired"])
			remote += r.series(telemetry.MetricHandoffs)["remote"]
			yields += r.series(telemetry.MetricYields)[""]
		}
		require.Equal(t, []int64{240, 240, 240}, []int64{grants, holds, waits})
		require.Equal(t, handed, remote)
		require.NotZero(t, handed)
		require.NotZero(t, yields)
		require.LessOrEqual(t, yields, handed)
	})
}

func TestTroubleWithTheStoreIsCounted(t *testing.T) {
	heard(t, quietly, func(t *testing.T, s *script, c *Coordinator, r *listener) {
		call := lockOf(t, c.Mutex("k"))
		s.next(lease.Acquire).fail(errors.New("gone"))
		s.within(time.Second, lease.Acquire).fail(errors.New("gone"))
		s.within(time.Second, lease.Acquire).held(1, 100)
		unlock(t, call.holds())
		for range 6 {
			s.within(3*time.Second, lease.Release).fail(errors.New("gone"))
		}
		require.Equal(t, map[string]int64{"": 9}, r.some(telemetry.MetricCommands))
		require.Equal(t, map[string]int64{"": 8}, r.some(telemetry.MetricFailures))
		require.Empty(t, r.some(telemetry.MetricFailedReleases))
		for end := time.Now().Add(3 * time.Second); time.Now().Before(end) && c.live.Load() > 0; {
			s.within(3*time.Second, lease.Release).fail(errors.New("gone"))
			synctest.Wait()
		}
		require.Zero(t, c.live.Load())
		require.Equal(t, map[string]int64{"": 1}, r.some(telemetry.MetricFailedReleases))
	})
}

// TestCoordinatorsOfAProcessAreSummedUp: they tell one provider.
func TestCoordinatorsOfAProcessAreSummedUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := listen(t)
		server := memlease.NewServer()
		defer server.Close()
		for range 2 {
			c, err := NewWithStore(server.Store(), WithTelemetry(r.config(quietly)))
			require.NoError(t, err)
			defer func() { require.NoError(t, c.Close(context.Background())) }()
			for range 3 {
				unlock(t, lockOf(t, c.Mutex("k")).holds())
			}
			time.Sleep(time.Second)
		}
		require.Equal(t, map[string]int64{"redis": 2, "retained": 4}, r.some(telemetry.MetricGrants))
		require.Equal(t, map[string]int64{"exclusive released": 6}, r.some(telemetry.MetricHold))
	})
}

// TestBucketsOfDurations: from a hand-off in memory to a minute.
func TestBucketsOfDurations(t *testing.T) {
	heard(t, quietly, func(t *testing.T, s *script, c *Coordinator, r *listener) {
		h := lockOf(t, c.Mutex("k")).holdsAfter(s)
		time.Sleep(300 * time.Millisecond)
		unlock(t, h)
		d := r.collect()[telemetry.MetricHold].Data.(metricdata.Histogram[float64])
		require.Len(t, d.DataPoints, 1)
		p := d.DataPoints[0]
		require.InDelta(t, 0.3, p.Sum, 1e-9)
		require.LessOrEqual(t, p.Bounds[0], 1e-5)
		require.GreaterOrEqual(t, p.Bounds[len(p.Bounds)-1], 60.0)
		require.Equal(t, uint64(1), p.BucketCounts[slices.Index(p.Bounds, 0.5)])
		require.Equal(t, metricdata.CumulativeTemporality, d.Temporality)
	})
}
