package memlease

import (
	"time"

	"github.com/go-leasehold/leasehold/lease"
)

// call is a request on its way. After Send, only the dispatcher touches it.
type call struct {
	request  lease.Request
	done     func(lease.Reply, error) // nil once it was called
	sent     time.Time
	deadline time.Time
	fault    Fault
	resent   bool
}

// Send sends a request; done is called from the store's goroutine.
func (st *Store) Send(r lease.Request, done func(lease.Reply, error)) {
	if st.state.Load() == stateNew {
		go done(lease.Reply{}, errNotOpen)
		return
	}
	c := &call{request: r, done: done, sent: time.Now()}
	if !st.agenda.addCall(c, func() { st.depart(c) }) {
		go done(lease.Reply{}, lease.ErrStoreClosed)
	}
}

// dispatch is the store's goroutine: everything that is called back is called
// from here. It ends when the store is closed and every request was answered.
func (st *Store) dispatch() {
	timer := time.NewTimer(time.Hour)
	defer timer.Stop()
	for {
		due, wait, done := st.agenda.next(time.Now())
		switch {
		case done:
			st.end()
			return
		case due.run != nil:
			due.run()
			continue
		case wait < 0:
			<-st.agenda.wake
			continue
		}
		timer.Reset(wait)
		select {
		case <-timer.C:
		case <-st.agenda.wake:
		}
	}
}

// end takes the store from the server and answers what was given up.
func (st *Store) end() {
	defer close(st.done)
	s := st.server
	s.mu.Lock()
	s.disconnect(st, nil)
	if s.mu.stores[st.id] == st {
		delete(s.mu.stores, st.id)
	}
	s.mu.Unlock()
	for _, t := range st.agenda.rest() {
		if t.call != nil {
			st.answer(t.call, lease.Reply{}, lease.ErrStoreClosed)
		}
	}
}

// depart sends a request on its way to the server.
func (st *Store) depart(c *call) {
	r := c.request
	ttl := r.TTL
	if r.Next != nil {
		ttl = r.Next.TTL
	}
	if ttl > 0 {
		st.order.limit = ttl / 3
	}
	if st.order.limit > 0 {
		c.deadline = c.sent.Add(st.order.limit)
	}
	c.fault = st.server.controls.depart(st.id, r)

	// What is delayed by itself is overtaken; the rest keeps its order.
	at := later(st.order.arrival, time.Now().Add(st.server.controls.latency(RequestLeg)))
	st.order.arrival = at
	st.travel(c, at.Add(c.fault.Delay))
}

// travel has a copy of the request arrive at that time, and its sender informed
// where that is too late.
func (st *Store) travel(c *call, at time.Time) {
	if !c.deadline.IsZero() && at.After(c.deadline) {
		st.agenda.add(c.deadline, c, func() { st.answer(c, lease.Reply{}, ErrTimeout) })
	}
	if at.After(time.Now()) {
		st.agenda.add(at, c, func() { st.arrive(c) })
	} else {
		st.arrive(c)
	}
}

// arrive is the moment in which a request takes effect.
func (st *Store) arrive(c *call) {
	s := st.server
	s.mu.Lock()
	down := s.unavailable(st)
	reply, err := lease.Reply{}, down
	if down == nil && (c.fault.Err == nil || c.fault.Applied) {
		reply, err = s.apply(sender{st.id, st}, c.request)
	}
	s.mu.Unlock()

	if down == nil {
		if c.fault.Resend {
			c.fault.Resend = false
			st.resend(c)
			return
		}
		if late := c.fault.Late; late > 0 {
			c.resent = true
			s.later(late, sender{st.id, st}, c.request)
		}
		if c.fault.Err != nil {
			reply, err = lease.Reply{}, c.fault.Err
		}
	}
	reply.Sent, reply.Resent = c.sent, c.resent
	st.reply(c, reply, err)
}

// resend sends the request once more, as if its reply had been lost.
func (st *Store) resend(c *call) {
	latency := st.server.controls.latency
	c.resent = true
	lost := time.Now().Add(latency(ReplyLeg))
	st.agenda.add(lost, c, func() {
		c.sent = time.Now()
		st.travel(c, c.sent.Add(latency(RequestLeg)))
	})
}

// reply sends an answer on its way back.
func (st *Store) reply(c *call, reply lease.Reply, err error) {
	if c.done == nil {
		return // it was given up: too late
	}
	at := later(st.order.reply, time.Now().Add(st.server.controls.latency(ReplyLeg)))
	st.order.reply = at
	if !c.deadline.IsZero() && at.After(c.deadline) {
		at, reply, err = c.deadline, lease.Reply{}, ErrTimeout
	}
	if at.After(time.Now()) {
		st.agenda.add(at, c, func() { st.answer(c, reply, err) })
	} else {
		st.answer(c, reply, err)
	}
}

// answer calls back, once.
func (st *Store) answer(c *call, reply lease.Reply, err error) {
	if done := c.done; done != nil {
		c.done = nil
		done(reply, err)
		st.agenda.answered()
	}
}

// deliver has the sink told an event, unless the connection that it comes by
// ends before. It is called with Server.mu held, and never waits.
func (st *Store) deliver(event lease.Event, life uint64, latency time.Duration) {
	at := later(st.eventsDue, time.Now().Add(latency))
	st.eventsDue = at
	st.agenda.add(at, nil, func() {
		if st.life.Load() == life {
			st.sink(event)
		}
	})
}

func later(a, b time.Time) time.Time {
	if a.After(b) {
		return a
	}
	return b
}
