// Package lease is the contract between the coordinator and whatever keeps the
// leases: a [Store] in Redis (lease/redislease), in memory (lease/memlease), or
// anything that passes the suite in lease/leasetest.
//
// # Words
//
// A lease is a process's right to a key, with a time to live. A process asks
// for it under a ticket, a number it never uses twice: one for each lease and
// for each wait, so that a command that comes late or twice can never touch a
// newer lease. The name a lease has in the store is its owner,
// "<coordinator id>:<ticket>".
//
// A store keeps for each key its holders (one exclusive, or many shared), a
// queue of owners that wait, and the newest fencing token given out. It passes
// a freed key on by itself: whatever frees it makes the head of the queue the
// holder, with the head's own time to live and a block of fresh tokens, and
// tells it so ([Granted]). Nobody polls.
//
// # Commands
//
// The contract is asynchronous, for the coordinator's handlers never wait.
// [Store.Send] takes a [Request] and returns at once; the answer comes by
// callback, exactly once. Every command may be repeated: an acquire of what is
// already mine grants it again, a release of what is not mine changes nothing.
//
// # Events
//
// Everything that comes unasked is an [Event], given to the [Sink] that was
// passed to [Store.Open]. A notice is only a hint: a caller must get by, more
// slowly, when each of them is lost.
package lease
