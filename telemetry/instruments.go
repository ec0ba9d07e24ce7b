package telemetry

import (
	"context"
	"fmt"
	"time"

	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/metric"
	"go.opentelemetry.io/otel/metric/noop"
)

// instruments are the metrics that are recorded as things happen. What can be
// counted elsewhere is observed instead, when somebody collects: see Observe.
type instruments struct {
	meter    metric.Meter
	wait     metric.Float64Histogram
	hold     metric.Float64Histogram
	lateness metric.Float64Histogram
	batch    metric.Int64Histogram
	alarms   metric.Int64Counter
}

var (
	// durations are the buckets of waits and holds in seconds: from a hand-off in
	// memory to a minute.
	durations = []float64{
		1e-5, 1e-4, 2.5e-4, 5e-4, 1e-3, 2.5e-3, 5e-3, 1e-2, 2.5e-2, 5e-2, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60,
	}
	latenesses = []float64{1e-3, 5e-3, 1e-2, 5e-2, 0.1, 0.5, 1, 2.5, 5, 10, 30}
	batches    = []float64{1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024}
)

// makeInstruments makes them; where the provider fails, they do nothing.
func makeInstruments(p metric.MeterProvider) (instruments, error) {
	if p == nil {
		p = otel.GetMeterProvider() // which passes them on to the one that is set later
	}
	i, err := instrumentsOf(p)
	if err != nil {
		i, _ = instrumentsOf(noop.NewMeterProvider()) // never fails
	}
	return i, err
}

func instrumentsOf(p metric.MeterProvider) (i instruments, err error) {
	defer func() {
		if r := recover(); r != nil {
			err = fmt.Errorf("the meter provider panicked: %v", r)
		}
	}()
	m := p.Meter(ScopeName, metric.WithInstrumentationVersion(Version))
	i.meter = m
	check := func(e error) {
		if err == nil {
			err = e
		}
	}
	seconds := func(name, what string, bounds []float64) metric.Float64Histogram {
		h, e := m.Float64Histogram(name, metric.WithUnit("s"), metric.WithDescription(what), metric.WithExplicitBucketBoundaries(bounds...))
		check(e)
		return h
	}
	counter := func(name, unit, what string) metric.Int64Counter {
		c, e := m.Int64Counter(name, metric.WithUnit(unit), metric.WithDescription(what))
		check(e)
		return c
	}
	i.wait = seconds(MetricWait, "How long calls waited that did not enter at once", durations)
	i.hold = seconds(MetricHold, "How long holds lasted", durations)
	i.lateness = seconds(MetricLateness, "How long after it was due a lease was renewed", latenesses)
	var e error
	i.batch, e = m.Int64Histogram(MetricStockBatch, metric.WithUnit("{order}"),
		metric.WithDescription("Orders carried by one command"), metric.WithExplicitBucketBoundaries(batches...))
	check(e)
	i.alarms = counter(MetricAlarms, "{alarm}", "Alarms raised")
	return i, err
}

// enabled says whether the meter takes durations.
func (t *Telemetry) enabled() (yes bool) {
	defer func() { _ = recover() }()
	return t.hold.Enabled(context.Background())
}

// record records a duration. A meter that panics records nothing.
func (t *Telemetry) record(h metric.Float64Histogram, d time.Duration, with []metric.RecordOption) {
	defer func() {
		if recover() != nil {
			t.dropped.Add(1)
		}
	}()
	h.Record(context.Background(), d.Seconds(), with...)
}
