// Package redislease keeps leases in Redis: the [lease.Store] that the
// coordinator uses by default.
//
// # What is in Redis
//
// Every name begins with the prefix ("lock:" unless [Config.Prefix] says
// otherwise), and what belongs to one key is in one cluster slot. K stands for
// the prefix and the key, {tag} for what puts a helper into K's slot.
//
//	K                             hash   mutex: <owner> -> 1
//	                                     read/write lock: mode -> read or write, <owner> -> 1 for each reader,
//	                                     <owner>:write -> 1 for the writer
//	lock:~queue{tag}K             zset   the waiting processes, by arrival in µs:
//	                                     <form><ttl in ms>/<token block>:<owner>
//	lock:~token{tag}K             string <newest fencing token>:<since when the newest holder holds, in µs>
//	lock:~reader:<owner>{tag}K    string <deadline in ms>:<since in µs> of one reader
//	lock:~holder{tag}K            hash   <owner> -> traceparent, of holders that have told theirs
//	lock:~inbox:<coordinator id>         channel: grants, wants and the like for one coordinator
//
// The form of a place in the queue is M for a mutex, W for a writer, R for a
// reader; in small letters where that process has no inbox to be trusted, and
// is never passed over. A user's key that begins with "~" gets another "~", so
// that it can't be taken for one of the helpers.
//
// Everything expires: K with its leases, the queue when nobody looks after it,
// a reader's deadline with the reader, traces with K, the tokens after
// [Config.TokenRetention].
//
// # Scripts
//
// One script each for acquire, release, renew, downgrade, annotate, force and
// inspect (in scripts/, each with a header that tests hold it to) changes all of
// that in one step, on the server's clock. What frees a key passes it on in that
// step: the head of the queue is made the holder and then told so by its inbox,
// and where nobody received that message, its process is gone and the next one's
// turn has come. Numbers are written with all their digits; every script but force may be
// repeated. Each is sent in one piece: the prelude, which names what all are
// given, the script, and the functions that they share, where it needs them.
//
// # Connections
//
// One connection a node carries commands, the inbox and the notices of
// client-side caching. The package makes its own client, since much of what
// makes a client fit for leases is fixed at its birth ([New] says what).
// Requests are sent by a few goroutines in batches. A request whose connection
// broke before the answer is sent again, twice at most; any other error is the
// caller's, as an [Error], within a third of [Config.TTL]. What joins a queue waits while
// a lost inbox is being subscribed again, and fails with the reason where it
// can't be.
//
// Close ends the goroutines, and the connections; the end of a connection ends
// its subscriptions, for nothing is ever unsubscribed.
package redislease
