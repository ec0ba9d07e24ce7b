package promtest

import (
	"bytes"
	"encoding/json"
	"os"
	"regexp"
	"strings"
	"testing"

	"github.com/grafana/grafana-foundation-sdk/go/cog"
	"github.com/grafana/grafana-foundation-sdk/go/cog/plugins"
	"github.com/grafana/grafana-foundation-sdk/go/dashboard"
	"github.com/prometheus/prometheus/promql/parser"
	"github.com/stretchr/testify/require"
)

const page = "../../docs/observability.md"

// query is an expression, and where it stands.
type query struct {
	from       string
	expression string
	legend     string
}

// documented are the queries of docs/observability.md: those of its promql blocks, which an empty line parts.
func documented(t *testing.T) (all []query) {
	t.Helper()
	text, err := os.ReadFile(page)
	require.NoError(t, err)
	for _, block := range regexp.MustCompile("(?s)```promql\n(.*?)```").FindAllStringSubmatch(string(text), -1) {
		for expression := range strings.SplitSeq(block[1], "\n\n") {
			all = append(all, query{from: "docs/observability.md", expression: expression})
		}
	}
	require.NotEmpty(t, all)
	return all
}

const dashboardFile = "../../docs/grafana/leasehold.json"

// panel is one of the dashboard, as far as it is read here.
type panel struct {
	Type        string
	Title       string
	Description string
	GridPos     struct{ X, Y, W, H int }
	FieldConfig struct{ Defaults struct{ Unit string } }
	Targets     []struct{ Expr, LegendFormat string }
}

// variable is what can be chosen of.
type variable struct {
	Name, Type, Definition, AllValue string

	Query json.RawMessage // of a data source it is a word, of a query an object
}

type board struct {
	Panels     []panel
	Templating struct {
		List []variable
	}
}

func readBoard(t *testing.T) (b board) {
	t.Helper()
	text, err := os.ReadFile(dashboardFile)
	require.NoError(t, err)
	require.NoError(t, json.Unmarshal(text, &b))
	return b
}

// grafana stands for what Grafana puts into a query before it sends it.
var grafana = strings.NewReplacer(
	"$job", ".*", "$instance", ".*", "$class", ".*", "$__rate_interval", "5m", "$__range", "1h",
)

// shown are the queries of the dashboard's panels, with nothing chosen.
func shown(t *testing.T) (all []query) {
	t.Helper()
	for _, p := range readBoard(t).Panels {
		for _, target := range p.Targets {
			all = append(all, query{"the panel " + p.Title, grafana.Replace(target.Expr), target.LegendFormat})
		}
	}
	require.NotEmpty(t, all)
	return all
}

// alerted are the expressions of the alert rules.
func alerted(t *testing.T) (all []query) {
	t.Helper()
	for _, rule := range alertRules(t) {
		all = append(all, query{from: "the alert " + rule.Alert, expression: rule.Expr})
	}
	return all
}

// TestTheDashboardCanBeImported has Grafana's own types read the dashboard, which know every field of it.
func TestTheDashboardCanBeImported(t *testing.T) {
	plugins.RegisterDefaultPlugins()
	text, err := os.ReadFile(dashboardFile)
	require.NoError(t, err)
	var typed dashboard.Dashboard //nolint:staticcheck // the older form is what all versions of Grafana import
	var wrong cog.BuildErrors
	require.ErrorAs(t, typed.UnmarshalJSONStrict(text), &wrong) // it is never nil, also where nothing is wrong
	require.Empty(t, wrong)
	require.NoError(t, json.Unmarshal(text, &typed))
	require.NoError(t, typed.Validate())
	require.Equal(t, dashboard.NewDashboard().SchemaVersion, typed.SchemaVersion)
	require.NotNil(t, typed.Uid)
}

// TestPanelsHavePlacesOfTheirOwn: on the 24 columns that there are.
func TestPanelsHavePlacesOfTheirOwn(t *testing.T) {
	taken := map[[2]int]string{}
	for _, p := range readBoard(t).Panels {
		at := p.GridPos
		require.Positivef(t, at.W*at.H, "%s", p.Title)
		require.LessOrEqualf(t, at.X+at.W, 24, "%s", p.Title)
		for x := at.X; x < at.X+at.W; x++ {
			for y := at.Y; y < at.Y+at.H; y++ {
				require.Emptyf(t, taken[[2]int{x, y}], "%s is in the same place", p.Title)
				taken[[2]int{x, y}] = p.Title
			}
		}
	}
}

// TestPanelsSayWhatTheyShow: each has a unit, and a query, and asks the data source that is chosen.
func TestPanelsSayWhatTheyShow(t *testing.T) {
	b := readBoard(t)
	var rows []string
	for _, p := range b.Panels {
		if p.Type == "row" {
			rows = append(rows, p.Title)
			continue
		}
		require.NotEmptyf(t, p.Targets, "%s", p.Title)
		require.NotEmptyf(t, p.FieldConfig.Defaults.Unit, "%s", p.Title)
		require.NotEmptyf(t, p.Description, "%s", p.Title)
		for _, target := range p.Targets {
			require.NotEmptyf(t, target.LegendFormat, "%s", p.Title)
		}
	}
	require.Equal(t, []string{
		"Now", "What is hot?", "Who holds long?", "Who waits?", "What was lost?", "Is Redis the bottleneck?", "Stock",
	}, rows)
	text, err := os.ReadFile(page)
	require.NoError(t, err)
	for _, question := range rows[1:6] {
		require.Contains(t, string(text), "\n### "+question+"\n", "docs/observability.md asks what the dashboard answers")
	}
	raw, err := os.ReadFile(dashboardFile)
	require.NoError(t, err)
	require.Equal(t, bytes.Count(raw, []byte(`"uid"`)), bytes.Count(raw, []byte(`"${datasource}"`))+1, "no data source is fixed")
}

// named returns the selectors of an expression and the labels that it groups by.
func named(t *testing.T, expression string) (selectors []*parser.VectorSelector, by []string) {
	t.Helper()
	parsed, err := queries.ParseExpr(expression)
	require.NoErrorf(t, err, "%s", expression)
	parser.Inspect(parsed, func(node parser.Node, _ []parser.Node) error {
		switch n := node.(type) {
		case *parser.VectorSelector:
			selectors = append(selectors, n)
		case *parser.AggregateExpr:
			by = append(by, n.Grouping...)
		}
		return nil
	})
	return selectors, by
}
