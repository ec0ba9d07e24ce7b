package jaegertest

import (
	"bytes"
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/go-leasehold/leasehold/internal/childproc"
)

// binary is where `make test-jaeger` builds Jaeger.
const binary = "../../bin/jaeger"

// startLimit bounds the wait for Jaeger to be ready; a loaded machine needs it long.
const startLimit = time.Minute

// config has Jaeger keep traces in memory, without batches, so that what an exporter was told is accepted can be found.
// All ports are free ones of the system's choice, which Jaeger tells in its log; what else would listen is off.
const config = `
service:
  extensions: [jaeger_storage, jaeger_query]
  pipelines:
    traces: {receivers: [otlp], exporters: [jaeger_storage_exporter]}
  telemetry:
    metrics: {level: none}
    logs: {level: info, encoding: json}
extensions:
  jaeger_storage:
    backends:
      memory: {memory: {max_traces: 100000}}
  jaeger_query:
    storage: {traces: memory}
    http: {endpoint: "127.0.0.1:0"}
    grpc: {endpoint: "127.0.0.1:0"}
receivers:
  otlp:
    protocols:
      grpc: {endpoint: "127.0.0.1:0"}
      http: {endpoint: "127.0.0.1:0"}
exporters:
  jaeger_storage_exporter: {trace_storage: memory}
`

// addresses are where Jaeger listens: host:port.
type addresses struct {
	query string
	otlp  map[string]string // by protocol
}

// startJaeger starts a Jaeger that is killed when the test ends.
func startJaeger(t *testing.T) *jaeger {
	t.Helper()
	path, err := filepath.Abs(binary)
	require.NoError(t, err)
	_, err = os.Stat(path)
	require.NoError(t, err, "there is no Jaeger: run `make test-jaeger`, which builds it")
	file := filepath.Join(t.TempDir(), "jaeger.yaml")
	require.NoError(t, os.WriteFile(file, []byte(config), 0o600))

	log := &serverLog{ready: make(chan struct{}), found: addresses{otlp: map[string]string{}}}
	cmd := exec.Command(path, "--config", file)
	cmd.Stdout, cmd.Stderr = log, log
	process, err := childproc.Start(cmd)
	require.NoError(t, err)
	t.Cleanup(func() {
		process.Kill()
		if t.Failed() {
			t.Logf("what Jaeger said, but for how it began:\n%s", &log.tail)
		}
	})
	select {
	case <-log.ready:
	case <-process.Done():
		require.FailNow(t, "Jaeger ended as it started", "%v", process.Wait())
	case <-time.After(startLimit):
		require.FailNow(t, "Jaeger is not ready", "after %v", startLimit)
	}
	found := log.listening()
	require.NotEmpty(t, found.query, "Jaeger's log tells where its query API listens")
	require.Len(t, found.otlp, 2, "Jaeger's log tells where it takes spans")
	return &jaeger{addresses: found}
}

// serverLog reads Jaeger's log as it is written.
type serverLog struct {
	tail  childproc.Tail
	ready chan struct{} // closed once everything listens

	mu    sync.Mutex
	part  []byte // of a line not yet ended
	found addresses
}

func (l *serverLog) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.part = append(l.part, p...)
	for {
		line, rest, ok := bytes.Cut(l.part, []byte("\n"))
		if !ok {
			break
		}
		if !l.read(line) {
			_, _ = l.tail.Write(append(line, '\n')) // it never fails
		}
		l.part = bytes.Clone(rest)
	}
	return len(p), nil
}

func (l *serverLog) listening() addresses {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.found
}

// read takes an address from a line, if there is one, and says whether the line is a matter of course; the caller holds mu.
func (l *serverLog) read(line []byte) bool {
	var said struct {
		Level     string `json:"level"`
		Message   string `json:"msg"`
		Component string `json:"otelcol.component.id"`
		Endpoint  string `json:"endpoint"`
		Query     string `json:"http_addr"`
	}
	if json.Unmarshal(line, &said) != nil {
		return false // of something that does not log in JSON: a panic
	}
	switch {
	case said.Query != "":
		l.found.query = said.Query
	case said.Component == "otlp" && said.Message == "Starting GRPC server":
		l.found.otlp[overGRPC] = said.Endpoint
	case said.Component == "otlp" && said.Message == "Starting HTTP server":
		l.found.otlp[overHTTP] = said.Endpoint
	case said.Message == "Everything is ready. Begin running and processing data.":
		close(l.ready)
	}
	return said.Level == "info"
}
