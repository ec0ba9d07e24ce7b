package render_test

import (
	"bytes"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/go-leasehold/leasehold/bench/render"
	"github.com/go-leasehold/leasehold/bench/result"
)

// reports are all sorts of reports, sensible or not, as far as JSON can tell them.
func reports() *rapid.Generator[result.Report] {
	text := rapid.String()
	span := rapid.Custom(func(t *rapid.T) time.Duration { return time.Duration(rapid.Int64().Draw(t, "ns")) })
	number := rapid.Float64()
	round := rapid.Custom(func(t *rapid.T) result.Round {
		return rapid.MapOf(rapid.StringMatching(`[a-z_0-9]{1,12}`), number).Draw(t, "metrics")
	})
	cell := rapid.Custom(func(t *rapid.T) result.Cell {
		return result.Cell{
			Contender: text.Draw(t, "contender"), Point: text.Draw(t, "point"), X: number.Draw(t, "x"), Delay: span.Draw(t, "delay"),
			Rounds: rapid.SliceOfN(round, 0, 3).Draw(t, "rounds"), Failure: text.Draw(t, "failure"),
		}
	})
	scenario := rapid.Custom(func(t *rapid.T) result.Scenario {
		return result.Scenario{
			Name:  rapid.StringMatching(`[a-z0-9]{1,4}(-[a-z0-9]{1,4})?`).Draw(t, "name"),
			Title: text.Draw(t, "title"), Question: text.Draw(t, "question"), Method: text.Draw(t, "method"),
			Axis: text.Draw(t, "axis"), Headline: text.Draw(t, "headline"), Main: text.Draw(t, "main"),
			Cells: rapid.SliceOfN(cell, 0, 3).Draw(t, "cells"),
		}
	})
	contender := rapid.Custom(func(t *rapid.T) result.Contender {
		return result.Contender{
			Name: text.Draw(t, "name"), Kind: text.Draw(t, "kind"), Variant: text.Draw(t, "variant"), About: text.Draw(t, "about"),
			Version: text.Draw(t, "version"), Settings: rapid.SliceOfN(text, 0, 3).Draw(t, "settings"),
		}
	})
	return rapid.Custom(func(t *rapid.T) result.Report {
		return result.Report{
			Started: time.Unix(rapid.Int64Range(0, 1<<33).Draw(t, "started"), 0).UTC(), Took: span.Draw(t, "took"), Command: text.Draw(t, "command"),
			Size: text.Draw(t, "size"), Rounds: rapid.Int().Draw(t, "rounds"), RoundFor: span.Draw(t, "round"),
			Machine: result.Machine{
				CPU: text.Draw(t, "cpu"), Cores: rapid.Int().Draw(t, "cores"), MemoryG: number.Draw(t, "memory"), Kernel: text.Draw(t, "kernel"),
				Go: text.Draw(t, "go"), Redis: text.Draw(t, "redis"), Load: number.Draw(t, "load"),
			},
			Contenders: rapid.SliceOfN(contender, 0, 3).Draw(t, "contenders"), Scenarios: rapid.SliceOfN(scenario, 0, 3).Draw(t, "scenarios"),
		}
	})
}

func TestJSONIsReadAsItWasWritten(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		want := reports().Draw(t, "report")
		var text bytes.Buffer
		require.NoError(t, render.JSON(&text, want))
		got, err := render.ReadJSON(&text)
		require.NoError(t, err)
		require.Equal(t, want, got)
	})
}

func TestReadJSONOfNoReport(t *testing.T) {
	for _, text := range []string{"", "{", "[]", `"report"`, `{"scenarios": 3}`, `{"started": "yesterday"}`} {
		_, err := render.ReadJSON(strings.NewReader(text))
		require.ErrorContains(t, err, "no report", text)
	}
}
