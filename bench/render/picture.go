package render

import (
	"bytes"
	"cmp"
	"fmt"
	"image/color"
	"slices"
	"strings"

	"gonum.org/v1/plot"
	"gonum.org/v1/plot/font"
	"gonum.org/v1/plot/plotter"
	"gonum.org/v1/plot/vg"
	"gonum.org/v1/plot/vg/draw"
	"gonum.org/v1/plot/vg/vgsvg"

	"github.com/go-leasehold/leasehold/bench/result"
)

const (
	plotWidth   = 23 * vg.Centimeter
	plotHeight  = 11 * vg.Centimeter
	legendWidth = 5.4 * vg.Centimeter
	margin      = 8 // points
)

// letters are of a font that has the widths of Helvetica and Arial, of which there is one wherever plots are looked at.
var letters = font.Font{Typeface: "Liberation", Variant: "Sans"}

// families replaces the name of letters in an SVG, and leaves out what is so anyway.
var families = strings.NewReplacer("font-family:Liberation Sans;", "font-family:Helvetica,Arial,Liberation Sans,sans-serif;",
	"font-variant:normal;", "", "font-weight:normal;", "", "font-style:normal;", "")

// picture is what all plots have.
type picture struct{ title, x, metric string }

// new returns a plot that is empty but for what all plots say, and the metric that it is about.
func (p picture) new() (*plot.Plot, result.Metric) {
	drawn := plot.New()
	m, ok := result.MetricOf(p.metric)
	if !ok {
		m.Title = p.metric
	}
	good := "lower is better"
	if m.Higher {
		good = "higher is better"
	}
	drawn.BackgroundColor = color.White
	drawn.Title.Text = fmt.Sprintf("%s (%s)", p.title, good)
	drawn.Title.Padding = vg.Points(8)
	drawn.Title.TextStyle.Font = sized(13)
	for _, axis := range []*plot.Axis{&drawn.X, &drawn.Y} {
		axis.Label.TextStyle.Font = sized(11)
		axis.Label.Padding = vg.Points(4)
		axis.Tick.Label.Font = sized(10)
		axis.LineStyle.Color, axis.Tick.LineStyle.Color = grey, grey
		axis.Tick.Length = vg.Points(4)
	}
	grid := plotter.NewGrid() // the first, so that it lies under the data
	line := draw.LineStyle{Color: color.RGBA{225, 225, 225, 255}, Width: vg.Points(0.5)}
	grid.Vertical, grid.Horizontal = line, line
	drawn.Add(grid)
	return drawn, m
}

func sized(points float64) font.Font {
	f := letters
	f.Size = vg.Points(points)
	return f
}

// curves draws a line for each contender, with the spread at each point. It returns nothing where there is nothing to draw.
func (p picture) curves(all []curve) ([]byte, error) {
	if len(all) == 0 {
		return nil, nil
	}
	drawn, m := p.new()
	drawn.X.Label.Text, drawn.Y.Label.Text = p.x, m.Title
	var marks []plot.Tick
	var medians, ends []float64
	for _, c := range all {
		for i, point := range c.points {
			if !slices.ContainsFunc(marks, func(t plot.Tick) bool { return t.Value == point.X }) {
				marks = append(marks, plot.Tick{Value: point.X, Label: c.labels[i]})
			}
			medians = append(medians, point.Y)
			ends = append(ends, c.ends[i].Min, c.ends[i].Max)
		}
	}
	measuredAt(&drawn.X, marks)
	measured(&drawn.Y, medians, ends, m.Unit, m.Higher)
	drawn.Y.Tick.Marker = spaced{drawn.Y.Tick.Marker}
	legend := newLegend()
	// The legend goes from top to bottom as the ends of the lines do.
	last := func(c curve) float64 { return c.points[len(c.points)-1].Y }
	all = slices.SortedStableFunc(slices.Values(all), func(a, b curve) int { return cmp.Compare(last(b), last(a)) })
	for _, c := range slices.Backward(all) { // what is best where more is better lies on top
		if err := c.draw(drawn); err != nil {
			return nil, err
		}
	}
	for _, c := range all {
		line, err := plotter.NewLine(c.points)
		if err != nil {
			return nil, err
		}
		line.LineStyle = lookOf(c.name).line
		legend.Add(c.name, line)
	}
	return svg(drawn, &legend, plotHeight)
}

// draw adds a contender's line.
func (c curve) draw(drawn *plot.Plot) error {
	foot := func(v float64) float64 { return max(v, drawn.Y.Min) } // of a logarithmic axis, where zero is nowhere
	points := slices.Clone(c.points)
	spreads := make(plotter.YErrors, len(points))
	for i := range points {
		points[i].Y = foot(points[i].Y)
		spreads[i].Low, spreads[i].High = points[i].Y-foot(c.ends[i].Min), max(0, c.ends[i].Max-points[i].Y)
	}
	style := lookOf(c.name).line
	line, err := plotter.NewLine(points)
	if err != nil {
		return err
	}
	line.LineStyle = style
	dots, err := plotter.NewScatter(points)
	if err != nil {
		return err
	}
	dots.GlyphStyle = draw.GlyphStyle{Color: style.Color, Radius: vg.Points(2), Shape: draw.CircleGlyph{}}
	bars, err := plotter.NewYErrorBars(struct {
		plotter.XYs
		plotter.YErrors
	}{points, spreads})
	if err != nil {
		return err
	}
	bars.LineStyle = draw.LineStyle{Color: style.Color, Width: vg.Points(0.6)}
	bars.CapWidth = vg.Points(4)
	drawn.Add(bars, line, dots)
	return nil
}

// spaced keeps numbers off the marks beside them, in fonts that are a little wider, too.
type spaced struct{ plot.Ticker }

func (s spaced) Ticks(low, high float64) []plot.Tick {
	all := s.Ticker.Ticks(low, high)
	for i := range all {
		if all[i].Label != "" {
			all[i].Label += "  "
		}
	}
	return all
}

func newLegend() plot.Legend {
	legend := plot.NewLegend()
	legend.TextStyle.Font = sized(11)
	legend.Top, legend.Left = true, true
	legend.YOffs = -vg.Points(24)
	legend.Padding = vg.Points(3)
	legend.ThumbnailWidth = vg.Points(28)
	return legend
}

// svg draws a plot with its legend beside it, if it has one.
func svg(drawn *plot.Plot, legend *plot.Legend, height vg.Length) ([]byte, error) {
	canvas := vgsvg.New(plotWidth, height)
	all := draw.New(canvas)
	all.SetColor(color.White)
	all.Fill(all.Rectangle.Path())
	drawn.BackgroundColor = nil // it is white already
	right := vg.Length(margin)
	if legend != nil {
		right = legendWidth
		legend.Draw(draw.Crop(all, plotWidth-legendWidth+vg.Points(10), 0, 0, 0))
	}
	drawn.Draw(draw.Crop(all, margin, -right, margin, -margin))
	var out bytes.Buffer
	if _, err := canvas.WriteTo(&out); err != nil {
		return nil, err
	}
	return []byte(families.Replace(out.String())), nil
}
