package torture

import (
	"errors"
	"fmt"
	"net"
	"net/rpc"
	"slices"
	"sync"

	"github.com/go-leasehold/leasehold/internal/history"
)

// Write is what a hold wants to write to a key of the fenced store.
type Write struct {
	Key   string
	Token uint64
	Hold  history.ID
}

// Verdict is the fenced store's answer.
type Verdict struct {
	Accepted bool
	Newest   uint64 // the highest token that it has seen for the key
}

// entry is a line of the store's log.
type entry struct {
	Write
	Verdict

	newest history.ID // the hold that wrote with the highest token before
}

// Fence is a store that takes a write only with a token that is no lower than any before it, which is all that it takes to be safe
// from writes that come too late. It listens for the processes of a run, and logs all that they wrote.
type Fence struct {
	listener net.Listener
	serving  sync.WaitGroup

	mu     sync.Mutex
	conns  map[net.Conn]struct{}
	newest map[string]Write
	log    []entry
}

// newFence starts one on a free port of 127.0.0.1.
func newFence() (*Fence, error) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, fmt.Errorf("torture: fenced store: %w", err)
	}
	f := &Fence{listener: listener, newest: map[string]Write{}, conns: map[net.Conn]struct{}{}}
	server := rpc.NewServer()
	if err := server.RegisterName("Fence", &fenceCalls{f}); err != nil {
		return nil, errors.Join(fmt.Errorf("torture: fenced store: %w", err), listener.Close())
	}
	f.serving.Go(func() {
		for {
			conn, err := listener.Accept()
			if err != nil {
				return // close
			}
			f.mu.Lock()
			f.conns[conn] = struct{}{}
			f.mu.Unlock()
			f.serving.Go(func() {
				server.ServeConn(conn)
				f.mu.Lock()
				delete(f.conns, conn)
				f.mu.Unlock()
			})
		}
	})
	return f, nil
}

func (f *Fence) addr() string { return f.listener.Addr().String() }

// close ends the store, and returns its log.
func (f *Fence) close() []entry {
	_ = f.listener.Close() // ends the accept loop
	f.mu.Lock()
	for conn := range f.conns {
		_ = conn.Close() // ends its server
	}
	f.mu.Unlock()
	f.serving.Wait()
	return f.log
}

// fenceCalls are what processes can call.
type fenceCalls struct{ f *Fence }

// Write accepts a write, or refuses it.
func (c *fenceCalls) Write(w Write, v *Verdict) error {
	c.f.mu.Lock()
	defer c.f.mu.Unlock()
	before := c.f.newest[w.Key]
	v.Accepted, v.Newest = w.Token >= before.Token, max(w.Token, before.Token)
	c.f.log = append(c.f.log, entry{w, *v, before.Hold})
	if v.Accepted {
		c.f.newest[w.Key] = w
	}
	return nil
}

// judgeWrites holds the store's log to the record of holds: nobody wrote behind somebody who had the lock after him, and nobody who had it last was refused.
func judgeWrites(log []entry, events []history.Event) error {
	had := map[history.ID]*history.Event{}
	var losses []*history.Event
	for i := range events {
		switch e := &events[i]; e.What {
		case history.Locked:
			had[e.Hold] = e
		case history.Shaken, history.Deleted:
			losses = append(losses, e)
		}
	}
	lost := func(hold *history.Event) bool { // its lease may have been lost before it was had, and the lock be another's
		return slices.ContainsFunc(losses, func(e *history.Event) bool {
			return hold.Token <= e.Token && e.Call <= hold.Return && (e.Key == "" || e.Key == hold.Key)
		})
	}
	var wrong []error
	last := map[string]history.ID{} // the hold whose write was accepted last
	for _, w := range log {
		now := had[w.Hold]
		if now == nil {
			wrong = append(wrong, fmt.Errorf("a write of %s, which nobody got", w.Hold))
			continue
		}
		if now.Token != w.Token {
			wrong = append(wrong, fmt.Errorf("%s has token %d and wrote with %d", w.Hold, now.Token, w.Token))
		}
		other := had[w.newest]
		if w.Accepted {
			other = had[last[w.Key]]
			last[w.Key] = w.Hold
		}
		switch {
		case other == nil || other.Owner == now.Owner:
		case w.Accepted && other.Call > now.Return && !lost(other):
			wrong = append(wrong, fmt.Errorf("key %q: the write of %s, token %d, was accepted behind that of %s, token %d, who had the lock after it",
				w.Key, w.Hold, w.Token, other.Hold, other.Token))
		case w.Accepted && other.Token == now.Token:
			wrong = append(wrong, fmt.Errorf("key %q: %s and %s wrote with the same token %d", w.Key, w.Hold, other.Hold, w.Token))
		case !w.Accepted && other.Return < now.Call && !lost(now):
			wrong = append(wrong, fmt.Errorf("key %q: the write of %s, token %d, was refused because of %s, token %d, who had had the lock before it",
				w.Key, w.Hold, w.Token, other.Hold, other.Token))
		}
	}
	return errors.Join(wrong...)
}
