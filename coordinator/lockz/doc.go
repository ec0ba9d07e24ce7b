// Package lockz is a page that shows a process's locks as they are now: what it
// holds and for how long, who waits and for what, who is in whose way, deadlocks,
// and what is wrong with the server. It is to locks what net/http/pprof is to
// goroutines, but registers itself nowhere: mount it where only operators get to,
// for it shows keys.
//
//	mux.Handle("/debug/lockz", lockz.Handler(c))
//
// # The page
//
// It has all in one: no other address is asked for anything, and any path will do,
// with http.StripPrefix or without. It brings itself up to date every two seconds
// while it is seen, and costs the server nothing by that, but for a question, once
// in 30 s, whether something is wrong with it ([WithCheckInterval]). What is in
// trouble stands on top: deadlocks, keys whose commands fail, the longest waits, the
// longest holds.
//
// The parameters of its address:
//
//	q=order:       only keys, classes and owners that have this text in them
//	limit=200      at most so many keys, up to 5000
//	each=10        at most so many holds and waiting calls of a key, up to 1000
//	refresh=2      seconds until it is brought up to date; 0: never
//	fleet=1        asks the server about other processes, see below
//	format=json    the same as JSON, as does the header Accept: application/json
//
// # JSON
//
// It is a [Page]: times as in RFC 3339, durations in seconds.
//
//	curl -s 'localhost:8080/debug/lockz?format=json' | jq '.cycles'
//
// # Who waits for whom
//
// A caller is an identity as contexts have it: a call to lock whose context was
// made from Hold.Context, or by coordinator.WithOwner, is one of the caller that
// has that hold. So a call that has a key and waits for another one is known as
// both, and calls that wait for each other are found: [Cycle]. Nobody but MaxHold,
// the end of a context, or a goroutine that works for the same caller and doesn't
// wait itself, can end such a wait. Holds whose contexts are not handed down are
// seen, too, but not as those of a call that waits.
//
// With fleet=1 the store is asked about keys that are waited for, 20 at most, half of
// them such as other processes wait for, and two processes that wait for each other
// are shown. A process knows of no other keys than its own, so that of a ring of
// three or more it asks about its own part only. What a process waits for and what it
// has need not be the same caller's: such cycles are possible ones. Those of waits
// that are younger than a second are left out.
package lockz
