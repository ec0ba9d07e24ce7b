package render_test

import (
	"bytes"
	"encoding/xml"
	"errors"
	"io"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/go-leasehold/leasehold/bench/render"
	"github.com/go-leasehold/leasehold/bench/result"
)

// texts are what an SVG says, in letters. It fails where it is no XML.
func texts(t *testing.T, svg []byte) []string {
	t.Helper()
	var all []string
	for d := xml.NewDecoder(bytes.NewReader(svg)); ; {
		token, err := d.Token()
		if errors.Is(err, io.EOF) {
			return all
		}
		require.NoError(t, err)
		if letters, ok := token.(xml.CharData); ok && strings.TrimSpace(string(letters)) != "" {
			all = append(all, strings.TrimSpace(string(letters)))
		}
	}
}

// draw returns the plots of a report by name.
func draw(t *testing.T, r result.Report) map[string]render.Plot {
	t.Helper()
	drawn, err := render.Plots(r)
	require.NoError(t, err)
	byName := map[string]render.Plot{}
	for _, p := range drawn {
		require.NotContains(t, byName, p.Name, "two plots in one file")
		byName[p.Name] = p
	}
	return byName
}

func TestPlotsAreOfEachScenarioAndOfItsDelays(t *testing.T) {
	drawn := draw(t, madeUp())
	for _, name := range []string{"hot", "hot-rtt", "uncontended"} {
		require.Contains(t, drawn, name)
	}
	require.NotContains(t, drawn, "uncontended-rtt", "it was measured without a delay only")
}

// Whoever was measured is in the legend, and it is said which way is good.
func TestPlotsNameTheirContenders(t *testing.T) {
	drawn := draw(t, madeUp())
	for name, contenders := range map[string][]string{
		"hot":         {"leasehold", "leasehold/fair", "redsync", "semaphore"},
		"hot-rtt":     {"leasehold", "leasehold/fair", "redsync", "semaphore"},
		"uncontended": {"leasehold", "leasehold/fair", "redsync", "retained", "fresh"},
	} {
		said := texts(t, drawn[name].SVG)
		for _, contender := range contenders {
			require.Contains(t, said, contender, name)
		}
		good := "(higher is better)"
		if name == "uncontended" {
			good = "(lower is better)"
		}
		require.Contains(t, strings.Join(said, "\n"), good, name)
		require.NotEmpty(t, drawn[name].Alt)
	}
}

// A report that is committed again changes only where its numbers did.
func TestPlotsAreTheSameEachTime(t *testing.T) {
	first := draw(t, madeUp())
	for range 3 {
		require.Equal(t, first, draw(t, madeUp()))
	}
}

func TestPlotsAreSmallAndWhite(t *testing.T) {
	for name, p := range draw(t, madeUp()) {
		require.Less(t, len(p.SVG), 64<<10, name)
		require.Contains(t, string(p.SVG), "fill:#FFFFFF", "%s: readable on a dark page", name)
	}
}

// What can't be drawn on a logarithmic axis, or at all, is no reason to have no plot.
func TestPlotsOfStrangeNumbers(t *testing.T) {
	for name, values := range map[string][]float64{
		"below zero once": {-3, 5, 700}, "all alike": {1, 1, 1}, "far apart": {1e-9, 1, 1e9}, "from nothing": {0, 10, 20}, "tiny": {1e-12, 1e-12, 1e-12},
	} {
		t.Run(name, func(t *testing.T) {
			s := result.Scenario{Name: "strange", Title: "Strange", Axis: "keys", Headline: result.HeapPerItem}
			for i, x := range []float64{1, 10, 1000} {
				c := load("leasehold", int(x), 0, 1)
				for j, v := range values {
					c.Rounds[j] = result.Round{result.HeapPerItem: v * float64(i+1)}
				}
				s.Cells = append(s.Cells, c)
			}
			p := draw(t, result.Report{Scenarios: []result.Scenario{s}})["strange"]
			require.Contains(t, texts(t, p.SVG), "leasehold")
			require.NotContains(t, string(p.SVG), "NaN")
			require.NotContains(t, string(p.SVG), "Inf")
		})
	}
}

// What is drawn in one scenario in a colour is drawn in it in all others.
func TestPlotsHaveTheSameColourForTheSameContender(t *testing.T) {
	const blue, pink = "#0072B2", "#CC79A7"
	for name, p := range draw(t, madeUp()) {
		require.Contains(t, string(p.SVG), blue, "%s: leasehold", name)
		require.Contains(t, string(p.SVG), pink, "%s: redsync", name)
	}
}

func TestPlotOfAnUnknownContender(t *testing.T) {
	r := madeUp()
	for i := range r.Scenarios[0].Cells {
		if r.Scenarios[0].Cells[i].Contender == "redsync" {
			r.Scenarios[0].Cells[i].Contender = "some <new> & other"
		}
	}
	require.Contains(t, texts(t, draw(t, r)["hot"].SVG), "some <new> & other")
}

func TestPlotOverTheDelaysIsAtTheMainPoint(t *testing.T) {
	r := madeUp()
	before := draw(t, r)["hot-rtt"].SVG
	for i, c := range r.Scenarios[0].Cells {
		if c.Point != "64" && c.Delay == 0 {
			r.Scenarios[0].Cells[i].Rounds = nil
		}
	}
	require.Equal(t, before, draw(t, r)["hot-rtt"].SVG, "the other points have no part in it")
	for i, c := range r.Scenarios[0].Cells {
		if c.Point == "64" && c.Delay == time.Millisecond {
			r.Scenarios[0].Cells[i].Rounds[0][result.Throughput] *= 100
		}
	}
	require.NotEqual(t, before, draw(t, r)["hot-rtt"].SVG)
}
