package main

import (
	"io"
	"math"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/go-leasehold/leasehold/bench/contender"
	"github.com/go-leasehold/leasehold/bench/harness"
	"github.com/go-leasehold/leasehold/bench/result"
)

// asked is what a run with these arguments would measure.
func asked(t *testing.T, args ...string) options {
	t.Helper()
	o, err := parse(args, io.Discard)
	require.NoError(t, err, "%v", args)
	return o
}

// supposed is the report of a run that never was, with a cell wherever the plan has one. All numbers in it are made up,
// and all metrics are in each round.
func supposed(o options) result.Report {
	report := result.Report{
		Started: time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC), Took: 95 * time.Second, Command: "go run .", Size: size(o),
		Rounds: 3, RoundFor: o.plan.For, Machine: machine("7.0.15"), Contenders: participants(o.contenders),
	}
	for _, s := range o.scenarios {
		told := result.Scenario{
			Name: s.Name, Title: s.Title, Question: s.Question, Method: s.Method, Axis: s.Axis, Headline: s.Headline, Main: s.Main,
		}
		for _, point := range s.Points(o.plan.Full) {
			if o.plan.Only != nil && !o.plan.Only(s.Name, point) {
				continue
			}
			for _, delay := range o.plan.Delays {
				if delay == 0 || s.Delayed != nil && s.Delayed(point) {
					told.Cells = append(told.Cells, supposedCells(s, point, delay, o.contenders)...)
				}
			}
		}
		if len(told.Cells) > 0 {
			report.Scenarios = append(report.Scenarios, told)
		}
	}
	return report
}

func supposedCells(s harness.Scenario, point harness.Point, delay time.Duration, contenders []contender.Info) []result.Cell {
	var cells []result.Cell
	for i, info := range contenders {
		if !s.Enters(info, point) {
			continue
		}
		cell := result.Cell{Contender: info.Name, Point: point.Label, X: point.X, Delay: delay}
		slower := float64(1+i) * (1 + math.Sqrt(1+point.X)) * (1 + float64(delay.Milliseconds()))
		for _, noise := range []float64{1, 1.2, 0.9} {
			round := result.Round{}
			for _, m := range result.Metrics {
				round[m.Name] = noise * slower
				if m.Higher {
					round[m.Name] = noise * 1e6 / slower
				}
			}
			round[result.Violations], round[result.Errors] = 0, 0
			cell.Rounds = append(cell.Rounds, round)
		}
		cells = append(cells, cell)
	}
	return cells
}
