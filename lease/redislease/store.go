package redislease

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/redis/rueidis"

	"github.com/go-leasehold/leasehold/lease"
	"github.com/go-leasehold/leasehold/pubsub"
)

const (
	// workers is how many batches can be on their way to a single server, or
	// to a lane's range of slots on a cluster, at the same time.
	workers        = 4
	clusterWorkers = 2
	// clusterLanes is how many ranges a cluster's slots are divided into. The
	// slots of a node are mostly neighbours, so each node has lanes of its own.
	clusterLanes = 16
)

// Store is a [lease.Store] in Redis. [New] makes it.
type Store struct {
	config Config
	option rueidis.ClientOption
	names  names
	log    *slog.Logger
	addr   string // for people

	conns         *conns
	invalidations pubsub.Invalidations
	watchers      watchers // of single keys, for Watch
	plain         *plain   // the client of Plain
	mover         mover    // of inboxes, on a cluster

	// Set by Open, before anything else is called, and fixed from then on.
	id           string
	client       rueidis.Client
	capabilities lease.Capabilities
	cluster      bool
	sharded      bool // inboxes are sharded channels, one for each slot in use
	publish      string
	keep         string // token retention, as the scripts get it
	tailFrom     string
	lanes        []*lane
	inbox        *inbox

	born    time.Time
	dropped atomic.Int64 // when connections were last dropped, in ns since born
	bad     atomic.Int64 // messages that were none

	mu     sync.Mutex
	opened bool
	closed bool
	done   chan struct{} // closed when Close has ended everything
}

var _ lease.Store = (*Store)(nil)

// New makes a Store, and checks what it is given; it does not connect.
//
// The store makes its own client, since these options are fixed when a client
// is born. Forced are PipelineMultiplex, BlockingPipeline, AlwaysPipelining,
// DisableRetry and ClientTrackingOptions, and the time-outs of Dialer, of
// Sentinel.Dialer and ConnWriteTimeout where they are unset. OnInvalidations, DialCtxFn and DialFn
// are chained. Refused are ReplicaOnly, SendToReplicas, ConnLifetime,
// DisableAutoPipelining and Standalone.
func New(opt rueidis.ClientOption, cfg Config) (*Store, error) {
	cfg, err := cfg.withDefaults()
	if err != nil {
		return nil, err
	}
	named, err := newNames(cfg.Prefix)
	if err != nil {
		return nil, err
	}
	multiplex := opt.PipelineMultiplex
	if opt, err = clientOption(opt, cfg); err != nil {
		return nil, err
	}
	s := &Store{
		config: cfg, names: named, log: cfg.Logger, addr: strings.Join(opt.InitAddress, ","),
		conns: newConns(), born: time.Now(), done: make(chan struct{}),
		publish: "PUBLISH", keep: millis(cfg.TokenRetention),
		tailFrom: strconv.Itoa(len(named.helperName("queue", "")) + 1),
	}
	s.plain = newPlain(opt, multiplex)
	s.mover.store = s
	s.invalidations.Listen(s.watchers.invalidated)
	s.conns.wrap(&opt)
	opt.OnInvalidations = s.invalidations.Hook(opt.OnInvalidations)
	s.option = opt
	return s, nil
}

// Send implements [lease.Store].
func (s *Store) Send(r lease.Request, done func(lease.Reply, error)) {
	c := &call{request: r, done: done, life: s.inbox.life.Load()}
	ready := true
	if c.refusal = validate(&r); c.refusal == nil {
		names := s.namesOf(r.Key)
		c.plan.names = names
		ready, c.refusal = s.inbox.ready(names, c)
		if c.refusal == nil {
			c.plan = s.prepare(&r, names)
		}
	}
	l := s.lane(c.plan.names.slot)
	if !l.add(c, ready) {
		go done(lease.Reply{}, lease.ErrStoreClosed)
		return
	}
	if !ready {
		s.inbox.park(l, c)
	}
}

func (s *Store) lane(slot uint16) *lane {
	return s.lanes[int(slot)*len(s.lanes)/slots]
}

// Inspect implements [lease.Store].
func (s *Store) Inspect(ctx context.Context, key string) (lease.Info, error) {
	result, err := s.ask(ctx, "inspect", inspectScript, key)
	if err != nil {
		return lease.Info{}, err
	}
	info, err := parseInfo(result)
	info.Key = key
	return info, err
}

// Force implements [lease.Store].
func (s *Store) Force(ctx context.Context, key string) error {
	_, err := s.ask(ctx, "force", forceScript, key)
	return err
}

// ask runs a script for somebody who waits.
func (s *Store) ask(ctx context.Context, op string, script *script, key string) (rueidis.RedisResult, error) {
	if err := s.usable(); err != nil {
		return rueidis.RedisResult{}, err
	}
	ctx, cancel := context.WithTimeoutCause(ctx, s.config.TTL/3, errPatience)
	defer cancel()
	n := s.namesOf(key)
	p := plan{script: script, names: n, args: s.args(lease.Mutex, n, 0)}
	result := s.client.Do(ctx, s.commands(nil, &p, byName)[0])
	if code(result.Error()) == "NOSCRIPT" {
		result = s.client.Do(ctx, s.commands(nil, &p, byText)[0])
	}
	if err := result.Error(); err != nil {
		if errors.Is(err, context.DeadlineExceeded) {
			err = context.Cause(ctx)
		}
		err = s.wrap(op, err)
		s.suspect(err)
		return result, err
	}
	return result, nil
}

var errNotOpen = errors.New("redislease: the store is not open")

func (s *Store) usable() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case s.closed:
		return lease.ErrStoreClosed
	case !s.opened:
		return errNotOpen
	}
	return nil
}

// Close implements [lease.Store]. When ctx ends first, what was not sent is
// answered with [lease.ErrStoreClosed] and what was with an [Error], connections
// are cut, and the context's error is returned. It may be called again.
func (s *Store) Close(ctx context.Context) error {
	s.mu.Lock()
	first := !s.closed
	s.closed = true
	opened := s.opened
	s.mu.Unlock()
	if !first {
		select {
		case <-s.done:
			return nil
		case <-ctx.Done():
			return fmt.Errorf("redislease: close: %w", context.Cause(ctx))
		}
	}
	defer close(s.done)
	if !opened {
		s.conns.close()
		return s.plain.close(ctx)
	}
	return s.shut(ctx)
}

// shut ends everything, in an order in which nothing is cut off that can still
// be answered. The end of the connections ends the subscriptions.
func (s *Store) shut(ctx context.Context) error {
	// Lets whatever waits for the server, or for a connection, go on.
	defer context.AfterFunc(ctx, s.conns.close)()
	defer context.AfterFunc(ctx, s.plain.cut)()
	for _, l := range s.lanes {
		l.close()
	}
	err := s.drain(ctx)
	for _, l := range s.lanes {
		l.abandon()
	}
	s.mover.close()
	if closing := s.inbox.close(ctx); err == nil {
		err = closing
	}
	s.watchers.close()
	s.client.Close()
	if closing := s.plain.close(ctx); err == nil {
		err = closing
	}
	for _, l := range s.lanes {
		l.wait()
	}
	s.conns.close()
	if err != nil {
		return fmt.Errorf("redislease: close: %w", err)
	}
	return nil
}

func (s *Store) drain(ctx context.Context) error {
	for _, l := range s.lanes {
		select {
		case <-l.drained:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
	return nil
}
