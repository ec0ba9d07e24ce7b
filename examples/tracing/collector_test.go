//go:build unix

package main

import (
	"compress/gzip"
	"context"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"
	metricspb "go.opentelemetry.io/proto/otlp/collector/metrics/v1"
	tracespb "go.opentelemetry.io/proto/otlp/collector/trace/v1"
	commonpb "go.opentelemetry.io/proto/otlp/common/v1"
	"google.golang.org/grpc"
	"google.golang.org/protobuf/proto"
)

// collector stands for what a user has at OTEL_EXPORTER_OTLP_ENDPOINT.
type collector struct {
	tracespb.UnimplementedTraceServiceServer

	mu      sync.Mutex
	spans   map[string]map[string]int  // by service and name
	metrics map[string]map[string]bool // by service
}

func newCollector() *collector {
	return &collector{spans: map[string]map[string]int{}, metrics: map[string]map[string]bool{}}
}

// Export takes spans, by gRPC or HTTP.
func (c *collector) Export(_ context.Context, in *tracespb.ExportTraceServiceRequest) (*tracespb.ExportTraceServiceResponse, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, of := range in.GetResourceSpans() {
		service := serviceOf(of.GetResource().GetAttributes())
		if c.spans[service] == nil {
			c.spans[service] = map[string]int{}
		}
		for _, scope := range of.GetScopeSpans() {
			for _, span := range scope.GetSpans() {
				c.spans[service][span.GetName()]++
			}
		}
	}
	return &tracespb.ExportTraceServiceResponse{}, nil
}

// metricsOf takes metrics.
type metricsOf struct {
	metricspb.UnimplementedMetricsServiceServer
	c *collector
}

func (m metricsOf) Export(_ context.Context, in *metricspb.ExportMetricsServiceRequest) (*metricspb.ExportMetricsServiceResponse, error) {
	m.c.mu.Lock()
	defer m.c.mu.Unlock()
	for _, of := range in.GetResourceMetrics() {
		service := serviceOf(of.GetResource().GetAttributes())
		if m.c.metrics[service] == nil {
			m.c.metrics[service] = map[string]bool{}
		}
		for _, scope := range of.GetScopeMetrics() {
			for _, metric := range scope.GetMetrics() {
				m.c.metrics[service][metric.GetName()] = true
			}
		}
	}
	return &metricspb.ExportMetricsServiceResponse{}, nil
}

func serviceOf(attributes []*commonpb.KeyValue) string {
	for _, a := range attributes {
		if a.GetKey() == "service.name" {
			return a.GetValue().GetStringValue()
		}
	}
	return ""
}

// byGRPC serves the collector by gRPC, and returns its endpoint.
func (c *collector) byGRPC(t *testing.T) string {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	server := grpc.NewServer()
	tracespb.RegisterTraceServiceServer(server, c)
	metricspb.RegisterMetricsServiceServer(server, metricsOf{c: c})
	var serving sync.WaitGroup
	serving.Go(func() { _ = server.Serve(listener) })
	t.Cleanup(func() {
		server.Stop()
		serving.Wait()
	})
	return "http://" + listener.Addr().String()
}

// byHTTP serves the collector by HTTP, and returns its endpoint.
func (c *collector) byHTTP(t *testing.T) string {
	t.Helper()
	mux := http.NewServeMux()
	mux.HandleFunc("POST /v1/traces", func(w http.ResponseWriter, r *http.Request) {
		var in tracespb.ExportTraceServiceRequest
		if take(w, r, &in) {
			_, _ = c.Export(r.Context(), &in)
		}
	})
	mux.HandleFunc("POST /v1/metrics", func(w http.ResponseWriter, r *http.Request) {
		var in metricspb.ExportMetricsServiceRequest
		if take(w, r, &in) {
			_, _ = metricsOf{c: c}.Export(r.Context(), &in)
		}
	})
	server := httptest.NewServer(mux)
	t.Cleanup(server.Close)
	return server.URL
}

func take(w http.ResponseWriter, r *http.Request, into proto.Message) bool {
	var from io.Reader = r.Body
	if r.Header.Get("Content-Encoding") == "gzip" {
		unpacked, err := gzip.NewReader(r.Body)
		if err != nil {
			http.Error(w, err.Error(), http.StatusBadRequest)
			return false
		}
		from = unpacked
	}
	body, err := io.ReadAll(from)
	if err == nil {
		err = proto.Unmarshal(body, into)
	}
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return false
	}
	w.Header().Set("Content-Type", "application/x-protobuf")
	return true
}
