package main

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/redis/rueidis"
	"github.com/stretchr/testify/require"

	"github.com/go-leasehold/leasehold/coordinator"
	"github.com/go-leasehold/leasehold/examples/internal/devredis"
	"github.com/go-leasehold/leasehold/examples/internal/fleet"
)

// products of the tests' databases.
const products = 4

// city is a Redis and a database, for shops.
type city struct {
	redis rueidis.Client
	addr  string
	db    *database
}

func newCity(t *testing.T, delay time.Duration) *city {
	t.Helper()
	server, err := devredis.Start(t.Context(), t.Logf)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, server.Close()) })
	redis, err := rueidis.NewClient(rueidis.ClientOption{InitAddress: []string{server.Addr()}, DisableCache: true})
	require.NoError(t, err)
	t.Cleanup(redis.Close)
	db, err := startDatabase(products, delay)
	require.NoError(t, err)
	t.Cleanup(db.close)
	return &city{redis: redis, addr: server.Addr(), db: db}
}

func (c *city) cache(expiry time.Duration) *cache {
	return &cache{redis: c.redis, prefix: "test:", expiry: expiry}
}

func (c *city) connection(t *testing.T) *connection {
	t.Helper()
	db := newConnection(c.db.url)
	t.Cleanup(db.close)
	return db
}

// process is a shop as another process would have it, with a coordinator of its own.
type process struct {
	*shop
	locks *coordinator.Coordinator
}

func (c *city) shop(t *testing.T, expiry time.Duration) *process {
	t.Helper()
	locks, err := coordinator.New(rueidis.ClientOption{InitAddress: []string{c.addr}},
		coordinator.WithRetention(time.Hour), coordinator.WithSharedRetention(time.Hour))
	require.NoError(t, err)
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), fleet.CloseLimit)
		defer cancel()
		require.NoError(t, locks.Close(ctx))
	})
	return &process{newShop(locks, c.cache(expiry), c.connection(t), "test:", products), locks}
}

func (c *city) entry(t *testing.T, id int) (string, bool) {
	t.Helper()
	text, err := c.redis.Do(t.Context(), c.redis.B().Get().Key(c.cache(0).entry(id)).Build()).ToString()
	if rueidis.IsRedisNil(err) {
		return "", false
	}
	require.NoError(t, err)
	return text, true
}

// row changes a row of the database behind everybody's back.
func (c *city) row(id int, change func(*row)) {
	r := &c.db.rows[id]
	r.mu.Lock()
	defer r.mu.Unlock()
	change(r)
}

// version returns what a service shows.
func version(ctx context.Context, s service, id int) (v uint64, err error) {
	err = s.view(ctx, id, func(p *product) error {
		v = p.Version
		return nil
	})
	return v, err
}

func requireVersion(t *testing.T, want uint64, s service) {
	t.Helper()
	v, err := version(t.Context(), s, 1)
	require.NoError(t, err)
	require.Equal(t, want, v)
}

// What a process has read it reads again without Redis, and never after somebody else's change.
func TestCopyIsUsedUntilSomebodyWrites(t *testing.T) {
	t.Parallel()
	c := newCity(t, 0)
	one, other := c.shop(t, time.Hour), c.shop(t, time.Hour)
	for want := uint64(1); want <= 10; want++ {
		for range 2 { // whoever wrote gives a lease up that the other wants; then both read
			requireVersion(t, want, one)
			requireVersion(t, want, other)
		}
		before := one.counts().Memory
		c.redis.Do(t.Context(), c.redis.B().Set().Key(c.cache(0).entry(1)).Value("nobody reads this").Build())
		for range 100 {
			requireVersion(t, want, one)
		}
		require.EqualValues(t, 100, one.counts().Memory-before)
		changed, err := other.change(t.Context(), 1, fmt.Sprint("name ", want))
		require.NoError(t, err)
		require.Equal(t, &product{ID: 1, Version: want + 1, Name: fmt.Sprint("name ", want)}, changed)
	}
	require.EqualValues(t, 1, c.db.queries.Load())
}

// Who changes a product has the new one in memory, and so have its readers.
func TestWriterKeepsACopy(t *testing.T) {
	t.Parallel()
	c := newCity(t, 0)
	s := c.shop(t, time.Hour)
	_, err := s.change(t.Context(), 1, "new name")
	require.NoError(t, err)
	requireVersion(t, 2, s)
	require.EqualValues(t, 1, s.counts().Memory)
	require.Zero(t, c.db.queries.Load())
}

// Readers that are let in together ask Redis once.
func TestOneLookForAllReadersOfAProcess(t *testing.T) {
	t.Parallel()
	c := newCity(t, 0)
	s, other := c.shop(t, time.Hour), c.shop(t, time.Hour)
	for want := uint64(2); want <= 11; want++ {
		_, err := other.change(t.Context(), 1, "name")
		require.NoError(t, err)
		before := s.counts().Memory
		const readers = 50
		var wg sync.WaitGroup
		for range readers {
			wg.Go(func() {
				if v, err := version(t.Context(), s, 1); err != nil || v != want {
					t.Errorf("version %d, %v", v, err)
				}
			})
		}
		wg.Wait()
		require.EqualValues(t, readers-1, s.counts().Memory-before)
	}
}

// While a product is shown, others may read it, and nobody changes it: from the cache, and when it was just rebuilt.
func TestNobodyWritesWhileAProductIsShown(t *testing.T) {
	t.Parallel()
	c := newCity(t, 0)
	one, other := c.shop(t, time.Hour), c.shop(t, time.Hour)
	for want := uint64(1); want <= 2; want++ {
		changed := make(chan error, 1)
		require.NoError(t, one.view(t.Context(), 1, func(p *product) error {
			require.Equal(t, want, p.Version)
			requireVersion(t, want, other)
			go func() {
				_, err := other.change(t.Context(), 1, "name")
				changed <- err
			}()
			require.Eventually(t, func() bool {
				for _, k := range other.locks.Snapshot().Keys {
					if k.Phase == "queued" {
						return true
					}
				}
				return false
			}, 20*time.Second, time.Millisecond, "the other doesn't wait")
			require.Empty(t, changed)
			return nil
		}))
		require.NoError(t, <-changed)
		requireVersion(t, want+1, one)
	}
}

// However many miss a product at the same moment, in however many processes, one asks the database.
func TestOneRebuildInAllProcesses(t *testing.T) {
	t.Parallel()
	c := newCity(t, 20*time.Millisecond)
	shops := []*process{c.shop(t, time.Hour), c.shop(t, time.Hour), c.shop(t, time.Hour)}
	for id := range products {
		var wg sync.WaitGroup
		for _, s := range shops {
			for range 10 {
				wg.Go(func() {
					if v, err := version(t.Context(), s, id); err != nil || v != 1 {
						t.Errorf("version %d, %v", v, err)
					}
				})
			}
		}
		wg.Wait()
		require.EqualValues(t, id+1, c.db.queries.Load())
	}
	var all counts
	for _, s := range shops {
		all.add(s.counts())
	}
	require.EqualValues(t, products, all.Rebuilds)
	require.Zero(t, all.Surplus)
	require.Zero(t, c.db.overlaps.Load())
}

func TestExpiredEntryIsRebuilt(t *testing.T) {
	t.Parallel()
	c := newCity(t, 0)
	one, other := c.shop(t, 100*time.Millisecond), c.shop(t, 100*time.Millisecond)
	requireVersion(t, 1, one)
	requireVersion(t, 1, other)
	c.row(1, func(r *row) { r.product.Version = 7 }) // which nobody has told the cache
	require.Eventually(t, func() bool {
		v, err := version(t.Context(), one, 1)
		return err == nil && v == 7
	}, 20*time.Second, time.Millisecond)
	requireVersion(t, 7, other) // whose copy is out of date as well
	require.Zero(t, one.counts().Surplus+other.counts().Surplus)
	require.Equal(t, c.db.queries.Load(), one.counts().Rebuilds+other.counts().Rebuilds)
}

// What comes late, from one who had the lock before, is refused, by the cache and by the database.
func TestFenceRefusesALowerToken(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	c := newCity(t, 0)
	cache, db := c.cache(time.Hour), c.connection(t)
	_, err := cache.put(ctx, 1, product{ID: 1, Version: 5}, 20)
	require.NoError(t, err)
	_, err = cache.put(ctx, 1, product{ID: 1, Version: 4}, 19)
	require.ErrorIs(t, err, errFenced)
	require.ErrorIs(t, cache.drop(ctx, 1, 19), errFenced)
	p, err := cache.get(ctx, 1)
	require.NoError(t, err)
	require.EqualValues(t, 5, p.Version)
	require.NoError(t, cache.drop(ctx, 1, 20)) // the same holder goes on
	_, err = cache.get(ctx, 1)
	require.ErrorIs(t, err, errMissing)
	_, err = cache.put(ctx, 1, product{ID: 1, Version: 4}, 19)
	require.ErrorIs(t, err, errFenced, "the fence outlives the entry")
	brief := c.cache(10 * time.Millisecond)
	_, err = brief.put(ctx, 3, product{ID: 3, Version: 5}, 20)
	require.NoError(t, err)
	require.Eventually(t, func() bool {
		_, err := brief.get(ctx, 3)
		return errors.Is(err, errMissing)
	}, 20*time.Second, time.Millisecond)
	_, err = brief.put(ctx, 3, product{ID: 3, Version: 4}, 19)
	require.ErrorIs(t, err, errFenced, "also where the entry has expired")
	_, err = cache.put(ctx, 2, product{ID: 2, Version: 1}, 1)
	require.NoError(t, err, "each product has its own")

	_, err = db.update(ctx, 1, "a", 20)
	require.NoError(t, err)
	_, err = db.update(ctx, 1, "b", 19)
	require.ErrorIs(t, err, errFenced)
	_, err = db.load(ctx, 1, 19)
	require.ErrorIs(t, err, errFenced)
	p, err = db.load(ctx, 1, 21)
	require.NoError(t, err)
	require.Equal(t, product{ID: 1, Version: 2, Name: "a"}, p)
	_, err = db.update(ctx, 1, "c", 20)
	require.ErrorIs(t, err, errFenced, "a query raises the fence")
	_, err = db.load(ctx, products, 30)
	require.ErrorContains(t, err, "no such row")
}

// A change that fails half-way leaves nothing old in the cache, nor in memory.
func TestFailedChangeHidesNothing(t *testing.T) {
	t.Parallel()
	c := newCity(t, 0)
	one, other := c.shop(t, time.Hour), c.shop(t, time.Hour)
	requireVersion(t, 1, one)
	requireVersion(t, 1, other)
	// As if the change had been made, and the answer been lost.
	c.row(1, func(r *row) { r.fence, r.product.Version = 1<<60, 2 })
	_, err := one.change(t.Context(), 1, "name")
	require.ErrorIs(t, err, errFenced)
	_, ok := c.entry(t, 1)
	require.False(t, ok)
	c.row(1, func(r *row) { r.fence = 0 })
	requireVersion(t, 2, one)
	requireVersion(t, 2, other)
}

// The lock is free again whatever happens to who had it.
func TestErrorsFreeTheLock(t *testing.T) {
	t.Parallel()
	c := newCity(t, 0)
	s := c.shop(t, time.Hour)
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	var err error
	c.row(1, func(*row) { _, err = version(ctx, s, 1) }) // the database does not answer meanwhile
	require.ErrorIs(t, err, context.DeadlineExceeded)
	requireVersion(t, 1, s)
	broken := errors.New("broken")
	for _, id := range []int{1, 2} { // from memory, and from a rebuild
		require.ErrorIs(t, s.view(t.Context(), id, func(*product) error { return broken }), broken)
	}
	for _, id := range []int{1, 2} {
		_, err = s.change(t.Context(), id, "name")
		require.NoError(t, err)
	}
}

func TestLookTellsHowLongAnEntryWillBeThere(t *testing.T) {
	t.Parallel()
	c := newCity(t, 0)
	cache := c.cache(time.Hour)
	_, _, err := cache.look(t.Context(), 1)
	require.ErrorIs(t, err, errMissing)
	met, err := cache.put(t.Context(), 1, product{ID: 1, Version: 3, Name: "x"}, 5)
	require.NoError(t, err)
	require.False(t, met)
	p, left, err := cache.look(t.Context(), 1)
	require.NoError(t, err)
	require.Equal(t, product{ID: 1, Version: 3, Name: "x"}, p)
	require.Greater(t, left, 50*time.Minute)
	require.LessOrEqual(t, left, time.Hour)
	met, err = cache.put(t.Context(), 1, p, 5)
	require.NoError(t, err)
	require.True(t, met)
}

func TestDatabaseCountsQueriesBesideEachOther(t *testing.T) {
	t.Parallel()
	d := &database{rows: make([]row, 2), delay: time.Hour}
	ctx, cancel := context.WithCancel(t.Context())
	var wg sync.WaitGroup
	query := func(id int) {
		wg.Go(func() { _, _ = d.query(ctx, id, 0) })
	}
	query(0)
	query(1)
	require.Eventually(t, func() bool { return d.queries.Load() == 2 }, 20*time.Second, time.Millisecond)
	require.Zero(t, d.overlaps.Load())
	query(0)
	require.Eventually(t, func() bool { return d.queries.Load() == 3 }, 20*time.Second, time.Millisecond)
	cancel()
	wg.Wait()
	require.EqualValues(t, 1, d.overlaps.Load())
}

// Without the lock two who find nothing both rebuild, and an old answer of the database may be stored after a change.
func TestNaiveIsWrong(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	c := newCity(t, 0)
	n := &naive{cache: c.cache(time.Hour), db: c.connection(t)}
	requireVersion(t, 1, n)
	requireVersion(t, 1, n)
	require.Equal(t, counts{Rebuilds: 1}, n.counts())
	_, err := n.rebuild(ctx, 1) // by one who found nothing before
	require.NoError(t, err)
	require.Equal(t, counts{Rebuilds: 2, Surplus: 1}, n.counts())

	old, err := n.db.load(ctx, 1, unfenced)
	require.NoError(t, err)
	_, err = n.change(ctx, 1, "name")
	require.NoError(t, err)
	_, err = n.cache.put(ctx, 1, old, unfenced)
	require.NoError(t, err)
	requireVersion(t, 1, n) // of 2
}
