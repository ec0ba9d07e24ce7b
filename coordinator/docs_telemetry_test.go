package coordinator_test

import (
	"encoding/json"
	"go/ast"
	"go/parser"
	"go/token"
	"log/slog"
	"maps"
	"path/filepath"
	"reflect"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/sdk/metric"
	"go.opentelemetry.io/otel/sdk/metric/metricdata"
	"go.yaml.in/yaml/v3"

	"github.com/go-leasehold/leasehold/telemetry"
)

// These tests hold docs/observability.md, the dashboard and the alert rules to telemetry/names.go. What the queries
// answer is tested by internal/promtest, with Prometheus itself: `make test-prometheus`.

const observability = "docs/observability.md"

// says fails the test where a page does not say what it should; the page itself would be too long a message.
func says(t *testing.T, name, what string) {
	t.Helper()
	if !strings.Contains(page(t, name), what) {
		require.FailNow(t, "it is not there", "%s: %s", name, what)
	}
}

// telemetryNames are the strings that names.go declares, by the names of their constants.
func telemetryNames(t *testing.T) map[string]string {
	t.Helper()
	file, err := parser.ParseFile(token.NewFileSet(), filepath.Join(root, "telemetry/names.go"), nil, 0)
	require.NoError(t, err)
	names := map[string]string{}
	ast.Inspect(file, func(node ast.Node) bool {
		spec, ok := node.(*ast.ValueSpec)
		if !ok {
			return true
		}
		for i, value := range spec.Values {
			if call, ok := value.(*ast.CallExpr); ok {
				value = call.Args[0] // attribute.Key("...")
			}
			text, err := strconv.Unquote(value.(*ast.BasicLit).Value)
			require.NoError(t, err)
			names[spec.Names[i].Name] = text
		}
		return true
	})
	require.Equal(t, telemetry.MetricGrants, names["MetricGrants"])
	require.Equal(t, string(telemetry.AttrClass), names["AttrClass"])
	return names
}

func TestObservabilityHasEveryName(t *testing.T) {
	text, names := page(t, observability), telemetryNames(t)
	for constant, name := range names {
		if constant != "Version" {
			says(t, observability, "`"+name+"`") // telemetry's constant of that value
		}
	}
	known := slices.Collect(maps.Values(names))
	for _, found := range regexp.MustCompile("`((?:lock|leasehold)\\.[a-z._]+)`").FindAllStringSubmatch(text, -1) {
		require.Containsf(t, known, found[1], "%s names what is not in telemetry/names.go", observability)
	}
}

// TestQueriesNameWhatThereIs: in the page, the dashboard and the rules, by the table of metrics; what that says is
// compared with what is exported by TestMetricsTable and internal/promtest.
func TestQueriesNameWhatThereIs(t *testing.T) {
	known := map[string]bool{}
	for _, m := range metricsTable(t) {
		known[m.exported] = true
		if m.kind == "histogram" {
			known[m.exported+"_bucket"], known[m.exported+"_sum"], known[m.exported+"_count"] = true, true, true
		}
	}
	for constant, name := range telemetryNames(t) {
		if strings.HasPrefix(constant, "Attr") {
			known[strings.ReplaceAll(name, ".", "_")] = true
		}
	}
	for _, file := range []string{observability, "docs/grafana/leasehold.json", "docs/alerts.yaml"} {
		names := regexp.MustCompile(`\bleasehold_\w+`).FindAllString(page(t, file), -1)
		require.NotEmpty(t, names)
		for _, name := range names {
			require.Truef(t, known[name], "%s names %s, which is neither a metric nor an attribute", file, name)
		}
	}
	require.True(t, json.Valid([]byte(page(t, "docs/grafana/leasehold.json"))))
}

// described is a row of the table of metrics.
type described struct{ name, exported, kind, unit, attributes string }

func metricsTable(t *testing.T) (rows []described) {
	t.Helper()
	for line := range strings.Lines(page(t, observability)) {
		if cells := strings.Split(strings.ReplaceAll(line, "`", ""), "|"); len(cells) == 8 && strings.HasPrefix(cells[2], " leasehold_") {
			for i := range cells {
				cells[i] = strings.TrimSpace(cells[i])
			}
			rows = append(rows, described{cells[1], cells[2], cells[3], cells[4], cells[5]})
		}
	}
	require.NotEmpty(t, rows)
	return rows
}

// TestMetricsTable compares the table with what an SDK is told.
func TestMetricsTable(t *testing.T) {
	reader := metric.NewManualReader()
	told, err := telemetry.New(telemetry.Config{MeterProvider: metric.NewMeterProvider(metric.WithReader(reader))}, slog.New(slog.DiscardHandler))
	require.NoError(t, err)
	defer told.Close(time.Second)
	class := told.Other()
	require.NoError(t, told.Observe(
		func() []telemetry.Totals { return []telemetry.Totals{{Class: class}} }, func() int64 { return 0 }))
	class.Record([]telemetry.Duration{
		{Of: telemetry.OfWait, Outcome: telemetry.Acquired, Lasted: time.Second},
		{Of: telemetry.OfHold, Outcome: telemetry.Released, Lasted: time.Second},
	})
	class.Renewed(time.Second)
	stocks := class.Stocks()
	stocks.Answered(telemetry.OperationDeduct, telemetry.Done, 1, 1)
	stocks.Batched(1)
	require.NoError(t, told.Flush(t.Context()))
	var all metricdata.ResourceMetrics
	require.NoError(t, reader.Collect(t.Context(), &all))
	require.Len(t, all.ScopeMetrics, 1)
	require.Equal(t, telemetry.ScopeName, all.ScopeMetrics[0].Scope.Name)
	is := map[string]described{}
	for _, m := range all.ScopeMetrics[0].Metrics {
		kind, attributes := kindOf(t, m.Data)
		is[m.Name] = described{name: m.Name, kind: kind, unit: m.Unit, attributes: attributes}
	}
	rows := metricsTable(t)
	for _, row := range rows {
		row.exported = ""
		require.Equal(t, is[row.name], row)
	}
	require.Len(t, rows, len(is), "metrics without a row: %v", slices.Sorted(maps.Keys(is)))
}

// kindOf returns what a metric is, and its attributes as the table has them.
func kindOf(t *testing.T, data metricdata.Aggregation) (kind, attributes string) {
	t.Helper()
	var set attribute.Set
	switch d := data.(type) {
	case metricdata.Histogram[float64]:
		kind, set = "histogram", d.DataPoints[0].Attributes
	case metricdata.Histogram[int64]:
		kind, set = "histogram", d.DataPoints[0].Attributes
	case metricdata.Sum[int64]:
		kind, set = "up-down counter", d.DataPoints[0].Attributes
		if d.IsMonotonic {
			kind = "counter"
		}
	default:
		require.Failf(t, "another kind", "%T", data)
	}
	var names []string
	for _, a := range set.ToSlice() {
		names = append(names, strings.TrimPrefix(strings.TrimPrefix(string(a.Key), "leasehold."), "key."))
	}
	slices.Sort(names)
	return kind, strings.Join(names, ", ")
}

func TestObservabilityHasTheWholeConfig(t *testing.T) {
	text := page(t, observability)
	for field := range reflect.TypeFor[telemetry.Config]().Fields() {
		row := regexp.MustCompile("(?m)^\\| (`\\w+`, )?`" + field.Name + "`(, `\\w+`)? \\|")
		require.True(t, row.MatchString(text), "%s has no row for %s", observability, field.Name)
	}
	says(t, observability, "| `Roots` | "+strconv.Itoa(telemetry.DefaultRoots)+" |")
	says(t, observability, "| `HoldAlarm` | "+strings.Replace(telemetry.DefaultHoldAlarm.String(), "s", " s", 1)+" |")
	says(t, observability, "The first "+strconv.Itoa(telemetry.MaxClasses)+" are kept apart")
}

// TestAlarmsHaveTheirLogLines: a log line of an alarm is put together, so that TestOperationsHasEveryLogLine misses it.
func TestAlarmsHaveTheirLogLines(t *testing.T) {
	sentences := regexp.MustCompile(`case (\w+):\s+return "([^"]+)"`).FindAllStringSubmatch(page(t, "telemetry/raise.go"), -1)
	require.NotEmpty(t, sentences)
	for _, found := range sentences {
		says(t, "docs/operations.md", "`"+found[2]+"`")
		says(t, observability, "`"+found[2]+"`")
	}
	for _, name := range exported(t, filepath.Join(root, "telemetry/alarm.go"), ast.Con, "L") {
		require.True(t, slices.ContainsFunc(sentences, func(s []string) bool { return s[1] == name }), name)
	}
	for _, kind := range []telemetry.AlarmKind{telemetry.LongHold, telemetry.LongWait, telemetry.LateRenewal} {
		says(t, observability, "| `"+string(kind)+"` |")
	}
}

// TestAlertsLeadToTheirSections: whoever is called at night finds the section, and the alert in it.
func TestAlertsLeadToTheirSections(t *testing.T) {
	var file struct {
		Groups []struct {
			Rules []struct {
				Alert               string
				Labels, Annotations map[string]string
			}
		}
	}
	require.NoError(t, yaml.Unmarshal([]byte(page(t, "docs/alerts.yaml")), &file))
	text := page(t, observability)
	n := 0
	for _, group := range file.Groups {
		for _, rule := range group.Rules {
			require.Contains(t, []string{"warning", "critical"}, rule.Labels["severity"], rule.Alert)
			require.NotEmpty(t, rule.Annotations["summary"], rule.Alert)
			require.NotEmpty(t, rule.Annotations["description"], rule.Alert)
			where, anchor, _ := strings.Cut(rule.Annotations["runbook_url"], "#")
			require.Equal(t, "https://github.com/go-leasehold/leasehold/blob/main/"+observability, where, rule.Alert)
			sections := strings.Split(text, "\n### ")
			i := slices.IndexFunc(sections, func(s string) bool {
				title, _, _ := strings.Cut(s, "\n")
				return slices.Contains(anchors("# "+title), anchor)
			})
			require.GreaterOrEqualf(t, i, 0, "%s: %s has no section %s", rule.Alert, observability, anchor)
			require.Contains(t, sections[i], "`"+rule.Alert+"`", observability)
			n++
		}
	}
	require.Equal(t, n, strings.Count(text, "`Leasehold"), "%s and docs/alerts.yaml have the same alerts", observability)
}

// TestObservabilityCode: the first Go block is in internal/promtest, word for word, which runs it.
func TestObservabilityCode(t *testing.T) {
	says(t, "internal/promtest/example_test.go", "\n"+block(t, observability, "go"))
}
