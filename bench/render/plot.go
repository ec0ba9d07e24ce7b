package render

import (
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"gonum.org/v1/plot/plotter"

	"github.com/go-leasehold/leasehold/bench/result"
)

// Plot is a picture of a report.
type Plot struct {
	Name string // of its file, without the ending
	Alt  string // what it shows, in a line
	SVG  []byte
}

// overDelay ends the names of plots over the network delays.
const overDelay = "-rtt"

// HeroPlot is the name of the plot for those who look at one only.
const HeroPlot = "hero"

// Plots draws a report: each scenario over its points, and over the network delays, and the plot for those who look at
// one only. What was not measured has none. With an error it returns those that could be drawn.
func Plots(r result.Report) ([]Plot, error) {
	var all []Plot
	var errs []error
	add := func(name string, draw func() (*Plot, error)) {
		p, err := draw()
		if p != nil {
			all = append(all, *p)
		}
		if err != nil {
			errs = append(errs, fmt.Errorf("the plot of %s: %w", name, err))
		}
	}
	for _, s := range r.Scenarios {
		add(s.Name, func() (*Plot, error) { return overPoints(s) })
		add(s.Name+overDelay, func() (*Plot, error) { return overDelays(s) })
	}
	add(HeroPlot, func() (*Plot, error) { return hero(r) })
	return all, errors.Join(errs...)
}

// overPoints draws a scenario with the least delay: curves where there are several points that are numbers, or else bars.
func overPoints(s result.Scenario) (*Plot, error) {
	all := delays(s)
	if len(all) == 0 {
		return nil, nil
	}
	p := picture{title: s.Title, x: s.Axis, metric: s.Headline}
	if all[0] > 0 {
		p.title += ", " + added(all[0])
	}
	draw := p.bars
	if numeric(s, all[0]) {
		draw = p.curves
	}
	svg, err := draw(curves(s, all[0]))
	if svg == nil || err != nil {
		return nil, err
	}
	return &Plot{Name: s.Name, Alt: fmt.Sprintf("%s: %s by %s", s.Title, title(s.Headline), s.Axis), SVG: svg}, nil
}

// overDelays draws the main point of a scenario over the delays, where there are several.
func overDelays(s result.Scenario) (*Plot, error) {
	all := delays(s)
	if len(all) < 2 {
		return nil, nil
	}
	point := mainPoint(s, all[len(all)-1])
	p := picture{title: s.Title + ", over a slower network", x: "ms added to each round trip, " + at(point, s.Axis), metric: s.Headline}
	svg, err := p.curves(byDelay(s, point))
	if svg == nil || err != nil {
		return nil, err
	}
	return &Plot{Name: s.Name + overDelay, Alt: fmt.Sprintf("%s: %s by network delay", s.Title, title(s.Headline)), SVG: svg}, nil
}

// hero draws one hot key, over processes if that was measured: leasehold and its peers, without variants of ours and
// without limits.
func hero(r result.Report) (*Plot, error) {
	for _, name := range []string{"processes", "hot"} {
		s, ok := r.Scenario(name)
		if !ok || len(delays(s)) == 0 || !numeric(s, delays(s)[0]) {
			continue
		}
		s.Cells = slices.DeleteFunc(slices.Clone(s.Cells), func(c result.Cell) bool {
			return c.Contender != "leasehold" && !slices.ContainsFunc(r.Contenders, func(who result.Contender) bool {
				return who.Name == c.Contender && who.Kind == "peer"
			})
		})
		if len(s.Cells) == 0 {
			continue
		}
		p := picture{title: "Locks of one hot key, a second", x: s.Axis, metric: s.Headline}
		svg, err := p.curves(curves(s, delays(s)[0]))
		if svg == nil || err != nil {
			return nil, err
		}
		return &Plot{Name: HeroPlot, Alt: p.title + ", by " + s.Axis, SVG: svg}, nil
	}
	return nil, nil
}

// numeric tells whether the points are numbers, of which there are several.
func numeric(s result.Scenario, delay time.Duration) bool {
	all := points(s, delay)
	for _, p := range all {
		if !numberOnly(p) {
			return false
		}
	}
	return len(all) > 1
}

// at tells a point: "64 goroutines"; one that is no number tells itself.
func at(point, axis string) string {
	if numberOnly(point) {
		return point + " " + axis
	}
	return point
}

func numberOnly(point string) bool { return strings.Trim(point, "0123456789") == "" }

// curve is what one contender has measured.
type curve struct {
	name   string
	points plotter.XYs     // medians
	ends   []result.Spread // of each point
	labels []string        // of each point, on the axis
}

func (c *curve) add(x float64, label string, s result.Spread) {
	c.points = append(c.points, plotter.XY{X: x, Y: s.Median})
	c.ends = append(c.ends, s)
	c.labels = append(c.labels, label)
}

// curves are the contenders of a scenario over its points.
func curves(s result.Scenario, delay time.Duration) []curve {
	var all []curve
	for _, name := range contenders(s, delay) {
		c := curve{name: name}
		for _, point := range points(s, delay) {
			cell, _ := s.Of(name, point, delay)
			if spread, ok := cell.Spread(s.Headline); ok {
				c.add(cell.X, point, spread)
			}
		}
		if len(c.points) > 0 {
			all = append(all, c)
		}
	}
	return all
}

// byDelay are the contenders of a scenario at one point over the delays.
func byDelay(s result.Scenario, point string) []curve {
	all := delays(s)
	var drawn []curve
	for _, name := range contenders(s, all[len(all)-1]) {
		c := curve{name: name}
		for _, delay := range all {
			cell, _ := s.Of(name, point, delay)
			if spread, ok := cell.Spread(s.Headline); ok {
				ms := float64(delay) / float64(time.Millisecond)
				c.add(ms, strconv.FormatFloat(ms, 'g', -1, 64), spread)
			}
		}
		if len(c.points) > 0 {
			drawn = append(drawn, c)
		}
	}
	return drawn
}
