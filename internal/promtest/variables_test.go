package promtest

import (
	"encoding/json"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// labelValues is the form of a variable's query: Grafana asks for the series that the selector matches, and offers what the
// label is in them.
var labelValues = regexp.MustCompile(`^label_values\((.+), (\w+)\)$`)

// offersAll fails the test where a variable of the dashboard does not offer all that its label is in any of our series. What
// is not offered can't be chosen.
func (s *server) offersAll(t *testing.T) {
	t.Helper()
	var asked []string
	for _, v := range readBoard(t).Templating.List {
		if v.Type != "query" {
			continue
		}
		var sent struct{ Query string }
		require.NoError(t, json.Unmarshal(v.Query, &sent))
		require.Equal(t, v.Definition, sent.Query, "what is shown of the variable %s is what is sent", v.Name)
		form := labelValues.FindStringSubmatch(grafana.Replace(sent.Query))
		require.NotNilf(t, form, "%s: %s", v.Name, sent.Query)
		require.Equalf(t, s.values(t, `{__name__=~"leasehold_.+"}`, form[2]), s.values(t, form[1], form[2]), "%s: %s", v.Name, sent.Query)
		asked = append(asked, v.Name)
	}
	require.Equal(t, []string{"job", "instance", "class"}, asked)
}

// values are what a label is in the series that a selector matches, in order.
func (s *server) values(t *testing.T, selector, label string) (values []string) {
	t.Helper()
	matchers, err := queries.ParseMetricSelector(selector)
	require.NoErrorf(t, err, "%s", selector)
	for _, one := range s.series(t, matchers) {
		if value := one.Get(label); value != "" && !slices.Contains(values, value) {
			values = append(values, strings.Clone(value))
		}
	}
	slices.Sort(values)
	return values
}
