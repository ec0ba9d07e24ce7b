package scenario_test

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/go-leasehold/leasehold/bench/contender"
	"github.com/go-leasehold/leasehold/bench/harness"
	"github.com/go-leasehold/leasehold/bench/result"
	"github.com/go-leasehold/leasehold/bench/scenario"
)

// measured runs one round of a scenario for some contenders, with their own server, and requires that all of them were
// measured, that nobody met another holder, and that no process is left. Points are those of the quick plan if there are none.
func measured(t *testing.T, name string, points []harness.Point, names ...string) map[string]result.Round {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	server, err := harness.StartServer()
	require.NoError(t, err)
	stage, err := harness.NewStage(server, harness.Plan{
		Rounds: 1, Warm: 5 * time.Millisecond, For: 20 * time.Millisecond, TTL: 10 * time.Second, Delays: []time.Duration{0},
	})
	require.NoError(t, err)
	closed := false
	defer func() {
		if !closed {
			_ = stage.Close() // the test has failed by then
		}
	}()
	chosen, err := scenario.Choose([]string{name})
	require.NoError(t, err)
	require.Len(t, chosen, 1)
	if points != nil {
		chosen[0].Points = func(bool) []harness.Point { return points }
	}
	var contenders []contender.Info
	for _, name := range names {
		info, err := contender.Find(name)
		require.NoError(t, err)
		contenders = append(contenders, info)
	}
	out, err := stage.Run(ctx, chosen[0], contenders, func(string, harness.Point, time.Duration, string, int, int) {})
	require.NoError(t, err)
	closed = true
	require.NoError(t, stage.Close())
	require.Empty(t, children(t), "processes are left")

	rounds := map[string]result.Round{}
	for _, cell := range out.Cells {
		require.Empty(t, cell.Failure, cell.Contender)
		require.Len(t, cell.Rounds, 1, cell.Contender)
		rounds[cell.Contender] = cell.Rounds[0]
		require.Zero(t, cell.Rounds[0][result.Violations], cell.Contender)
		require.Contains(t, cell.Rounds[0], out.Headline, cell.Contender)
		for metric := range cell.Rounds[0] {
			_, known := result.MetricOf(metric)
			require.True(t, known, "%s: no table has %q", cell.Contender, metric)
		}
	}
	require.Len(t, rounds, len(names), "%v", rounds)
	return rounds
}

// children are the processes that this one has started and that have not been waited for, but for the one that tells.
func children(t *testing.T) []string {
	t.Helper()
	if _, err := exec.LookPath("pgrep"); err != nil {
		return nil // nobody tells
	}
	out, _ := exec.Command("pgrep", "-P", fmt.Sprint(os.Getpid()), "-x", "redis-server|scenario.test").Output() // it fails where there are none
	return strings.Fields(string(out))
}

// ordered requires that latencies are above zero, and the greater ones are not the smaller ones.
func ordered(t *testing.T, name string, r result.Round) {
	t.Helper()
	require.Positive(t, r[result.Latency], name)
	require.GreaterOrEqual(t, r[result.LatencyP99], r[result.Latency], name)
	require.GreaterOrEqual(t, r[result.LatencyMax], r[result.LatencyP99], name)
}
