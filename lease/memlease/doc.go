// Package memlease is a [lease.Store] in memory: for tests, for simulations, and
// for programs that want the coordinator's locks in one process and no Redis.
//
// A [Server] stands for the Redis that several coordinators share, and each of
// them has a [Store] of it:
//
//	server := memlease.NewServer()
//	defer server.Close()
//	first, second := server.Store(), server.Store()
//
// It behaves as the scripts of lease/redislease do, by the same suite
// (lease/leasetest): a queue with scores in microseconds of the server's clock,
// grants by message with receipts, wants at every look, tokens that follow the
// clock, and leases that expire by time and are handed on by the next look.
//
// # Time
//
// It knows the time from package time alone and waits on channels and timers
// only, so it runs in a bubble of testing/synctest (where the server and its
// stores must be made inside the bubble) as well as in real time. Each store
// has one goroutine, which calls back and delivers events, in order; it ends
// with [Store.Close] or [Server.Close].
//
// # Faults
//
// Messages take no time and nothing fails, unless told otherwise: see
// [WithLatency], [Server.SetDown], [Server.SetFaults], [Server.FaultNext],
// [Server.DropEvents], [Server.Delete], [Server.Flush], [Server.Put],
// [Server.StepClock], [Server.Replay], [Store.Disconnect] and [Store.Kill].
package memlease
