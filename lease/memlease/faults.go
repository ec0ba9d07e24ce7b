package memlease

import (
	"sync"
	"time"

	"github.com/go-leasehold/leasehold/lease"
)

// Fault is what befalls one request. The zero value is none.
type Fault struct {
	// Delay is added to the request's way to the server. Later requests of the
	// store may overtake it.
	Delay time.Duration

	// Err answers the request. Nothing was done, unless Applied is set: then it
	// took effect and the reply was lost.
	Err     error
	Applied bool

	// Resend: the request took effect and its reply was lost, upon which the
	// store sent it once more and got an answer (Reply.Resent) to that.
	Resend bool

	// Late, if above zero: one more copy of the request takes effect that long
	// after the one that was answered, be it with Err or not.
	Late time.Duration
}

// controls are the faults in force.
type controls struct {
	mu struct {
		sync.Mutex

		latency func(Leg) time.Duration
		down    error
		hook    func(id string, r lease.Request)
		faults  func(id string, r lease.Request) Fault
		next    []planned
		drop    func(id string, e lease.Event) bool
	}
}

// planned are faults for the next n requests of a verb.
type planned struct {
	op    lease.Op
	n     int
	fault Fault
}

// SetLatency changes what [WithLatencyFunc] set; nil means no latency.
func (s *Server) SetLatency(latency func(Leg) time.Duration) {
	c := &s.controls
	c.mu.Lock()
	defer c.mu.Unlock()
	c.mu.latency = latency
}

// SetDown makes every request fail with err, without effect; nil ends that.
// Messages to stores go on: see [Server.Disconnect] for those.
func (s *Server) SetDown(err error) {
	c := &s.controls
	c.mu.Lock()
	defer c.mu.Unlock()
	c.mu.down = err
}

// OnRequest has a function see every request just before it sets out, in the
// goroutine of the store that sends it. It may call the server. nil ends that.
func (s *Server) OnRequest(hook func(id string, r lease.Request)) {
	c := &s.controls
	c.mu.Lock()
	defer c.mu.Unlock()
	c.mu.hook = hook
}

// SetFaults has a function choose the fault of every request that no
// [Server.FaultNext] is planned for. It is called like the one of
// [Server.OnRequest]. nil ends that.
func (s *Server) SetFaults(faults func(id string, r lease.Request) Fault) {
	c := &s.controls
	c.mu.Lock()
	defer c.mu.Unlock()
	c.mu.faults = faults
}

// FaultNext plans a fault for each of the next n requests of a verb (0: of any),
// after those planned before.
func (s *Server) FaultNext(op lease.Op, n int, fault Fault) {
	c := &s.controls
	c.mu.Lock()
	defer c.mu.Unlock()
	c.mu.next = append(c.mu.next, planned{op, n, fault})
}

// DropEvents loses the events that the function says yes to, after they were
// counted as received. It must not call the server. nil ends that.
func (s *Server) DropEvents(drop func(id string, e lease.Event) bool) {
	c := &s.controls
	c.mu.Lock()
	defer c.mu.Unlock()
	c.mu.drop = drop
}

// Disconnect takes the inbox of every open store away; see [Store.Disconnect].
func (s *Server) Disconnect(err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, st := range s.openStores() {
		s.disconnect(st, &lease.Event{Type: lease.Disconnected, Err: err})
	}
}

// Connect gives every open store its inbox back; see [Store.Connect].
func (s *Server) Connect() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, st := range s.openStores() {
		s.connect(st)
	}
}

// disconnect ends a connection: what is on its way is lost, and so are the
// watches, for both belong to that life of it. Call it with mu held.
func (s *Server) disconnect(st *Store, tell *lease.Event) {
	if !st.connected {
		return
	}
	st.connected = false
	life := st.life.Add(1)
	if tell != nil {
		st.deliver(*tell, life, 0)
	}
}

// connect is its counterpart. Call it with mu held.
func (s *Server) connect(st *Store) {
	if st.connected || st.killed || s.mu.stores[st.id] != st {
		return
	}
	st.connected = true
	st.deliver(lease.Event{Type: lease.Connected}, st.life.Load(), 0)
}

func (c *controls) latency(leg Leg) time.Duration {
	c.mu.Lock()
	latency := c.mu.latency
	c.mu.Unlock()
	if latency == nil {
		return 0
	}
	return max(latency(leg), 0)
}

func (c *controls) drops(id string, e lease.Event) bool {
	c.mu.Lock()
	drop := c.mu.drop
	c.mu.Unlock()
	return drop != nil && drop(id, e)
}

func (c *controls) isDown() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.mu.down
}

// depart shows a request to the hook and chooses its fault.
func (c *controls) depart(id string, r lease.Request) Fault {
	c.mu.Lock()
	hook, faults := c.mu.hook, c.mu.faults
	fault, isPlanned := c.takePlanned(r.Op)
	c.mu.Unlock()
	if hook != nil {
		hook(id, r)
	}
	if !isPlanned && faults != nil {
		fault = faults(id, r)
	}
	return fault
}

// takePlanned takes the first fault planned for the verb. Call it with mu held.
func (c *controls) takePlanned(op lease.Op) (Fault, bool) {
	for i := range c.mu.next {
		p := &c.mu.next[i]
		if p.n > 0 && (p.op == 0 || p.op == op) {
			p.n--
			return p.fault, true
		}
	}
	return Fault{}, false
}
