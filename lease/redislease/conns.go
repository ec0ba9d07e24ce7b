package redislease

import (
	"context"
	"crypto/tls"
	"net"
	"sync"
	"sync/atomic"

	"github.com/redis/rueidis"
)

// conns knows the client's open connections, so that they can be closed: one
// that is stuck, or that leads to a server which has become a replica behind
// the same name, and which nothing else would ever close.
type conns struct {
	mu     sync.Mutex
	open   map[*conn]struct{}
	era    int // counts clients: connections of an earlier one are not wanted any more
	closed bool

	ctx    context.Context // of dialling
	cancel context.CancelFunc
}

func newConns() *conns {
	ctx, cancel := context.WithCancel(context.Background())
	return &conns{open: map[*conn]struct{}{}, ctx: ctx, cancel: cancel}
}

type conn struct {
	net.Conn
	owner   *conns
	address string                // that was dialled
	why     atomic.Pointer[error] // it was dropped for
}

// Read reads, and says why not where the connection was dropped.
func (c *conn) Read(b []byte) (int, error) {
	n, err := c.Conn.Read(b)
	return n, c.explain(err)
}

// Write writes, and says why not where the connection was dropped.
func (c *conn) Write(b []byte) (int, error) {
	n, err := c.Conn.Write(b)
	return n, c.explain(err)
}

func (c *conn) explain(err error) error {
	if why := c.why.Load(); err != nil && why != nil {
		return *why
	}
	return err
}

// Close forgets the connection, and closes it.
func (c *conn) Close() error {
	c.owner.mu.Lock()
	delete(c.owner.open, c)
	c.owner.mu.Unlock()
	return c.Conn.Close()
}

// wrap has the option dial as it would without us, under our eyes.
func (c *conns) wrap(opt *rueidis.ClientOption) {
	dial := dialFn(dialDefault)
	if opt.DialCtxFn != nil {
		dial = patiently(opt.DialCtxFn)
	} else if old := opt.DialFn; old != nil {
		dial = patiently(func(_ context.Context, address string, dialer *net.Dialer, config *tls.Config) (net.Conn, error) {
			return old(address, dialer, config)
		})
	}
	opt.DialFn = nil
	opt.DialCtxFn = func(ctx context.Context, address string, dialer *net.Dialer, config *tls.Config) (net.Conn, error) {
		era := c.now()
		var cancel context.CancelFunc
		if dialer.Timeout > 0 {
			ctx, cancel = context.WithTimeout(ctx, dialer.Timeout)
		} else {
			ctx, cancel = context.WithCancel(ctx)
		}
		defer cancel()
		defer context.AfterFunc(c.ctx, cancel)()
		inner, err := dial(ctx, address, dialer, config)
		if err != nil {
			return nil, &dialError{address, err}
		}
		return c.add(inner, address, era)
	}
}

// dialFn is what the option has to make connections.
type dialFn func(ctx context.Context, address string, dialer *net.Dialer, config *tls.Config) (net.Conn, error)

// patiently ends the wait for a user's function with the context, whether the
// function looks at it or not. It is the function's own fault where it never
// returns; else a connection that it makes too late is closed.
func patiently(dial dialFn) dialFn {
	return func(ctx context.Context, address string, dialer *net.Dialer, config *tls.Config) (net.Conn, error) {
		type made struct {
			conn net.Conn
			err  error
		}
		result := make(chan made, 1)
		go func() { // ends with the user's function
			conn, err := dial(ctx, address, dialer, config)
			result <- made{conn, err}
		}()
		select {
		case m := <-result:
			return m.conn, m.err
		case <-ctx.Done():
			go func() { // as above
				if m := <-result; m.err == nil {
					_ = m.conn.Close()
				}
			}()
			return nil, ctx.Err()
		}
	}
}

func dialDefault(ctx context.Context, address string, dialer *net.Dialer, config *tls.Config) (net.Conn, error) {
	if config != nil {
		return (&tls.Dialer{NetDialer: dialer, Config: config}).DialContext(ctx, "tcp", address)
	}
	return dialer.DialContext(ctx, "tcp", address)
}

func (c *conns) now() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.era
}

// renew is for a client that takes another's place: whatever the other has
// left, or is still dialling, is closed.
func (c *conns) renew() {
	c.mu.Lock()
	c.era++
	c.mu.Unlock()
	c.drop(net.ErrClosed)
}

func (c *conns) add(inner net.Conn, address string, era int) (net.Conn, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed || era != c.era {
		_ = inner.Close()
		return nil, net.ErrClosed
	}
	wrapped := &conn{Conn: inner, owner: c, address: address}
	c.open[wrapped] = struct{}{}
	return wrapped, nil
}

// drop closes the connections that are open now; the client opens others. What
// was under way on them fails with why.
func (c *conns) drop(why error) {
	c.dropSome(why, func(string) bool { return true })
}

// dropSome is drop for those that lead to some addresses; it says how many there were.
func (c *conns) dropSome(why error, to func(address string) bool) int {
	c.mu.Lock()
	var some []*conn
	for wrapped := range c.open {
		if to(wrapped.address) {
			some = append(some, wrapped)
		}
	}
	c.mu.Unlock()
	for _, wrapped := range some {
		wrapped.why.CompareAndSwap(nil, &why)
		_ = wrapped.Close()
	}
	return len(some)
}

// close drops all connections, and lets no other be opened.
func (c *conns) close() {
	c.mu.Lock()
	c.closed = true
	c.mu.Unlock()
	c.cancel()
	c.drop(net.ErrClosed)
}

// dialError says that a connection could not be opened at all: nothing was
// sent on it.
type dialError struct {
	address string
	err     error
}

func (e *dialError) Error() string { return "dial " + e.address + ": " + e.err.Error() }
func (e *dialError) Unwrap() error { return e.err }
