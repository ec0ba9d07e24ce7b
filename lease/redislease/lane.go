package redislease

import (
	"sync"
	"time"

	"github.com/go-leasehold/leasehold/lease"
)

// call is a request on its way.
type call struct {
	request lease.Request
	done    func(lease.Reply, error)
	plan    plan
	refusal error  // answered with it, never sent
	life    uint64 // of the inbox, when it was given to Send

	// The rest is guarded by the lane's mu.
	since      time.Time // when it was given to Send
	sent       bool
	over       bool  // its answer is given, or about to be
	prev, next *call // in the lane's list, oldest first
}

// lane is a queue of requests with the goroutines that send them. A single
// server has one; on a cluster each has a range of slots, so that a silent
// node does not stand in the way of the others.
//
// A request is never sent before one of the same key that was given to Send
// earlier and is answered; more order the contract does not ask for.
type lane struct {
	store *Store

	mu      sync.Mutex
	work    sync.Cond // queue is no longer empty, or closed
	queue   []*call   // not sent yet, in order
	oldest  *call     // all that are not answered yet
	newest  *call
	pending int
	heard   time.Time // when the server last answered: who answers others is slow, not silent
	armed   bool      // the timer will look at their age
	closed  bool
	drained chan struct{} // closed when closed and nothing is pending
	timer   *time.Timer
	running sync.WaitGroup // goroutines, and a timer that is armed
}

func newLane(s *Store, workers int) *lane {
	l := &lane{store: s, drained: make(chan struct{})}
	l.work.L = &l.mu
	l.timer = time.AfterFunc(time.Hour, l.expire)
	l.timer.Stop()
	for range workers {
		l.running.Go(l.send)
	}
	return l
}

// add takes a call in; ready says that it can be sent now. It returns false
// when the lane is closed.
func (l *lane) add(c *call, ready bool) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.closed {
		return false
	}
	c.since = time.Now()
	c.prev = l.newest
	if l.newest == nil {
		l.oldest = c
	} else {
		l.newest.next = c
	}
	l.newest = c
	l.pending++
	if !l.armed {
		l.armed = true
		l.running.Add(1)
		l.timer.Reset(l.store.config.patience())
	}
	if ready {
		l.enqueue(c)
	}
	return true
}

// ready lets a call be sent that was taken in before.
func (l *lane) ready(c *call, refusal error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if !c.over {
		c.refusal = refusal
		l.enqueue(c)
	}
}

// enqueue needs mu.
func (l *lane) enqueue(c *call) {
	l.queue = append(l.queue, c)
	l.work.Signal()
}

// finish takes a call out and says whether it is the caller's to answer. It
// needs mu.
func (l *lane) finish(c *call) bool {
	if c.over {
		return false
	}
	c.over = true
	if c.prev == nil {
		l.oldest = c.next
	} else {
		c.prev.next = c.next
	}
	if c.next == nil {
		l.newest = c.prev
	} else {
		c.next.prev = c.prev
	}
	c.prev, c.next = nil, nil
	l.pending--
	if l.closed && l.pending == 0 {
		close(l.drained)
	}
	return true
}

// over says whether a call has its answer already.
func (l *lane) over(c *call) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return c.over
}

// answer gives a call its answer, unless it has one.
func (l *lane) answer(c *call, reply lease.Reply, err error) {
	l.mu.Lock()
	mine := l.finish(c)
	l.mu.Unlock()
	if mine {
		c.done(reply, err)
	}
}

// send is a goroutine of the lane: it takes what has come together and has it
// sent in one go.
func (l *lane) send() {
	batch := make([]*call, 0, maxBatch)
	for {
		batch = l.take(batch[:0])
		if len(batch) == 0 {
			return
		}
		l.store.deliver(l, batch)
		clear(batch)
	}
}

// take waits for calls, and returns none when the lane has ended. On a cluster
// those of one batch are of one slot.
func (l *lane) take(batch []*call) []*call {
	l.mu.Lock()
	defer l.mu.Unlock()
	for {
		n := 0
		for n < len(l.queue) && len(batch) < maxBatch {
			c := l.queue[n]
			if len(batch) > 0 && l.store.cluster && c.plan.names.slot != batch[0].plan.names.slot {
				break
			}
			n++
			if !c.over {
				c.sent = true
				batch = append(batch, c)
			}
		}
		l.queue = append(l.queue[:0], l.queue[n:]...)
		clear(l.queue[len(l.queue):min(cap(l.queue), len(l.queue)+n)])
		if len(batch) > 0 {
			if len(l.queue) > 0 {
				l.work.Signal() // another goroutine takes the rest
			}
			return batch
		}
		if l.closed && l.pending == 0 {
			return nil
		}
		l.work.Wait()
	}
}

// answered notes that the server answers.
func (l *lane) answered() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.heard = time.Now()
}

// due is when the call has waited too long: when its limit is reached, or its
// patience is over and the server has not answered anything for half as long.
// On a cluster another node's answers say nothing. It needs mu.
func (l *lane) due(c *call) time.Time {
	patience := l.store.config.patience()
	due := c.since.Add(patience)
	if l.store.cluster {
		return due
	}
	if quiet := l.heard.Add(patience / 2); quiet.After(due) {
		due = quiet
	}
	if limit := c.since.Add(l.store.config.limit()); limit.Before(due) {
		due = limit
	}
	return due
}

// expire answers what has waited too long: the promise that an error comes in
// time does not depend on the client, which may be stuck in dialling.
func (l *lane) expire() {
	now := time.Now()
	l.mu.Lock()
	var late []*call
	stuck := false
	for c := l.oldest; c != nil && !l.due(c).After(now); c = l.oldest {
		stuck = stuck || c.sent
		l.finish(c)
		late = append(late, c)
	}
	stuck = stuck && now.Sub(l.heard) >= l.store.config.patience()/2
	again := l.oldest != nil
	if again {
		l.timer.Reset(max(l.due(l.oldest).Sub(now), time.Millisecond))
	} else {
		l.armed = false
	}
	l.mu.Unlock()
	if stuck {
		l.store.unstick()
	}
	for _, c := range late {
		c.done(lease.Reply{}, l.store.wrap(c.request.Op.String(), errPatience))
	}
	if !again {
		l.running.Done()
	}
}

// close lets nothing more in.
func (l *lane) close() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.closed = true
	if l.pending == 0 {
		close(l.drained)
	}
	l.work.Broadcast()
}

// abandon answers everything that is left: what was not sent was not done, and
// of the rest nobody knows.
func (l *lane) abandon() {
	l.mu.Lock()
	var left []*call
	for c := l.oldest; c != nil; c = l.oldest {
		l.finish(c)
		left = append(left, c)
	}
	l.work.Broadcast()
	l.mu.Unlock()
	for _, c := range left {
		if c.sent {
			c.done(lease.Reply{}, l.store.wrap(c.request.Op.String(), errClosed))
		} else {
			c.done(lease.Reply{}, lease.ErrStoreClosed)
		}
	}
}

// wait returns when the lane's goroutines have ended; nothing is pending.
func (l *lane) wait() {
	l.mu.Lock()
	if l.armed && l.timer.Stop() {
		l.armed = false
		l.running.Done()
	}
	l.work.Broadcast()
	l.mu.Unlock()
	l.running.Wait()
}
