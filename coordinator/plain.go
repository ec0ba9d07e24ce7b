package coordinator

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/redis/rueidis"

	"github.com/go-leasehold/leasehold/lease/redislease"
	"github.com/go-leasehold/leasehold/telemetry"
)

// What a store in Redis can do beyond the contract, for packages that keep data
// of their own beside the locks.
type (
	plainStore interface {
		Plain() (rueidis.Client, error)
	}
	trackingStore interface {
		Watch(name string, fn func()) (stop func(), err error)
		Tracked(ctx context.Context, reads ...rueidis.Completed) ([]rueidis.RedisResult, error)
	}
	prefixedStore interface {
		Prefix() string
	}
)

// Plain returns a client of the store's server, or servers, on connections of its
// own and without tracking, for packages that keep data beside the locks: their
// load never stands in the way of a renewal. It is made on the first call, shared
// by all callers, and closed by [Coordinator.Close]; its own Close does nothing.
// It never sends a command twice. The error is [ErrNeedsRedis], [ErrClosed], or
// [ErrUnavailable]: then the next call tries again.
func (c *Coordinator) Plain() (rueidis.Client, error) {
	store, ok := c.store.(plainStore)
	if !ok {
		return nil, c.needsRedis()
	}
	if c.closing.Load() {
		return nil, ErrClosed
	}
	client, err := store.Plain()
	return client, asked(err)
}

// Watch has fn called whenever the Redis key of that name (the whole of it,
// prefix included) was changed by another connection after it was read by
// [Coordinator.Tracked], and also when that may have been missed: a flush, a lost
// connection, Close. Watch first and read then; fn may be called before the call
// that reads has returned. Redis tells of one change only; to be told of the next,
// read the key again.
//
// fn runs on the goroutine that reads from Redis and must not block; it may call
// stop, and Watch. After stop no call begins; one that has begun may still be
// running. The error is [ErrNeedsRedis] also where the connection has no
// client-side caching (RESP2, DisableCache, a server without), [ErrClosed] or
// [ErrInvalid].
func (c *Coordinator) Watch(name string, fn func()) (stop func(), err error) {
	if fn == nil {
		return nil, invalid("Watch: the function is nil")
	}
	store, err := c.tracking()
	if err != nil {
		return nil, err
	}
	stop, err = store.Watch(name, fn)
	return stop, askedTracking(err)
}

// Tracked sends reads on the store's own connection, in such a way that the
// server will tell when their keys change: see [Coordinator.Watch]. The results
// are in the order of the reads, and an error of the server in answer to one of
// them is in its result.
//
// The reads are made by the builder of [Coordinator.Plain]'s client, which marks
// them as such; writes are refused. They are small, for renewals wait behind them:
// what is large is read by Plain. The errors are those of Watch, and
// [ErrUnavailable].
func (c *Coordinator) Tracked(ctx context.Context, reads ...rueidis.Completed) ([]rueidis.RedisResult, error) {
	if ctx == nil {
		return nil, invalid("the context is nil")
	}
	for i := range reads {
		if !redislease.CanTrack(reads[i]) {
			return nil, invalid("Tracked: command %d is not marked as a read", i)
		}
	}
	store, err := c.tracking()
	if err != nil {
		return nil, err
	}
	results, err := store.Tracked(ctx, reads...)
	return results, askedTracking(err)
}

func (c *Coordinator) tracking() (trackingStore, error) {
	store, ok := c.store.(trackingStore)
	switch {
	case !ok:
		return nil, c.needsRedis()
	case c.closing.Load():
		return nil, ErrClosed
	}
	return store, nil
}

func (c *Coordinator) needsRedis() error {
	return fmt.Errorf("%w: the store is a %T", ErrNeedsRedis, c.store)
}

// askedTracking is asked for what takes client-side caching.
func askedTracking(err error) error {
	if errors.Is(err, redislease.ErrNoTracking) {
		return fmt.Errorf("%w: %w", ErrNeedsRedis, err)
	}
	return asked(err)
}

// Settings are what a coordinator was made with.
type Settings struct {
	KeyPrefix        string           // of the store if it has one of its own, else of the option
	TTL              time.Duration    // see [WithTTL]
	Retention        time.Duration    // see [WithRetention]
	UnavailableAfter time.Duration    // see [WithUnavailableAfter]
	MaxWaiters       int              // see [WithMaxWaiters]
	Logger           *slog.Logger     // writes to that of [WithLogger], and never blocks
	Telemetry        telemetry.Config // see [WithTelemetry]; its defaults filled in
}

// Settings returns what the coordinator was made with, for packages on top of
// it.
func (c *Coordinator) Settings() Settings {
	prefix := c.conf.prefix
	if store, ok := c.store.(prefixedStore); ok {
		prefix = store.Prefix()
	}
	return Settings{
		KeyPrefix:        prefix,
		TTL:              c.conf.ttl,
		Retention:        c.conf.retention,
		UnavailableAfter: c.conf.unavailableAfter,
		MaxWaiters:       c.conf.maxWaiters,
		Logger:           c.journal.log(),
		Telemetry:        c.tel.Config(),
	}
}
