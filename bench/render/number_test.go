package render_test

import (
	"math"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/go-leasehold/leasehold/bench/render"
	"github.com/go-leasehold/leasehold/bench/result"
)

func TestNumber(t *testing.T) {
	for _, test := range []struct {
		unit  string
		value float64
		want  string
	}{
		{"/s", 1_394_000, "1.39 M/s"}, {"/s", 999.6, "1 k/s"}, {"/s", 350, "350 /s"}, {"/s", 0, "0 /s"}, {"/s", 0.5, "0.5 /s"},
		{"us", 340, "340 us"}, {"us", 0.0123, "12.3 ns"}, {"us", 2100, "2.1 ms"}, {"us", 999.6, "1 ms"}, {"us", 1_234_567, "1.23 s"},
		{"us", 0, "0"}, {"us", -52.1, "-52.1 us"}, {"us", 0.9999, "1 us"},
		{"B", 560, "560 B"}, {"B", 1024, "1 KiB"}, {"B", 1023, "1023 B"}, {"B", 3 << 20, "3 MiB"}, {"B", -12, "-12 B"}, {"B", 2.75, "2.75 B"},
		{"", 0.987654, "0.988"}, {"", 9.996, "10"}, {"", 0.09996, "0.1"}, {"", 99.96, "100"}, {"", 150, "150"}, {"", 0, "0"}, {"", 1, "1"},
	} {
		require.Equal(t, test.want, render.Number(test.unit, test.value), "%v %s", test.value, test.unit)
	}
}

// sizes are what units are worth in their own.
var sizes = map[string]float64{
	"": 1, "/s": 1, "k/s": 1e3, "M/s": 1e6, "G/s": 1e9, "ns": 1e-3, "us": 1, "ms": 1e3, "s": 1e6, "B": 1, "KiB": 1 << 10, "MiB": 1 << 20, "GiB": 1 << 30,
}

// Whatever the number, it reads back to within half of its third digit, and fits into a column.
func TestNumberKeepsThreeDigits(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		unit := rapid.SampledFrom([]string{"us", "B", "/s", ""}).Draw(t, "unit")
		value := math.Pow(10, rapid.Float64Range(-6, 12).Draw(t, "log10")) * float64(rapid.SampledFrom([]int{-1, 1}).Draw(t, "sign"))
		text := render.Number(unit, value)
		require.LessOrEqual(t, len(text), len("-1.23e+12 k/s"), text)
		digits, suffix, _ := strings.Cut(text, " ")
		number, err := strconv.ParseFloat(digits, 64)
		require.NoError(t, err, text)
		size, ok := sizes[suffix]
		require.True(t, ok, "%q has an unknown unit", text)
		require.InEpsilon(t, value, number*size, 0.0051, text)
	})
}

// A report with nonsense in it is still told.
func TestNumberDoesNotPanicOnNoNumbers(t *testing.T) {
	for _, unit := range []string{"us", "B", "/s", "", "kg"} {
		for _, value := range []float64{math.NaN(), math.Inf(1), math.Inf(-1), math.MaxFloat64, math.SmallestNonzeroFloat64} {
			require.NotPanics(t, func() { _ = render.Number(unit, value) }, "%v %s", value, unit)
		}
	}
}

func TestOfTellsTheSpreadWhereThereIsOne(t *testing.T) {
	cell := result.Cell{Rounds: []result.Round{{result.Bytes: 560}, {result.Bytes: 520}, {result.Bytes: 600}}}
	require.Equal(t, "560 B (520 B to 600 B)", render.Of(cell, result.Bytes))
	require.Equal(t, "560 B", render.Of(result.Cell{Rounds: cell.Rounds[:1]}, result.Bytes))
	require.Equal(t, "-", render.Of(cell, result.Throughput), "it was not measured")
	require.Equal(t, "-", render.Of(cell, "speed"), "there is no such metric")
	require.Equal(t, "-", render.Of(result.Cell{}, result.Bytes), "it failed")
}
