package main

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/go-leasehold/leasehold/coordinator"
	"github.com/go-leasehold/leasehold/rwlock"
)

// shop is one process's part of the service: products from memory, from the cache in Redis, or from the database,
// under a read/write lock for each product.
//
// A product is cached twice: as an entry in Redis, for the whole fleet, and as a copy of that entry in the memory
// of each process that has read it. Both are touched under the product's lock only, and both are right for the
// same reason: whoever changes the product holds the lock for writing until the entry is changed as well, so a
// reader, who holds it too, sees the change, or is there before it began.
//
// # Why a copy in memory is as good as the entry in Redis
//
// No message tells a process that its copy is old. The fencing token of its own hold does. A copy is kept with the
// token of the hold under which it was read or stored, and is used under holds with the same token, and no others:
//
//   - The token of a write is greater than that of every hold before it, in all processes, and no hold after the
//     write has a lower one. So if anybody had written between the hold that made a copy and the one that uses it,
//     the latter's token would be greater.
//   - The readers of a process share one token, with each other and with the write before them, for as long as the
//     process keeps its read lease: until somebody wants to write (coordinator.WithSharedRetention). So nearly all
//     reads find the token that their copy has.
//   - A process that loses its lease, having been paused or cut off, gets another token with the next.
//
// Since a write shares its token with the reads after it, a writer keeps its copy when everything is changed, and not
// before: one that fails half-way leaves none.
//
// # What a fence is for
//
// A process that is paused while it writes can lose the lock and not know it, and go on when others have written. So
// the cache and the database are told the token along with each change, and refuse a lower one than they have seen.
// The query of a rebuild raises the database's fence too: an update that was on its way since before that query is
// refused after it, and the entry made of its result is not old when it is stored.
type shop struct {
	cache   *cache
	db      *connection
	shelves []shelf // one for each product
	counters
}

// shelf is what the process keeps for a product. A service with more products than fit into memory would drop some
// now and then, as any cache does: a shelf can be made anew at any time.
type shelf struct {
	lock    *rwlock.Lock
	copy    atomic.Pointer[copied]
	looking sync.Mutex // one at a time asks Redis
}

// fresh returns the copy if it is good for the holder of the token; otherwise nil.
func (s *shelf) fresh(token uint64) *product {
	if c := s.copy.Load(); c != nil && c.token == token && time.Now().Before(c.until) {
		return &c.product
	}
	return nil
}

// copied is an entry of the cache, in memory.
type copied struct {
	product product
	token   uint64    // of the hold under which it was read, or stored
	until   time.Time // no later than the entry expires
}

func newShop(locks *coordinator.Coordinator, cache *cache, db *connection, prefix string, products int) *shop {
	s := &shop{cache: cache, db: db, shelves: make([]shelf, products)}
	for id := range s.shelves {
		s.shelves[id].lock = rwlock.New(locks, fmt.Sprintf("%s%d", prefix, id))
	}
	return s
}

// view calls show with a product that is no older than any that somebody else was shown, or that a change made,
// before view was called. Nobody can change it while show runs, so show must not wait for anybody, such as a client that
// reads slowly; and it must not keep the product, which others are shown as well. If view returns an error, what was
// shown is not to be used.
func (s *shop) view(ctx context.Context, id int, show func(*product) error) error {
	err := s.read(ctx, id, show)
	if errors.Is(err, errMissing) {
		err = s.rebuild(ctx, id, show)
	}
	return err
}

// read shows what is cached. As long as no writer waits, having the lock for it costs neither a command nor memory that
// cores share.
func (s *shop) read(ctx context.Context, id int, show func(*product) error) error {
	return s.shelves[id].lock.Read(ctx, func(ctx context.Context) error {
		p, err := s.look(ctx, id, coordinator.HoldFrom(ctx).Token())
		if err != nil {
			return err
		}
		return show(p)
	})
}

// rebuild fills the cache under the write lock, and shows what came out. A read hold can't become a write hold, since
// two of them would wait for each other: it was left before, and somebody may have been here meanwhile. The way
// back has no gap: Downgrade lets the readers in, here and elsewhere, and no writer, while this one is served.
func (s *shop) rebuild(ctx context.Context, id int, show func(*product) error) (err error) {
	hold, err := s.shelves[id].lock.Lock(ctx)
	if err != nil {
		return err
	}
	defer func() {
		if lost := hold.Unlock(); err == nil {
			err = lost
		}
	}()
	p, err := s.fill(hold.Context(), id, hold.Token())
	if err != nil {
		return err
	}
	reading, err := hold.Downgrade()
	if err != nil {
		return err
	}
	hold = reading // the one to unlock
	return show(p)
}

// look returns what is cached for the holder of the token, who reads or writes; errMissing if there is nothing. Where
// readers are let in together, after a write, one asks Redis for all of them.
func (s *shop) look(ctx context.Context, id int, token uint64) (*product, error) {
	shelf := &s.shelves[id]
	p := shelf.fresh(token)
	if p == nil {
		shelf.looking.Lock()
		defer shelf.looking.Unlock()
		p = shelf.fresh(token)
	}
	if p != nil {
		s.memory.Add(1)
		return p, nil
	}
	asked := time.Now()
	found, left, err := s.cache.look(ctx, id)
	if err != nil {
		return nil, err
	}
	c := &copied{product: found, token: token, until: asked.Add(left)}
	shelf.copy.Store(c)
	return &c.product, nil
}

// fill returns what is cached, and caches it before if it isn't. It is called under the write lock, with its
// context, which ends when the lock is lost.
func (s *shop) fill(ctx context.Context, id int, token uint64) (*product, error) {
	p, err := s.look(ctx, id, token)
	if err == nil {
		s.avoided.Add(1) // somebody else has had the lock before us, and has done it
		return p, nil
	}
	if !errors.Is(err, errMissing) {
		return nil, err
	}
	loaded, err := s.db.load(ctx, id, token)
	if err != nil {
		return nil, err
	}
	return s.keep(ctx, id, loaded, token, &s.counters)
}

// change gives a product a new name. When it returns without an error, all views that begin later show it. With an
// error the change may have been made or not, as with any database; if it was, the cache does not hide it.
func (s *shop) change(ctx context.Context, id int, name string) (changed *product, err error) {
	err = s.shelves[id].lock.Write(ctx, func(ctx context.Context) error {
		token := coordinator.HoldFrom(ctx).Token()
		// First, so that whatever fails after it leaves nothing old in the cache.
		if err := s.cache.drop(ctx, id, token); err != nil {
			return err
		}
		updated, err := s.db.update(ctx, id, name, token)
		if err != nil {
			return err
		}
		changed, err = s.keep(ctx, id, updated, token, nil)
		return err
	})
	return changed, err // an error too if the lock was lost meanwhile: then somebody may have been beside us
}

// keep caches a product, in Redis and here. It is the last that a writer does. A rebuild says where to count it.
func (s *shop) keep(ctx context.Context, id int, p product, token uint64, rebuild *counters) (*product, error) {
	asked := time.Now()
	met, err := s.cache.put(ctx, id, p, token)
	if err != nil {
		return nil, err
	}
	if rebuild != nil {
		rebuild.rebuilt(met)
	}
	c := &copied{product: p, token: token, until: asked.Add(s.cache.expiry)}
	s.shelves[id].copy.Store(c)
	return &c.product, nil
}
