// Package pubsub is the one place that knows how Redis tells something unasked:
// subscriptions, and the invalidations of client-side caching.
//
// A [Subscriber] keeps channels subscribed on a client's own connection, so
// that its loss is one event for commands and messages alike. It says when a
// channel is confirmed and when it is lost, subscribes again at once and then
// with a short, jittered back-off, and takes its leave properly: a subscription
// whose context is merely cancelled stays on the server, which goes on counting
// it as a receiver.
//
// [Invalidations] passes on which keys the server says have changed.
//
// All callbacks run on the goroutine that reads from Redis, or one that it
// waits for, and must not block. Each subscribed channel has one goroutine,
// which Close ends; there are no others.
package pubsub
