package redislease_test

import (
	"context"
	"fmt"
	"log/slog"
	"sync"
	"testing"
	"time"

	"github.com/redis/rueidis"
	"github.com/stretchr/testify/require"

	"github.com/go-leasehold/leasehold/internal/redistest"
	"github.com/go-leasehold/leasehold/lease"
	"github.com/go-leasehold/leasehold/lease/redislease"
)

// limit bounds what should come at once, on any machine.
const limit = 20 * time.Second

// peer is a store with its events.
type peer struct {
	*redislease.Store

	t   testing.TB
	id  string
	can lease.Capabilities

	mu     sync.Mutex
	events []lease.Event
	news   chan struct{} // has an element when events has grown
}

func newPeer(t testing.TB, option rueidis.ClientOption, cfg redislease.Config) *peer {
	t.Helper()
	cfg.Logger = slog.New(slog.DiscardHandler)
	store, err := redislease.New(option, cfg)
	require.NoError(t, err)
	return &peer{Store: store, t: t, news: make(chan struct{}, 1)}
}

// openPeer opens a store under an id.
func openPeer(t testing.TB, server *redistest.Server, id string, cfg redislease.Config) *peer {
	t.Helper()
	return openWith(t, server.Option(), id, cfg)
}

func openWith(t testing.TB, option rueidis.ClientOption, id string, cfg redislease.Config) *peer {
	t.Helper()
	p := newPeer(t, option, cfg)
	p.id = id
	var err error
	p.can, err = p.Open(t.Context(), id, p.record)
	require.NoError(t, err)
	t.Cleanup(p.close)
	return p
}

func (p *peer) close() {
	ctx, cancel := context.WithTimeout(context.Background(), limit)
	defer cancel()
	require.NoError(p.t, p.Close(ctx))
}

func (p *peer) record(e lease.Event) {
	p.mu.Lock()
	p.events = append(p.events, e)
	p.mu.Unlock()
	select {
	case p.news <- struct{}{}:
	default:
	}
}

// event waits for an event of a type, and takes it and all before it.
func (p *peer) event(of lease.EventType) lease.Event {
	p.t.Helper()
	timer := time.NewTimer(limit)
	defer timer.Stop()
	for {
		p.mu.Lock()
		for i, e := range p.events {
			if e.Type == of {
				p.events = p.events[i+1:]
				p.mu.Unlock()
				return e
			}
		}
		p.mu.Unlock()
		select {
		case <-p.news:
		case <-timer.C:
			require.Fail(p.t, "no event", "%v", of)
		}
	}
}

// ofType are the events of a type that have come and were not taken.
func (p *peer) ofType(of lease.EventType) (events []lease.Event) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, e := range p.events {
		if e.Type == of {
			events = append(events, e)
		}
	}
	return events
}

// try sends a request and waits for the answer.
func (p *peer) try(r lease.Request) (lease.Reply, error) {
	p.t.Helper()
	type answer struct {
		reply lease.Reply
		err   error
	}
	answers := make(chan answer, 1)
	p.Send(r, func(reply lease.Reply, err error) { answers <- answer{reply, err} })
	select {
	case a := <-answers:
		return a.reply, a.err
	case <-time.After(limit):
		require.Fail(p.t, "no answer")
		return lease.Reply{}, nil
	}
}

// do sends a request that must be answered so.
func (p *peer) do(status lease.Status, r lease.Request) lease.Reply {
	p.t.Helper()
	reply, err := p.try(r)
	require.NoError(p.t, err)
	require.Equal(p.t, status.String(), reply.Status.String())
	return reply
}

// acquire, release and renew make requests for a mutex; the tests change what they need.
func acquire(key string, ticket lease.Ticket) lease.Request {
	return lease.Request{
		Op: lease.Acquire, Key: key, Kind: lease.Mutex, Ticket: ticket, Mode: lease.Exclusive, TTL: time.Minute,
		Queue: true, Age: -1, Tokens: 8,
	}
}

func release(key string, ticket lease.Ticket) lease.Request {
	return lease.Request{Op: lease.Release, Key: key, Kind: lease.Mutex, Ticket: ticket}
}

func yield(key string, ticket, next lease.Ticket) lease.Request {
	r := release(key, ticket)
	r.Next = &lease.Next{Ticket: next, Mode: lease.Exclusive, TTL: time.Minute, Tokens: 8, Age: -1}
	return r
}

func renew(key string, ticket lease.Ticket) lease.Request {
	return lease.Request{Op: lease.Renew, Key: key, Kind: lease.Mutex, Ticket: ticket, TTL: time.Minute}
}

// shared turns a request into a reader's, and exclusive into a writer's.
func shared(r lease.Request) lease.Request {
	r.Kind, r.Mode = lease.ReadWrite, lease.Shared
	if r.Next != nil {
		r.Next.Mode = lease.Shared
	}
	return r
}

func exclusive(r lease.Request) lease.Request {
	r.Kind = lease.ReadWrite
	return r
}

// collector stands for the test in one try of eventually.
type collector struct{ err error }

// Errorf and FailNow make it a require.TestingT.
func (c *collector) Errorf(format string, args ...any) { c.err = fmt.Errorf(format, args...) }
func (c *collector) FailNow()                          { panic(c) }

// eventually tries until nothing is found wrong.
func eventually(t testing.TB, try func(c *collector)) {
	t.Helper()
	end := time.Now().Add(limit)
	for {
		c := &collector{}
		func() {
			defer func() {
				if r := recover(); r != nil && r != any(c) {
					panic(r)
				}
			}()
			try(c)
		}()
		if c.err == nil {
			return
		}
		if time.Now().After(end) {
			require.NoError(t, c.err, "after %v", limit)
		}
		time.Sleep(5 * time.Millisecond) // between two tries
	}
}
