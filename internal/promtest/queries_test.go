package promtest

import (
	"math"
	"regexp"
	"slices"
	"testing"

	"github.com/prometheus/prometheus/promql"
	"github.com/stretchr/testify/require"
)

var legendLabel = regexp.MustCompile(`{{(\w+)}}`)

// answers fails the test where a query has no answer, or reads what is not there.
func (s *server) answers(t *testing.T, q query) {
	t.Helper()
	selectors, by := named(t, q.expression)
	require.NotEmptyf(t, selectors, "%s reads nothing", q.from)
	labels := map[string]bool{"le": true}
	for _, selector := range selectors {
		series := s.series(t, selector.LabelMatchers)
		require.NotEmptyf(t, series, "%s: nothing is exported as %v", q.from, selector)
		for _, one := range series {
			for name := range one.Map() {
				labels[name] = true
			}
		}
	}
	for _, name := range by {
		require.Truef(t, labels[name], "%s groups by %s, which its metrics don't have", q.from, name)
	}
	result := s.query(t, q.expression)
	require.NotEmptyf(t, result, "%s: no answer to %s", q.from, q.expression)
	for _, x := range result {
		require.Falsef(t, math.IsInf(x.F, 0), "%s: %v", q.from, x)
		for _, name := range legendLabel.FindAllStringSubmatch(q.legend, -1) {
			require.Truef(t, x.Metric.Has(name[1]), "%s: its legend has {{%s}}, which is not in %v", q.from, name[1], x.Metric)
		}
	}
	require.Truef(t, slices.ContainsFunc(result, func(x promql.Sample) bool { return x.F > 0 }), "%s: nothing but zero for %s: %v", q.from, q.expression, result)
}
