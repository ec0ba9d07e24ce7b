//go:build unix

package main

import (
	"context"
	"os"
	"os/exec"
	"regexp"
	"strings"
	"testing"

	"github.com/redis/rueidis"
	"github.com/stretchr/testify/require"

	"github.com/go-leasehold/leasehold/examples/internal/devredis"
	"github.com/go-leasehold/leasehold/examples/internal/programtest"
)

func TestMain(m *testing.M) { programtest.Main(m, main) }

// brief is what all runs here have in common: enough units and time for a kill in the middle of the sale.
var brief = []string{"-duration", "1s", "-clients", "16", "-stock", "200", "-users", "300", "-segments", "4", "-hold", "300ms"}

func TestProofHoldsOnRedisServer(t *testing.T) {
	out, progress, code := programtest.Run(t, os.Environ(), brief...)
	require.Zero(t, code, "%s%s", progress, out)
	require.Contains(t, progress, "redis-server")
	requireProof(t, out)
	require.Contains(t, progress, "kill -9 of server")
	require.Contains(t, progress, "is back")
	require.NotContains(t, out, "not known")
}

func TestProofHoldsOnMiniredis(t *testing.T) {
	environment := append(os.Environ(), "PATH="+t.TempDir())
	out, progress, code := programtest.Run(t, environment, append(brief, "-processes", "2")...)
	require.Zero(t, code, "%s%s", progress, out)
	require.Contains(t, progress, "miniredis")
	requireProof(t, out)
	require.Contains(t, progress, "kill -9 of server")
}

// All that there is of something, and of everything the least: one server, which is killed, one buyer, one user, one unit.
func TestOneOfEverythingWill(t *testing.T) {
	out, progress, code := programtest.Run(t, os.Environ(), "-duration", "300ms", "-hold", "100ms",
		"-processes", "1", "-clients", "1", "-users", "1", "-stock", "1", "-segments", "1", "-limit", "0")
	require.Zero(t, code, "%s%s", progress, out)
	requireOK(t, out)
}

// Where only one call may wait at a segment, buyers are put off, and come back.
func TestBuyersArePutOff(t *testing.T) {
	out, progress, code := programtest.Run(t, os.Environ(), append(brief, "-processes", "1", "-segments", "1",
		"-waiting", "1", "-clients", "48", "-skew", "1.5", "-limit", "2", "-kill=false")...)
	require.Zero(t, code, "%s%s", progress, out)
	requireProof(t, out)
	require.NotContains(t, progress, "kill -9")
	require.NotEqual(t, "0", cell(t, out, "tries put off"))
	require.NotEqual(t, "0", cell(t, out, "  over the limit"))
}

// A server that is somebody else's is left as it was, but for the library's counters of tokens, which expire.
func TestNothingStaysBehind(t *testing.T) {
	server, err := devredis.Start(t.Context(), t.Logf)
	require.NoError(t, err)
	defer func() { require.NoError(t, server.Close()) }()
	out, progress, code := programtest.Run(t, os.Environ(), append(brief, "-redis", server.Addr())...)
	require.Zero(t, code, "%s%s", progress, out)
	redis, err := rueidis.NewClient(rueidis.ClientOption{InitAddress: []string{server.Addr()}, DisableCache: true})
	require.NoError(t, err)
	defer redis.Close()
	ctx := context.Background()
	keys, err := redis.Do(ctx, redis.B().Keys().Pattern("*").Build()).AsStrSlice()
	require.NoError(t, err)
	for _, name := range keys {
		left, err := redis.Do(ctx, redis.B().Pttl().Key(name).Build()).AsInt64()
		require.NoError(t, err)
		require.NotEqual(t, int64(-1), left, "%s has no end", name)
		require.NotContains(t, name, "~stock", "of the stock")
	}
}

func TestSeckillSaysWhenThereIsNoRedis(t *testing.T) {
	_, progress, code := programtest.Run(t, os.Environ(), "-redis", "127.0.0.1:1")
	require.Equal(t, 1, code)
	require.Contains(t, progress, "connect to 127.0.0.1:1")
}

func TestSeckillRefusesBadFlags(t *testing.T) {
	_, progress, code := programtest.Run(t, os.Environ(), "-segments", "0")
	require.Equal(t, 2, code)
	require.Contains(t, progress, "-segments must be")
}

// What was done until then is counted, and proved.
func TestCtrlCEndsItCleanly(t *testing.T) {
	out, progress := programtest.Interrupt(t, "kill -9", append(brief, "-duration", "1h", "-processes", "2")...)
	require.Contains(t, progress, "interrupted")
	requireProof(t, out)
}

func TestTeamTellsWhatAServerSaid(t *testing.T) {
	t.Setenv(programtest.Variable, "1")
	_, err := startTeam(t.Context(), 1, setup{Redis: "127.0.0.1:1"})
	require.ErrorContains(t, err, "connect")
}

func TestWorkerRefusesNonsense(t *testing.T) {
	binary, err := os.Executable()
	require.NoError(t, err)
	cmd := exec.Command(binary)
	cmd.Env = append(os.Environ(), programtest.Variable+"=1", workerVariable+"=nonsense")
	out, err := cmd.Output()
	require.Error(t, err)
	require.Contains(t, string(out), `"Error":"invalid character`)
}

// requireProof wants a proof of a sale at which something was sold.
func requireProof(t *testing.T, out string) {
	t.Helper()
	requireOK(t, out)
	for _, name := range []string{"orders", "orders per second", "  accepted", "paid", "Redis commands per order", "accepted p50", "accepted p99"} {
		require.NotEqual(t, "0", cell(t, out, name), "%s in\n%s", name, out)
	}
}

func requireOK(t *testing.T, out string) {
	t.Helper()
	require.Equal(t, 7, strings.Count(out, " ok\n"), out)
	require.NotContains(t, out, "FAILED")
}

// cell returns what a row of the table says.
func cell(t *testing.T, out, name string) string {
	t.Helper()
	found := regexp.MustCompile(`(?m)^` + name + ` {2,}(.+)$`).FindStringSubmatch(out)
	require.Len(t, found, 2, "%s in\n%s", name, out)
	return strings.TrimSpace(found[1])
}
