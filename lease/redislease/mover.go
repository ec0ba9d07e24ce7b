package redislease

import (
	"context"
	"slices"
	"sync"
	"time"
)

const (
	// moveSoonest is how long a mover waits at first, for the client to hear of the change that is behind it.
	moveSoonest = 20 * time.Millisecond
	// moveLatest is how long it waits at most, where that did not help.
	moveLatest = 400 * time.Millisecond
	// moveAgain is after which time it begins with little patience again.
	moveAgain = 10 * time.Second
)

// mover has inboxes subscribed anew that are at the wrong node of a cluster: at a replica, which takes subscriptions as well, and where the
// client put it because it had not heard of a failover. Grants are not told there.
type mover struct {
	store *Store

	mu     sync.Mutex
	armed  bool // the timer is running, or what it does
	closed bool
	wait   time.Duration
	last   time.Time // when it moved any
	timer  *time.Timer
	moving sync.WaitGroup
}

// misplaced is told that an inbox is not where its owner waits.
func (m *mover) misplaced() {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.armed || m.closed {
		return
	}
	m.wait = min(2*m.wait, moveLatest)
	if m.wait == 0 || time.Since(m.last) > moveAgain {
		m.wait = moveSoonest
	}
	m.armed = true
	m.moving.Add(1)
	m.timer = time.AfterFunc(m.wait, m.move)
}

// move closes the connections to all nodes but the masters. What was subscribed there is subscribed anew, and who waits looks again, upon
// which the mover is told if it was of no use.
func (m *mover) move() {
	defer m.moving.Done()
	s := m.store
	ctx, cancel := context.WithTimeout(context.Background(), s.config.patience())
	defer cancel()
	masters, err := s.masters(ctx)
	dropped := 0
	if err == nil && len(masters) > 0 {
		dropped = s.conns.dropSome(errMisplaced, func(address string) bool {
			return !slices.ContainsFunc(masters, func(r slotRange) bool { return r.address == address })
		})
	}
	m.mu.Lock()
	m.armed, m.last = false, time.Now()
	m.mu.Unlock()
	if dropped > 0 {
		s.log.Info("leasehold: an inbox is not subscribed where its grants come from; subscribing anew", "addr", s.addr)
	}
}

// close ends it.
func (m *mover) close() {
	m.mu.Lock()
	m.closed = true
	if m.armed && m.timer.Stop() {
		m.moving.Done()
	}
	m.mu.Unlock()
	m.moving.Wait()
}
