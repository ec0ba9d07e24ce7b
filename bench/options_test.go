package main

import (
	"bytes"
	"flag"
	"io"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/go-leasehold/leasehold/bench/contender"
	"github.com/go-leasehold/leasehold/bench/harness"
	"github.com/go-leasehold/leasehold/bench/scenario"
)

// A bad value is refused in words that name it, and what is allowed.
func TestBadFlagsAreToldWithValueAndLimit(t *testing.T) {
	for _, c := range []struct {
		args []string
		want []string
	}{
		{[]string{"hot"}, []string{`"hot" is no flag`, "-scenario"}},
		{[]string{"-scenario", "cold"}, []string{`scenario "cold" is not known`, "hot", "telemetry"}},
		{[]string{"-scenario", "hot,cold"}, []string{`"cold"`}},
		{[]string{"-contender", "nobody"}, []string{`contender "nobody" is not known`, "leasehold", "rueidislock"}},
		{[]string{"-rtt", "x"}, []string{`"x" is no number of milliseconds`, "from 0 to 10000"}},
		{[]string{"-rtt", "0,-1"}, []string{"-rtt 0,-1", `"-1"`, "from 0 to 10000"}},
		{[]string{"-rtt", "NaN"}, []string{`"NaN"`, "from 0 to 10000"}},
		{[]string{"-rtt", "Inf"}, []string{`"Inf"`, "from 0 to 10000"}},
		{[]string{"-rtt", "1e300"}, []string{`"1e300"`, "from 0 to 10000"}},
		{[]string{"-rtt", "10001"}, []string{`"10001"`, "from 0 to 10000"}},
		{[]string{"-rtt", ","}, []string{"-rtt", "from 0 to 10000"}},
		{[]string{"-rounds", "0"}, []string{"-rounds 0", "from 1 to 1000"}},
		{[]string{"-rounds", "-1"}, []string{"-rounds -1", "from 1 to 1000"}},
		{[]string{"-rounds", "1001"}, []string{"-rounds 1001", "from 1 to 1000"}},
		{[]string{"-rounds", "x"}, []string{`"x"`, "-rounds"}},
		{[]string{"-for", "0s"}, []string{"-for 0s", "from 10ms to 1m0s"}},
		{[]string{"-for", "9ms"}, []string{"-for 9ms", "from 10ms to 1m0s"}},
		{[]string{"-for", "61s"}, []string{"-for 1m1s", "from 10ms to 1m0s"}},
		{[]string{"-for", "-1s"}, []string{"-for -1s", "from 10ms to 1m0s"}},
		{[]string{"-redis", "localhost"}, []string{"-redis", `"localhost"`, "host:port"}},
		{[]string{"-redis", "localhost:"}, []string{"-redis", `"localhost:"`, "host:port"}},
		{[]string{"-full", "-check"}, []string{"-full", "-check", "choose one"}},
		{[]string{"-unknown"}, []string{"-unknown"}},
	} {
		t.Run(c.args[0]+" "+c.args[len(c.args)-1], func(t *testing.T) {
			_, err := parse(c.args, io.Discard)
			require.Error(t, err)
			for _, part := range c.want {
				require.ErrorContains(t, err, part)
			}
		})
	}
}

func TestFlagsAreTakenAsTheyAre(t *testing.T) {
	o, err := parse([]string{
		"-scenario", "stock,hot", "-contender", "rueidislock,leasehold", "-rtt", "5,0,0.2,5", "-rounds", "1000", "-for", "10ms",
		"-redis", "[::1]:6379", "-out", "somewhere", "-list",
	}, io.Discard)
	require.NoError(t, err)
	require.Equal(t, []string{"hot", "stock"}, []string{o.scenarios[0].Name, o.scenarios[1].Name}, "in the order of reports")
	require.Len(t, o.contenders, 2)
	require.Equal(t, []string{"leasehold", "rueidislock"}, []string{o.contenders[0].Name, o.contenders[1].Name})
	require.Equal(t, []time.Duration{0, 200 * time.Microsecond, 5 * time.Millisecond}, o.plan.Delays)
	require.Equal(t, 1000, o.plan.Rounds)
	require.Equal(t, 10*time.Millisecond, o.plan.For)
	require.Equal(t, "[::1]:6379", o.redis)
	require.Equal(t, "somewhere", o.out)
	require.True(t, o.list)
}

func TestEachRunHasItsPlanAndItsDirectory(t *testing.T) {
	for _, c := range []struct {
		args []string
		plan harness.Plan
		out  string
	}{
		{nil, harness.Quick, filepath.Join("report", "quick")},
		{[]string{"-full"}, harness.Full, filepath.Join("report", "full")},
		{[]string{"-check"}, harness.Check, ""},
		{[]string{"-out", "-"}, harness.Quick, ""},
		{[]string{"-check", "-out", "x"}, harness.Check, "x"},
	} {
		o, err := parse(c.args, io.Discard)
		require.NoError(t, err)
		o.plan.Only = nil
		require.Equal(t, c.plan, o.plan, "%v", c.args)
		require.Equal(t, c.out, o.out, "%v", c.args)
		if !slices.Contains(c.args, "-check") {
			require.Len(t, o.scenarios, len(scenario.All()))
			require.Len(t, o.contenders, len(contender.All()))
		}
	}
}

func TestHelpNamesEveryFlag(t *testing.T) {
	var text bytes.Buffer
	_, err := parse([]string{"-help"}, &text)
	require.ErrorIs(t, err, flag.ErrHelp)
	for _, name := range []string{"scenario", "contender", "redis", "rtt", "full", "rounds", "for", "out", "list", "check"} {
		require.Contains(t, text.String(), "  -"+name)
	}
}
