package promtest

import (
	"bytes"
	"errors"
	"io"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/model/textparse"
	"github.com/stretchr/testify/require"
	otelprometheus "go.opentelemetry.io/otel/exporters/prometheus"
	"go.opentelemetry.io/otel/sdk/metric"
)

// job is what the scraped processes belong to.
const job = "shop"

// process is a program with OpenTelemetry's Prometheus exporter, as its options are by default.
type process struct {
	instance string
	registry *prometheus.Registry
	provider *metric.MeterProvider
}

func newProcess(t *testing.T, instance string) *process {
	t.Helper()
	p := &process{instance: instance, registry: prometheus.NewRegistry()}
	exporter, err := otelprometheus.New(otelprometheus.WithRegisterer(p.registry))
	require.NoError(t, err)
	p.provider = metric.NewMeterProvider(metric.WithReader(exporter))
	return p
}

// sample is a point of a series.
type sample struct {
	series labels.Labels
	at     time.Time
	value  float64
}

// scrape collects what a process exports at a time, and reads it as Prometheus does.
func (p *process) scrape(t *testing.T, at time.Time) (samples []sample) {
	t.Helper()
	families, err := p.registry.Gather()
	require.NoError(t, err)
	var text bytes.Buffer
	encoder := expfmt.NewEncoder(&text, expfmt.NewFormat(expfmt.TypeTextPlain))
	for _, family := range families {
		require.NoError(t, encoder.Encode(family))
	}
	parser := textparse.NewPromParser(text.Bytes(), labels.NewSymbolTable(), false)
	for {
		entry, err := parser.Next()
		if errors.Is(err, io.EOF) {
			return samples
		}
		require.NoError(t, err)
		if entry != textparse.EntrySeries {
			continue
		}
		var exported labels.Labels
		parser.Labels(&exported)
		_, _, value := parser.Series()
		series := labels.NewBuilder(exported).Set("job", job).Set("instance", p.instance).Labels()
		samples = append(samples, sample{series, at, value})
	}
}
