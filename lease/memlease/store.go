package memlease

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/go-leasehold/leasehold/lease"
)

var (
	// ErrKilled is what the requests of a store get after [Store.Kill].
	ErrKilled = errors.New("memlease: the process was killed")

	// ErrTimeout is what a request gets that has no answer after a third of its
	// TTL. It may take effect yet.
	ErrTimeout = errors.New("memlease: no answer in time")

	errNotOpen = errors.New("memlease: the store is not open")
	errTwice   = errors.New("memlease: the store was opened before")
	errSameID  = errors.New("memlease: another store is open under this id")
)

// Store is one coordinator's view of a [Server]. It implements [lease.Store].
type Store struct {
	server *Server
	agenda agenda
	done   chan struct{} // closed when the dispatcher has ended, or never started
	state  atomic.Int32  // stateNew, then stateOpen, then stateClosed

	id   string     // set by Open, before anything reads it
	sink lease.Sink // set by Open

	// life numbers the lives of the connection that events come by; those of a
	// former one are lost. Server.mu guards its changes.
	life      atomic.Uint64
	connected bool      // guarded by Server.mu
	killed    bool      // guarded by Server.mu
	down      error     // guarded by Server.mu
	eventsDue time.Time // when the last event is due; guarded by Server.mu

	order order // only the dispatcher touches it
}

// order is when the last request and the last reply are due: none overtakes
// another of its kind.
type order struct {
	arrival, reply time.Time
	limit          time.Duration // a third of the last TTL seen
}

const (
	stateNew int32 = iota
	stateOpen
	stateClosed
)

var _ lease.Store = (*Store)(nil)

func newStore(s *Server) *Store {
	st := &Store{server: s, done: make(chan struct{})}
	st.agenda.wake = make(chan struct{}, 1)
	return st
}

// Open connects the store under the coordinator's id.
func (st *Store) Open(_ context.Context, id string, sink lease.Sink) (lease.Capabilities, error) {
	s := st.server
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case s.mu.closed || st.state.Load() == stateClosed:
		return lease.Capabilities{}, lease.ErrStoreClosed
	case s.mu.stores[id] != nil:
		return lease.Capabilities{}, fmt.Errorf("%w: %q", errSameID, id)
	}
	if err := s.unavailable(st); err != nil {
		return lease.Capabilities{}, err
	}
	if !st.state.CompareAndSwap(stateNew, stateOpen) {
		return lease.Capabilities{}, errTwice
	}
	st.id, st.sink, st.connected = id, sink, true
	s.mu.stores[id] = st
	go st.dispatch()
	return s.capabilities(), nil
}

func (s *Server) capabilities() lease.Capabilities {
	c := lease.Capabilities{
		Server:   "memory",
		Notices:  !s.config.noNotices,
		Receipts: !s.config.noReceipts,
		Tracking: !s.config.noTracking,
	}
	if !c.Notices {
		c.Missing = append(c.Missing, "No notices: waiters learn of their grant by looking.")
	}
	if !c.Receipts {
		c.Missing = append(c.Missing, "No receipts: a dead waiter costs its TTL.")
	}
	if !c.Tracking {
		c.Missing = append(c.Missing, "No tracking: changes from outside are noticed late.")
	}
	return c
}

// Inspect tells who holds the key and who waits.
func (st *Store) Inspect(ctx context.Context, key string) (info lease.Info, err error) {
	err = st.ask(ctx, func() error {
		info, err = st.server.Inspect(key)
		return err
	})
	return info, err
}

// Force takes the key from its holders, tells them, and passes it on.
func (st *Store) Force(ctx context.Context, key string) error {
	return st.ask(ctx, func() error { return st.server.Force(key) })
}

// Check finds nothing wrong with a server in memory.
func (st *Store) Check(ctx context.Context) ([]lease.Problem, error) {
	return nil, st.ask(ctx, func() error { return nil })
}

// ask does what takes a request and a reply, in the caller's own time.
func (st *Store) ask(ctx context.Context, do func() error) error {
	switch st.state.Load() {
	case stateNew:
		return errNotOpen
	case stateClosed:
		return lease.ErrStoreClosed
	}
	s := st.server
	if err := sleep(ctx, s.controls.latency(RequestLeg)); err != nil {
		return err
	}
	s.mu.Lock()
	err := s.unavailable(st)
	s.mu.Unlock()
	if err == nil {
		err = do()
	}
	if late := sleep(ctx, s.controls.latency(ReplyLeg)); late != nil {
		return late
	}
	return err
}

func sleep(ctx context.Context, d time.Duration) error {
	if err := ctx.Err(); err != nil || d <= 0 {
		return err
	}
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// Close waits for what was given to Send, no longer than ctx, and ends the store.
// Don't call it from within a callback.
func (st *Store) Close(ctx context.Context) error {
	before := st.state.Swap(stateClosed)
	st.agenda.close(ctx.Err() != nil)
	if before == stateNew {
		close(st.done)
		return nil
	}
	select {
	case <-st.done:
		return nil
	case <-ctx.Done():
		st.agenda.close(true)
		return ctx.Err()
	}
}

// Disconnect takes the store's inbox away: messages on their way are lost, new
// ones are not received, what it watches is forgotten, and it is told
// [lease.Disconnected]. Its requests still work: see [Store.SetDown].
func (st *Store) Disconnect(err error) {
	st.server.mu.Lock()
	defer st.server.mu.Unlock()
	st.server.disconnect(st, &lease.Event{Type: lease.Disconnected, Err: err})
}

// Connect gives the inbox back; the store is told [lease.Connected].
func (st *Store) Connect() {
	st.server.mu.Lock()
	defer st.server.mu.Unlock()
	st.server.connect(st)
}

// SetDown makes the requests of this store fail with err, without effect; nil
// ends that.
func (st *Store) SetDown(err error) {
	st.server.mu.Lock()
	defer st.server.mu.Unlock()
	st.down = err
}

// Kill is the end of the process: nothing of it reaches the server any more, and
// no message reaches it. Its leases expire. The store must still be closed.
func (st *Store) Kill() {
	st.server.mu.Lock()
	defer st.server.mu.Unlock()
	st.killed = true
	st.server.disconnect(st, nil)
}

// unavailable is the error that the store's requests get now. Call it with
// Server.mu held.
func (s *Server) unavailable(st *Store) error {
	switch {
	case s.mu.closed:
		return lease.ErrStoreClosed
	case st.killed:
		return ErrKilled
	case st.down != nil:
		return st.down
	}
	return s.controls.isDown()
}
