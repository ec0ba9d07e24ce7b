package contender

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"time"

	"github.com/redis/rueidis"

	"github.com/go-leasehold/leasehold/coordinator"
	"github.com/go-leasehold/leasehold/rwlock"
	"github.com/go-leasehold/leasehold/segment"
)

func init() {
	about := "leasehold: one lease of a key for all goroutines of a process, handed over by message"
	Register(leasehold("leasehold", "", about, []string{"the defaults: retention 50 ms, budget 64, slice 5 ms"}))
	Register(leasehold("leasehold/cached", "leasehold", "leasehold whose TryLock may answer from client-side caching",
		[]string{"coordinator.Cached() for each mutex"}, coordinator.Cached()))
	Register(leasehold("leasehold/fair", "leasehold", "leasehold that passes the lease on after each hold that others wait for",
		[]string{"coordinator.Fair() for each mutex"}, coordinator.Fair()))
}

// leasehold is one entry of ours, with the options of its mutexes.
func leasehold(name, variant, about string, settings []string, options ...coordinator.MutexOption) Info {
	return Info{
		Name: name, Kind: Ours, Variant: variant, About: about, Settings: settings,
		Module: "github.com/go-leasehold/leasehold",
		Open: func(_ context.Context, setup Setup) (Process, error) {
			c, err := coordinator.New(rueidisOption(setup), coordinator.WithTTL(setup.TTL))
			if err != nil {
				return nil, fmt.Errorf("leasehold: %w", err)
			}
			return &leaseholdProcess{coordinator: c, options: options}, nil
		},
	}
}

// rueidisOption is what every contender on rueidis connects with.
func rueidisOption(setup Setup) rueidis.ClientOption {
	option := rueidis.ClientOption{InitAddress: []string{setup.Addr}}
	if setup.Dial != nil {
		option.DialCtxFn = func(ctx context.Context, addr string, _ *net.Dialer, _ *tls.Config) (net.Conn, error) {
			return setup.Dial(ctx, addr)
		}
	}
	return option
}

type leaseholdProcess struct {
	coordinator *coordinator.Coordinator
	options     []coordinator.MutexOption
}

func (p *leaseholdProcess) Mutex(key string) Mutex {
	return leaseholdMutex{p.coordinator.Mutex(key, p.options...)}
}

// Close hands over what is left, for at most as long as nobody would wait for it.
func (p *leaseholdProcess) Close() error {
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
	defer cancel()
	return p.coordinator.Close(ctx)
}

type leaseholdMutex struct{ mutex *coordinator.Mutex }

func (m leaseholdMutex) Lock(ctx context.Context) (Hold, error) {
	hold, err := m.mutex.Lock(ctx)
	if err != nil {
		return nil, err
	}
	return hold, nil
}

func (m leaseholdMutex) TryLock(ctx context.Context) (Hold, error) {
	hold, err := m.mutex.TryLock(ctx)
	if errors.Is(err, coordinator.ErrNotAcquired) {
		return nil, ErrHeld
	}
	if err != nil {
		return nil, err
	}
	return hold, nil
}

func (p *leaseholdProcess) RW(key string) RW {
	return leaseholdRW{rwlock.New(p.coordinator, key)}
}

type leaseholdRW struct{ lock *rwlock.Lock }

func (l leaseholdRW) RLock(ctx context.Context) (Hold, error) {
	hold, err := l.lock.RLock(ctx)
	if err != nil {
		return nil, err
	}
	return hold, nil
}

func (l leaseholdRW) Lock(ctx context.Context) (Hold, error) {
	hold, err := l.lock.Lock(ctx)
	if err != nil {
		return nil, err
	}
	return hold, nil
}

// Segments are as in segment.Locks.
func (p *leaseholdProcess) Segments(name string, n int) (Segments, error) {
	return leaseholdSegments{segment.NewLocks(p.coordinator, name, n, p.options...)}, nil
}

type leaseholdSegments struct{ locks *segment.Locks }

func (s leaseholdSegments) Mutex(routing string) Mutex {
	return leaseholdSegment{locks: s.locks, routing: routing}
}

type leaseholdSegment struct {
	locks   *segment.Locks
	routing string
}

func (s leaseholdSegment) Lock(ctx context.Context) (Hold, error) {
	hold, err := s.locks.Lock(ctx, s.routing)
	if err != nil {
		return nil, err
	}
	return hold, nil
}

// Stock has two segments, as docs/stock.md advises for a single server.
func (p *leaseholdProcess) Stock(ctx context.Context, name string, units int64) (Stock, error) {
	stock, err := segment.NewStock(p.coordinator, name, segment.Config{Segments: 2})
	if err != nil {
		return nil, err
	}
	if err := stock.Load(ctx, units); err != nil && !errors.Is(err, segment.ErrLoaded) {
		return nil, err
	}
	return leaseholdStock{stock}, nil
}

type leaseholdStock struct{ stock *segment.Stock }

func (s leaseholdStock) Sell(ctx context.Context, id string) (bool, error) {
	_, err := s.stock.Deduct(ctx, segment.Order{ID: id, Quantity: 1})
	if errors.Is(err, segment.ErrSoldOut) {
		return false, nil
	}
	return err == nil, err
}
