//go:build unix

package main

import (
	"os"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/go-leasehold/leasehold/examples/internal/programtest"
)

func TestMain(m *testing.M) { programtest.Main(m, main) }

var exact = regexp.MustCompile(`(?m)^counter +([\d,]+) exact +([\d,]+) exact$`)

func TestQuickstartIsExactOnRedisServer(t *testing.T) {
	out, progress, code := programtest.Run(t, os.Environ(), "-duration", "700ms", "-processes", "3", "-goroutines", "20", "-keys", "10")
	require.Zero(t, code, progress)
	require.Contains(t, progress, "redis-server")
	requireTable(t, out, 3)
	require.NotContains(t, out, "not known")
}

func TestQuickstartIsExactOnMiniredis(t *testing.T) {
	environment := append(os.Environ(), "PATH="+t.TempDir())
	out, progress, code := programtest.Run(t, environment, "-duration", "700ms", "-processes", "2", "-goroutines", "10", "-keys", "5")
	require.Zero(t, code, progress)
	require.Contains(t, progress, "miniredis")
	requireTable(t, out, 2)
}

func TestQuickstartSaysWhenThereIsNoRedis(t *testing.T) {
	_, progress, code := programtest.Run(t, os.Environ(), "-redis", "127.0.0.1:1")
	require.Equal(t, 1, code)
	require.Contains(t, progress, "connect to 127.0.0.1:1")
}

func TestQuickstartRefusesBadFlags(t *testing.T) {
	_, progress, code := programtest.Run(t, os.Environ(), "-keys", "0")
	require.Equal(t, 2, code)
	require.Contains(t, progress, "-keys must be")
}

// The locks so far are counted.
func TestCtrlCEndsItCleanly(t *testing.T) {
	out, progress := programtest.Interrupt(t, "round 1", "-duration", "1h", "-processes", "2", "-goroutines", "10")
	require.Contains(t, progress, "interrupted")
	require.Contains(t, out, " exact")
}

func requireTable(t *testing.T, out string, processes int) {
	t.Helper()
	counters := exact.FindStringSubmatch(out)
	require.Len(t, counters, 3, out)
	require.NotContains(t, counters[1:], "0")
	require.Equal(t, processes, strings.Count(out, "share of process"), out)
	for _, row := range []string{"locks per second", "Redis commands per lock", "wait p50", "wait p99"} {
		require.Contains(t, out, row)
	}
}
