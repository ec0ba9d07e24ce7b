package memlease

import (
	"context"
	"slices"
	"sync"
	"time"

	"github.com/go-leasehold/leasehold/lease"
)

// Server is what several stores share: it stands for one Redis. Make it with
// [NewServer]; its methods may be called at the same time, and from within hooks.
type Server struct {
	config   config
	controls controls // of the faults; has a mutex of its own, taken after mu

	// mu makes every request one step. It is held for computing only: nothing
	// is waited for and no foreign code runs under it, but for the functions
	// of WithLatencyFunc and DropEvents.
	mu struct {
		sync.Mutex

		closed bool
		stores map[string]*Store // the open ones, by coordinator id
		keys   map[string]*entry
		sweep  int                      // size of keys at which blank ones are dropped
		late   map[*time.Timer]struct{} // of copies still on their way
		step   time.Duration            // how far the clock was stepped
	}
}

// NewServer makes a server without any key. Close it at the end.
func NewServer(opts ...Option) *Server {
	s := &Server{config: config{tokenRetention: DefaultTokenRetention}}
	for _, opt := range opts {
		opt(&s.config)
	}
	s.controls.mu.latency = s.config.latency
	s.mu.stores = make(map[string]*Store)
	s.mu.keys = make(map[string]*entry)
	s.mu.late = make(map[*time.Timer]struct{})
	s.mu.sweep = 1024
	return s
}

// Store makes a store of this server. It must be opened, and closed at the end.
func (s *Server) Store() *Store { return newStore(s) }

// Close ends the server and the stores that are still open: their requests are
// answered with [lease.ErrStoreClosed]. Don't call it from within a callback.
func (s *Server) Close() {
	s.mu.Lock()
	s.mu.closed = true
	stores := s.openStores()
	for timer := range s.mu.late {
		timer.Stop()
	}
	for _, e := range s.mu.keys {
		if e.timer != nil {
			e.timer.Stop()
		}
	}
	s.mu.Unlock()

	ended, cancel := context.WithCancel(context.Background())
	cancel()
	for _, st := range stores {
		_ = st.Close(ended) // it gives up at once
		<-st.done
	}
}

// Inspect tells what the server knows of a key; see [lease.Store].
func (s *Server) Inspect(key string) (lease.Info, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	e := s.entry(key)
	s.expire(e, s.now(), nil)
	if e.foreign {
		return lease.Info{}, lease.ErrKind
	}
	return e.info(s.now()), nil
}

// Force takes a key from its holders and passes it on; see [lease.Store].
func (s *Server) Force(key string) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	now := s.now()
	e := s.entry(key)
	s.expire(e, now, nil)
	if e.foreign {
		return lease.ErrKind
	}
	s.takeFromHolders(e)
	s.passOn(e, departed{}, now, nil)
	return nil
}

// takeFromHolders tells the holders, though they may not be watching, and those
// who watch. Call it with mu held.
func (s *Server) takeFromHolders(e *entry) {
	told := make(map[*Store]bool)
	for _, w := range e.watchers {
		told[w.store] = true
	}
	for _, h := range e.holders {
		id, _, _ := lease.ParseOwner(h.owner)
		if st := s.mu.stores[id]; !told[st] {
			told[st] = true
			s.send(id, lease.Event{Type: lease.Changed, Key: e.name})
		}
	}
	e.holders = nil
	s.changed(e, nil)
}

// Delete deletes a key behind everybody's back, as DEL in Redis would: its
// holders, or the foreign value that [Server.Put] put there. The queue and the
// token counter, which have keys of their own, stay.
func (s *Server) Delete(key string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	e := s.entry(key)
	if len(e.holders) > 0 || e.foreign {
		e.holders, e.foreign = nil, false
		s.changed(e, nil)
	}
}

// Put puts a value that is no lock at the key, in place of what was there.
// Requests for it get [lease.ErrKind] until [Server.Delete].
func (s *Server) Put(key string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	e := s.entry(key)
	e.holders, e.foreign = nil, true
	s.changed(e, nil)
}

// Foreign says whether the value that [Server.Put] put at the key is still there.
func (s *Server) Foreign(key string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.entry(key).foreign
}

// Flush forgets everything: holders, queues, tokens. Every store that tracks is
// told [lease.ChangedAll], whether it watches anything or not, as in Redis.
func (s *Server) Flush() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, e := range s.mu.keys {
		if e.timer != nil {
			e.timer.Stop()
		}
	}
	clear(s.mu.keys)
	if s.config.noTracking {
		return
	}
	for _, st := range s.openStores() {
		if st.connected {
			s.deliver(st, lease.Event{Type: lease.ChangedAll})
		}
	}
}

// StepClock steps the server's clock, by which leases expire and tokens grow.
func (s *Server) StepClock(d time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.mu.step += d
	for _, e := range s.mu.keys {
		s.expire(e, s.now(), nil)
	}
}

// Replay runs a request as if a copy of it, sent by that coordinator some time
// ago, arrived only now. It may also speak for a coordinator that is not here.
func (s *Server) Replay(id string, r lease.Request) (lease.Reply, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.apply(sender{id, s.mu.stores[id]}, r)
}

// Keys is how many keys the server keeps something of.
func (s *Server) Keys() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.mu.keys)
}

// now is the server's time. Call it with mu held.
func (s *Server) now() time.Time { return time.Now().Add(s.mu.step) }

// entry finds or makes what is kept of a key. Call it with mu held.
func (s *Server) entry(key string) *entry {
	if e := s.mu.keys[key]; e != nil {
		return e
	}
	if len(s.mu.keys) >= s.mu.sweep {
		now := s.now()
		for name, e := range s.mu.keys {
			if s.expire(e, now, nil); e.blank(now) {
				delete(s.mu.keys, name)
			}
		}
		s.mu.sweep = max(1024, 2*len(s.mu.keys)) // so that it costs O(1) a key
	}
	e := &entry{name: key}
	s.mu.keys[key] = e
	return e
}

// openStores returns them in the order of their ids. Call it with mu held.
func (s *Server) openStores() []*Store {
	stores := make([]*Store, 0, len(s.mu.stores))
	for _, st := range s.mu.stores {
		stores = append(stores, st)
	}
	slices.SortFunc(stores, func(a, b *Store) int {
		if a.id < b.id {
			return -1
		}
		return 1
	})
	return stores
}

// later runs a late copy of a request, unless the server is closed by then.
func (s *Server) later(d time.Duration, from sender, r lease.Request) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.mu.closed {
		return
	}
	var timer *time.Timer
	timer = time.AfterFunc(d, func() {
		s.mu.Lock()
		defer s.mu.Unlock() // timer is set by now: AfterFunc was called with mu held
		delete(s.mu.late, timer)
		if !s.mu.closed {
			_, _ = s.apply(from, r) // nobody waits for its answer
		}
	})
	s.mu.late[timer] = struct{}{}
}
