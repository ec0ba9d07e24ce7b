package claim_test

import (
	"runtime"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/go-leasehold/leasehold/bench/claim"
	"github.com/go-leasehold/leasehold/bench/contender"
	"github.com/go-leasehold/leasehold/bench/harness"
	"github.com/go-leasehold/leasehold/bench/result"
	"github.com/go-leasehold/leasehold/bench/scenario"
)

// asRunBy is the report of a run by a plan in which everything measures as one.
func asRunBy(plan harness.Plan) (r result.Report) {
	r.Machine.Cores = runtime.NumCPU()
	for _, c := range contender.All() {
		r.Contenders = append(r.Contenders, result.Contender{Name: c.Name, Kind: string(c.Kind), Variant: c.Variant})
	}
	one := result.Round{}
	for _, m := range result.Metrics {
		one[m.Name] = 1
	}
	for _, s := range scenario.All() {
		measured := result.Scenario{Name: s.Name, Headline: s.Headline, Main: s.Main}
		for _, point := range s.Points(plan.Full) {
			for _, delay := range plan.Delays {
				if delay > 0 && (s.Delayed == nil || !s.Delayed(point)) || plan.Only != nil && !plan.Only(s.Name, point) {
					continue
				}
				for _, c := range contender.All() {
					if s.Enters(c, point) {
						measured.Cells = append(measured.Cells, result.Cell{
							Contender: c.Name, Point: point.Label, X: point.X, Delay: delay, Rounds: []result.Round{one},
						})
					}
				}
			}
		}
		r.Scenarios = append(r.Scenarios, measured)
	}
	return r
}

// A scenario, a point or a contender that has got another name must not leave a claim behind that is never measured again.
func TestAFullRunMeasuresAllClaims(t *testing.T) {
	for _, v := range claim.Judge(asRunBy(harness.Full)) {
		require.True(t, v.Known, v.Name)
	}
}

// A quick run measures all that is claimed without a delay.
func TestAQuickRunMeasuresAllClaimsWithoutADelay(t *testing.T) {
	with := harness.Quick
	with.Delays = harness.Full.Delays
	for _, v := range claim.Judge(asRunBy(with)) {
		require.True(t, v.Known, v.Name)
	}
}

func TestACheckMeasuresWhatItLooksAt(t *testing.T) {
	for _, v := range claim.Judge(asRunBy(harness.Check)) {
		require.True(t, v.Known || v.Floor == 0, v.Name)
	}
}

// The points to look at first are points of a full run and of a quick one.
func TestMainPointsAreMeasured(t *testing.T) {
	for _, full := range []bool{false, true} {
		for _, s := range scenario.All() {
			var labels []string
			for _, p := range s.Points(full) {
				labels = append(labels, p.Label)
			}
			if s.Main != "" {
				require.Contains(t, labels, s.Main, s.Name)
			}
			_, ok := result.MetricOf(s.Headline)
			require.True(t, ok, "%s: no table knows its headline %q", s.Name, s.Headline)
		}
	}
}
