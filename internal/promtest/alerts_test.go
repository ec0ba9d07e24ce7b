package promtest

import (
	"context"
	"errors"
	"regexp"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/go-leasehold/leasehold/coordinator"
	"github.com/go-leasehold/leasehold/lease"
)

var errGone = errors.New("the server is gone")

// troubles are what the alerts are for: each raises the one that it is named after.
var troubles = map[string]func(w *world){
	"LeaseholdLeaseLost": func(w *world) {
		w.call(func(ctx context.Context) { w.hold(ctx, w.a, "order:1", 20*time.Second) })
		w.pass(every)
		w.Lose("order:1")
		w.pass(2 * every)
	},
	"LeaseholdRedisFailing": func(w *world) {
		restore := w.Outage(errGone)
		w.trade("order:1", 5*time.Minute)
		w.pass(5 * time.Minute)
		restore()
	},
	"LeaseholdStuck": func(w *world) {
		w.call(func(ctx context.Context) { w.hold(ctx, w.a, "order:1", 15*time.Minute) })
		w.pass(every)
		w.call(func(ctx context.Context) { w.hold(ctx, w.b, "order:1", 0) })
		w.pass(15 * time.Minute)
	},
	"LeaseholdHeldLong": func(w *world) {
		w.call(func(ctx context.Context) { w.hold(ctx, w.a, "order:1", 20*time.Second) })
		w.pass(3 * every)
	},
	"LeaseholdHoldsSlow": func(w *world) {
		w.call(func(ctx context.Context) {
			for range 120 {
				w.hold(ctx, w.a, "order:1", 8*time.Second)
			}
		})
		w.pass(16 * time.Minute)
	},
	"LeaseholdWaitsGrow": func(w *world) {
		w.call(func(ctx context.Context) { w.hold(ctx, w.a, "order:1", 30*time.Minute) })
		for range 60 {
			w.pass(30 * time.Second)
			w.call(func(ctx context.Context) { w.hold(ctx, w.b, "order:1", 0) })
		}
	},
	"LeaseholdWaitsFail": func(w *world) {
		w.call(func(ctx context.Context) { w.hold(ctx, w.a, "order:1", 8*time.Minute) })
		w.pass(every)
		w.giveUp("order:1", 8*time.Minute)
		w.pass(8 * time.Minute)
	},
	"LeaseholdHoldsExpired": func(w *world) {
		hold, err := w.a.Mutex("order:1", coordinator.MaxHold(20*time.Second)).Lock(w.t.Context())
		require.NoError(w.t, err)
		w.pass(3 * every)
		require.ErrorIs(w.t, hold.Unlock(), coordinator.ErrHoldExpired)
	},
	"LeaseholdRenewalsLate": func(w *world) {
		w.call(func(ctx context.Context) { w.hold(ctx, w.a, "order:1", 30*time.Second) })
		w.pass(every)
		w.renewLate()
		w.pass(2 * every)
	},
	"LeaseholdNoticesMissed": func(w *world) {
		w.Server.DropEvents(func(string, lease.Event) bool { return true })
		w.trade("order:1", 3*time.Minute)
		w.pass(3 * time.Minute)
	},
	"LeaseholdReleasesFail": func(w *world) {
		w.hold(w.t.Context(), w.a, "order:1", every)
		w.scrape()
		w.failRelease("order:1")
		w.pass(2 * every)
	},
	"LeaseholdTelemetryDropped": func(w *world) {
		w.pass(every)
		w.call(func(ctx context.Context) { w.hold(ctx, w.a, "panic:1", 20*time.Second) })
		w.pass(3 * every)
	},
}

// giveUp has a caller of b wait for a second at most, again and again.
func (w *world) giveUp(key string, d time.Duration) {
	end := time.Now().Add(d)
	w.call(func(ctx context.Context) {
		for time.Now().Before(end) {
			if hold, err := w.b.Mutex(key).TryLockFor(ctx, time.Second); err == nil {
				_ = hold.Unlock()
			}
			time.Sleep(time.Second) // time passes in no other way where it is granted
		}
	})
}

// renewLate has the server away until less than a third of a lease is left.
func (w *world) renewLate() {
	restore := w.Outage(errGone)
	time.Sleep(ttl - ttl/4)
	restore()
}

// failRelease has the server away from before an Unlock until the lease is over.
func (w *world) failRelease(key string) {
	hold, err := w.a.Mutex(key).Lock(w.t.Context())
	require.NoError(w.t, err)
	restore := w.CutOff(errGone)
	require.NoError(w.t, hold.Unlock())
	time.Sleep(2 * ttl)
	restore()
}

func TestAlertsFire(t *testing.T) {
	rules := alertRules(t)
	require.Len(t, troubles, len(rules))
	for _, rule := range rules {
		t.Run(rule.Alert, func(t *testing.T) {
			require.Contains(t, troubles, rule.Alert)
			s := newServer(t, live(t, troubles[rule.Alert]))
			fired := s.fired(t, rule)
			require.NotEmpty(t, fired)
			for _, alert := range fired {
				t.Log(alert.Labels, alert.Annotations)
				require.NotEmpty(t, alert.Labels.Get("severity"))
				for _, name := range []string{"summary", "description"} {
					text := alert.Annotations.Get(name)
					require.NotContains(t, text, "<error")
					require.NotContains(t, text, "<no value>")
					require.NotContains(t, text, "{{")
					for _, label := range regexp.MustCompile(`\$labels\.(\w+)`).FindAllStringSubmatch(rule.Annotations[name], -1) {
						require.Truef(t, alert.Labels.Has(label[1]), "the %s of %s has $labels.%s", name, rule.Alert, label[1])
					}
				}
			}
		})
	}
}

// TestAlertsAreQuietInGoodDays: two processes that share a lock, and wait for each other, are as it should be.
func TestAlertsAreQuietInGoodDays(t *testing.T) {
	s := newServer(t, live(t, func(w *world) {
		w.trade("order:1", 30*time.Minute)
		w.pass(30 * time.Minute)
	}))
	require.NotEmpty(t, s.query(t, "leasehold_grants_total > 1000"))
	for _, rule := range alertRules(t) {
		require.Emptyf(t, s.fired(t, rule), "%s", rule.Alert)
	}
}
