// Package leasetest is the suite that every [lease.Store] must pass: what
// lease.Store promises, as tests.
//
//	func TestStore(t *testing.T) {
//		leasetest.Run(t, func(t testing.TB) leasetest.Env {
//			server := memlease.NewServer()
//			t.Cleanup(server.Close)
//			return leasetest.Env{NewStore: func(testing.TB) lease.Store { return server.Store() }}
//		})
//	}
//
// Every test makes an Env of its own and runs in parallel with the others, on
// keys and under coordinator ids that are unique, so all of them may share one
// server. Nothing depends on the machine's speed: a test that a slow machine can
// spoil notices that, and runs again with longer leases.
//
// Beside what the tests look at, every request is watched for what holds
// always: one callback, never from within Send, Reply.Sent within bounds; and
// every block of tokens for not having been given out before.
package leasetest
