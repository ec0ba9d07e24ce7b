// Package harness runs scenarios: it starts the server and the processes of each contender, lets contenders take turns in
// rounds, and tells what came of each round.
//
// What is to be fair to all of them is here. Everybody runs in processes of their own, which stay for all rounds of a point
// and are frozen while it is the turn of another one. Order within a round is chance. A load has a warm-up in front of what
// is counted and a tail behind it, so that processes and server are read while it runs. An operation counts when its lock is
// granted; whoever waits for one when the count ends has waited for that long, at least. A guard in shared memory looks for
// holders that should not be there together, whoever's lock it is.
//
// Goroutines end with the call that started them, but for the one that waits for calls that do not come back: its
// contender has failed then, and its process is killed.
package harness
