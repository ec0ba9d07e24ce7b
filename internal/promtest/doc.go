// Package promtest holds the tests that put the queries of docs/observability.md, the dashboard and the alert rules to
// Prometheus's own parser, engine and rules, over the metrics that real coordinators export. It has no code of its own,
// and is a module of its own, since Prometheus is large: `make test-prometheus` runs it.
package promtest
