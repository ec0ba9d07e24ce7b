// Package jaegertest holds the end-to-end test of the library's traces: real processes that lock on a real Redis send
// their spans to a real Jaeger, and the tests read in Jaeger's query API what a person would see there. It has no code
// of its own. `make test-jaeger` builds Jaeger and runs it.
//
// It is a module of its own, for it needs the SDK and the exporters of OpenTelemetry, and Jaeger's pinned version is in
// one more, jaeger/go.mod, so that Jaeger is built of exactly what it was released with, and not of the newer
// OpenTelemetry that the tests use. Neither is in go.work: a workspace has one version of each module, the
// highest that anybody asks for, and Jaeger's 300 dependencies are not to choose those of the library's own builds.
package jaegertest
