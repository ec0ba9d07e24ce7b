package faulttest

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/go-leasehold/leasehold/coordinator"
	"github.com/go-leasehold/leasehold/internal/faults"
	"github.com/go-leasehold/leasehold/internal/redistest"
	"github.com/go-leasehold/leasehold/lease"
	"github.com/go-leasehold/leasehold/lease/memlease"
	"github.com/go-leasehold/leasehold/telemetry"
)

// The paths by which a hold can be granted, and the outcomes of waits.
var (
	allPaths = []telemetry.Path{
		telemetry.PathRetained, telemetry.PathPassed, telemetry.PathLocal, telemetry.PathRedis, telemetry.PathHandoff, telemetry.PathReentry,
	}
	allOutcomes = []telemetry.Outcome{
		telemetry.Acquired, telemetry.Busy, telemetry.Timeout, telemetry.Canceled, telemetry.Refused, telemetry.Unavailable, telemetry.Closed,
	}
)

// byPath is how many locks were granted, by path.
func (all points) byPath() map[telemetry.Path]int64 {
	n := map[telemetry.Path]int64{}
	for _, p := range allPaths {
		n[p] = all.total(telemetry.MetricGrants, telemetry.AttrPath, string(p))
	}
	return n
}

// byOutcome is how many calls a metric says have waited, by what it came to.
func (all points) byOutcome(metric string) map[telemetry.Outcome]int64 {
	n := map[telemetry.Outcome]int64{}
	for _, o := range allOutcomes {
		n[o] = all.total(metric, telemetry.AttrOutcome, string(o))
	}
	return n
}

// attempts is what a crowd counted of its own calls.
type attempts struct{ acquired, busy, timeout, canceled atomic.Int64 }

// try calls in one of the ways there are, and counts what came of it.
func (n *attempts) try(t *testing.T, m *coordinator.Mutex, way int) {
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	var hold *coordinator.Hold
	var err error
	switch way % 4 {
	case 0:
		hold, err = m.TryLockFor(ctx, 100*time.Microsecond)
	case 1:
		hold, err = m.TryLock(ctx)
	case 2:
		time.AfterFunc(100*time.Microsecond, cancel)
		hold, err = m.Lock(ctx)
	default:
		hold, err = m.Lock(ctx)
	}
	switch {
	case err == nil:
		n.acquired.Add(1)
		if err := hold.Unlock(); err != nil {
			t.Error(err)
		}
	case errors.Is(err, context.Canceled):
		var failed *coordinator.WaitError
		if errors.As(err, &failed) && failed.Waited > 0 { // its context had not ended before the call
			n.canceled.Add(1)
		}
	case way%4 == 1:
		n.busy.Add(1)
	default:
		n.timeout.Add(1)
	}
}

// K2: 64 workers on one key. How long they waited and how long they held are two things; every attempt is counted
// once, by how it was granted or by what it came to.
func TestContentionIsSeen(t *testing.T) {
	t.Parallel()
	s := redistest.Start(t)
	m := newMeter()
	c := steady(t, s.Addr(), coordinator.WithTelemetry(telemetry.Config{MeterProvider: m.provider, KeyClass: classOf}))
	mutex := c.Mutex(orderKey)
	const workers = 64
	const held = 50 * time.Millisecond
	hold := take(t, mutex)
	since := time.Now()
	var n attempts
	n.acquired.Add(1)
	enough := time.Now().Add(lasting(0, time.Minute))
	var wg sync.WaitGroup
	for worker := range workers {
		wg.Go(func() {
			n.try(t, mutex, 3) // which waits
			for round := 0; round < 60 || time.Now().Before(enough); round++ {
				n.try(t, mutex, worker+round)
			}
		})
	}
	eventually(t, hangs, "all wait", func() bool {
		return m.collect(t, c).total(telemetry.MetricWaiters, telemetry.AttrClass, "order") == workers
	})
	now := m.collect(t, c)
	require.EqualValues(t, 1, now.total(telemetry.MetricHolds, "", ""))
	require.EqualValues(t, 1, now.total(telemetry.MetricLeases, "", ""))
	require.EqualValues(t, 1, now.total(telemetry.MetricKeys, "", ""))
	require.Zero(t, now.total(telemetry.MetricHold, "", ""), "it goes on")
	time.Sleep(time.Until(since.Add(held)))
	require.NoError(t, hold.Unlock())
	wg.Wait()

	now = m.collect(t, c)
	require.Zero(t, now.total(telemetry.MetricWaiters, "", ""))
	require.Zero(t, now.total(telemetry.MetricHolds, "", ""))
	paths, outcomes, counted := now.byPath(), now.byOutcome(telemetry.MetricWait), now.byOutcome(telemetry.MetricWaits)
	granted := int64(0)
	for _, of := range paths {
		granted += of
	}
	t.Logf("%v, %v", paths, outcomes)
	require.Equal(t, granted, outcomes[telemetry.Acquired]+paths[telemetry.PathRetained], "who did not enter at once has waited")
	require.Equal(t, granted-paths[telemetry.PathRetained], counted[telemetry.Acquired])
	for _, o := range []telemetry.Outcome{telemetry.Busy, telemetry.Timeout, telemetry.Canceled} {
		require.Equal(t, outcomes[o], counted[o], o)
	}
	require.Equal(t, n.busy.Load(), outcomes[telemetry.Busy])
	// A call that left in the instant of its grant is one of those that were granted.
	late := granted - n.acquired.Load()
	lateTimeout, lateCanceled := n.timeout.Load()-outcomes[telemetry.Timeout], n.canceled.Load()-outcomes[telemetry.Canceled]
	require.GreaterOrEqual(t, lateTimeout, int64(0))
	require.GreaterOrEqual(t, lateCanceled, int64(0))
	require.Equal(t, late, lateTimeout+lateCanceled)
	require.Positive(t, paths[telemetry.PathRedis])
	require.Equal(t, paths[telemetry.PathLocal], now.total(telemetry.MetricHandoffs, telemetry.AttrHandoff, "local"))
	require.Equal(t, n.acquired.Load(), now.total(telemetry.MetricHold, telemetry.AttrOutcome, string(telemetry.Released)))
	holds := now.of(telemetry.MetricHold, string(telemetry.AttrOutcome), string(telemetry.Released), string(telemetry.AttrClass), "order")
	require.Len(t, holds, 1)
	require.GreaterOrEqual(t, holds[0].Sum, held.Seconds())
	waits := now.of(telemetry.MetricWait, string(telemetry.AttrOutcome), string(telemetry.Acquired), string(telemetry.AttrClass), "order")
	require.Len(t, waits, 1)
	require.Greater(t, waits[0].Sum, holds[0].Sum, "64 wait while one holds")
}

// K2: leases that are lost are counted by cause, and so are holds that expire.
func TestLostLeasesAreCountedByCause(t *testing.T) {
	t.Parallel()
	const ttl = 1200 * time.Millisecond
	s := redistest.Start(t)
	proxy := faults.NewProxy(t, s.Addr())
	m := newMeter()
	c := steady(t, proxy.Addr(), coordinator.WithTTL(ttl), coordinator.WithTelemetry(telemetry.Config{MeterProvider: m.provider}))
	for range 3 {
		hold := grab(t, c.Mutex("taken"))
		s.Do(t, "DEL", "lock:taken")
		require.ErrorIs(t, ended(t, hold, hangs), coordinator.ErrLeaseLost)
		require.ErrorIs(t, hold.Unlock(), coordinator.ErrLeaseLost)
	}
	var lost []*coordinator.Hold
	for _, key := range []string{"a", "b"} {
		lost = append(lost, grab(t, c.Mutex(key)))
	}
	proxy.BlackHole(true)
	for _, hold := range lost {
		require.ErrorIs(t, ended(t, hold, hangs), coordinator.ErrLeaseLost)
		require.ErrorIs(t, hold.Unlock(), coordinator.ErrLeaseLost)
	}
	proxy.BlackHole(false)
	hold := grab(t, c.Mutex("long", coordinator.MaxHold(time.Millisecond)))
	require.ErrorIs(t, ended(t, hold, hangs), coordinator.ErrHoldExpired)
	now := m.collect(t, c)
	require.EqualValues(t, 3, now.total(telemetry.MetricLosses, telemetry.AttrCause, telemetry.CauseTakenAway))
	require.EqualValues(t, 2, now.total(telemetry.MetricLosses, telemetry.AttrCause, telemetry.CauseNotRenewed))
	require.EqualValues(t, 1, now.total(telemetry.MetricExpired, "", ""))
	require.EqualValues(t, 5, now.total(telemetry.MetricHold, telemetry.AttrOutcome, string(telemetry.Lost)))
	require.EqualValues(t, 1, now.total(telemetry.MetricHold, telemetry.AttrOutcome, string(telemetry.Expired)))
	require.Zero(t, now.total(telemetry.MetricHold, telemetry.AttrOutcome, string(telemetry.Released)))
	require.Positive(t, now.total(telemetry.MetricFailures, "", ""))
}

// K2: notices that are lost, and what they would have told is found by looking.
func TestMissedNoticesAreCounted(t *testing.T) {
	t.Parallel()
	const ttl = 600 * time.Millisecond
	for notice, dropped := range map[string]lease.EventType{"grant": lease.Granted, "want": lease.Wanted} {
		t.Run(notice, func(t *testing.T) {
			t.Parallel()
			server := memlease.NewServer(memlease.WithoutTracking())
			t.Cleanup(server.Close)
			m := newMeter()
			traces := coordinator.WithTelemetry(telemetry.Config{MeterProvider: m.provider})
			holder, waiter := inMemory(t, server, coordinator.WithTTL(ttl)), inMemory(t, server, coordinator.WithTTL(ttl))
			missing := &waiter
			if notice == "want" {
				missing = &holder
			}
			*missing = inMemory(t, server, coordinator.WithTTL(ttl), traces)
			server.DropEvents(func(_ string, e lease.Event) bool { return e.Type == dropped })
			const times = 3
			for range times {
				hold := take(t, holder.Mutex("k"))
				waits := lockLater(t.Context(), waiter.Mutex("k"))
				awaitQueue(t, holder, "k", 1)
				eventually(t, hangs, "a renewal that finds it", func() bool { return notice == "grant" || stats(holder).MissedWants > 0 })
				require.NoError(t, hold.Unlock())
				got := await(t, waits, hangs, "the lock")
				require.NoError(t, got.err)
				require.NoError(t, got.hold.Unlock())
				require.NoError(t, take(t, holder.Mutex("k")).Unlock())
			}
			now := m.collect(t, *missing)
			found := now.total(telemetry.MetricMissed, telemetry.AttrNotice, notice)
			require.Positive(t, found)
			require.Equal(t, found, now.total(telemetry.MetricMissed, "", ""), "and no other")
		})
	}
}

// K2: how late renewals are is recorded; one that comes when little is left raises an alarm.
func TestLateRenewalsAreRecordedAndRaiseAnAlarm(t *testing.T) {
	t.Parallel()
	const ttl = 6 * time.Second
	s := redistest.Start(t)
	proxy := faults.NewProxy(t, s.Addr())
	m := newMeter()
	alarms := make(chan telemetry.Alarm, 100)
	spans := &spanList{}
	c := join(t, untracked(proxy.Addr()), coordinator.WithTTL(ttl), coordinator.WithTelemetry(telemetry.Config{
		MeterProvider: m.provider, TracerProvider: spans.provider(),
		OnAlarm: func(a telemetry.Alarm) { alarms <- a }, AlarmStack: true,
	}))
	before := time.Now()
	hold := grab(t, c.Mutex("k"))
	late := before.Add(ttl * 3 / 4)
	proxy.OnCommand(func(cmd []string) faults.Action {
		if is("renew")(cmd) && time.Now().Before(late) {
			return faults.Fail("BUSY Redis is busy running a script.")
		}
		return faults.Pass
	})
	alarm := await(t, alarms, hangs, "the alarm")
	require.Equal(t, telemetry.LateRenewal, alarm.Kind)
	require.Equal(t, lease.Owner(c.ID(), 1), alarm.Owner)
	require.Greater(t, alarm.Lasted, ttl*3/4-ttl/3-time.Second)
	require.Equal(t, ttl/3, alarm.Limit)
	require.Contains(t, alarm.Stack, "faulttest")
	require.True(t, alarm.Trace.IsValid())
	require.True(t, hold.Valid(), "it was in time all the same")
	now := m.collect(t, c)
	lateness := now.of(telemetry.MetricLateness)
	require.Len(t, lateness, 1)
	require.EqualValues(t, 1, lateness[0].Count)
	require.Greater(t, lateness[0].Sum, (ttl*3/4 - ttl/3 - time.Second).Seconds())
	require.EqualValues(t, 1, now.total(telemetry.MetricAlarms, telemetry.AttrAlarm, string(telemetry.LateRenewal)))
	require.EqualValues(t, 1, now.total(telemetry.MetricAlarms, "", ""))
	require.NoError(t, hold.Unlock())
	require.NoError(t, c.FlushTelemetry(t.Context()))
	held := named(spans.all(), telemetry.SpanHold)
	require.Len(t, held, 1)
	require.Equal(t, []string{telemetry.EventRenewalFailed, telemetry.EventRenewalLate}, held[0].eventNames())
	require.Equal(t, idOf(alarm.Trace), held[0].ID)
}
