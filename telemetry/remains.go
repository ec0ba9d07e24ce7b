package telemetry

import (
	"context"
	"sync/atomic"

	"go.opentelemetry.io/otel/metric"
)

// watcher is whom a provider asks when it collects. The provider keeps it for as
// long as it lives itself, also when the coordinator is closed: its counters are to be
// in the last export of the program, and those of several coordinators, which a
// provider adds up, must not go back when one of them closes. So it leads to nothing
// else but what it is to say.
type watcher struct {
	says atomic.Pointer[func(context.Context, metric.Observer)]
}

func (w *watcher) watch(ctx context.Context, to metric.Observer) error {
	(*w.says.Load())(ctx, to)
	return nil
}

// set has the watcher say something else from now on.
func (w *watcher) set(says func(context.Context, metric.Observer)) { w.says.Store(&says) }

// remains are the last values of counters. Those of 0 are left out.
type remains struct {
	metric.Observer // nil, for its other method, which nobody calls: no counter is of floats
	all             []observation
}

type observation struct {
	of    metric.Int64Observable
	value int64
	with  []metric.ObserveOption
}

// ObserveInt64 keeps the value.
func (r *remains) ObserveInt64(of metric.Int64Observable, value int64, with ...metric.ObserveOption) {
	if value != 0 {
		r.all = append(r.all, observation{of, value, with})
	}
}

// tell says the last values once more.
func (r *remains) tell(_ context.Context, to metric.Observer) {
	for _, x := range r.all {
		to.ObserveInt64(x.of, x.value, x.with...)
	}
}
