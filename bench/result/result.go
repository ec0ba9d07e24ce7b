// Package result is what a run measured, as it is written to the JSON report and read again, and the arithmetic on it:
// medians, spreads, and ratios of what was measured in the same round.
package result

import (
	"slices"
	"time"
)

// Report is one run.
type Report struct {
	Started    time.Time     `json:"started"`
	Took       time.Duration `json:"took_ns"`
	Command    string        `json:"command"`    // as it was typed, without paths of the machine
	Size       string        `json:"size"`       // quick or full
	Rounds     int           `json:"rounds"`     // of each cell
	RoundFor   time.Duration `json:"round_ns"`   // how long one is measured, where it goes by time
	Machine    Machine       `json:"machine"`    // what it ran on
	Contenders []Contender   `json:"contenders"` // in the order of tables
	Scenarios  []Scenario    `json:"scenarios"`
}

// Machine is what a run ran on.
type Machine struct {
	CPU     string  `json:"cpu"`
	Cores   int     `json:"cores"`
	MemoryG float64 `json:"memory_gib"`
	Kernel  string  `json:"kernel"`
	Go      string  `json:"go"`
	Redis   string  `json:"redis"`
	Load    float64 `json:"load"` // the load average of the last minute when the run began
}

// Contender is who took part.
type Contender struct {
	Name     string   `json:"name"`
	Kind     string   `json:"kind"`    // ours, peer, limit
	Variant  string   `json:"variant"` // of which other one it is a variant
	About    string   `json:"about"`
	Version  string   `json:"version"` // of its module
	Settings []string `json:"settings"`
}

// Scenario is what was measured of one question.
type Scenario struct {
	Name     string `json:"name"`
	Title    string `json:"title"`
	Question string `json:"question"` // what it answers
	Method   string `json:"method"`   // how it is measured, in a sentence or two
	Axis     string `json:"axis"`     // what the points are: "goroutines"
	Headline string `json:"headline"` // the metric to look at first
	Main     string `json:"main"`     // the point to look at first; empty: the last one
	Cells    []Cell `json:"cells"`
}

// Cell is one contender at one point of a scenario, with one network delay.
type Cell struct {
	Contender string        `json:"contender"`
	Point     string        `json:"point"`             // "64"
	X         float64       `json:"x"`                 // the point on an axis
	Delay     time.Duration `json:"delay_ns"`          // added to each round trip
	Rounds    []Round       `json:"rounds"`            // in order: round i of one contender was measured right beside round i of the others
	Failure   string        `json:"failure,omitempty"` // why there is nothing, or less than there should be
	Error     string        `json:"error,omitempty"`   // what the first of the calls said that failed in rounds that are told
}

// Round is what one round measured, by metric.
type Round map[string]float64

// Of returns the cell of a contender at a point with a delay.
func (s Scenario) Of(contender, point string, delay time.Duration) (Cell, bool) {
	i := slices.IndexFunc(s.Cells, func(c Cell) bool {
		return c.Contender == contender && c.Point == point && c.Delay == delay
	})
	if i < 0 {
		return Cell{}, false
	}
	return s.Cells[i], true
}

// Scenario returns the scenario of a name.
func (r Report) Scenario(name string) (Scenario, bool) {
	i := slices.IndexFunc(r.Scenarios, func(s Scenario) bool { return s.Name == name })
	if i < 0 {
		return Scenario{}, false
	}
	return r.Scenarios[i], true
}

// Values returns what the rounds measured of a metric, in their order; rounds without it are left out.
func (c Cell) Values(metric string) []float64 {
	var values []float64
	for _, round := range c.Rounds {
		if v, ok := round[metric]; ok {
			values = append(values, v)
		}
	}
	return values
}

// Spread is a metric over the rounds.
type Spread struct{ Median, Min, Max float64 }

// Spread returns the median, the least and the most of a metric; false where no round has it.
func (c Cell) Spread(metric string) (Spread, bool) { return spread(c.Values(metric)) }

// Ratio returns a metric of one cell over another's, round by round, so that what disturbs the machine for a while disturbs both.
func Ratio(ours, theirs Cell, metric string) (Spread, bool) {
	var ratios []float64
	for i := range min(len(ours.Rounds), len(theirs.Rounds)) {
		a, hasA := ours.Rounds[i][metric]
		b, hasB := theirs.Rounds[i][metric]
		if hasA && hasB && b != 0 {
			ratios = append(ratios, a/b)
		}
	}
	return spread(ratios)
}

func spread(values []float64) (Spread, bool) {
	if len(values) == 0 {
		return Spread{}, false
	}
	values = slices.Sorted(slices.Values(values))
	n := len(values)
	return Spread{Median: (values[(n-1)/2] + values[n/2]) / 2, Min: values[0], Max: values[n-1]}, true
}
