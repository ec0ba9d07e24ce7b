package promtest

import (
	"context"
	"io"
	"log/slog"
	"slices"
	"testing"
	"time"

	"github.com/prometheus/common/model"
	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/model/rulefmt"
	"github.com/prometheus/prometheus/promql"
	"github.com/prometheus/prometheus/promql/parser"
	"github.com/prometheus/prometheus/rules"
	"github.com/prometheus/prometheus/util/teststorage"
	"github.com/stretchr/testify/require"
)

// every is how often processes are scraped, and rules evaluated.
const every = 15 * time.Second

var (
	queries = parser.NewParser(parser.Options{})
	quiet   = slog.New(slog.NewTextHandler(io.Discard, nil))
)

// server is a Prometheus that has scraped.
type server struct {
	storage *teststorage.TestStorage
	engine  *promql.Engine
	first   time.Time
	last    time.Time
}

// newServer stores samples.
func newServer(t *testing.T, samples []sample) *server {
	t.Helper()
	require.NotEmpty(t, samples)
	slices.SortStableFunc(samples, func(a, b sample) int { return a.at.Compare(b.at) })
	s := &server{
		storage: teststorage.New(t),
		engine: promql.NewEngine(promql.EngineOpts{
			Logger: quiet, MaxSamples: 10_000_000, Timeout: time.Minute, LookbackDelta: 5 * time.Minute, Parser: queries,
		}),
		first: samples[0].at,
		last:  samples[len(samples)-1].at,
	}
	appender := s.storage.Appender(t.Context())
	for _, x := range samples {
		_, err := appender.Append(0, x.series, x.at.UnixMilli(), x.value)
		require.NoErrorf(t, err, "%v at %v", x.series, x.at)
	}
	require.NoError(t, appender.Commit())
	return s
}

// query evaluates an expression at the time of the last scrape.
func (s *server) query(t *testing.T, expression string) promql.Vector {
	t.Helper()
	result, err := rules.EngineQueryFunc(s.engine, s.storage)(t.Context(), expression, s.last)
	require.NoErrorf(t, err, "%s", expression)
	return result
}

// series returns the series that a selector has matched at any time.
func (s *server) series(t *testing.T, matchers []*labels.Matcher) (found []labels.Labels) {
	t.Helper()
	querier, err := s.storage.Querier(s.first.UnixMilli(), s.last.UnixMilli())
	require.NoError(t, err)
	defer querier.Close()
	set := querier.Select(t.Context(), false, nil, matchers...)
	for set.Next() {
		found = append(found, set.At().Labels())
	}
	require.NoError(t, set.Err())
	return found
}

// fired evaluates a rule from the first scrape to the last, and returns the alerts that fired at any time.
func (s *server) fired(t *testing.T, rule rulefmt.Rule) (alerts []*rules.Alert) {
	t.Helper()
	expression, err := queries.ParseExpr(rule.Expr)
	require.NoErrorf(t, err, "%s", rule.Alert)
	r := rules.NewAlertingRule(rule.Alert, expression, time.Duration(rule.For), time.Duration(rule.KeepFiringFor),
		labels.FromMap(rule.Labels), labels.FromMap(rule.Annotations), labels.EmptyLabels(), "", true, quiet)
	query := rules.EngineQueryFunc(s.engine, s.storage)
	for at := s.first; !at.After(s.last); at = at.Add(every) {
		_, err := r.Eval(context.Background(), 0, at, query, nil, 0)
		require.NoErrorf(t, err, "%s", rule.Alert)
		for _, alert := range r.ActiveAlerts() {
			known := slices.ContainsFunc(alerts, func(a *rules.Alert) bool { return labels.Equal(a.Labels, alert.Labels) })
			if alert.State == rules.StateFiring && !known {
				alerts = append(alerts, alert)
			}
		}
	}
	return alerts
}

// alertRules reads docs/alerts.yaml, strictly.
func alertRules(t *testing.T) (all []rulefmt.Rule) {
	t.Helper()
	groups, errs := rulefmt.ParseFile("../../docs/alerts.yaml", false, model.UTF8Validation, queries, quiet)
	require.Empty(t, errs)
	for _, group := range groups.Groups {
		all = append(all, group.Rules...)
	}
	require.NotEmpty(t, all)
	return all
}
