//go:build unix

package main

import (
	"context"
	"io"
	"net/http"
	"os"
	"os/exec"
	"regexp"
	"strings"
	"testing"

	"github.com/redis/rueidis"
	"github.com/stretchr/testify/require"

	"github.com/go-leasehold/leasehold/examples/internal/devredis"
	"github.com/go-leasehold/leasehold/examples/internal/programtest"
	"github.com/go-leasehold/leasehold/examples/tracing/otlp"
	"github.com/go-leasehold/leasehold/telemetry"
)

func TestMain(m *testing.M) { programtest.Main(m, main) }

// brief is what all runs here have in common.
var brief = []string{"-hold", "600ms", "-patience", "400ms"}

// environment is this process's, without what it may say of OpenTelemetry, and with what the test says.
func environment(and ...string) (all []string) {
	for _, variable := range os.Environ() {
		if !strings.HasPrefix(variable, "OTEL_") {
			all = append(all, variable)
		}
	}
	return append(all, and...)
}

func TestProofHoldsOnRedisServer(t *testing.T) {
	out, progress, code := programtest.Run(t, environment(), brief...)
	require.Zero(t, code, "%s%s", progress, out)
	require.Contains(t, progress, "redis-server")
	require.Contains(t, progress, "OTEL_EXPORTER_OTLP_ENDPOINT is not set")
	require.NotContains(t, progress, "could be sent")
	require.NotContains(t, out, "http://", "nobody has the traces")
	requireProof(t, out)
	requireTree(t, out)
}

func TestProofHoldsOnMiniredis(t *testing.T) {
	out, progress, code := programtest.Run(t, environment("PATH="+t.TempDir()), brief...)
	require.Zero(t, code, "%s%s", progress, out)
	require.Contains(t, progress, "miniredis")
	requireProof(t, out)
	requireTree(t, out)
}

// What the usual variables say is done, by both protocols; the tree is printed all the same.
func TestSpansAndMetricsGoWhereTheyAreSent(t *testing.T) {
	for protocol, serve := range map[string]func(*collector, *testing.T) string{
		"http/protobuf": (*collector).byHTTP, "grpc": (*collector).byGRPC,
	} {
		t.Run(protocol, func(t *testing.T) {
			c := newCollector()
			out, progress, code := programtest.Run(t,
				environment("OTEL_EXPORTER_OTLP_ENDPOINT="+serve(c, t), "OTEL_EXPORTER_OTLP_PROTOCOL="+protocol), brief...)
			require.Zero(t, code, "%s%s", progress, out)
			require.NotContains(t, progress, "could be sent")
			requireProof(t, out)
			requireTree(t, out)
			require.Regexp(t, `nightly report +http://localhost:16686/trace/[0-9a-f]{32}\n`, out)
			c.mu.Lock()
			defer c.mu.Unlock()
			require.Len(t, c.spans, 3)
			require.Equal(t, map[string]int{telemetry.SpanHold: 4, telemetry.SpanAcquire: 2}, oursOf(c.spans[checkout]))
			require.Equal(t, map[string]int{telemetry.SpanHold: 3, telemetry.SpanAcquire: 4}, oursOf(c.spans[inventory]))
			require.Equal(t, map[string]int{telemetry.SpanHold: 1, telemetry.SpanAcquire: 1}, oursOf(c.spans[reports]))
			for _, service := range []string{checkout, inventory, reports} {
				require.Contains(t, c.metrics[service], telemetry.MetricWait, service)
				require.Contains(t, c.metrics[service], telemetry.MetricGrants, service)
			}
		})
	}
}

// oursOf leaves the spans of locks.
func oursOf(spans map[string]int) map[string]int {
	ours := map[string]int{}
	for name, n := range spans {
		if strings.HasPrefix(name, "lock.") {
			ours[name] = n
		}
	}
	return ours
}

// Where nobody is at the endpoint, locks are as they are, and it is said.
func TestNobodyAtTheEndpoint(t *testing.T) {
	out, progress, code := programtest.Run(t, environment("OTEL_EXPORTER_OTLP_ENDPOINT=http://127.0.0.1:1"), brief...)
	require.Zero(t, code, "%s%s", progress, out)
	require.Equal(t, 3, strings.Count(progress, "not everything could be sent"), progress)
	require.Contains(t, progress, "OTEL_METRICS_EXPORTER=none")
	requireProof(t, out)
	requireTree(t, out)
}

// A sampler that keeps nothing has nothing said, and nothing claimed.
func TestUsualVariablesAreHeeded(t *testing.T) {
	out, progress, code := programtest.Run(t, environment("OTEL_TRACES_SAMPLER=always_off"), brief...)
	require.Zero(t, code, "%s%s", progress, out)
	require.Equal(t, 3, strings.Count(out, " ok\n"), out)
	require.NotContains(t, out, "waited for")
	require.Contains(t, out, "OTEL_TRACES_SAMPLER is set")
	require.Contains(t, out, "0 spans")

	for _, name := range []string{"OTEL_TRACES_EXPORTER", "OTEL_METRICS_EXPORTER"} {
		_, progress, code = programtest.Run(t, environment(name+"=console"), brief...)
		require.Equal(t, 1, code)
		require.Contains(t, progress, "cannot be console")
	}

	_, progress, code = programtest.Run(t, environment("OTEL_METRICS_EXPORTER=prometheus"), brief...)
	require.Equal(t, 1, code)
	require.Equal(t, 1, strings.Count(progress, "\n"), progress)
	require.Contains(t, progress, "cannot be prometheus")

	c := newCollector()
	out, progress, code = programtest.Run(t, environment("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT="+c.byHTTP(t)+"/v1/traces",
		"OTEL_SERVICE_NAME=shop"), brief...)
	require.Zero(t, code, "%s%s", progress, out)
	requireProof(t, out)
	require.Equal(t, map[string]int{telemetry.SpanHold: 8, telemetry.SpanAcquire: 7}, oursOf(c.spans["shop"]))
	require.Empty(t, c.metrics)

	_, progress, code = programtest.Run(t, environment("OTEL_EXPORTER_OTLP_ENDPOINT=http://127.0.0.1:1", "OTEL_EXPORTER_OTLP_PROTOCOL=pigeon"), brief...)
	require.Equal(t, 1, code)
	require.Contains(t, progress, "invalid OTLP protocol")
}

// With -for there is round after round, each proved, until the time is over or Ctrl-C; with -lockz, the live page.
func TestCtrlCEndsItCleanly(t *testing.T) {
	out, progress := programtest.Interrupt(t, "round 2", append(brief, "-for", "1h")...)
	require.Contains(t, progress, "interrupted")
	requireProof(t, out)
	out, progress = programtest.Interrupt(t, "round 1", brief...)
	require.Contains(t, progress, "interrupted")
	requireProof(t, out)
}

// A server that is somebody else's is left as it was, but for the library's counters of tokens, which expire.
func TestNothingStaysBehind(t *testing.T) {
	server, err := devredis.Start(t.Context(), t.Logf)
	require.NoError(t, err)
	defer func() { require.NoError(t, server.Close()) }()
	out, progress, code := programtest.Run(t, environment(), append(brief, "-redis", server.Addr())...)
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
		require.Contains(t, name, "token")
	}
}

func TestTracingSaysWhenThereIsNoRedis(t *testing.T) {
	_, progress, code := programtest.Run(t, environment(), "-redis", "127.0.0.1:1")
	require.Equal(t, 1, code)
	require.Contains(t, progress, "inventory: worker")
}

func TestTracingRefusesBadFlags(t *testing.T) {
	_, progress, code := programtest.Run(t, environment(), "-hold", "0s")
	require.Equal(t, 2, code)
	require.Contains(t, progress, "-hold must be")
}

func TestWorkerRefusesNonsense(t *testing.T) {
	binary, err := os.Executable()
	require.NoError(t, err)
	cmd := exec.Command(binary)
	cmd.Env = append(environment(), programtest.Variable+"=1", workerVariable+"=nonsense")
	out, err := cmd.Output()
	require.Error(t, err)
	require.Contains(t, string(out), `"Error":"invalid character`)
}

// requireProof wants a proof of everything.
func requireProof(t *testing.T, out string) {
	t.Helper()
	require.Equal(t, 7, strings.Count(out, " ok\n"), out)
	require.NotContains(t, out, "FAILED")
}

// requireTree wants the trees of all that waited, in each of them the culprit and nobody else.
func requireTree(t *testing.T, out string) {
	t.Helper()
	for _, name := range victims {
		tree := regexp.MustCompile(`(?m)^"` + name + `" at .*\n(?:.*─.*\n)+`).FindString(out)
		require.NotEmpty(t, tree, "%s in\n%s", name, out)
		require.Contains(t, tree, "<== THE CULPRIT", out)
	}
	require.NotContains(t, out, `"`+nightly+`" at `, "it waited for nobody")
	for _, line := range strings.Split(out, "\n") {
		if strings.Contains(line, "CULPRIT") {
			require.Contains(t, line, `report's lock.hold (exclusive) in "nightly report"`)
		}
	}
	require.Regexp(t, `in vain: timeout\n`, out)
	require.Contains(t, out, "blocked by checkout's lock.hold (shared)")
	require.Equal(t, 1, strings.Count(out, "to blame: "), out)
	require.Regexp(t, `to blame: report, in "nightly report", held stock \(exclusive\) for .*: 5 waits, `, out)
	require.Regexp(t, `order 3, impatient +checkout .* TIMEOUT\n`, out)
}

// The live page is where it is asked for, and nowhere else.
func TestLivePageIsThereIfAskedFor(t *testing.T) {
	server, err := devredis.Start(t.Context(), t.Logf)
	require.NoError(t, err)
	defer func() { require.NoError(t, server.Close()) }()
	receiver, err := otlp.Start()
	require.NoError(t, err)
	defer func() { require.NoError(t, receiver.Close()) }()
	client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
	for asked, want := range map[bool]int{true: http.StatusOK, false: http.StatusNotFound} {
		s, err := startService(t.Context(), setup{
			Role: reports, Redis: server.Addr(), Receiver: receiver.Endpoint(), Keys: "tracing:XYZ", Lockz: asked,
		})
		require.NoError(t, err)
		hold, err := s.stock.Lock(t.Context())
		require.NoError(t, err)
		req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://"+s.addr+lockzPath, nil)
		require.NoError(t, err)
		res, err := client.Do(req)
		require.NoError(t, err)
		page, err := io.ReadAll(res.Body)
		require.NoError(t, err)
		require.NoError(t, res.Body.Close())
		require.Equal(t, want, res.StatusCode)
		require.Equal(t, asked, strings.Contains(string(page), "tracing:XYZ:stock"))
		require.NoError(t, hold.Unlock())
		require.NoError(t, s.close(t.Context()))
	}
}
