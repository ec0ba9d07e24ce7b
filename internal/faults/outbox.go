package faults

import (
	"sync"
	"time"
)

// item is a message waiting to be forwarded, and what is to happen with it.
type item struct {
	raw []byte
	due time.Time
	cmd []string // set on its way up
	end bool     // nothing follows: close the connection in good order
}

// outbox is an unbounded queue between the goroutine that reads a direction and the one that writes it, so
// that a delay costs time and no throughput, and a held direction holds nobody up.
type outbox struct {
	mu    sync.Mutex
	items []item
	wake  chan struct{} // room for one: notices merge
}

func newOutbox() *outbox { return &outbox{wake: make(chan struct{}, 1)} }

func (o *outbox) put(it item) {
	o.mu.Lock()
	o.items = append(o.items, it)
	o.mu.Unlock()
	select {
	case o.wake <- struct{}{}:
	default:
	}
}

// next waits for the oldest item; false means that done was closed first.
func (o *outbox) next(done <-chan struct{}) (item, bool) {
	for {
		o.mu.Lock()
		if len(o.items) > 0 {
			it := o.items[0]
			o.items[0] = item{}
			o.items = o.items[1:]
			o.mu.Unlock()
			return it, true
		}
		o.mu.Unlock()
		select {
		case <-o.wake:
		case <-done:
			return item{}, false
		}
	}
}
