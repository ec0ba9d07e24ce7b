package render

import (
	"bytes"
	"fmt"
	"image/color"
	"math"
	"slices"
	"strings"
	"time"

	"gonum.org/v1/plot"
	"gonum.org/v1/plot/plotter"
	"gonum.org/v1/plot/vg"
	"gonum.org/v1/plot/vg/draw"
	"gonum.org/v1/plot/vg/vgsvg"

	"github.com/go-leasehold/leasehold/bench/result"
)

// Plot is a picture of a report.
type Plot struct {
	Name string // of its file, without the ending
	Alt  string // what it shows, in a line
	SVG  []byte
}

const (
	plotWidth   = 22 * vg.Centimeter
	plotHeight  = 11 * vg.Centimeter
	legendWidth = 4.6 * vg.Centimeter
	// logarithmic is from which quotient of the greatest and the least value on an axis is told by powers of ten.
	logarithmic = 20
)

// The colours can be told apart with any eyes: M. Okabe and K. Ito, "Color Universal Design", 2008.
var (
	blue      = color.RGBA{0, 114, 178, 255}
	vermilion = color.RGBA{213, 94, 0, 255}
	green     = color.RGBA{0, 158, 115, 255}
	pink      = color.RGBA{204, 121, 167, 255}
	orange    = color.RGBA{230, 159, 0, 255}
	sky       = color.RGBA{86, 180, 233, 255}
	black     = color.RGBA{40, 40, 40, 255}
	grey      = color.RGBA{140, 140, 140, 255}
)

var colours = map[string]color.RGBA{
	"leasehold": blue, "rueidislock": vermilion, "redislock": green, "redsync": pink, "textbook": orange,
	"semaphore": sky, "mutex": black, "memory": black, "ping": grey, "pipeline": grey,
}

// style is how a contender is drawn, everywhere: its own colour, and dashes for a variant.
func style(name string) draw.LineStyle {
	main, variant, isVariant := strings.Cut(name, "/")
	colour, ok := colours[main]
	if !ok {
		colour = grey
	}
	s := draw.LineStyle{Color: colour, Width: vg.Points(1.4)}
	if main == "leasehold" {
		s.Width = vg.Points(2.4)
	}
	if isVariant {
		s.Dashes = []vg.Length{vg.Points(float64(3 + len(variant)%4)), vg.Points(2.5)}
	}
	return s
}

// Plots draws a report: each scenario over its points, and over the network delays.
func Plots(r result.Report) ([]Plot, error) {
	var all []Plot
	for _, s := range r.Scenarios {
		drawn, err := drawScenario(s)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", s.Name, err)
		}
		all = append(all, drawn...)
	}
	return all, nil
}

func drawScenario(s result.Scenario) ([]Plot, error) {
	var all []Plot
	over := curves(s, 0)
	picture := picture{title: s.Title, x: s.Axis, metric: s.Headline}
	var err error
	var svg []byte
	if numeric(s) {
		svg, err = picture.curves(over)
	} else {
		svg, err = picture.bars(s)
	}
	if err != nil {
		return nil, err
	}
	all = append(all, Plot{Name: s.Name, Alt: fmt.Sprintf("%s: %s by %s", s.Title, title(s.Headline), s.Axis), SVG: svg})
	if len(delays(s)) > 1 {
		picture.title, picture.x = s.Title+", over a slower network", "round trip added, ms"
		if svg, err = picture.curves(byDelay(s)); err != nil {
			return nil, err
		}
		all = append(all, Plot{Name: s.Name + "-rtt", Alt: fmt.Sprintf("%s: %s by network delay", s.Title, title(s.Headline)), SVG: svg})
	}
	return all, nil
}

// numeric tells whether the points are numbers, of which there are several.
func numeric(s result.Scenario) bool {
	all := points(s, 0)
	for _, p := range all {
		if strings.Trim(p, "0123456789") != "" {
			return false
		}
	}
	return len(all) > 1
}

// curve is what one contender has measured.
type curve struct {
	name   string
	points plotter.XYs
	errors plotter.YErrors // from the median down and up
}

func (c *curve) add(x float64, s result.Spread) {
	c.points = append(c.points, plotter.XY{X: x, Y: s.Median})
	c.errors = append(c.errors, struct{ Low, High float64 }{s.Median - s.Min, s.Max - s.Median})
}

func curves(s result.Scenario, delay time.Duration) []curve {
	var all []curve
	for _, name := range contenders(s, delay) {
		c := curve{name: name}
		for _, point := range points(s, delay) {
			cell, _ := s.Of(name, point, delay)
			if spread, ok := cell.Spread(s.Headline); ok && spread.Median > 0 {
				c.add(cell.X, spread)
			}
		}
		if len(c.points) > 0 {
			all = append(all, c)
		}
	}
	return all
}

// byDelay is the main point over the delays.
func byDelay(s result.Scenario) []curve {
	all := delays(s)
	slowest := all[len(all)-1]
	point := mainPoint(s, slowest)
	var drawn []curve
	for _, name := range contenders(s, slowest) {
		c := curve{name: name}
		for _, delay := range all {
			cell, _ := s.Of(name, point, delay)
			if spread, ok := cell.Spread(s.Headline); ok && spread.Median > 0 {
				c.add(float64(delay)/float64(time.Millisecond), spread)
			}
		}
		if len(c.points) > 0 {
			drawn = append(drawn, c)
		}
	}
	return drawn
}

// picture is what all plots have.
type picture struct{ title, x, metric string }

func (p picture) new() *plot.Plot {
	drawn := plot.New()
	drawn.BackgroundColor = color.White
	m, _ := result.MetricOf(p.metric)
	good := "lower is better"
	if m.Higher {
		good = "higher is better"
	}
	drawn.Title.Text = fmt.Sprintf("%s (%s)", p.title, good)
	drawn.Title.Padding = vg.Points(6)
	drawn.X.Label.Text = p.x
	drawn.Y.Label.Text = m.Title
	return drawn
}

func (p picture) curves(all []curve) ([]byte, error) {
	drawn := p.new()
	var xs, ys []float64
	legend := plot.NewLegend()
	for _, c := range all {
		line, err := plotter.NewLine(c.points)
		if err != nil {
			return nil, err
		}
		line.LineStyle = style(c.name)
		dots, err := plotter.NewScatter(c.points)
		if err != nil {
			return nil, err
		}
		dots.GlyphStyle = draw.GlyphStyle{Color: line.Color, Radius: vg.Points(2), Shape: draw.CircleGlyph{}}
		bars, err := plotter.NewYErrorBars(struct {
			plotter.XYs
			plotter.YErrors
		}{c.points, c.errors})
		if err != nil {
			return nil, err
		}
		bars.LineStyle = draw.LineStyle{Color: line.Color, Width: vg.Points(0.6)}
		bars.CapWidth = vg.Points(4)
		drawn.Add(line, dots, bars)
		legend.Add(c.name, line)
		for i, point := range c.points {
			xs = append(xs, point.X)
			ys = append(ys, point.Y-c.errors[i].Low, point.Y+c.errors[i].High)
		}
	}
	if len(xs) == 0 {
		return nil, fmt.Errorf("nothing was measured of %s", p.metric)
	}
	m, _ := result.MetricOf(p.metric)
	scale(&drawn.X, xs, "")
	scale(&drawn.Y, ys, m.Unit)
	return svg(drawn, &legend)
}

// scale sets an axis by the values on it.
func scale(axis *plot.Axis, values []float64, unit string) {
	positive := slices.DeleteFunc(slices.Clone(values), func(v float64) bool { return v <= 0 })
	if len(positive) == 0 {
		positive = []float64{1}
	}
	least, most := slices.Min(positive), slices.Max(positive)
	if slices.Min(values) > 0 && most/least > logarithmic {
		axis.Scale = plot.LogScale{}
		axis.Min, axis.Max = least/1.5, most*1.5
		axis.Tick.Marker = ticks{unit: unit, log: true}
		return
	}
	axis.Min, axis.Max = min(0, slices.Min(values)), most*1.08
	axis.Tick.Marker = ticks{unit: unit}
}

// ticks are marks with numbers as in tables.
type ticks struct {
	unit string
	log  bool
}

func (t ticks) Ticks(low, high float64) []plot.Tick {
	if !t.log {
		all := plot.DefaultTicks{}.Ticks(low, high)
		for i := range all {
			if all[i].Label != "" {
				all[i].Label = Number(t.unit, all[i].Value)
			}
		}
		return all
	}
	var all []plot.Tick
	for decade := math.Floor(math.Log10(low)); decade <= math.Ceil(math.Log10(high)); decade++ {
		for i := 1.0; i < 10; i++ {
			value := i * math.Pow(10, decade)
			if value < low || value > high {
				continue
			}
			mark := plot.Tick{Value: value}
			if i == 1 || high/low < 200 && (i == 2 || i == 5) {
				mark.Label = Number(t.unit, value)
			}
			all = append(all, mark)
		}
	}
	return all
}

// bars draws a scenario whose points are no numbers, or only one: a group of bars for each point. A bar's length is in powers of ten.
func (p picture) bars(s result.Scenario) ([]byte, error) {
	drawn := p.new()
	legend := plot.NewLegend()
	labels := points(s, 0)
	names := contenders(s, 0)
	const gap = 1.0
	m, _ := result.MetricOf(p.metric)
	var values []float64
	for _, c := range s.Cells {
		if spread, ok := c.Spread(p.metric); ok && c.Delay == 0 && spread.Median > 0 {
			values = append(values, spread.Median)
		}
	}
	if len(values) == 0 {
		return nil, fmt.Errorf("nothing was measured of %s", p.metric)
	}
	scale(&drawn.Y, append(values, slices.Min(values)/2), m.Unit)
	drawn.X.Label.Text = ""
	var marks []plot.Tick
	at := 0.0
	for _, label := range labels {
		first := at
		for _, name := range names {
			cell, _ := s.Of(name, label, 0)
			spread, ok := cell.Spread(p.metric)
			if !ok || spread.Median <= 0 {
				continue
			}
			bar, err := plotter.NewPolygon(plotter.XYs{
				{X: at, Y: drawn.Y.Min}, {X: at, Y: spread.Median}, {X: at + 0.8, Y: spread.Median}, {X: at + 0.8, Y: drawn.Y.Min},
			})
			if err != nil {
				return nil, err
			}
			bar.Color, bar.LineStyle = fill(name), style(name)
			bar.LineStyle.Width = vg.Points(1)
			drawn.Add(bar)
			if label == labels[0] || !slices.ContainsFunc(s.Cells, func(c result.Cell) bool { return c.Contender == name && c.Point == labels[0] && c.Delay == 0 }) {
				legend.Add(name, bar)
			}
			at++
		}
		marks = append(marks, plot.Tick{Value: (first + at - 0.2) / 2, Label: label})
		at += gap
	}
	drawn.X.Tick.Marker = plot.ConstantTicks(marks)
	drawn.X.Tick.Length = 0
	drawn.X.Min, drawn.X.Max = -gap/2, at-gap/2
	return svg(drawn, &legend)
}

// fill is a contender's colour, paler for a variant.
func fill(name string) color.Color {
	s := style(name)
	if s.Dashes == nil {
		return s.Color
	}
	c := s.Color.(color.RGBA)
	pale := func(v uint8) uint8 { return uint8((int(v) + 2*255) / 3) }
	return color.RGBA{pale(c.R), pale(c.G), pale(c.B), 255}
}

// svg draws a plot with its legend beside it.
func svg(drawn *plot.Plot, legend *plot.Legend) ([]byte, error) {
	canvas := vgsvg.New(plotWidth, plotHeight)
	all := draw.New(canvas)
	all.SetColor(color.White)
	all.Fill(all.Rectangle.Path())
	drawn.Add(faint())
	drawn.Draw(draw.Crop(all, 0, -legendWidth, 0, 0))
	legend.Top, legend.Left = true, true
	legend.YOffs = -vg.Points(24)
	legend.Padding = vg.Points(2)
	legend.ThumbnailWidth = vg.Points(24)
	legend.Draw(draw.Crop(all, plotWidth-legendWidth+vg.Points(10), 0, 0, 0))
	var out bytes.Buffer
	if _, err := canvas.WriteTo(&out); err != nil {
		return nil, err
	}
	return out.Bytes(), nil
}

// faint is a grid that does not hide what is drawn.
func faint() *plotter.Grid {
	grid := plotter.NewGrid()
	line := draw.LineStyle{Color: color.RGBA{225, 225, 225, 255}, Width: vg.Points(0.5)}
	grid.Vertical, grid.Horizontal = line, line
	return grid
}
