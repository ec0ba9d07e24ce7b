// Package history checks what processes saw of a lock against what a lock may do.
//
// Each process records its calls with a [Recorder], line by line, so that what a
// killed process knew is known. A [Lane] records one goroutine's: which calls gave
// a hold, with which token, when each hold was asked whether it is safe and what
// it said, and how it ended. The test adds what it did to the processes from
// outside. [Check] then looks, for each key, for one order of all that happened
// which explains every answer (porcupine does: Lowe, "Testing for Linearizability",
// 2017; Herlihy and Wing, "Linearizability", 1990). All times are read from one
// clock, [Now].
//
// # The model
//
// A lock holds handles, each of an owner, to read or to write. Somebody comes in
// to write when nobody is inside, to read when nobody else is inside to write; an
// owner that is inside may come in again, to write only if it writes. A downgrade
// makes a handle one to read, in one step. A mutex is a lock to which everybody
// writes.
//
// A write's token is greater than that of every hold before it. A read's is not
// lower than that of the write before it, and lower than that of the write after
// it. Re-entry and downgrades keep the token.
//
// # What is not known
//
// A call that was refused did nothing. A call that had not returned when its
// process was killed may have done something; it is left out, since a lock that it
// left alone allows others everything that one it took would, and more.
//
// A hold of which Unlock says that it had been lost was over at some moment
// between its last sign of life and that answer. One that its killed process never
// ended was over at some moment after its last sign of life, or never. Probes
// ([Handle.Valid]) are such signs, and make the check the sharper the more there
// are.
//
// Where a test deletes a key under its holders, nothing is promised until they
// notice: holds of leases from before the deletion, which their tokens tell, are
// over from then on as far as others are concerned. But they have to be over for
// themselves a time to live later.
//
// Where a server loses what it had acknowledged (asynchronous replication does, at a
// failover), leases from before may go on or be lost. [Check] lets them meet others,
// and [Overlaps] counts who met whom, and holds them to the time in which they are told.
package history
