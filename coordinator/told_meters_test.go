package coordinator

import (
	"context"
	"errors"
	"log/slog"
	"testing"
	"testing/synctest"

	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/otel/metric"
	"go.opentelemetry.io/otel/metric/embedded"

	"github.com/go-leasehold/leasehold/telemetry"
)

// brokenMeters is a provider of metrics that are broken at one place.
type brokenMeters struct {
	embedded.MeterProvider

	real metric.Meter
	at   string // where
	how  string // "panics", "fails", "nil"
}

// broken does what there is to do at a place: it says whether to answer nothing, or
// with which error.
func (p *brokenMeters) broken(at string) (empty bool, err error) {
	if at != p.at {
		return false, nil
	}
	switch p.how {
	case "panics":
		panic("a meter provider that is broken")
	case "fails":
		return false, errors.New("a meter provider that fails")
	}
	return true, nil
}

func (p *brokenMeters) Meter(string, ...metric.MeterOption) metric.Meter {
	if empty, _ := p.broken("Meter"); empty {
		return nil
	}
	return &brokenMeter{p.real, p}
}

type brokenMeter struct {
	metric.Meter
	p *brokenMeters
}

func (m *brokenMeter) Float64Histogram(name string, opts ...metric.Float64HistogramOption) (metric.Float64Histogram, error) {
	empty, err := m.p.broken("Float64Histogram")
	if empty || err != nil {
		return nil, err
	}
	h, err := m.Meter.Float64Histogram(name, opts...)
	return &brokenHistogram{h, m.p}, err
}

func (m *brokenMeter) Int64Counter(name string, opts ...metric.Int64CounterOption) (metric.Int64Counter, error) {
	empty, err := m.p.broken("Int64Counter")
	if empty || err != nil {
		return nil, err
	}
	c, err := m.Meter.Int64Counter(name, opts...)
	return &brokenCounter{c, m.p}, err
}

func (m *brokenMeter) Int64ObservableCounter(name string, opts ...metric.Int64ObservableCounterOption) (metric.Int64ObservableCounter, error) {
	empty, err := m.p.broken("Int64ObservableCounter")
	if empty || err != nil {
		return nil, err
	}
	return m.Meter.Int64ObservableCounter(name, opts...)
}

func (m *brokenMeter) RegisterCallback(f metric.Callback, of ...metric.Observable) (metric.Registration, error) {
	empty, err := m.p.broken("RegisterCallback")
	if empty || err != nil {
		return nil, err
	}
	r, err := m.Meter.RegisterCallback(f, of...)
	return &brokenRegistration{Registration: r, p: m.p}, err
}

type brokenRegistration struct {
	metric.Registration
	p *brokenMeters
}

func (r *brokenRegistration) Unregister() error {
	_, err := r.p.broken("Unregister")
	return errors.Join(err, r.Registration.Unregister())
}

type brokenHistogram struct {
	metric.Float64Histogram
	p *brokenMeters
}

func (h *brokenHistogram) Enabled(ctx context.Context) bool {
	_, _ = h.p.broken("Enabled")
	return h.Float64Histogram.Enabled(ctx)
}

func (h *brokenHistogram) Record(ctx context.Context, v float64, opts ...metric.RecordOption) {
	_, _ = h.p.broken("Record")
	h.Float64Histogram.Record(ctx, v, opts...)
}

type brokenCounter struct {
	metric.Int64Counter
	p *brokenMeters
}

func (c *brokenCounter) Add(ctx context.Context, n int64, opts ...metric.AddOption) {
	_, _ = c.p.broken("Add")
	c.Int64Counter.Add(ctx, n, opts...)
}

func TestLocksWorkWithMetersThatAreBroken(t *testing.T) {
	for at, hows := range map[string][]string{
		"Meter":                  {"panics", "nil"},
		"Float64Histogram":       {"panics", "nil", "fails"},
		"Int64Counter":           {"panics", "nil", "fails"},
		"Int64ObservableCounter": {"panics", "nil", "fails"},
		"RegisterCallback":       {"panics", "nil", "fails"},
		"Unregister":             {"panics", "fails"},
		"Enabled":                {"panics"},
		"Record":                 {"panics"},
		"Add":                    {"panics"},
	} {
		for _, how := range hows {
			t.Run(at+" "+how, func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					r := listen(t)
					p := &brokenMeters{real: r.meters.Meter(telemetry.ScopeName), at: at, how: how}
					log := &lines{}
					s, c := scriptOf(t, r.config(telemetry.Config{MeterProvider: p, HoldAlarm: 1}),
						WithLogger(slog.New(slog.NewTextHandler(log, nil))))
					works(t, s, c, r)
					require.NoError(t, c.FlushTelemetry(t.Context()))
					require.NotEmpty(t, r.all(c), "spans are told all the same")
					_ = r.collect()
					require.NoError(t, c.Close(t.Context()))
					switch {
					case how == "fails" && at == "Unregister" || at == "Enabled" || at == "Record" || at == "Add" || how == "nil" || at == "Unregister":
					default:
						require.Contains(t, log.String(), "leasehold: no metrics", "it was not said")
					}
				})
			})
		}
	}
}

// TestRecordsThatAMeterDropsAreCounted: by one that panics.
func TestRecordsThatAMeterDropsAreCounted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := listen(t)
		p := &brokenMeters{real: r.meters.Meter(telemetry.ScopeName), at: "Record", how: "panics"}
		s, c := scriptOf(t, r.config(telemetry.Config{MeterProvider: p}))
		s.obey()
		for range 3 {
			unlock(t, lockOf(t, c.Mutex("k")).holds())
		}
		require.Equal(t, int64(4), r.series(telemetry.MetricDropped)[""], "one wait and three holds")
		require.NoError(t, c.Close(t.Context()))
	})
}
