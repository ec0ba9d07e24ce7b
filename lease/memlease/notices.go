package memlease

import (
	"time"

	"github.com/go-leasehold/leasehold/lease"
)

// All of this is called with Server.mu held.

// reachable says whether a message to the coordinator would be received.
func (s *Server) reachable(id string) bool {
	st := s.mu.stores[id]
	return st != nil && st.connected
}

// send publishes a message to a coordinator's inbox, and returns how many
// received it. A message that [Server.DropEvents] loses on the way was received.
func (s *Server) send(id string, event lease.Event) int {
	if s.config.noNotices || !s.reachable(id) {
		return 0
	}
	s.deliver(s.mu.stores[id], event)
	return 1
}

func (s *Server) deliver(st *Store, event lease.Event) {
	if !s.controls.drops(st.id, event) {
		st.deliver(event, st.life.Load(), s.controls.latency(EventLeg))
	}
}

// watch has the store told of the next change of the key that it didn't make.
func (s *Server) watch(e *entry, st *Store) bool {
	if s.config.noTracking || st == nil || !st.connected {
		return false
	}
	w := watcher{st, st.life.Load()}
	for i := range e.watchers {
		if e.watchers[i].store == st {
			e.watchers[i] = w
			return true
		}
	}
	e.watchers = append(e.watchers, w)
	s.armExpiry(e)
	return true
}

// changed tells those who watch the key, but not the one who changed it. As in
// client-side caching with NOLOOP, nobody watches it from then on, he neither.
func (s *Server) changed(e *entry, by *Store) {
	for _, w := range e.watchers {
		if w.store != by && w.store.connected && w.store.life.Load() == w.life {
			s.deliver(w.store, lease.Event{Type: lease.Changed, Key: e.name})
		}
	}
	e.watchers = e.watchers[:0]
	if e.timer != nil {
		e.timer.Stop()
		e.timer = nil
	}
}

// expire drops what is past its time. A key that ends as a whole was changed by
// nobody; a reader that is dropped from among others, by the request that found it.
func (s *Server) expire(e *entry, now time.Time, by *Store) (dropped bool) {
	alive := e.holders[:0]
	for _, h := range e.holders {
		if now.Before(h.deadline) {
			alive = append(alive, h)
		}
	}
	if dropped = len(alive) < len(e.holders); dropped {
		clear(e.holders[len(alive):])
		e.holders = alive
		if len(alive) == 0 {
			by = nil
		}
		s.changed(e, by)
	}
	if len(e.queue) > 0 && !now.Before(e.queueUntil) {
		e.queue = nil
	}
	if e.token > 0 && !now.Before(e.tokenUntil) {
		e.token = 0
	}
	return dropped
}

// armExpiry sees to it that the end of a watched key is told, though nobody looks.
// Nothing else needs a timer: what has expired is found by whoever looks.
func (s *Server) armExpiry(e *entry) {
	if e.timer != nil || len(e.watchers) == 0 || len(e.holders) == 0 || s.mu.closed {
		return
	}
	e.timer = time.AfterFunc(max(e.latest().Sub(s.now()), 0), func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		if s.mu.keys[e.name] != e {
			return
		}
		e.timer = nil
		s.expire(e, s.now(), nil)
		s.armExpiry(e) // it was renewed by its watcher meanwhile
	})
}
