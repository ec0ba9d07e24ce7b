package coordinatortest

import (
	"cmp"
	"context"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/go-leasehold/leasehold/lease"
	"github.com/go-leasehold/leasehold/lease/memlease"
)

// As is what a made-up process uses a key as.
type As uint8

// The uses. A key is either a mutex or a read/write lock.
const (
	AsMutex As = iota
	AsReader
	AsWriter
)

func (a As) kindAndMode() (lease.Kind, lease.Mode) {
	switch a {
	case AsReader:
		return lease.ReadWrite, lease.Shared
	case AsWriter:
		return lease.ReadWrite, lease.Exclusive
	default:
		return lease.Mutex, lease.Exclusive
	}
}

// forever is the TTL of a made-up process, which doesn't renew.
const forever = 100 * 365 * 24 * time.Hour

// HoldElsewhere has another process take the key, as a mutex unless as says
// otherwise, and returns when it has it: at once if the key is free or merely
// kept by a coordinator, else after whoever holds it now. The process holds it
// until release is called, or for ttl if that is above zero: then it counts as
// crashed, for nobody renews its lease.
func (h *Harness) HoldElsewhere(key string, ttl time.Duration, as ...As) (release func()) {
	if ttl <= 0 {
		ttl = forever
	}
	c := h.contend(key, ttl, as)
	timer := time.NewTimer(patience)
	defer timer.Stop()
	select {
	case <-c.granted:
	case <-timer.C:
		c.Release()
		h.fail("coordinatortest: HoldElsewhere(%q): somebody else holds it for longer than %v", key, patience)
	}
	return c.Release
}

// Contend has another process queue up for the key, as a mutex unless as says
// otherwise. When Contend returns it is in the queue, and the holder is being told
// that the key is wanted. The process holds the key from when it gets it until
// [Contender.Release].
func (h *Harness) Contend(key string, as ...As) *Contender {
	return h.contend(key, forever, as)
}

func (h *Harness) contend(key string, ttl time.Duration, as []As) *Contender {
	var use As
	if len(as) > 0 {
		use = as[0]
	}
	c, err := h.elsewhere.contend(key, ttl, use)
	if err != nil {
		h.fail("coordinatortest: another process asks for %q: %v", key, err)
	}
	return c
}

// Contender is a made-up process that waits for a key or holds it.
type Contender struct {
	granted chan struct{}
	release func()
	request lease.Request
	since   time.Time
}

// Granted returns a channel that is closed when the process has the key.
func (c *Contender) Granted() <-chan struct{} { return c.granted }

// Release has the process give the key up, or its place in the queue. It returns
// when that has been done; twice does no harm.
func (c *Contender) Release() { c.release() }

// elsewhere is the process of all contenders: a bare store with no coordinator,
// which answers no wants and renews nothing. Its store is there for the messages;
// its requests are given to the server directly, where no fault that is meant for
// the code under test befalls them.
type elsewhere struct {
	server *memlease.Server
	store  *memlease.Store

	mu struct {
		sync.Mutex

		tickets lease.Ticket
		waiting map[lease.Ticket]*Contender // not granted yet
	}
}

// elsewhereID is what the process is called in the server.
const elsewhereID = "elsewhere"

func newElsewhere(server *memlease.Server) (*elsewhere, error) {
	e := &elsewhere{server: server, store: server.Store()}
	e.mu.waiting = make(map[lease.Ticket]*Contender)
	_, err := e.store.Open(context.Background(), elsewhereID, e.notice)
	return e, err
}

func (e *elsewhere) close() {
	ended, cancel := context.WithCancel(context.Background())
	cancel()
	_ = e.store.Close(ended) // whatever it holds or waits for may go with it
}

func (e *elsewhere) contend(key string, ttl time.Duration, as As) (*Contender, error) {
	kind, mode := as.kindAndMode()
	c := &Contender{granted: make(chan struct{}), since: time.Now()}
	e.mu.Lock()
	e.mu.tickets++
	c.request = lease.Request{
		Op: lease.Acquire, Key: key, Kind: kind, Mode: mode, Ticket: e.mu.tickets, TTL: ttl,
		Queue: true, Age: -1, Tokens: 1,
	}
	e.mu.waiting[c.request.Ticket] = c // before its grant can come
	e.mu.Unlock()
	c.release = sync.OnceFunc(func() { e.release(c) })
	err := e.look(c)
	if err != nil {
		c.Release()
	}
	return c, err
}

// look sends the contender's request, again or for the first time.
func (e *elsewhere) look(c *Contender) error {
	r := c.request
	if waited := time.Since(c.since); waited > 0 {
		r.Age = waited // it may have lost its place, and stands where it stood
	}
	reply, err := e.server.Replay(elsewhereID, r)
	if err == nil && reply.Status == lease.Held {
		e.grant(r.Ticket)
	}
	return err
}

func (e *elsewhere) release(c *Contender) {
	e.mu.Lock()
	delete(e.mu.waiting, c.request.Ticket)
	e.mu.Unlock()
	_, _ = e.server.Replay(elsewhereID, lease.Request{ // if it isn't a lock any more, there is nothing to release
		Op: lease.Release, Key: c.request.Key, Kind: c.request.Kind, Ticket: c.request.Ticket,
	})
}

// notice is the store's sink.
func (e *elsewhere) notice(event lease.Event) {
	switch event.Type {
	case lease.Granted:
		e.grant(event.Ticket)
	case lease.Connected:
		for _, c := range e.stillWaiting() {
			_ = e.look(c) // at worst it goes on waiting
		}
	default: // it keeps what it has for as long as the test wants
	}
}

func (e *elsewhere) stillWaiting() []*Contender {
	e.mu.Lock()
	defer e.mu.Unlock()
	return slices.SortedFunc(maps.Values(e.mu.waiting), func(a, b *Contender) int {
		return cmp.Compare(a.request.Ticket, b.request.Ticket)
	})
}

func (e *elsewhere) grant(t lease.Ticket) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if c := e.mu.waiting[t]; c != nil {
		delete(e.mu.waiting, t)
		close(c.granted)
	}
}
