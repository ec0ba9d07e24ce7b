// Package coordinatortest lets code that uses locks be tested with no Redis, and
// with what happens seldom: a lease that is lost, a key that another process has,
// a store that is away.
//
//	func TestOrderIsLockedWhileItShips(t *testing.T) {
//		h := coordinatortest.New(t)
//		shop := NewShop(h.Coordinator)
//		...
//		h.Lose("order:42")
//		...
//	}
//
// [New] makes a real coordinator on a server in memory (package memlease), so
// everything behaves as it does on Redis: waiting, hand-offs, renewals, fencing
// tokens. [Harness] has what a test may do to it. Every other process in the
// test is made up ([Harness.HoldElsewhere], [Harness.Contend]) or a coordinator
// of its own ([Harness.Another]).
//
// # Time
//
// Inside a bubble of testing/synctest all times (TTLs, retention, MaxHold) pass
// at once and exactly; call New inside the bubble. Outside, choose a short
// coordinator.WithTTL where a test waits for one to pass.
//
// # When a loss is noticed
//
// The store tells a coordinator at once when a key is changed under a hold that
// is more than 100 ms old; a younger one is looked at when it gets that old. A
// coordinator that the store can't tell notices at its next renewal, and when it
// can't renew, before its lease ends.
package coordinatortest
