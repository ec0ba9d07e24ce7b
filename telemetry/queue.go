package telemetry

import (
	"context"
	"sync"
	"sync/atomic"
	"time"
)

// queue runs functions one after the other on a goroutine of its own, because
// they run code of others: exporters and callbacks, which may hang or panic. It
// never makes who puts something into it wait.
type queue struct {
	dropped *atomic.Int64

	once  sync.Once
	items chan func()   // made by once
	quit  chan struct{} // closed by closeQueues
	done  chan struct{} // closed when the goroutine has ended
}

// queueSize is how many functions wait for one that does not return.
const queueSize = 4096

// begin starts the goroutine, at the first use. closeQueues ends it.
func (q *queue) begin() {
	q.once.Do(func() {
		q.items, q.quit, q.done = make(chan func(), queueSize), make(chan struct{}), make(chan struct{})
		go q.run()
	})
}

func (q *queue) run() {
	defer close(q.done)
	for {
		select {
		case f := <-q.items:
			q.try(f)
		case <-q.quit:
			for {
				select {
				case f := <-q.items:
					q.try(f)
				default:
					return
				}
			}
		}
	}
}

// try runs a function, and counts it among the dropped if it panics.
func (q *queue) try(f func()) {
	defer func() {
		if recover() != nil {
			q.dropped.Add(1)
		}
	}()
	f()
}

// put has a function run, unless the queue is full.
func (q *queue) put(f func()) {
	q.begin()
	select {
	case q.items <- f:
	default:
		q.dropped.Add(1)
	}
}

// flush waits until all that was put before has run, or ctx ends.
func (q *queue) flush(ctx context.Context) error {
	q.begin()
	reached := make(chan struct{})
	select {
	case q.items <- func() { close(reached) }:
	case <-q.done:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
	select {
	case <-reached:
		return nil
	case <-q.done:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// closeQueues has queues run what is left, and ends their goroutines. A function
// that does not return does not hold it up for longer than grace; its goroutine ends
// when it does.
func closeQueues(grace time.Duration, queues ...*queue) {
	for _, q := range queues {
		q.once.Do(func() { // it was never used
			q.items, q.quit, q.done = make(chan func()), make(chan struct{}), make(chan struct{})
			close(q.done)
		})
		close(q.quit)
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
