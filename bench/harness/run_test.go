package harness

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/go-leasehold/leasehold/bench/contender"
	"github.com/go-leasehold/leasehold/bench/result"
)

func noProgress(string, Point, time.Duration, string, int, int) {}

func testScenario(processes int, round func(context.Context, *Cast) (result.Round, error)) Scenario {
	return Scenario{
		Name:      "made-up",
		Points:    func(bool) []Point { return []Point{{Label: "1", X: 1}} },
		Enters:    func(contender.Info, Point) bool { return true },
		Processes: func(Point) int { return processes },
		Round:     round,
	}
}

func pidsOf(t *testing.T, c *Cast) []int {
	var pids []int
	for _, child := range c.Children {
		var pid int
		require.NoError(t, child.Call(t.Context(), "Probe.Pid", Nothing{}, &pid))
		pids = append(pids, pid)
	}
	return pids
}

// state is the letter that Linux gives the state of a process, "" for one that is gone.
func state(pid int) string {
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return ""
	}
	_, rest, _ := strings.Cut(string(stat), ") ")
	return rest[:1]
}

// Rounds go over all contenders before the next one begins; processes stay for all rounds, rest while it is the turn of
// others, and are gone when all is done.
func TestRoundsAreInterleaved(t *testing.T) {
	const rounds = 3
	stage := testStage(t, rounds)
	var calls []string
	processes := map[string][]int{}
	scenario := testScenario(2, func(_ context.Context, c *Cast) (result.Round, error) {
		calls = append(calls, c.Contender.Name)
		pids := pidsOf(t, c)
		if before, ok := processes[c.Contender.Name]; ok {
			require.Equal(t, before, pids)
		}
		processes[c.Contender.Name] = pids
		for name, others := range processes {
			for _, pid := range others {
				if _, err := os.Stat("/proc/self/stat"); err == nil && name != c.Contender.Name {
					require.Equal(t, "T", state(pid), "a process of %s in the turn of %s", name, c.Contender.Name)
				}
			}
		}
		return result.Round{result.Operations: 1}, nil
	})
	contenders := []contender.Info{find(t, "test/mutex"), find(t, "test/nobody"), find(t, "test/good")}
	out, err := stage.Run(t.Context(), scenario, contenders, noProgress)
	require.NoError(t, err)
	require.Len(t, calls, rounds*len(contenders))
	for i := range rounds {
		var names []string
		for _, info := range contenders {
			names = append(names, info.Name)
		}
		require.ElementsMatch(t, names, calls[i*len(contenders):(i+1)*len(contenders)])
	}
	for _, cell := range out.Cells {
		require.Empty(t, cell.Failure)
		require.Len(t, cell.Rounds, rounds)
	}
	for _, pids := range processes {
		for _, pid := range pids {
			require.Empty(t, state(pid))
		}
	}
}

// What fails is told, ends only itself, and leaves no process behind that could be in the way of others.
func TestAFailureHindersNobodyElse(t *testing.T) {
	stage := testStage(t, 2)
	var failed []int
	scenario := testScenario(1, func(ctx context.Context, c *Cast) (result.Round, error) {
		if c.Contender.Name == "test/nobody" {
			failed = pidsOf(t, c)
			return nil, errors.New("no luck")
		}
		for _, pid := range failed {
			require.Empty(t, state(pid))
		}
		return c.Load(ctx, LoadArgs{Action: Lock, Goroutines: 1})
	})
	contenders := []contender.Info{find(t, "test/closed"), find(t, "test/nobody"), find(t, "test/mutex")}
	out, err := stage.Run(t.Context(), scenario, contenders, noProgress)
	require.NoError(t, err)
	require.Contains(t, out.Cells[0].Failure, "it does not open today")
	require.Equal(t, "round 1: no luck", out.Cells[1].Failure)
	require.Empty(t, out.Cells[2].Failure)
	require.Len(t, out.Cells[2].Rounds, 2)
}

// A number that JSON can't write would lose the report of all.
func TestANumberThatIsNoneIsAFailure(t *testing.T) {
	stage := testStage(t, 1)
	zero := 0.0
	out, err := stage.Run(t.Context(), testScenario(1, func(context.Context, *Cast) (result.Round, error) {
		return result.Round{result.Throughput: zero / zero}, nil
	}), []contender.Info{find(t, "test/mutex")}, noProgress)
	require.NoError(t, err)
	require.Contains(t, out.Cells[0].Failure, "throughput is NaN")
}

func TestTheEndOfTheContextEndsARun(t *testing.T) {
	stage := testStage(t, 1000)
	ctx, cancel := context.WithCancel(t.Context())
	var pids []int
	out, err := stage.Run(ctx, testScenario(1, func(ctx context.Context, c *Cast) (result.Round, error) {
		if len(pids) > 0 {
			cancel()
		} else {
			pids = pidsOf(t, c)
		}
		return c.Load(ctx, LoadArgs{Action: Lock, Goroutines: 1})
	}), []contender.Info{find(t, "test/mutex")}, noProgress)
	require.ErrorIs(t, err, context.Canceled)
	require.Len(t, out.Cells, 1)
	require.Empty(t, out.Cells[0].Failure, "it is no fault of the contender's")
	require.Len(t, out.Cells[0].Rounds, 1, "what was measured until then is kept")
	require.Empty(t, state(pids[0]))
}

func TestOnlyTellsWhatIsMeasured(t *testing.T) {
	stage := testStage(t, 1)
	stage.Plan.Delays = []time.Duration{0, time.Millisecond}
	stage.Plan.Only = func(scenario string, p Point) bool { return scenario == "made-up" && p.Label == "b" }
	s := testScenario(1, func(context.Context, *Cast) (result.Round, error) { return result.Round{}, nil })
	s.Points = func(bool) []Point { return []Point{{Label: "a"}, {Label: "b"}, {Label: "c"}} }
	out, err := stage.Run(t.Context(), s, []contender.Info{find(t, "test/mutex")}, noProgress)
	require.NoError(t, err)
	require.Len(t, out.Cells, 1, "no delay where a scenario is not Delayed")
	require.Equal(t, "b", out.Cells[0].Point)
}

// A round in which nobody got anything is told as such.
func TestARoundOfNoOperations(t *testing.T) {
	stage := testStage(t, 1)
	out, err := stage.Run(t.Context(), testScenario(2, func(ctx context.Context, c *Cast) (result.Round, error) {
		return c.Load(ctx, LoadArgs{Action: Lock, Goroutines: 2})
	}), []contender.Info{find(t, "test/idle")}, noProgress)
	require.NoError(t, err)
	require.Empty(t, out.Cells[0].Failure)
	round := out.Cells[0].Rounds[0]
	require.Zero(t, round[result.Operations])
	require.GreaterOrEqual(t, round[result.WaitP50], 40e3, "they have waited for all of the round")
	_, err = json.Marshal(out)
	require.NoError(t, err)
}
