package browsertest

import (
	"context"
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/otel/sdk/trace"

	"github.com/go-leasehold/leasehold/coordinator"
	"github.com/go-leasehold/leasehold/coordinator/lockz"
	"github.com/go-leasehold/leasehold/internal/redistest"
	"github.com/go-leasehold/leasehold/lease"
	"github.com/go-leasehold/leasehold/telemetry"
)

// shop is a process with locks, another one, and the first one's page.
type shop struct {
	t            *testing.T
	here, there  *coordinator.Coordinator
	ctx          context.Context
	page         *httptest.Server
	wait         sync.WaitGroup
	holds        []*coordinator.Hold
	provider     *trace.TracerProvider
	stopEachWait context.CancelFunc
	asked        atomic.Int64                  // how often the page was
	away         atomic.Bool                   // it answers with an error
	slow         atomic.Pointer[chan struct{}] // it answers when that is closed
	slowed       atomic.Int64                  // answers that wait for that
}

func newShop(t *testing.T, options ...coordinator.Option) *shop {
	t.Helper()
	s := &shop{t: t, provider: trace.NewTracerProvider()}
	server := redistest.Shared(t)
	options = append([]coordinator.Option{
		coordinator.WithKeyPrefix(redistest.Prefix(t)),
		coordinator.WithTelemetry(telemetry.Config{
			TracerProvider: s.provider,
			TraceURL:       "http://127.0.0.1:16686/trace/{trace}?uiFind={span}",
			KeyClass:       func(key string) string { class, _, _ := strings.Cut(key, ":"); return class },
		}),
	}, options...)
	var err error
	s.here, err = coordinator.New(server.Option(), options...)
	require.NoError(t, err)
	s.there, err = coordinator.New(server.Option(), options...)
	require.NoError(t, err)
	s.ctx, s.stopEachWait = context.WithCancel(context.Background())
	page := lockz.Handler(s.here, lockz.WithTitle("shop"))
	s.page = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		s.asked.Add(1)
		if s.away.Load() {
			http.Error(w, "away", http.StatusServiceUnavailable)
			return
		}
		if slow := s.slow.Load(); slow != nil {
			s.slowed.Add(1)
			defer s.slowed.Add(-1)
			<-*slow
		}
		page.ServeHTTP(w, r)
	}))
	t.Cleanup(s.close)
	return s
}

func (s *shop) close() {
	s.page.Close()
	s.stopEachWait()
	s.wait.Wait()
	for _, h := range s.holds {
		_ = h.Unlock()
	}
	require.NoError(s.t, s.here.Close(context.Background()))
	require.NoError(s.t, s.there.Close(context.Background()))
	require.NoError(s.t, s.provider.Shutdown(context.Background()))
}

// lock takes a key, and returns the context of the hold.
func (s *shop) lock(ctx context.Context, c *coordinator.Coordinator, key string) context.Context {
	s.t.Helper()
	h, err := c.Mutex(key).Lock(ctx)
	require.NoError(s.t, err)
	s.holds = append(s.holds, h)
	return h.Context()
}

func (s *shop) read(ctx context.Context, c *coordinator.Coordinator, key string) {
	s.t.Helper()
	h, err := c.ReadWrite(key).Lock(ctx, lease.Shared)
	require.NoError(s.t, err)
	s.holds = append(s.holds, h)
}

// queue has a call wait for a key, and returns once it does.
func (s *shop) queue(ctx context.Context, c *coordinator.Coordinator, key string) {
	s.t.Helper()
	n := waiters(c, key)
	s.wait.Go(func() {
		if h, err := c.Mutex(key).Lock(ctx); err == nil {
			_ = h.Unlock()
		}
	})
	s.until(func() bool { return waiters(c, key) > n })
}

func waiters(c *coordinator.Coordinator, key string) int {
	for _, k := range c.Snapshot().Keys {
		if k.Key == key {
			return len(k.Waiters)
		}
	}
	return 0
}

// until waits for something to happen in a process.
func (s *shop) until(happened func() bool) {
	s.t.Helper()
	require.Eventually(s.t, happened, patience, 5*time.Millisecond)
}

// inUse fills the shop: what is held and waited for, here and there, a chain of
// waits, and a deadlock.
func (s *shop) inUse() {
	s.t.Helper()
	cart := s.lock(s.ctx, s.here, "cart:17")
	order := s.lock(s.ctx, s.here, "order:4711")
	s.queue(cart, s.here, "order:4711")
	s.queue(order, s.here, "cart:17")
	stock := s.lock(s.ctx, s.here, "stock:sku-9")
	invoice := s.lock(s.ctx, s.here, "invoice:2026-11")
	s.queue(invoice, s.here, "stock:sku-9")
	for range 3 {
		s.queue(s.ctx, s.here, "stock:sku-9")
	}
	s.queue(s.ctx, s.here, "invoice:2026-11")
	s.read(s.ctx, s.here, "catalog:main")
	s.read(s.ctx, s.here, "catalog:main")
	s.lock(s.ctx, s.there, "report:daily")
	s.queue(stock, s.here, "report:daily")
	s.queue(s.ctx, s.there, "stock:sku-9")
	s.lock(s.ctx, s.here, "export:nightly")
	s.until(func() bool {
		for _, k := range s.here.Snapshot().Keys {
			if k.Key == "stock:sku-9" {
				return k.Wanted
			}
		}
		return false
	})
	s.until(func() bool {
		for _, k := range s.look("?q=report:").Keys {
			return k.HolderTrace != nil
		}
		return false
	})
	s.until(func() bool { return len(s.look("?fleet=1").Cycles) == 2 }) // that of processes has lasted
}

// look returns the page as JSON, or an empty one.
func (s *shop) look(query string) (p lockz.Page) {
	ctx, done := context.WithTimeout(context.Background(), patience)
	defer done()
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, s.page.URL+"/"+query, nil)
	if err != nil {
		return p
	}
	r.Header.Set("Accept", "application/json")
	answer, err := http.DefaultClient.Do(r)
	if err != nil {
		return p
	}
	defer answer.Body.Close()
	_ = json.NewDecoder(answer.Body).Decode(&p) // what isn't JSON is an empty one
	return p
}
