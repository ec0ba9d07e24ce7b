package telemetry

import (
	"context"
	"sync"
	"sync/atomic"
	"time"
)

// queue runs functions one after the other, away from who puts them into it,
// because they run code of others: exporters and callbacks, which may hang or panic.
// It never makes who puts something into it wait.
//
// With a delay, what comes within that time is run at one go. A function that wakes
// a goroutine for itself alone takes the processor from the next holder of the lock
// for longer than its own work.
type queue struct {
	delay   time.Duration
	dropped *atomic.Int64

	mu      sync.Mutex // guards what follows
	items   []func()
	pending int           // functions that have not begun
	timer   *time.Timer   // begins to run; nil: nobody has to, or somebody does
	running bool          // a goroutine runs functions; it ends when there are none left
	closed  bool          // nothing is taken any more, but from what still runs
	done    chan struct{} // closed when the last one has run, once closed is set
}

// queueSize is how many functions wait for one that does not return.
const queueSize = 4096

// put has a function run, unless the queue is full. It says whether it does.
func (q *queue) put(f func()) bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.closed && !q.running || q.pending >= queueSize {
		q.dropped.Add(1)
		return false
	}
	q.add(f)
	switch {
	case q.running:
	case q.delay == 0 || q.pending > queueSize/2:
		q.start()
	case q.timer != nil:
	default:
		q.timer = time.AfterFunc(q.delay, q.due)
	}
	return true
}

func (q *queue) add(f func()) {
	q.items = append(q.items, f)
	q.pending++
}

// start has the functions run now.
func (q *queue) start() {
	if q.timer != nil {
		q.timer.Stop() // too late does no harm: due finds it running, or nothing to do
		q.timer = nil
	}
	if !q.running {
		q.running = true
		go q.run() // ends when there is nothing left
	}
}

// due is the end of the delay.
func (q *queue) due() {
	q.mu.Lock()
	q.timer = nil
	first := !q.running
	q.running = true
	q.mu.Unlock()
	if first {
		q.run()
	}
}

func (q *queue) run() {
	q.mu.Lock()
	defer q.mu.Unlock()
	for len(q.items) > 0 {
		items := q.items
		q.items = nil
		q.mu.Unlock()
		for i, f := range items {
			items[i] = nil
			q.try(f)
		}
		q.mu.Lock()
	}
	q.running = false
	if q.closed {
		q.finish()
	}
}

// finish tells that the last function has run.
func (q *queue) finish() {
	select {
	case <-q.done:
	default:
		close(q.done)
	}
}

// try runs a function, and counts it among the dropped if it panics.
func (q *queue) try(f func()) {
	q.mu.Lock()
	q.pending--
	q.mu.Unlock()
	defer func() {
		if recover() != nil {
			q.dropped.Add(1)
		}
	}()
	f()
}

// flush waits until all that was put before has run, or ctx ends.
func (q *queue) flush(ctx context.Context) error {
	reached := make(chan struct{})
	q.mu.Lock()
	if q.closed {
		reached = q.done
	} else {
		q.add(func() { close(reached) })
		q.start()
	}
	q.mu.Unlock()
	select {
	case <-reached:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// closeQueues has queues run what is left, and take nothing more. A function that
// does not return does not hold it up for longer than grace; its goroutine ends when
// it does.
func closeQueues(grace time.Duration, queues ...*queue) {
	for _, q := range queues {
		q.mu.Lock()
		if !q.closed {
			q.closed, q.done = true, make(chan struct{})
			q.start()
		}
		q.mu.Unlock()
	}
	ctx, cancel := context.WithTimeout(context.Background(), grace)
	defer cancel()
	for _, q := range queues {
		select {
		case <-q.done:
		case <-ctx.Done():
		}
	}
}
