package harness

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/rueidis"
	"github.com/stretchr/testify/require"

	"github.com/go-leasehold/leasehold/bench/contender"
	"github.com/go-leasehold/leasehold/internal/redistest"
)

func TestMain(m *testing.M) {
	for _, info := range supposed {
		info.About, info.Kind = "made up for tests", contender.Limit
		contender.Register(info)
	}
	if IsChild() {
		if err := Child([]Service{{Name: "Probe", New: func(w *Worker) any { return &Probe{w} }}}); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	redistest.Main(m)
}

// Probe is what tests ask of a child.
type Probe struct{ worker *Worker }

// Pid tells which process it is.
func (p *Probe) Pid(_ Nothing, pid *int) error {
	*pid = os.Getpid()
	return nil
}

// supposed are contenders that are made up, so that what is found of them is known.
var supposed = []contender.Info{
	{Name: "test/good", Open: openRedisLock},
	{Name: "test/nobody", Open: openMemory(func() locker { return nowhere{} })},
	{Name: "test/mutex", Open: openMemory(func() locker { return &channelLock{make(chan struct{}, 1)} })},
	{Name: "test/greedy", Open: openMemory(func() locker { return &greedy{} })},
	{Name: "test/errs", Open: openMemory(func() locker { return &erring{} })},
	{Name: "test/rhythm", Open: openMemory(func() locker { return &rhythm{} })},
	{Name: "test/idle", Open: openMemory(func() locker { return idle{} })},
	{Name: "test/closed", Open: func(context.Context, contender.Setup) (contender.Process, error) {
		return nil, errors.New("it does not open today")
	}},
}

type locker interface {
	lock(ctx context.Context) (unlock func() error, err error)
}

// memory is a contender of this process: one lock for all keys.
type memory struct {
	locker
	grants atomic.Int64
}

func openMemory(make func() locker) func(context.Context, contender.Setup) (contender.Process, error) {
	return func(context.Context, contender.Setup) (contender.Process, error) { return &memory{locker: make()}, nil }
}

func (m *memory) Mutex(string) contender.Mutex { return m }
func (m *memory) RW(string) contender.RW       { return rw{m} }
func (m *memory) Close() error                 { return nil }

func (m *memory) Lock(ctx context.Context) (contender.Hold, error) {
	unlock, err := m.lock(ctx)
	if err != nil {
		return nil, err
	}
	m.grants.Add(1)
	return hold(unlock), nil
}

func (m *memory) TryLock(ctx context.Context) (contender.Hold, error) { return m.Lock(ctx) }

// rw excludes readers as it does writers.
type rw struct{ *memory }

func (r rw) RLock(ctx context.Context) (contender.Hold, error) { return r.Lock(ctx) }

type hold func() error

func (h hold) Unlock() error { return h() }

func nothing() error { return nil }

// nowhere excludes nobody.
type nowhere struct{}

func (nowhere) lock(context.Context) (func() error, error) {
	time.Sleep(time.Microsecond)
	return nothing, nil
}

// channelLock excludes, in this process.
type channelLock struct{ full chan struct{} }

func (c *channelLock) lock(ctx context.Context) (func() error, error) {
	select {
	case c.full <- struct{}{}:
		return func() error { <-c.full; return nil }, nil
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

// greedy gives the lock to whoever came first, again and again, and to nobody else.
type greedy struct {
	mu    sync.Mutex
	first context.Context // of the load; guarded by mu, as is taken
	taken bool
}

func (g *greedy) lock(ctx context.Context) (func() error, error) {
	g.mu.Lock()
	if g.first != ctx {
		g.first, g.taken = ctx, false
	}
	mine := !g.taken
	g.taken = true
	g.mu.Unlock()
	if !mine {
		<-ctx.Done()
		return nil, ctx.Err()
	}
	time.Sleep(50 * time.Microsecond)
	return func() error {
		g.mu.Lock()
		defer g.mu.Unlock()
		g.taken = false
		return nil
	}, nil
}

// erring fails each second time.
type erring struct{ calls atomic.Int64 }

func (e *erring) lock(context.Context) (func() error, error) {
	time.Sleep(100 * time.Microsecond)
	if n := e.calls.Add(1); n%2 == 0 {
		return nil, errors.New("each second one fails")
	}
	return nothing, nil
}

// rhythm is slow one time in as many as one is timed.
type rhythm struct{ calls atomic.Int64 }

func (r *rhythm) lock(context.Context) (func() error, error) {
	if n := r.calls.Add(1); n%timedOneIn == 1 {
		time.Sleep(slow)
	}
	return nothing, nil
}

const slow = 500 * time.Microsecond

// idle gives nothing to anybody.
type idle struct{}

func (idle) lock(ctx context.Context) (func() error, error) {
	<-ctx.Done()
	return nil, ctx.Err()
}

// redisLock is SET NX, and excludes across processes.
type redisLock struct{ client rueidis.Client }

func openRedisLock(_ context.Context, setup contender.Setup) (contender.Process, error) {
	option := rueidis.ClientOption{InitAddress: []string{setup.Addr}, DisableCache: true, ForceSingleClient: true}
	client, err := rueidis.NewClient(option)
	return &redisLock{client}, err
}

func (r *redisLock) Mutex(key string) contender.Mutex { return &redisMutex{r.client, key} }
func (r *redisLock) Close() error                     { r.client.Close(); return nil }

type redisMutex struct {
	client rueidis.Client
	key    string
}

func (m *redisMutex) Lock(ctx context.Context) (contender.Hold, error) {
	for ctx.Err() == nil {
		set := m.client.B().Set().Key(m.key).Value("1").Nx().Build()
		err := m.client.Do(context.WithoutCancel(ctx), set).Error()
		if err == nil {
			return hold(func() error {
				return m.client.Do(context.Background(), m.client.B().Del().Key(m.key).Build()).Error()
			}), nil
		}
		if !rueidis.IsRedisNil(err) {
			return nil, err
		}
		time.Sleep(200 * time.Microsecond)
	}
	return nil, ctx.Err()
}

func find(t testing.TB, name string) contender.Info {
	info, err := contender.Find(name)
	require.NoError(t, err)
	return info
}

// openWorker opens a contender in this process.
func openWorker(t testing.TB, name string) *Worker {
	path := filepath.Join(t.TempDir(), "guard")
	require.NoError(t, CreateGuard(path))
	w := &Worker{}
	require.NoError(t, w.Open(OpenArgs{Contender: name, Guard: path}, &Nothing{}))
	t.Cleanup(func() { require.NoError(t, w.Close(Nothing{}, &Nothing{})) })
	return w
}

// runLoad runs a load of 50 ms.
func runLoad(w *Worker, args LoadArgs, drain time.Duration) (Tally, error) {
	if err := w.Prepare(args, &Nothing{}); err != nil {
		return Tally{}, err
	}
	var tally Tally
	err := w.Load(Window{
		Start: time.Now(), Warm: 10 * time.Millisecond, For: 50 * time.Millisecond, Tail: 5 * time.Millisecond, Drain: drain,
	}, &tally)
	return tally, err
}

// testStage is a stage on a server of its own, with short rounds.
func testStage(t testing.TB, rounds int) *Stage {
	server, err := StartServer()
	require.NoError(t, err)
	plan := Plan{
		Rounds: rounds, Warm: 10 * time.Millisecond, For: 50 * time.Millisecond, TTL: time.Second, Delays: []time.Duration{0},
	}
	stage, err := NewStage(server, plan)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, stage.Close()) })
	return stage
}

func dialTo(t testing.TB, wire *Wire, addr string) net.Conn {
	conn, err := wire.Dial(t.Context(), addr)
	require.NoError(t, err)
	t.Cleanup(func() { _ = conn.Close() })
	return conn
}
