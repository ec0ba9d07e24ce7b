package coordinatortest

import (
	"context"
	"fmt"
	"log/slog"
	"sync"
	"testing"
	"time"

	"github.com/go-leasehold/leasehold/coordinator"
	"github.com/go-leasehold/leasehold/lease"
	"github.com/go-leasehold/leasehold/lease/memlease"
)

const (
	// closeWithin is how long Close waits for holds that nobody unlocked.
	closeWithin = time.Second
	// patience is how long HoldElsewhere waits for its turn.
	patience = 10 * time.Second
)

// Harness is a coordinator and the world around it. Its methods may be called at
// the same time.
type Harness struct {
	// Coordinator is what the code under test gets.
	Coordinator *coordinator.Coordinator

	// Server stands for Redis, for what the methods below don't do: latency,
	// faults of single requests, lost messages, a hook that sees every request.
	Server *memlease.Server

	store     *memlease.Store // of Coordinator
	elsewhere *elsewhere
	logger    *slog.Logger
	fail      func(format string, args ...any)

	mu struct {
		sync.Mutex

		others []*coordinator.Coordinator
		closed bool
	}
}

// New makes a coordinator with those options, and has it closed when the test
// ends. It fails the test if the options are refused. The coordinator logs to
// the test's output, unless an option says otherwise.
func New(t testing.TB, opts ...coordinator.Option) *Harness {
	t.Helper()
	h, err := start(slog.NewTextHandler(t.Output(), nil), opts)
	if err != nil {
		t.Fatalf("coordinatortest: %v", err)
	}
	h.fail = func(format string, args ...any) {
		t.Helper()
		t.Fatalf(format, args...)
	}
	t.Cleanup(h.Close)
	return h
}

// Start is New where there is no test, in an example or a program. It panics
// where New fails the test, and nothing is logged. Close it at the end.
func Start(opts ...coordinator.Option) *Harness {
	h, err := start(slog.DiscardHandler, opts)
	if err != nil {
		panic(fmt.Errorf("coordinatortest: %w", err))
	}
	h.fail = func(format string, args ...any) { panic(fmt.Sprintf(format, args...)) }
	return h
}

func start(handler slog.Handler, opts []coordinator.Option) (*Harness, error) {
	h := &Harness{Server: memlease.NewServer(), logger: slog.New(handler)}
	h.store = h.Server.Store()
	var err error
	if h.elsewhere, err = newElsewhere(h.Server); err == nil {
		h.Coordinator, err = h.open(h.store, opts)
	}
	if err != nil {
		h.Server.Close()
		return nil, err
	}
	return h, nil
}

// open makes a coordinator with the harness's own defaults.
func (h *Harness) open(store lease.Store, opts []coordinator.Option) (*coordinator.Coordinator, error) {
	defaults := []coordinator.Option{coordinator.WithLogger(h.logger)}
	return coordinator.NewWithStore(store, append(defaults, opts...)...)
}

// Close ends outages, closes every coordinator (holds that nobody unlocked are
// waited for a second) and the server. [New] has it called; twice does no harm.
func (h *Harness) Close() {
	h.mu.Lock()
	closed, coordinators := h.mu.closed, append(h.mu.others, h.Coordinator)
	h.mu.closed = true
	h.mu.Unlock()
	if closed {
		return
	}
	h.Server.SetDown(nil)
	h.Server.SetFaults(nil)
	h.store.SetDown(nil)
	h.elsewhere.close()
	ctx, cancel := context.WithTimeout(context.Background(), closeWithin)
	defer cancel()
	for _, c := range coordinators {
		_ = c.Close(ctx) // a test that leaves holds behind may do so
	}
	h.Server.Close()
}

// Another makes one more coordinator on the same server: to the first it is like
// another process. It is closed with the harness.
func (h *Harness) Another(opts ...coordinator.Option) *coordinator.Coordinator {
	c, err := h.open(h.Server.Store(), opts)
	if err != nil {
		h.fail("coordinatortest: another coordinator: %v", err)
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	h.mu.others = append(h.mu.others, c)
	return c
}

// Lose deletes the key under its holder, whoever that is, as an eviction or a
// failover would. Who waits for the key is still waiting, and may have it next.
func (h *Harness) Lose(key string) { h.Server.Delete(key) }

// LoseAll deletes everything, as FLUSHALL would: holders, queues and counters.
func (h *Harness) LoseAll() { h.Server.Flush() }

// Outage takes the store away from everybody: requests fail with err, and no
// message comes, until restore is called. Leases go on expiring.
func (h *Harness) Outage(err error) (restore func()) {
	h.Server.SetDown(err)
	h.Server.Disconnect(err)
	return sync.OnceFunc(func() {
		h.Server.SetDown(nil)
		h.Server.Connect()
	})
}

// CutOff takes the store away from [Harness.Coordinator] alone, as a network
// partition would, until restore is called. Others go on, and may have its keys
// when its leases have ended.
func (h *Harness) CutOff(err error) (restore func()) {
	h.store.SetDown(err)
	h.store.Disconnect(err)
	return sync.OnceFunc(func() {
		h.store.SetDown(nil)
		h.store.Connect()
	})
}

// Crash ends [Harness.Coordinator] as far as others can tell: nothing that it
// sends arrives, and its leases are left to expire. It can't be undone.
func (h *Harness) Crash() { h.store.Kill() }
