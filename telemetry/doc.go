// Package telemetry says what leasehold tells of itself, and how: the names of its
// spans and metrics, the alarms, and the [Config] that a program gives to
// coordinator.WithTelemetry.
//
// It uses the API of OpenTelemetry, never an SDK: without one installed, there are
// no spans and no metrics, and a lock takes up to a tenth longer than it took
// without telemetry. Alarms are logged, and [Config.OnAlarm] is called, with an SDK
// and without. What a lock does never waits for who is told of it. Spans end, and
// alarms are raised, on goroutines of their own; where a receiver hangs, what it
// can't take is dropped and counted.
package telemetry
