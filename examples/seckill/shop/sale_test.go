package shop

import (
	"context"
	"errors"
	"sync"
	"testing"
	"time"

	"github.com/redis/rueidis"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/go-leasehold/leasehold/coordinator"
	"github.com/go-leasehold/leasehold/examples/internal/devredis"
	"github.com/go-leasehold/leasehold/segment"
)

// wait bounds what comes about in no time, if it does.
const wait = 30 * time.Second

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// table is a database in memory.
type table struct {
	mu     sync.Mutex
	rows   map[segment.Order]bool // whether it is paid
	writes int                    // of Paid
	broken error                  // what Paid answers, when it has not written
	pause  chan struct{}          // if there is one, Paid begins with a receive from it and goes on with another
}

func newTable() *table { return &table{rows: map[segment.Order]bool{}} }

func (d *table) Begin(_ context.Context, o segment.Order) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	if !d.rows[o] {
		d.rows[o] = false
	}
	return nil
}

func (d *table) Paid(_ context.Context, o segment.Order) error {
	if d.pause != nil {
		<-d.pause
		<-d.pause
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.broken != nil {
		return d.broken
	}
	d.writes++
	d.rows[o] = true
	return nil
}

func (d *table) Drop(_ context.Context, o segment.Order) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	if !d.rows[o] {
		delete(d.rows, o)
	}
	return nil
}

func (d *table) Unfinished(context.Context, time.Duration) (found []segment.Order, err error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	for o, paid := range d.rows {
		if !paid {
			found = append(found, o)
		}
	}
	return found, nil
}

func (d *table) breaks(err error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.broken = err
}

func (d *table) all() map[segment.Order]bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	rows := map[segment.Order]bool{}
	for o, paid := range d.rows {
		rows[o] = paid
	}
	return rows
}

// market is a Redis for sales.
type market struct {
	server *devredis.Server
	redis  rueidis.Client
}

func newMarket(t *testing.T) *market {
	t.Helper()
	server, err := devredis.Start(t.Context(), t.Logf)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, server.Close()) })
	redis, err := rueidis.NewClient(rueidis.ClientOption{InitAddress: []string{server.Addr()}, DisableCache: true})
	require.NoError(t, err)
	t.Cleanup(redis.Close)
	return &market{server: server, redis: redis}
}

// open opens a sale as another process would, with a coordinator of its own.
func (m *market) open(t *testing.T, orders Orders, conf Config) *Sale {
	t.Helper()
	locks, err := coordinator.New(rueidis.ClientOption{InitAddress: []string{m.server.Addr()}},
		coordinator.WithUnavailableAfter(200*time.Millisecond))
	require.NoError(t, err)
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), wait)
		defer cancel()
		require.NoError(t, locks.Close(ctx))
	})
	conf.Name = "test"
	if conf.Units == 0 {
		conf.Units = 10
	}
	if conf.Hold == 0 {
		conf.Hold = time.Hour
	}
	if conf.Segments == 0 {
		conf.Segments = 3
	}
	sale, err := Open(t.Context(), locks, orders, conf)
	require.NoError(t, err)
	return sale
}

func (m *market) requireBooks(t *testing.T, s *Sale, sold, reserved, left int64) {
	t.Helper()
	audit, err := s.Stock().Audit(t.Context())
	require.NoError(t, err)
	require.Equal(t, []int64{sold, reserved, left}, []int64{audit.Sold, audit.Reserved, audit.Left})
}

func order(id string, quantity int64) segment.Order {
	return segment.Order{User: "ann", ID: id, Quantity: quantity}
}

// What one process has begun another ends, and each step may be repeated by either.
func TestSaleOfTwoProcesses(t *testing.T) {
	t.Parallel()
	ctx, m, db := t.Context(), newMarket(t), newTable()
	one, other := m.open(t, db, Config{}), m.open(t, db, Config{})
	for i, s := range []*Sale{one, other, one} {
		r, err := s.Reserve(ctx, order("1", 2))
		require.NoError(t, err)
		require.Equal(t, i > 0, r.Repeated)
		require.WithinDuration(t, time.Now().Add(time.Hour), r.Deadline, wait)
	}
	m.requireBooks(t, one, 0, 2, 8)
	require.Empty(t, db.all(), "a reservation needs no row")
	for i, s := range []*Sale{other, one} {
		receipt, err := s.Pay(ctx, "ann", "1")
		require.NoError(t, err)
		require.Equal(t, i > 0, receipt.Repeated)
	}
	require.Equal(t, map[segment.Order]bool{order("1", 2): true}, db.all())
	for i, s := range []*Sale{one, other} {
		receipt, err := s.Deduct(ctx, order("2", 3))
		require.NoError(t, err)
		require.Equal(t, i > 0, receipt.Repeated)
	}
	m.requireBooks(t, one, 5, 0, 5)
	require.Equal(t, map[segment.Order]bool{order("1", 2): true, order("2", 3): true}, db.all())
	require.ErrorIs(t, other.Cancel(ctx, "ann", "1"), segment.ErrConfirmed)
	_, err := one.Deduct(ctx, order("3", 6))
	require.ErrorIs(t, err, segment.ErrSoldOut)
	require.Len(t, db.all(), 2, "who gets nothing does not come to the database")
}

// A process dies between the stock and the database. Whoever sends the order again, or sweeps, ends it.
func TestEveryGapIsClosed(t *testing.T) {
	t.Parallel()
	ctx, m, db := t.Context(), newMarket(t), newTable()
	one, other := m.open(t, db, Config{}), m.open(t, db, Config{})
	dead := errors.New("dead")
	db.breaks(dead)
	_, err := one.Deduct(ctx, order("now", 1))
	require.ErrorIs(t, err, dead)
	require.ErrorIs(t, err, ErrDatabase)
	_, err = one.Reserve(ctx, order("later", 1))
	require.NoError(t, err)
	_, err = one.Pay(ctx, "ann", "later")
	require.ErrorIs(t, err, ErrDatabase)
	m.requireBooks(t, one, 2, 0, 8)
	require.Equal(t, map[segment.Order]bool{order("later", 1): false}, db.all())

	db.breaks(nil)
	require.NoError(t, other.Sweep(ctx, 0))
	require.Equal(t, map[segment.Order]bool{order("later", 1): true}, db.all())
	receipt, err := other.Deduct(ctx, order("now", 1))
	require.NoError(t, err)
	require.True(t, receipt.Repeated)
	require.Equal(t, map[segment.Order]bool{order("later", 1): true, order("now", 1): true}, db.all())
	m.requireBooks(t, one, 2, 0, 8)

	db.breaks(dead)
	_, err = one.Reserve(ctx, order("twice", 1))
	require.NoError(t, err)
	_, err = one.Pay(ctx, "ann", "twice")
	require.ErrorIs(t, err, ErrDatabase)
	require.ErrorIs(t, one.Sweep(ctx, 0), ErrDatabase)
	db.breaks(nil)
	r, err := other.Reserve(ctx, order("twice", 1)) // by who has not heard that it is paid
	require.NoError(t, err)
	require.True(t, r.Confirmed)
	require.True(t, db.all()[order("twice", 1)], "before anybody is told")
}

// A payment was begun by a process that died before it told the stock: whether it came in time the stock decides.
func TestSweepDropsWhatWasPaidTooLate(t *testing.T) {
	t.Parallel()
	ctx, m, db := t.Context(), newMarket(t), newTable()
	s := m.open(t, db, Config{Hold: 50 * time.Millisecond})
	_, err := s.Reserve(ctx, order("1", 4))
	require.NoError(t, err)
	require.NoError(t, db.Begin(ctx, order("1", 4)))
	_, err = s.Reserve(ctx, order("2", 1))
	require.NoError(t, err)
	require.NoError(t, s.Cancel(ctx, "ann", "2"))
	require.NoError(t, db.Begin(ctx, order("2", 1)))
	require.Eventually(t, func() bool {
		left, err := s.Stock().Remaining(ctx)
		return err == nil && left == 10
	}, wait, time.Millisecond)
	require.NoError(t, s.Sweep(ctx, 0))
	require.Empty(t, db.all())
	_, err = s.Pay(ctx, "ann", "1")
	require.ErrorIs(t, err, segment.ErrExpired)
	require.Empty(t, db.all())

	// One that the stock does not know may be older than what it remembers: that is for a person to look into.
	require.NoError(t, db.Begin(ctx, order("3", 1)))
	require.ErrorIs(t, s.Sweep(ctx, 0), segment.ErrUnknownOrder)
	require.Len(t, db.all(), 1)
}

func TestRunSweeps(t *testing.T) {
	t.Parallel()
	m, db := newMarket(t), newTable()
	s := m.open(t, db, Config{})
	_, err := s.Reserve(t.Context(), order("1", 4))
	require.NoError(t, err)
	require.NoError(t, db.Begin(t.Context(), order("1", 4)))
	require.NoError(t, db.Begin(t.Context(), order("2", 4)))
	ctx, cancel := context.WithCancel(t.Context())
	failed := make(chan error)
	var running sync.WaitGroup
	running.Go(func() {
		s.Run(ctx, func(err error) {
			select {
			case failed <- err:
			case <-ctx.Done():
			}
		})
	})
	require.ErrorIs(t, <-failed, segment.ErrUnknownOrder)
	require.True(t, db.all()[order("1", 4)])
	cancel()
	running.Wait()
}

// Cancelled, an order takes nothing from now on, whether there was one or not.
func TestCancelIsFinal(t *testing.T) {
	t.Parallel()
	ctx, m := t.Context(), newMarket(t)
	s := m.open(t, newTable(), Config{})
	require.NoError(t, s.Cancel(ctx, "ann", "1"))
	require.NoError(t, s.Cancel(ctx, "ann", "1"))
	_, err := s.Deduct(ctx, order("1", 1))
	require.ErrorIs(t, err, segment.ErrReturned)
	_, err = s.Pay(ctx, "ann", "1")
	require.ErrorIs(t, err, segment.ErrReturned)
	m.requireBooks(t, s, 0, 0, 10)
}

func TestOpenRefusesOtherSettings(t *testing.T) {
	t.Parallel()
	m := newMarket(t)
	s := m.open(t, newTable(), Config{PerUser: 3})
	locks, err := coordinator.New(rueidis.ClientOption{InitAddress: []string{m.server.Addr()}})
	require.NoError(t, err)
	defer func() { require.NoError(t, locks.Close(context.Background())) }()
	_, err = Open(t.Context(), locks, newTable(), Config{Name: "test", Units: 10, Segments: 3, PerUser: 4})
	require.ErrorIs(t, err, segment.ErrEpoch)
	_, err = Open(t.Context(), locks, newTable(), Config{Units: 10})
	require.ErrorIs(t, err, coordinator.ErrInvalid)
	require.NoError(t, s.Stock().Drop(t.Context()))
}

// What is left costs a look at every segment, so those who ask share it.
func TestLeftIsShared(t *testing.T) {
	t.Parallel()
	m := newMarket(t)
	s := m.open(t, newTable(), Config{})
	before := s.Stock().Snapshot().Surveys
	start := time.Now()
	var wg sync.WaitGroup
	for range 1000 {
		wg.Go(func() {
			if left, err := s.Left(t.Context()); err != nil || left != 10 {
				t.Errorf("%d left, %v", left, err)
			}
		})
	}
	wg.Wait()
	require.LessOrEqual(t, s.Stock().Snapshot().Surveys-before, 1+int64(time.Since(start)/leftFor))
	_, err := s.Deduct(t.Context(), order("1", 3))
	require.NoError(t, err)
	require.Eventually(t, func() bool {
		left, err := s.Left(t.Context())
		return err == nil && left == 7
	}, wait, time.Millisecond)
}
