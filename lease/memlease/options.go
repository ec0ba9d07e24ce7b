package memlease

import "time"

// DefaultTokenRetention is how long a key's token counter is kept after its
// last use, unless [WithTokenRetention] says otherwise.
const DefaultTokenRetention = time.Hour

// Option changes what [NewServer] makes.
type Option func(*config)

// config is set by the options and read-only from then on.
type config struct {
	tokenRetention time.Duration
	noTracking     bool
	noReceipts     bool
	noNotices      bool
	latency        func(Leg) time.Duration
}

// Leg is a part of a message's way, for [WithLatencyFunc].
type Leg uint8

// The legs.
const (
	// RequestLeg leads from a store to the server.
	RequestLeg Leg = iota + 1
	// ReplyLeg leads back.
	ReplyLeg
	// EventLeg leads from the server to the store that an event is for.
	EventLeg
)

// WithLatency makes requests, replies and events take that long. Zero, which is
// the default, means at once (though never from within [Store.Send]).
//
// The requests of a store overtake each other no more than its replies or its
// events do; an event may overtake a reply. A request without an answer after a
// third of its TTL gets an error, and takes effect all the same when it arrives.
func WithLatency(request, reply, event time.Duration) Option {
	return WithLatencyFunc(func(leg Leg) time.Duration {
		switch leg {
		case RequestLeg:
			return request
		case ReplyLeg:
			return reply
		default:
			return event
		}
	})
}

// WithLatencyFunc is [WithLatency] with a function that is asked for every leg
// of every message. It may be called from several goroutines at a time, and must
// not call the server.
func WithLatencyFunc(latency func(Leg) time.Duration) Option {
	return func(c *config) { c.latency = latency }
}

// WithTokenRetention sets how long the token counter of an unused key is kept.
func WithTokenRetention(d time.Duration) Option {
	return func(c *config) { c.tokenRetention = d }
}

// WithoutTracking makes a server whose stores don't tell changes: Request.Watch
// is ignored.
func WithoutTracking() Option {
	return func(c *config) { c.noTracking = true }
}

// WithoutReceipts makes a server that can't tell whether a message was received:
// a dead waiter is granted the key and costs its TTL, and Reply.Told is -1.
func WithoutReceipts() Option {
	return func(c *config) { c.noReceipts = true }
}

// WithoutNotices makes a server that sends no messages, and so has no receipts
// either: a waiter learns of its grant, and a holder of its waiters, by looking.
func WithoutNotices() Option {
	return func(c *config) { c.noNotices, c.noReceipts = true, true }
}
