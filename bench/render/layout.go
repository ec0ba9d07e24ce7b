package render

import (
	"slices"
	"time"

	"github.com/go-leasehold/leasehold/bench/result"
)

// The order of things in tables and plots.

// delays returns the network delays that a scenario was measured with.
func delays(s result.Scenario) []time.Duration {
	var all []time.Duration
	for _, c := range s.Cells {
		all = append(all, c.Delay)
	}
	slices.Sort(all)
	return slices.Compact(all)
}

// points returns the points with a delay, as they were measured.
func points(s result.Scenario, delay time.Duration) []string {
	var all []string
	for _, c := range s.Cells {
		if c.Delay == delay && !slices.Contains(all, c.Point) {
			all = append(all, c.Point)
		}
	}
	return all
}

// contenders returns who took part with a delay, as they were measured.
func contenders(s result.Scenario, delay time.Duration) []string {
	var all []string
	for _, c := range s.Cells {
		if c.Delay == delay && !slices.Contains(all, c.Contender) {
			all = append(all, c.Contender)
		}
	}
	return all
}

// mainPoint is the point to look at first.
func mainPoint(s result.Scenario, delay time.Duration) string {
	all := points(s, delay)
	if slices.Contains(all, s.Main) {
		return s.Main
	}
	return all[len(all)-1]
}

// metrics returns what was measured at a point, in the order of tables.
func metrics(s result.Scenario, point string, delay time.Duration) []result.Metric {
	var all []result.Metric
	for _, m := range result.Metrics {
		for _, c := range s.Cells {
			if _, ok := c.Spread(m.Name); ok && c.Point == point && c.Delay == delay {
				all = append(all, m)
				break
			}
		}
	}
	return all
}

// title is that of a metric, with its unit where it is not told with each number.
func title(name string) string {
	if m, ok := result.MetricOf(name); ok {
		return m.Title
	}
	return name
}

// added tells a delay: "1 ms of delay".
func added(delay time.Duration) string {
	if delay == 0 {
		return "loopback"
	}
	return delay.String() + " added to each round trip"
}
