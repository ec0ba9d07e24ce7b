package render

import (
	"math"
	"slices"

	"gonum.org/v1/plot"
	"gonum.org/v1/plot/plotter"
	"gonum.org/v1/plot/vg"
	"gonum.org/v1/plot/vg/draw"
)

const (
	rowHeight  = 15 // points
	barsAround = 85 // points: title, axis, margins
	thickness  = 0.74
	bold       = 3 // as golang.org/x/image/font has it
)

// bars draws points that are no numbers, or only one: under each other, of each point the contenders, with the spread
// and the number. It returns nothing where there is nothing to draw.
func (p picture) bars(all []curve) ([]byte, error) {
	if len(all) == 0 {
		return nil, nil
	}
	drawn, m := p.new()
	drawn.X.Label.Text = m.Title
	if points := labelsOf(all); len(points) == 1 {
		drawn.X.Label.Text += ", " + at(points[0], p.x)
	}
	var medians, ends []float64
	for _, c := range all {
		for i := range c.points {
			medians = append(medians, c.points[i].Y)
			ends = append(ends, c.ends[i].Min, c.ends[i].Max)
		}
	}
	measured(&drawn.X, medians, ends, m.Unit, m.Higher)
	if _, ok := drawn.X.Scale.(plot.LogScale); ok {
		drawn.X.Label.Text += ", on a logarithmic axis"
		drawn.X.Max *= math.Pow(drawn.X.Max/drawn.X.Min, 0.12) // for the numbers beside the bars
	} else {
		drawn.X.Max += (drawn.X.Max - drawn.X.Min) * 0.12
	}
	rows := rowsOf(all)
	var marks []plot.Tick
	for i, row := range rows {
		y, add := float64(-i), row.head
		if row.of != nil {
			marks = append(marks, plot.Tick{Value: y, Label: row.label})
			add = row.draw
		}
		if err := add(drawn, y, m.Unit); err != nil {
			return nil, err
		}
	}
	drawn.Y.Tick.Marker = spaced{plot.ConstantTicks(marks)}
	drawn.Y.Tick.Length, drawn.Y.LineStyle.Width, drawn.Y.Padding = 0, 0, 0
	drawn.Y.Min, drawn.Y.Max = 0.4-float64(len(rows)), 0.6
	return svg(drawn, nil, vg.Points(barsAround+rowHeight*float64(len(rows))))
}

// row is a bar, or the head of those of a point.
type row struct {
	label string
	of    *curve
	index int
}

// labelsOf are the points, in order.
func labelsOf(all []curve) []string {
	var points []string
	for _, c := range all {
		for _, label := range c.labels {
			if !slices.Contains(points, label) {
				points = append(points, label)
			}
		}
	}
	return points
}

func rowsOf(all []curve) []row {
	points := labelsOf(all)
	var rows []row
	for _, point := range points {
		if len(points) > 1 {
			rows = append(rows, row{label: point})
		}
		for i, c := range all {
			if at := slices.Index(c.labels, point); at >= 0 {
				rows = append(rows, row{label: c.name, of: &all[i], index: at})
			}
		}
	}
	return rows
}

// head adds the name of a point, over its bars.
func (r row) head(drawn *plot.Plot, at float64, _ string) error {
	name, err := plotter.NewLabels(plotter.XYLabels{XYs: plotter.XYs{{X: drawn.X.Min, Y: at}}, Labels: []string{r.label}})
	if err != nil {
		return err
	}
	name.TextStyle[0].Font = sized(10)
	name.TextStyle[0].Font.Weight = bold
	name.TextStyle[0].YAlign = draw.YCenter
	drawn.Add(name)
	return nil
}

// draw adds a bar, its spread and its number.
func (r row) draw(drawn *plot.Plot, at float64, unit string) error {
	median, ends := r.of.points[r.index].Y, r.of.ends[r.index]
	within := func(v float64) float64 { return max(v, drawn.X.Min) }
	from := within(0)
	bar, err := plotter.NewPolygon(plotter.XYs{
		{X: from, Y: at - thickness/2}, {X: within(median), Y: at - thickness/2},
		{X: within(median), Y: at + thickness/2}, {X: from, Y: at + thickness/2},
	})
	if err != nil {
		return err
	}
	look := lookOf(r.of.name)
	bar.Color, bar.LineStyle = look.area, look.line
	bar.LineStyle.Width = vg.Points(0.8)
	spread, err := plotter.NewXErrorBars(struct {
		plotter.XYs
		plotter.XErrors
	}{
		plotter.XYs{{X: within(median), Y: at}},
		plotter.XErrors{{Low: within(median) - within(ends.Min), High: within(ends.Max) - within(median)}},
	})
	if err != nil {
		return err
	}
	spread.LineStyle = draw.LineStyle{Color: black, Width: vg.Points(0.7)}
	spread.CapWidth = vg.Points(4)
	number, err := plotter.NewLabels(plotter.XYLabels{
		XYs: plotter.XYs{{X: max(from, within(ends.Max)), Y: at}}, Labels: []string{Number(unit, median)},
	})
	if err != nil {
		return err
	}
	number.TextStyle[0].Font = sized(10)
	number.TextStyle[0].YAlign = draw.YCenter
	number.Offset = vg.Point{X: vg.Points(5)}
	drawn.Add(bar, spread, number)
	return nil
}
