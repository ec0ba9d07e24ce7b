//go:build unix

package main

import (
	"os"
	"regexp"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/go-leasehold/leasehold/examples/internal/programtest"
)

func TestMain(m *testing.M) { programtest.Main(m, main) }

// brief is what all runs here have in common: enough writes and expiries for a second.
var brief = []string{"-duration", "1s", "-clients", "16", "-keys", "10", "-writes", "20", "-expiry", "300ms", "-delay", "5ms"}

func TestOneRebuildAndNoStaleReadOnRedisServer(t *testing.T) {
	out, progress, code := programtest.Run(t, os.Environ(), append(brief, "-processes", "3")...)
	require.Zero(t, code, progress)
	require.Contains(t, progress, "redis-server")
	requireTable(t, out)
	require.NotContains(t, out, "not known")
	require.NotContains(t, cells(t, out, "writes"), "0")
	require.Equal(t, "0.0 %", cells(t, out, "reads out of memory")[0])
	require.NotEqual(t, "0.0 %", cells(t, out, "reads out of memory")[1])
}

func TestOneRebuildAndNoStaleReadOnMiniredis(t *testing.T) {
	environment := append(os.Environ(), "PATH="+t.TempDir())
	out, progress, code := programtest.Run(t, environment, append(brief, "-processes", "2")...)
	require.Zero(t, code, progress)
	require.Contains(t, progress, "miniredis")
	requireTable(t, out)
}

func TestOneProductAndOneClientWill(t *testing.T) {
	out, progress, code := programtest.Run(t, os.Environ(),
		"-duration", "300ms", "-keys", "1", "-clients", "1", "-processes", "1", "-writes", "0", "-delay", "0s")
	require.Zero(t, code, progress)
	requireTable(t, out)
}

func TestCachedreadSaysWhenThereIsNoRedis(t *testing.T) {
	_, progress, code := programtest.Run(t, os.Environ(), "-redis", "127.0.0.1:1")
	require.Equal(t, 1, code)
	require.Contains(t, progress, "connect to 127.0.0.1:1")
}

func TestCachedreadRefusesBadFlags(t *testing.T) {
	_, progress, code := programtest.Run(t, os.Environ(), "-keys", "0")
	require.Equal(t, 2, code)
	require.Contains(t, progress, "-keys must be")
}

// What was done until then is counted.
func TestCtrlCEndsItCleanly(t *testing.T) {
	out, progress := programtest.Interrupt(t, "round 1", append(brief, "-duration", "1h", "-processes", "2")...)
	require.Contains(t, progress, "interrupted")
	require.Contains(t, out, "stale reads")
}

func TestTeamTellsWhatAServerSaid(t *testing.T) {
	t.Setenv(programtest.Variable, "1")
	_, err := startTeam(t.Context(), settings{processes: 1}, "127.0.0.1:1")
	require.ErrorContains(t, err, "connect to 127.0.0.1:1")
}

// requireTable wants a table of both rounds in which something happened, and the second was right.
func requireTable(t *testing.T, out string) {
	t.Helper()
	require.Equal(t, "0", cells(t, out, "stale reads")[1])
	require.Equal(t, "0", cells(t, out, "too many")[1])
	require.Equal(t, "1.00", cells(t, out, "rebuilds per expiry")[1])
	for _, name := range []string{"reads", "reads per second", "rebuilds", "Redis commands per read", "read p50", "read p99"} {
		require.NotContains(t, cells(t, out, name), "0", "%s in\n%s", name, out)
	}
}

// cells returns what a row of the table says of the two rounds.
func cells(t *testing.T, out, name string) []string {
	t.Helper()
	found := regexp.MustCompile(`(?m)^ *` + name + ` {2,}(.+?) {2,}(.+)$`).FindStringSubmatch(out)
	require.Len(t, found, 3, "%s in\n%s", name, out)
	return found[1:]
}
