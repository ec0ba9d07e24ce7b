package redislease

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/redis/rueidis"

	"github.com/go-leasehold/leasehold/lease"
)

// plainLimit is for how long Plain tries again where nothing answered in time:
// where leases are short, so are the time-outs, and a busy machine misses some.
const plainLimit = time.Second

// Prefix is what stands before every name in Redis.
func (s *Store) Prefix() string { return s.config.Prefix }

// Plain returns a client of the same server for data that is kept beside the
// locks. It has connections of its own, so that no load on them stands in the
// way of a renewal, and no tracking. It never sends a command twice, notices a
// silent server as soon as the leases do, and is closed by [Store.Close]; its
// own Close does nothing. The first call makes it, and those that come meanwhile
// wait for that; after one that failed, the next tries again.
func (s *Store) Plain() (rueidis.Client, error) {
	if err := s.usable(); err != nil {
		return nil, err
	}
	client, err := s.plain.get(s.dialPlain)
	if err != nil {
		return nil, err
	}
	return client, nil
}

// plain keeps the client of Plain.
type plain struct {
	option  rueidis.ClientOption // the user's, with the time-outs of leases
	conns   *conns
	dropped atomic.Int64 // as Store.dropped

	mu     sync.Mutex
	client *plainClient
	making *making // while somebody dials
	closed bool
}

// making is one try to make the client. The result is written before done is
// closed.
type making struct {
	done   chan struct{}
	client *plainClient
	err    error
}

// newPlain takes the option before the store has hooked into it: each client has
// connections to look after of its own.
func newPlain(opt rueidis.ClientOption, multiplex int) *plain {
	p := &plain{option: opt, conns: newConns()}
	p.option.PipelineMultiplex = multiplex
	p.option.ClientTrackingOptions = nil
	p.option.DisableCache = true
	// The client calls it for each connection that ends, tracking or not: the
	// user, and the store, would look at everything again for nothing.
	p.option.OnInvalidations = nil
	p.conns.wrap(&p.option)
	return p
}

func (p *plain) get(dial func() (*plainClient, error)) (*plainClient, error) {
	p.mu.Lock()
	m := p.making
	switch {
	case p.closed:
		p.mu.Unlock()
		return nil, lease.ErrStoreClosed
	case p.client != nil:
		defer p.mu.Unlock()
		return p.client, nil
	case m != nil:
		p.mu.Unlock()
		<-m.done
		return m.client, m.err
	}
	m = &making{done: make(chan struct{})}
	p.making = m
	p.mu.Unlock()
	client, err := dial()
	p.mu.Lock()
	if p.closed { // while we dialled
		if client != nil {
			client.Client.Close()
		}
		client, err = nil, lease.ErrStoreClosed
	}
	p.client, p.making = client, nil
	p.mu.Unlock()
	m.client, m.err = client, err
	close(m.done)
	return client, err
}

// cut closes all connections and lets no other be opened: what waits for one
// goes on, and learns that it is over.
func (p *plain) cut() {
	p.mu.Lock()
	p.closed = true
	p.mu.Unlock()
	p.conns.close()
}

// close ends the client, or the try to make it. It waits for that try no longer
// than ctx: a user's own function may be a part of it.
func (p *plain) close(ctx context.Context) error {
	p.mu.Lock()
	p.closed = true
	m, client := p.making, p.client
	p.mu.Unlock()
	if client != nil {
		client.Client.Close()
	}
	p.cut()
	if m == nil {
		return nil
	}
	select {
	case <-m.done:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// dialPlain makes the client, in the way in which the store's own was made in
// the end.
func (s *Store) dialPlain() (*plainClient, error) {
	option := s.plain.option
	option.AlwaysRESP2, option.ForceSingleClient = s.option.AlwaysRESP2, s.option.ForceSingleClient
	for start := time.Now(); ; {
		s.plain.conns.renew()
		client, err := rueidis.NewClient(option)
		if err == nil {
			return &plainClient{Client: client, store: s}, nil
		}
		if client != nil { // it comes along with an error where it may connect later
			client.Close()
		}
		if !timedOut(err) || time.Since(start) > plainLimit {
			if errors.Is(err, context.DeadlineExceeded) {
				err = fmt.Errorf("%w: %s", errPatience, err.Error()) // it was no caller's deadline
			}
			return nil, s.wrap("plain", err)
		}
	}
}

// plainClient looks for answers that show that a connection leads to the wrong
// server.
type plainClient struct {
	rueidis.Client

	store *Store
}

// Do implements [rueidis.Client].
func (c *plainClient) Do(ctx context.Context, cmd rueidis.Completed) rueidis.RedisResult {
	result := c.Client.Do(ctx, cmd)
	c.look(result.Error())
	return result
}

// DoMulti implements [rueidis.Client].
func (c *plainClient) DoMulti(ctx context.Context, multi ...rueidis.Completed) []rueidis.RedisResult {
	results := c.Client.DoMulti(ctx, multi...)
	for i := range results {
		c.look(results[i].Error())
	}
	return results
}

// Close does nothing: others use the client, too.
func (c *plainClient) Close() {}

func (c *plainClient) look(err error) {
	if err != nil && !rueidis.IsRedisNil(err) && code(err) == "READONLY" && c.store.dropPlain() {
		c.store.log.Warn("leasehold: the server is a read-only replica; connecting anew", "addr", c.store.addr)
	}
}

// dropPlain has the plain client connect anew, at most once in the time that a
// request may take; it says whether it did.
func (s *Store) dropPlain() bool {
	if !s.due(&s.plain.dropped) {
		return false
	}
	s.plain.conns.drop(errReplica)
	return true
}
