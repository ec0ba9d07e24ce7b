// Package segment makes one hot thing into many: striped locks ([Locks]), and
// stock that is split over segments and exact to the unit ([Stock]).
//
// # Locks
//
// [NewLocks] has n mutexes under one name; a routing key (a user, an order)
// chooses one of them by [Index], the same in every process. Work on different
// routing keys mostly runs side by side; work on the same one never does.
//
// # Stock
//
// [NewStock] is a number of units that any number of processes sell from. A
// segment has a part of them, in a cluster slot of its own. An order lives at
// one segment only, its home, which follows from its user; there one script
// looks whether it is on record, whether enough is left, and takes it. So an
// order that is sent again, by whomever, whatever became of the first reply,
// gets the first answer and takes nothing more: exactly once per user and ID,
// for as long as [Config.Remember] says. Where the home is short, units are moved
// to it from the fullest segments; orders never move. [ErrSoldOut] is said when
// it is proved that the units of all segments together don't do.
//
// Calls of one process at one segment travel together: while a script is on
// its way, the next batch is collected, and leaves beside it where it is large.
// Nobody waits for a timer. Once the stock is sold out, a process knows it
// (client-side caching) and answers with no command at all.
//
// What is promised, and what not: docs/stock.md.
package segment
