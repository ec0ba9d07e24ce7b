package redislease

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"

	"github.com/go-leasehold/leasehold/lease"
	"github.com/go-leasehold/leasehold/pubsub"
)

// inbox is where a coordinator's notices come in: one channel, or on a cluster
// with sharded channels one for each slot in use. It turns messages,
// invalidations and the state of the channels into events.
type inbox struct {
	store      *Store
	name       string // of the channel, or what each one's begins with
	sink       lease.Sink
	subscriber *pubsub.Subscriber
	deaf       bool        // notices are known not to come; set by Open
	up         atomic.Bool // the one channel is confirmed; unused when sharded
	forget     func()      // ends listening to invalidations

	// life counts losses of channels, and their ends: what was found out about a
	// channel before one of them says nothing of what came after.
	life atomic.Uint64

	// events keeps the sink to one event at a time: messages, invalidations
	// and confirmations come from different goroutines.
	events sync.Mutex
	closed bool // guarded by events

	mu     sync.Mutex
	down   map[string]bool     // channels lost and not confirmed again
	parked map[string][]parked // calls that wait for a channel that is being subscribed
}

type parked struct {
	lane *lane
	call *call
}

func newInbox(s *Store, sink lease.Sink) *inbox {
	b := &inbox{store: s, sink: sink, down: map[string]bool{}, parked: map[string][]parked{}}
	b.name = s.names.inbox() + s.id
	b.subscriber = pubsub.NewSubscriber(s.client, pubsub.Config{
		Sharded: s.sharded, Message: b.message, Confirmed: b.confirmed, Lost: b.lost, Failed: b.failed,
	})
	b.forget = s.invalidations.Listen(b.invalidated)
	return b
}

// ready says whether a call can be sent now, or has to be parked first. On a
// cluster the first use of a slot subscribes its inbox. What joins a queue is
// parked while a lost inbox is being subscribed again, and refused while it is
// known that it can't be: grants would be missed.
func (b *inbox) ready(n lockNames, c *call) (bool, error) {
	if b.deaf {
		return true, nil
	}
	lost, name := !b.up.Load(), b.name
	if b.store.sharded {
		name += n.inboxEnd
		if b.subscriber.Confirmed(name) {
			return true, nil
		}
		b.mu.Lock()
		lost = b.down[name]
		b.mu.Unlock()
		if !lost {
			return false, nil
		}
	}
	if !lost || !joins(&c.request) {
		return true, nil
	}
	reason, trying := b.subscriber.Reason(name)
	switch {
	case trying:
		return false, nil
	case reason == nil: // confirmed by now
		return true, nil
	}
	return true, b.refusal(c.request.Op.String(), reason)
}

// refusal is why nothing joins a queue: the inbox is not subscribed, for the
// newest of the reasons.
func (b *inbox) refusal(op string, reason error) error {
	return &Error{Op: op, Addr: b.store.addr, Stage: StageInbox, Code: code(reason), Err: fmt.Errorf("%w: %w", errInbox, reason)}
}

// park keeps a call until the try to subscribe its channel has succeeded or
// failed.
func (b *inbox) park(l *lane, c *call) {
	name := b.name + c.plan.names.inboxEnd
	b.mu.Lock()
	b.parked[name] = append(b.parked[name], parked{l, c})
	b.mu.Unlock()
	err := b.subscriber.Subscribe(name)
	reason, trying := b.subscriber.Reason(name)
	switch {
	case err != nil:
		b.unpark(name, lease.ErrStoreClosed)
	case trying:
	case reason == nil: // confirmed between the look and the parking
		b.unpark(name, nil)
	default: // or failed
		b.unpark(name, reason)
	}
}

// unpark lets the calls that were parked go on; what joins a queue is refused
// if there is a reason.
func (b *inbox) unpark(name string, reason error) {
	b.mu.Lock()
	calls := b.parked[name]
	delete(b.parked, name)
	b.mu.Unlock()
	for _, p := range calls {
		switch {
		case errors.Is(reason, lease.ErrStoreClosed):
			p.lane.ready(p.call, reason)
		case reason != nil && joins(&p.call.request):
			p.lane.ready(p.call, b.refusal(p.call.request.Op.String(), reason))
		default:
			p.lane.ready(p.call, nil) // or it needs no inbox
		}
	}
}

// tell passes an event on, unless the store is closed.
func (b *inbox) tell(event lease.Event) {
	b.events.Lock()
	defer b.events.Unlock()
	if !b.closed {
		b.sink(event)
	}
}

func (b *inbox) message(_, text string) {
	event, err := parseMessage(b.store.id, text)
	if err != nil {
		n := b.store.bad.Add(1)
		if n&(n-1) == 0 { // the 1st, 2nd, 4th, 8th...: a flood must not fill the log
			b.store.log.Warn("leasehold: a message in the inbox makes no sense", "err", err, "so far", n)
		}
		return
	}
	if event.Type != 0 {
		b.tell(event)
	}
}

func (b *inbox) confirmed(name string) {
	b.mu.Lock()
	again := b.down[name]
	delete(b.down, name)
	all := len(b.down) == 0
	b.mu.Unlock()
	if again {
		b.life.Add(1)
	}
	b.up.Store(true)
	b.unpark(name, nil)
	if again && all {
		b.tell(lease.Event{Type: lease.Connected})
	}
}

func (b *inbox) lost(name string, err error) {
	b.life.Add(1)
	b.up.Store(false)
	b.mu.Lock()
	first := len(b.down) == 0
	b.down[name] = true
	b.mu.Unlock()
	if first && !b.deaf {
		b.tell(lease.Event{Type: lease.Disconnected, Err: b.store.wrap("subscribe", err)})
	}
}

// failed is told of each try; those who wait for it need not wait for the next.
func (b *inbox) failed(name string, err error) { b.unpark(name, err) }

func (b *inbox) invalidated(name string, all bool) {
	if all {
		b.tell(lease.Event{Type: lease.ChangedAll})
	} else if key, ok := b.store.names.key(name); ok {
		b.tell(lease.Event{Type: lease.Changed, Key: key})
	}
}

// close ends listening; no event comes when it has returned. The subscriptions
// themselves end with the client's connections.
func (b *inbox) close(ctx context.Context) error {
	b.forget()
	err := b.subscriber.Close(ctx)
	b.events.Lock()
	b.closed = true
	b.events.Unlock()
	return err
}
