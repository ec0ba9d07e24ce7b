package render

import (
	"math"
	"slices"

	"gonum.org/v1/plot"
)

// logarithmic is from which quotient of the greatest and the least value an axis is told by powers.
const logarithmic = 20

// room is the part of an axis that is left free beyond the first and the last point.
const room = 0.04

// measuredAt sets a horizontal axis: its marks are where it was measured. Points that double have the same distance.
func measuredAt(axis *plot.Axis, marks []plot.Tick) {
	slices.SortStableFunc(marks, func(a, b plot.Tick) int { return compare(a.Value, b.Value) })
	least, most := marks[0].Value, marks[len(marks)-1].Value
	if least > 0 && most/least >= logarithmic/4 {
		axis.Scale = plot.LogScale{}
		beyond := math.Pow(most/least, room)
		axis.Min, axis.Max = least/beyond, most*beyond
	} else {
		beyond := (most - least) * room
		if beyond == 0 {
			beyond = 1
		}
		axis.Min, axis.Max = least-beyond, most+beyond
	}
	axis.Tick.Marker = plot.ConstantTicks(apart(axis, marks))
}

// apart takes the labels from marks that stand too near to the one before to be read.
func apart(axis *plot.Axis, marks []plot.Tick) []plot.Tick {
	const near = 0.03
	last := math.Inf(-1)
	for i, mark := range marks {
		at := axis.Norm(mark.Value)
		if at-last < near {
			marks[i].Label = ""
			continue
		}
		last = at
	}
	return marks
}

func compare(a, b float64) int {
	switch {
	case a < b:
		return -1
	case a > b:
		return 1
	}
	return 0
}

// measured sets an axis of a metric by the medians and by the ends of the spreads. Where more is better, what is zero
// lies below a logarithmic axis, and is drawn at its foot; where less is better, it would be the best of all, and the
// axis is none.
func measured(axis *plot.Axis, medians, ends []float64, unit string, higher bool) {
	positive := slices.DeleteFunc(slices.Clone(medians), func(v float64) bool { return v <= 0 })
	if len(positive) > 0 && (higher || len(positive) == len(medians)) && slices.Max(positive)/slices.Min(positive) > logarithmic {
		least, most := slices.Min(positive), slices.Max(append(positive, ends...))
		axis.Scale = plot.LogScale{}
		axis.Min, axis.Max = least/1.6, most*1.4
		axis.Tick.Marker = ticks{unit: unit, log: true}
		return
	}
	least, most := min(0, slices.Min(ends)), max(0, slices.Max(ends))
	if least == most {
		most = least + 1
	}
	axis.Min, axis.Max = least, most+(most-least)*room
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
	if t.unit == "B" {
		return binary(low, high)
	}
	decades := math.Log10(high / low)
	var all []plot.Tick
	for decade := math.Floor(math.Log10(low)); decade <= math.Ceil(math.Log10(high)); decade++ {
		for i := 1.0; i < 10; i++ {
			value := i * math.Pow(10, decade)
			if value < low || value > high {
				continue
			}
			mark := plot.Tick{Value: value}
			if labelled(i, decade, decades) {
				mark.Label = Number(t.unit, value)
			}
			if mark.Label != "" || decades < 8 {
				all = append(all, mark)
			}
		}
	}
	return all
}

// binary are marks at powers of two, four, and so on, for bytes: 1 KiB, 16 KiB.
func binary(low, high float64) []plot.Tick {
	step := max(1, math.Round(math.Log2(high/low)/8))
	var all []plot.Tick
	for power := math.Ceil(math.Log2(low)/step) * step; power <= math.Log2(high); power += step {
		value := math.Exp2(power)
		all = append(all, plot.Tick{Value: value, Label: Number("B", value)})
	}
	return all
}

// labelled tells whether i times ten to the decade has its number, on an axis of so many decades.
func labelled(i, decade, decades float64) bool {
	switch {
	case decades > 9:
		return i == 1 && math.Mod(decade, 3) == 0
	case decades > 2.3:
		return i == 1
	}
	return i == 1 || i == 2 || i == 5
}
