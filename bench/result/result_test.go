package result_test

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/go-leasehold/leasehold/bench/result"
)

// measured makes a cell of what its rounds measured of one metric.
func measured(values ...float64) result.Cell {
	var c result.Cell
	for _, v := range values {
		c.Rounds = append(c.Rounds, result.Round{result.Throughput: v})
	}
	return c
}

func TestSpreadIsTheMedianAndTheEnds(t *testing.T) {
	for name, test := range map[string]struct {
		values []float64
		want   result.Spread
	}{
		"one":              {[]float64{7}, result.Spread{Median: 7, Min: 7, Max: 7}},
		"two":              {[]float64{3, 1}, result.Spread{Median: 2, Min: 1, Max: 3}},
		"odd, not in turn": {[]float64{9, 1, 5}, result.Spread{Median: 5, Min: 1, Max: 9}},
		"even":             {[]float64{4, 1, 2, 100}, result.Spread{Median: 3, Min: 1, Max: 100}},
		"below zero":       {[]float64{-4, 2, -6}, result.Spread{Median: -4, Min: -6, Max: 2}},
	} {
		t.Run(name, func(t *testing.T) {
			got, ok := measured(test.values...).Spread(result.Throughput)
			require.True(t, ok)
			require.Equal(t, test.want, got)
		})
	}
}

func TestSpreadOfNothingIsNone(t *testing.T) {
	_, ok := result.Cell{}.Spread(result.Throughput)
	require.False(t, ok, "there are no rounds")
	_, ok = measured(1, 2).Spread(result.WaitP50)
	require.False(t, ok, "no round has the metric")
}

// values are what rounds measure: nothing that is too large to add up.
func values() *rapid.Generator[[]float64] {
	return rapid.SliceOfN(rapid.Float64Range(-1e12, 1e12), 1, 30)
}

// Half of the values are at or below a median, and half are at or above it; and it does not matter in which order they came.
func TestSpreadHasHalfOfTheValuesOnEachSide(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		all := values().Draw(t, "values")
		before := slices.Clone(all)
		cell := measured(all...)
		s, ok := cell.Spread(result.Throughput)
		require.True(t, ok)
		require.Equal(t, result.Spread{Median: s.Median, Min: slices.Min(all), Max: slices.Max(all)}, s)
		var below, above int
		for _, v := range all {
			if v <= s.Median {
				below++
			}
			if v >= s.Median {
				above++
			}
		}
		require.GreaterOrEqual(t, 2*below, len(all), "%v", s)
		require.GreaterOrEqual(t, 2*above, len(all), "%v", s)

		again, _ := measured(rapid.Permutation(all).Draw(t, "in another order")...).Spread(result.Throughput)
		require.Equal(t, s, again)
		require.Equal(t, before, cell.Values(result.Throughput), "a spread must not sort the rounds, which are paired with others'")
	})
}

func TestValuesLeaveOutRoundsWithoutTheMetric(t *testing.T) {
	cell := measured(1, 2, 3)
	delete(cell.Rounds[1], result.Throughput)
	require.Equal(t, []float64{1, 3}, cell.Values(result.Throughput))
}

// What slows a whole round down, both contenders in it, does not show in the ratio.
func TestRatioIsNotDisturbedByWhatDisturbsBoth(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		quotient := rapid.Float64Range(1e-3, 1e3).Draw(t, "quotient")
		var ours, theirs []float64
		for _, speed := range rapid.SliceOfN(rapid.Float64Range(1e-3, 1e6), 1, 20).Draw(t, "speed of each round") {
			ours, theirs = append(ours, quotient*speed), append(theirs, speed)
		}
		s, ok := result.Ratio(measured(ours...), measured(theirs...), result.Throughput)
		require.True(t, ok)
		require.InEpsilon(t, quotient, s.Min, 1e-9)
		require.InEpsilon(t, quotient, s.Max, 1e-9)
	})
}

// Turned around, the least becomes the most.
func TestRatioTurnedAround(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		size := rapid.IntRange(1, 10).Draw(t, "rounds")
		speeds := rapid.SliceOfN(rapid.Float64Range(1e-6, 1e6), size, size)
		a, b := measured(speeds.Draw(t, "a")...), measured(speeds.Draw(t, "b")...)
		there, _ := result.Ratio(a, b, result.Throughput)
		back, _ := result.Ratio(b, a, result.Throughput)
		require.InEpsilon(t, there.Min, 1/back.Max, 1e-9)
		require.InEpsilon(t, there.Max, 1/back.Min, 1e-9)
	})
}

func TestRatioOfWhatCannotBePaired(t *testing.T) {
	s, ok := result.Ratio(measured(10, 20, 30), measured(10, 10), result.Throughput)
	require.True(t, ok)
	require.Equal(t, result.Spread{Median: 1.5, Min: 1, Max: 2}, s, "the third round has no other one beside it")

	s, ok = result.Ratio(measured(10, 20), measured(0, 10), result.Throughput)
	require.True(t, ok)
	require.Equal(t, result.Spread{Median: 2, Min: 2, Max: 2}, s, "nothing can be divided by zero")

	_, ok = result.Ratio(measured(10), measured(0), result.Throughput)
	require.False(t, ok, "nothing can be divided by zero")
	_, ok = result.Ratio(measured(10), result.Cell{}, result.Throughput)
	require.False(t, ok, "the other one failed")
	_, ok = result.Ratio(measured(10), measured(10), result.WaitP50)
	require.False(t, ok, "neither has the metric")
}

// A round that lacks the metric must not shift those behind it.
func TestRatioPairsRoundsByTheirNumber(t *testing.T) {
	ours, theirs := measured(1, 20, 300), measured(1, 10, 100)
	delete(theirs.Rounds[0], result.Throughput)
	s, ok := result.Ratio(ours, theirs, result.Throughput)
	require.True(t, ok)
	require.Equal(t, result.Spread{Median: 2.5, Min: 2, Max: 3}, s)
}

func TestLookups(t *testing.T) {
	const delay = time.Millisecond
	s := result.Scenario{Name: "hot", Cells: []result.Cell{
		{Contender: "a", Point: "1"}, {Contender: "a", Point: "1", Delay: delay, X: 7}, {Contender: "b", Point: "1"},
	}}
	cell, ok := s.Of("a", "1", delay)
	require.True(t, ok)
	require.Equal(t, s.Cells[1], cell)
	for _, missing := range []result.Cell{{Contender: "c", Point: "1"}, {Contender: "a", Point: "2"}, {Contender: "b", Point: "1", Delay: delay}} {
		_, ok = s.Of(missing.Contender, missing.Point, missing.Delay)
		require.False(t, ok, "%v", missing)
	}

	r := result.Report{Scenarios: []result.Scenario{{Name: "keys"}, s}}
	found, ok := r.Scenario("hot")
	require.True(t, ok)
	require.Equal(t, s, found)
	_, ok = r.Scenario("cold")
	require.False(t, ok)
}

// Tables and axes tell metrics by title and unit: none may be without, and no two may be alike.
func TestMetricsCanBeToldFromEachOther(t *testing.T) {
	names, titles := map[string]bool{}, map[string]bool{}
	for _, m := range result.Metrics {
		require.NotEmpty(t, m.Name)
		require.NotEmpty(t, m.Title, m.Name)
		require.Contains(t, []string{"us", "B", "/s", ""}, m.Unit, "%s: no table knows how to tell it", m.Name)
		require.False(t, names[m.Name], "there are two of the name %q", m.Name)
		require.False(t, titles[m.Title], "there are two of the title %q", m.Title)
		names[m.Name], titles[m.Title] = true, true

		found, ok := result.MetricOf(m.Name)
		require.True(t, ok)
		require.Equal(t, m, found)
	}
	_, ok := result.MetricOf("speed")
	require.False(t, ok)
}

func ExampleRatio() {
	rounds := func(throughput ...float64) (c result.Cell) {
		for _, v := range throughput {
			c.Rounds = append(c.Rounds, result.Round{result.Throughput: v})
		}
		return c
	}
	// Something else kept the machine busy in the second round, and slowed down both.
	ours, theirs := rounds(900_000, 300_000, 1_000_000), rounds(300, 100, 250)
	s, _ := result.Ratio(ours, theirs, result.Throughput)
	fmt.Printf("%.0f times as fast (%.0f to %.0f)\n", s.Median, s.Min, s.Max)
	// Output: 3000 times as fast (3000 to 4000)
}
