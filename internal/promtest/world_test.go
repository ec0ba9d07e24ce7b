package promtest

import (
	"context"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/go-leasehold/leasehold/coordinator"
	"github.com/go-leasehold/leasehold/coordinator/coordinatortest"
	"github.com/go-leasehold/leasehold/telemetry"
)

// ttl is that of the leases of a world.
const ttl = 6 * time.Second

// world is two processes that share locks on a server in memory, in virtual time, and who scrapes them.
type world struct {
	*coordinatortest.Harness
	t       *testing.T
	a, b    *coordinator.Coordinator // the harness's, and another
	scraped []*process
	samples []sample
	callers sync.WaitGroup
}

// live has something happen in a world, and returns what was scraped meanwhile.
func live(t *testing.T, happens func(w *world)) (samples []sample) {
	synctest.Test(t, func(t *testing.T) {
		w := &world{t: t, scraped: []*process{newProcess(t, "a"), newProcess(t, "b")}}
		w.Harness = coordinatortest.New(t, w.options(0)...)
		w.a, w.b = w.Harness.Coordinator, w.Another(w.options(1)...)
		w.scrape()
		happens(w)
		w.callers.Wait()
		samples = w.samples
	})
	return samples
}

func (w *world) options(process int) []coordinator.Option {
	return []coordinator.Option{
		coordinator.WithTTL(ttl), coordinator.WithLogger(slog.New(slog.DiscardHandler)),
		coordinator.WithTelemetry(telemetry.Config{
			MeterProvider: w.scraped[process].provider,
			KeyClass:      classOf,
			OnAlarm: func(a telemetry.Alarm) {
				if a.Class == "panic" {
					panic("a callback of the user's")
				}
			},
		}),
	}
}

// classOf has "order:1" be of the class "order".
func classOf(key string) string {
	class, _, _ := strings.Cut(key, ":")
	return class
}

// pass lets time pass, with a scrape every 15 s.
func (w *world) pass(d time.Duration) {
	for end := time.Now().Add(d); time.Now().Before(end); {
		time.Sleep(every)
		w.scrape()
	}
}

func (w *world) scrape() {
	for _, c := range []*coordinator.Coordinator{w.a, w.b} {
		require.NoError(w.t, c.FlushTelemetry(w.t.Context()))
	}
	for _, p := range w.scraped {
		w.samples = append(w.samples, p.scrape(w.t, time.Now())...)
	}
}

// call runs a caller beside; what becomes of it is not the matter here.
func (w *world) call(do func(ctx context.Context)) {
	w.callers.Go(func() { do(w.t.Context()) })
}

// hold locks a key for a time.
func (w *world) hold(ctx context.Context, c *coordinator.Coordinator, key string, d time.Duration) {
	if hold, err := c.Mutex(key).Lock(ctx); err == nil {
		time.Sleep(d)
		_ = hold.Unlock() // that it was lost may be what happens
	}
}

// trade has callers of both processes lock a key in turns for a time.
func (w *world) trade(key string, d time.Duration) {
	end := time.Now().Add(d)
	for _, c := range []*coordinator.Coordinator{w.a, w.a, w.b, w.b} {
		w.call(func(ctx context.Context) {
			for time.Now().Before(end) {
				w.hold(ctx, c, key, 20*time.Millisecond)
				time.Sleep(30 * time.Millisecond)
			}
		})
	}
}
