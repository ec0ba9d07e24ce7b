// Package telemetry says what leasehold tells of itself, and how: the names of its
// spans and metrics, the alarms, and the [Config] that a program gives to
// coordinator.WithTelemetry.
//
// It uses the API of OpenTelemetry, never an SDK: without one installed, nothing
// is told and next to nothing is spent. What a lock does never waits for who is
// told of it. Spans end, and alarms are raised, on goroutines of their own; where
// a receiver hangs, what it can't take is dropped and counted.
package telemetry
