// Package pubsub is the one place that knows how Redis tells something unasked:
// subscriptions, and the invalidations of client-side caching.
//
// A [Subscriber] keeps channels subscribed on a client's own connection, so
// that its loss is one event for commands and messages alike. It says when a
// channel is confirmed and when it is lost, and subscribes again at once and then
// with a short, jittered back-off. It never unsubscribes: a subscription ends with
// the client's connection ([Subscriber.Close] says why).
//
// [Invalidations] passes on which keys the server says have changed.
//
// All callbacks run on the goroutine that reads from Redis, or one that it
// waits for, and must not block. Each subscribed channel has one goroutine,
// which Close ends; there are no others.
package pubsub
