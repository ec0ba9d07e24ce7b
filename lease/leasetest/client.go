package leasetest

import (
	"context"
	"runtime"
	"strings"
	"sync/atomic"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/go-leasehold/leasehold/lease"
)

// barrierTicket is used by no test.
const barrierTicket lease.Ticket = 1 << 40

// client is a coordinator as far as the store can tell.
type client struct {
	recorder

	s     *suite
	store lease.Store
	id    string
	can   lease.Capabilities
}

// open opens one more store.
func (s *suite) open(name string) *client {
	s.Helper()
	c := &client{s: s, store: s.env.NewStore(s.TB), id: name + "-" + s.run}
	c.recorder.init(s)
	var err error
	c.can, err = c.store.Open(s.Context(), c.id, c.record)
	require.NoError(s, err)
	s.Cleanup(func() { c.close() })
	return c
}

// openAll opens a store for each name.
func (s *suite) openAll(names ...string) []*client {
	s.Helper()
	var all []*client
	for _, name := range names {
		all = append(all, s.open(name))
	}
	return all
}

func (c *client) close() {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	if err := c.store.Close(ctx); err != nil {
		c.s.Errorf("closing the store of %s: %v", c.id, err)
	}
}

func (c *client) owner(t lease.Ticket) string { return lease.Owner(c.id, t) }

// answer is what a request was answered with.
type answer struct {
	reply lease.Reply
	err   error
}

// send sends a request, checks what holds for every answer, and returns at once.
func (c *client) send(r lease.Request) <-chan answer {
	answers := make(chan answer, 1)
	var calls atomic.Int32
	sent := time.Now()
	c.store.Send(r, func(reply lease.Reply, err error) {
		if n := calls.Add(1); n > 1 {
			c.s.Errorf("%v was answered %d times", r.Op, n)
			return
		}
		if calledFromSend() {
			c.s.Errorf("%v was answered from within Send", r.Op)
		}
		if err == nil {
			c.s.checkReply(r, reply, sent)
		}
		answers <- answer{reply, err}
	})
	return answers
}

// calledFromSend looks for (*client).send, and not for the callback in it, among
// the callers.
func calledFromSend() bool {
	pcs := make([]uintptr, 64)
	frames := runtime.CallersFrames(pcs[:runtime.Callers(2, pcs)])
	for {
		frame, more := frames.Next()
		if strings.HasSuffix(frame.Function, "leasetest.(*client).send") {
			return true
		}
		if !more {
			return false
		}
	}
}

// checkReply checks what holds for every reply.
func (s *suite) checkReply(r lease.Request, reply lease.Reply, sent time.Time) {
	if reply.Sent.Before(sent) || reply.Sent.After(time.Now()) {
		s.Errorf("%v: Sent is %v, but it was sent at %v", r.Op, reply.Sent, sent)
	}
	tokens := r.Tokens
	if r.Next != nil {
		tokens = r.Next.Tokens
	}
	if reply.Status != lease.Held {
		tokens = 0
	}
	s.ledger.add(s, r.Key, reply.First, reply.Last, tokens)
}

// try sends a request and waits for the answer.
func (c *client) try(r lease.Request) (lease.Reply, error) {
	c.s.Helper()
	return c.s.await(c.send(r))
}

func (s *suite) await(answers <-chan answer) (lease.Reply, error) {
	s.Helper()
	timer := time.NewTimer(patience)
	defer timer.Stop()
	select {
	case a := <-answers:
		return a.reply, a.err
	case <-timer.C:
		require.Fail(s, "no answer")
		return lease.Reply{}, nil
	}
}

// do sends a request that must not fail.
func (c *client) do(r lease.Request) lease.Reply {
	c.s.Helper()
	reply, err := c.try(r)
	require.NoError(c.s, err, r.Op)
	return reply
}

// get sends a request that must be answered so.
func (c *client) get(status lease.Status, r lease.Request) lease.Reply {
	c.s.Helper()
	reply := c.do(r)
	require.Equal(c.s, status.String(), reply.Status.String(), "%v of %s", r.Op, c.id)
	return reply
}

// granted waits for a grant by message.
func (c *client) granted(k subject, t lease.Ticket) lease.Event {
	c.s.Helper()
	return c.event("granted", func(e lease.Event) bool {
		return e.Type == lease.Granted && e.Key == k.key && e.Ticket == t
	})
}

// wanted waits for a want.
func (c *client) wanted(k subject, t lease.Ticket) lease.Event {
	c.s.Helper()
	return c.event("wanted", func(e lease.Event) bool {
		return e.Type == lease.Wanted && e.Key == k.key && e.Ticket == t
	})
}

// changed waits for the news that the key was changed.
func (c *client) changed(k subject) {
	c.s.Helper()
	c.event("changed", func(e lease.Event) bool { return e.Type == lease.Changed && e.Key == k.key })
}

// messages returns all messages about the key (grants, wants, busy answers, traces) that
// were sent before now and not waited for. It has one more sent, which comes
// after all of them.
func (c *client) messages(k subject) []lease.Event {
	c.s.Helper()
	if c.can.Notices {
		c.get(lease.Done, k.busy(c.owner(barrierTicket)))
		c.event("its own message", func(e lease.Event) bool {
			return e.Type == lease.InUse && e.Key == k.key && e.Ticket == barrierTicket
		})
	}
	return c.take(func(e lease.Event) bool {
		switch e.Type {
		case lease.Granted, lease.Wanted, lease.Asked, lease.InUse, lease.Traced:
			return e.Key == k.key
		default:
			return false
		}
	})
}

// requireNoMessage says that none came but for those waited for.
func (c *client) requireNoMessage(k subject) {
	c.s.Helper()
	require.Empty(c.s, c.messages(k), "messages to %s", c.id)
}
