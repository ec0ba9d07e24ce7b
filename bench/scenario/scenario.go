// Package scenario has what is measured: one question a file. Adding one is a file that calls [register] in its init
// function.
package scenario

import (
	"fmt"
	"slices"
	"strings"

	"github.com/go-leasehold/leasehold/bench/contender"
	"github.com/go-leasehold/leasehold/bench/harness"
)

// order is that of reports.
var order = []string{
	"hot", "processes", "uncontended", "keys", "trylock", "handoff", "crash", "deleted", "reads", "reads-local", "writer", "stock", "soldout", "segments", "work",
	"memory-idle", "memory-held", "memory-waiter", "telemetry",
}

var (
	registered []harness.Scenario
	services   []harness.Service
)

// register adds a scenario. It panics on one that has no place in the order.
func register(s harness.Scenario) {
	if !slices.Contains(order, s.Name) {
		panic(fmt.Sprintf("scenario: %q has no place in the order", s.Name))
	}
	registered = append(registered, s)
}

// serve adds what child processes do for a scenario.
func serve(name string, service func(*harness.Worker) any) {
	services = append(services, harness.Service{Name: name, New: service})
}

// All returns the scenarios in the order of reports.
func All() []harness.Scenario {
	return slices.SortedFunc(slices.Values(registered), func(a, b harness.Scenario) int {
		return slices.Index(order, a.Name) - slices.Index(order, b.Name)
	})
}

// Services returns what child processes have to serve.
func Services() []harness.Service { return services }

// Names returns the names of all scenarios.
func Names() []string {
	var names []string
	for _, s := range All() {
		names = append(names, s.Name)
	}
	return names
}

// Choose returns the scenarios of names. None is all.
func Choose(names []string) ([]harness.Scenario, error) {
	for _, name := range names {
		if !slices.Contains(Names(), name) {
			return nil, fmt.Errorf("scenario %q is not known: there are %s", name, strings.Join(Names(), ", "))
		}
	}
	return slices.DeleteFunc(All(), func(s harness.Scenario) bool {
		return len(names) > 0 && !slices.Contains(names, s.Name)
	}), nil
}

// numbers are points on an axis of numbers.
func numbers(of ...int) []harness.Point {
	var points []harness.Point
	for _, n := range of {
		points = append(points, harness.Point{Label: fmt.Sprint(n), X: float64(n)})
	}
	return points
}

// The sorts of contenders that scenarios ask for.

// locks are leasehold and its peers, with their variants by settings that matter for locks.
func locks(info contender.Info) bool {
	return info.Kind == contender.Peer || info.Name == "leasehold"
}

// named are contenders by their names.
func named(info contender.Info, names ...string) bool { return slices.Contains(names, info.Name) }
