package main

import (
	"bytes"
	"encoding/xml"
	"errors"
	"io"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/go-leasehold/leasehold/bench/harness"
	"github.com/go-leasehold/leasehold/bench/render"
	"github.com/go-leasehold/leasehold/bench/result"
)

// A run that was ended early, or with a delay only, has a report of what there is.
func TestTellOfHalfARun(t *testing.T) {
	for name, o := range map[string]options{
		"no loopback": asked(t, "-rtt", "1", "-out", t.TempDir()),
		"one point":   onlyOne(asked(t, "-full", "-out", t.TempDir())),
	} {
		t.Run(name, func(t *testing.T) {
			_, err := told(t, o, supposed(o))
			require.NoError(t, err)
			require.Contains(t, entries(t, o.out), render.JSONFile)
		})
	}
	t.Run("nobody came through", func(t *testing.T) {
		o := asked(t, "-out", t.TempDir())
		report := supposed(o)
		for i := range report.Scenarios[0].Cells {
			report.Scenarios[0].Cells[i].Rounds, report.Scenarios[0].Cells[i].Failure = nil, "it did not start"
		}
		text, err := told(t, o, report)
		require.NoError(t, err)
		require.Contains(t, text, "it did not start")
		require.Contains(t, entries(t, o.out), render.JSONFile)
	})
}

// onlyOne leaves one point of each scenario.
func onlyOne(o options) options {
	seen := map[string]string{}
	o.plan.Only = func(scenario string, point harness.Point) bool {
		if _, ok := seen[scenario]; !ok {
			seen[scenario] = point.Label
		}
		return seen[scenario] == point.Label
	}
	return o
}

// Who reads a plot has to be able to tell its contenders apart, by colour, dashes, or width.
func TestNoTwoContendersOfAScenarioLookAlike(t *testing.T) {
	for _, s := range supposed(asked(t, "-full")).Scenarios {
		looks := map[string]string{}
		for _, name := range participantsOf(s) {
			look := lookOf(t, s, name)
			require.Empty(t, looks[look], "%s: it looks as %s does in %s.svg", name, looks[look], s.Name)
			looks[look] = name
		}
	}
}

func participantsOf(s result.Scenario) []string {
	var names []string
	for _, c := range s.Cells {
		if !slices.Contains(names, c.Contender) {
			names = append(names, c.Contender)
		}
	}
	return names
}

// lookOf returns all styles of a plot in which one contender is alone.
func lookOf(t *testing.T, s result.Scenario, contender string) string {
	t.Helper()
	s.Cells = slices.DeleteFunc(slices.Clone(s.Cells), func(c result.Cell) bool { return c.Contender != contender })
	plots, err := render.Plots(result.Report{Scenarios: []result.Scenario{s}})
	require.NoError(t, err)
	var styles []string
	for d := xml.NewDecoder(bytes.NewReader(plots[0].SVG)); ; {
		token, err := d.Token()
		if errors.Is(err, io.EOF) {
			break
		}
		require.NoError(t, err)
		element, ok := token.(xml.StartElement)
		for _, a := range element.Attr {
			if ok && element.Name.Local == "path" && a.Name.Local == "style" && !slices.Contains(styles, a.Value) {
				styles = append(styles, a.Value)
			}
		}
	}
	return strings.Join(styles, "\n")
}
