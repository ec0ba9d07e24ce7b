package promtest

import (
	"maps"
	"os"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	dto "github.com/prometheus/client_model/go"
	"github.com/prometheus/otlptranslator"
	"github.com/stretchr/testify/require"

	"github.com/go-leasehold/leasehold/telemetry"
)

// row is one of the table of metrics in docs/observability.md.
type row struct{ name, exported, kind, unit, labels string }

func metricsTable(t *testing.T) (rows []row) {
	t.Helper()
	text, err := os.ReadFile(page)
	require.NoError(t, err)
	for line := range strings.Lines(string(text)) {
		if cells := strings.Split(line, "|"); len(cells) == 8 && strings.HasPrefix(cells[2], " `leasehold_") {
			clean := func(i int) string { return strings.ReplaceAll(strings.TrimSpace(cells[i]), "`", "") }
			rows = append(rows, row{clean(1), clean(2), clean(3), clean(4), clean(5)})
		}
	}
	require.NotEmpty(t, rows)
	return rows
}

// everything is a process in which all was told of a class that can be told.
func everything(t *testing.T) *process {
	t.Helper()
	p := newProcess(t, "a")
	told, err := telemetry.New(telemetry.Config{MeterProvider: p.provider}, quiet)
	require.NoError(t, err)
	t.Cleanup(func() { told.Close(time.Second) })
	class := told.Other()
	require.NoError(t, told.Observe(
		func() []telemetry.Totals { return []telemetry.Totals{{Class: class}} }, func() int64 { return 0 }))
	stocks := class.Stocks()
	stocks.Batched(1)
	for op := telemetry.OperationDeduct; op <= telemetry.OperationRestock; op++ {
		for _, o := range []telemetry.Outcome{
			telemetry.Done, telemetry.Repeated, telemetry.Refused, telemetry.Expired, telemetry.Timeout, telemetry.Canceled,
			telemetry.Uncertain, telemetry.Unavailable, telemetry.Closed, telemetry.SoldOut, telemetry.Limited,
		} {
			stocks.Answered(op, o, 1, 1)
		}
	}
	for _, shared := range []bool{false, true} {
		for _, o := range []telemetry.Outcome{
			telemetry.Acquired, telemetry.Busy, telemetry.Timeout, telemetry.Canceled, telemetry.Refused, telemetry.Unavailable, telemetry.Closed,
		} {
			class.Record([]telemetry.Duration{{Of: telemetry.OfWait, Shared: shared, Outcome: o, Lasted: time.Second}})
		}
		for _, o := range []telemetry.Outcome{telemetry.Released, telemetry.Lost, telemetry.Expired, telemetry.Closed} {
			class.Record([]telemetry.Duration{{Of: telemetry.OfHold, Shared: shared, Outcome: o, Lasted: time.Second}})
		}
	}
	class.Renewed(time.Second)
	told.Raise(telemetry.Alarm{Kind: telemetry.LongHold, Class: class.Name()})
	require.NoError(t, told.Flush(t.Context()))
	return p
}

// TestThePageSaysHowManySeriesThereAre: at most, for a class.
func TestThePageSaysHowManySeriesThereAre(t *testing.T) {
	n := 0
	for _, x := range everything(t).scrape(t, time.Now()) {
		if x.series.Has("leasehold_key_class") {
			n++
		}
	}
	text, err := os.ReadFile(page)
	require.NoError(t, err)
	said := regexp.MustCompile(`A class has at most (\d+) series`).FindStringSubmatch(string(text))
	require.NotNil(t, said)
	most, err := strconv.Atoi(said[1])
	require.NoError(t, err)
	require.LessOrEqual(t, n, most)
	require.Greater(t, n, most-50, "it has been more")
}

// TestTheTableHasTheNamesInPrometheus: they are made by rules of the exporter's, from the name and the unit.
func TestTheTableHasTheNamesInPrometheus(t *testing.T) {
	families, err := everything(t).registry.Gather()
	require.NoError(t, err)
	kinds := map[dto.MetricType]string{
		dto.MetricType_COUNTER: "counter", dto.MetricType_GAUGE: "up-down counter", dto.MetricType_HISTOGRAM: "histogram",
	}
	exported := map[string]row{}
	for _, family := range families {
		if name := family.GetName(); name != "target_info" {
			labels := map[string]bool{}
			for _, metric := range family.Metric {
				for _, pair := range metric.Label {
					labels[pair.GetName()] = true
				}
			}
			exported[name] = row{exported: name, kind: kinds[family.GetType()], labels: attributes(labels)}
		}
	}
	for _, r := range metricsTable(t) {
		is, ok := exported[r.exported]
		require.Truef(t, ok, "%s is not exported as %s, but there are %v", r.name, r.exported, slices.Sorted(maps.Keys(exported)))
		require.Equal(t, is.kind, r.kind, r.name)
		require.Equal(t, is.labels, r.labels, r.name)
		delete(exported, r.exported)
	}
	require.Empty(t, exported, "they are exported, and not in the table of docs/observability.md")
}

// attributes writes labels as the table does.
func attributes(labels map[string]bool) string {
	var names []string
	for label := range labels {
		if short, ours := strings.CutPrefix(label, "leasehold_"); ours {
			names = append(names, strings.TrimPrefix(short, "key_"))
		}
	}
	slices.Sort(names)
	return strings.Join(names, ", ")
}

// TestOTLPHasTheSameNames: Prometheus makes them of what it receives by OTLP, with its default strategy.
func TestOTLPHasTheSameNames(t *testing.T) {
	kinds := map[string]otlptranslator.MetricType{
		"histogram": otlptranslator.MetricTypeHistogram, "counter": otlptranslator.MetricTypeMonotonicCounter,
		"up-down counter": otlptranslator.MetricTypeNonMonotonicCounter,
	}
	namer := otlptranslator.NewMetricNamer("", otlptranslator.UnderscoreEscapingWithSuffixes)
	for _, r := range metricsTable(t) {
		name, err := namer.Build(otlptranslator.Metric{Name: r.name, Unit: r.unit, Type: kinds[r.kind]})
		require.NoError(t, err)
		require.Equal(t, r.exported, name)
	}
}
