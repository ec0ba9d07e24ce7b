// Package render tells a report: as tables on a terminal, as Markdown, as JSON, and as plots.
package render

import (
	"fmt"
	"math"
	"strconv"
	"strings"

	"github.com/go-leasehold/leasehold/bench/result"
)

// Number tells a value to three digits, with its unit: "1.39 M/s", "340 us", "2.1 ms", "560 B".
func Number(unit string, v float64) string {
	switch unit {
	case "us":
		return duration(v)
	case "B":
		return scaled(v, 1024, []string{"B", "KiB", "MiB", "GiB"})
	case "/s":
		return scaled(v, 1000, []string{"/s", "k/s", "M/s", "G/s"})
	}
	return strings.TrimSpace(digits(v) + " " + unit)
}

// duration tells microseconds.
func duration(us float64) string {
	switch size := math.Abs(us); {
	case size == 0:
		return "0"
	case size < 0.9995:
		return digits(us*1e3) + " ns"
	case size < 999.5:
		return digits(us) + " us"
	case size < 999.5e3:
		return digits(us/1e3) + " ms"
	}
	return digits(us/1e6) + " s"
}

func scaled(v, step float64, units []string) string {
	i := 0
	for math.Abs(v) >= step*0.9995 && i < len(units)-1 {
		v /= step
		i++
	}
	return digits(v) + " " + units[i]
}

// digits is three significant digits, with no exponent for what people read.
func digits(v float64) string {
	switch size := math.Abs(v); {
	case v == 0:
		return "0"
	case size < 1e-4 || size >= 1e7:
		return strconv.FormatFloat(v, 'g', 3, 64)
	case size >= 99.95:
		return strconv.FormatFloat(v, 'f', 0, 64)
	}
	places := 2 - int(math.Floor(math.Log10(math.Abs(v))))
	text := strconv.FormatFloat(v, 'f', places, 64)
	if strings.Contains(text, ".") {
		text = strings.TrimRight(strings.TrimRight(text, "0"), ".")
	}
	return text
}

// told is what is told of a metric over the rounds of a cell: the median and the ends, or, of what has to be none in all
// rounds, the sum, which a median would hide.
func told(cell result.Cell, name string) (result.Spread, bool) {
	s, ok := cell.Spread(name)
	if name == result.Violations || name == result.Errors {
		all := sum(cell.Values(name))
		s = result.Spread{Median: all, Min: all, Max: all}
	}
	return s, ok
}

// Of tells a metric of a cell, with its spread: "1.39 M/s (1.2 to 1.5)"; "-" where there is none.
func Of(cell result.Cell, name string) string {
	metric, ok := result.MetricOf(name)
	s, measured := told(cell, name)
	if !ok || !measured {
		return "-"
	}
	text := Number(metric.Unit, s.Median)
	if low, high := Number(metric.Unit, s.Min), Number(metric.Unit, s.Max); low != high {
		text += fmt.Sprintf(" (%s to %s)", low, high)
	}
	return text
}

// short is Of with the spread in percent.
func short(cell result.Cell, name string) string {
	metric, ok := result.MetricOf(name)
	s, measured := told(cell, name)
	if !ok || !measured {
		return "-"
	}
	text := Number(metric.Unit, s.Median)
	if s.Median > 0 {
		if percent := math.Round((s.Max - s.Min) / 2 / s.Median * 100); percent >= 1 {
			text += fmt.Sprintf(" ±%.0f%%", percent)
		}
	}
	return text
}
