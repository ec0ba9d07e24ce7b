// Package coordinator locks keys across processes. A [Coordinator] lives in
// each process; however many goroutines want a key, the process asks the store
// for it once, holds one lease per key, and passes that lease between its own
// goroutines in memory. Processes pass it on by direct hand-off: the releasing
// command makes the next process the owner and tells it so. Nobody polls.
//
// # Who is the authority for what
//
// The store (Redis) decides who has a key, in which order processes come, and
// what the next fencing token is. The local clock decides one thing only: when
// to stop believing. No clock of one machine is compared with that of another.
//
// # The life of a lease
//
//	          ask                    "still waiting"
//	free ───────────▶ acquiring ───────────────────▶ queued
//	 ▲                    │ granted by reply            │ granted by message
//	 │                    ▼                             │ or by a later look
//	 │   release        held ◀──────────────────────────┘
//	 └──────────────────  │ ▲
//	                      └─┘ local grants; renewed at TTL/3
//
// Each life has a ticket, a number never used twice, so that a command which
// comes late or twice can't touch a newer lease. The release of one ticket and
// the asking for the next may be one command.
//
// # How long a lease is believed in
//
//	valid until = sending of the winning command + TTL − TTL/100 − 2 ms
//
// A command that was answered late counts from its sending, a grant that came
// by message from the sending of the newest look that was answered before it.
// One hundredth of the TTL is for clocks that run at different rates, two
// milliseconds for a timer that is late. Time for which the machine was
// suspended counts. At the end of validity every hold ends with [ErrLeaseLost],
// before the store can give the key to anybody else.
//
// # Fencing
//
// A process that was paused between looking at the clock and writing can't know
// it. [Hold.Token] grows with every hold of a key, in all processes: send it
// with the write and have the receiver refuse a lower one than it has seen.
// That is the only protection there is against such a pause, and against a
// failover that lost the lease.
//
// # Turns
//
// Within a process callers are served first come, first served. When another
// process wants the key, the holding one serves at most a budget of its own
// waiters, for at most a slice of time ([WithHandoff]), and then passes the
// lease on, joining the queue again in the same command. With [Fair] the budget
// is one. An idle lease is kept for a while ([WithRetention]) and given up at
// once on a want.
//
// # Readers and writers
//
// A [ReadWrite] lock has two modes; package rwlock gives it the face that programs
// use. The process has one shared lease, however many of its goroutines read.
// While nobody wants to write, readers pass a gate, which costs neither a command
// nor memory that cores share; whoever waits shuts it, and has its turn when the
// last reader is out. After a writer's turn all readers that wait come in.
//
// # Notices
//
// A notice is a hint. With every message lost, a holder learns of a waiter at
// its next renewal, a third of the TTL away, and a waiter of its grant at its
// next look, as far away, or when the holder's lease ends, if that is sooner.
//
// # When something fails
//
//	failure                           what the caller sees
//	Redis is gone, a hold is here     renewal is retried within the lease; then the hold's context ends, ErrLeaseLost
//	Redis is gone, waiting            retried with back-off; ErrUnavailable after WithUnavailableAfter, at once for TryLock
//	a reply is lost                   the command is repeated; nothing is counted twice
//	scripts are flushed               nothing; they are loaded again in the same call
//	the key is deleted or flushed     ErrLeaseLost within a round trip, once a hold is 100 ms old; without tracking at the next renewal
//	a failover that lost the lease    as above; the next holder's token is greater all the same
//	this process is paused            the hold's context ends when it runs on; what it writes before is for the token
//	another process is killed         the key is granted when its lease ends, a TTL after its last renewal
//	the wall clock steps              nothing on Linux; elsewhere a step forward may end leases early
//	Close                             ErrClosed for who waits; holds may finish until its context ends
//
// # What is not promised
//
// This is not consensus. With asynchronous replication a failover can lose a
// lease that was granted; tokens catch what its old holder writes. The server's
// own clock must not step forward, since Redis expires by it.
//
// # Goroutines
//
// A coordinator has one goroutine that watches for suspensions and lost
// connections and one that logs; the store has its own. There is none per key,
// per waiter or per lease. Close ends them all.
package coordinator
