package otlp

import (
	"bytes"
	"compress/gzip"
	"context"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/exporters/otlp/otlptrace/otlptracehttp"
	"go.opentelemetry.io/otel/sdk/resource"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/trace"
	collectorpb "go.opentelemetry.io/proto/otlp/collector/trace/v1"
	commonpb "go.opentelemetry.io/proto/otlp/common/v1"
	tracepb "go.opentelemetry.io/proto/otlp/trace/v1"
	"go.uber.org/goleak"
	"google.golang.org/genproto/googleapis/rpc/status"
	"google.golang.org/protobuf/proto"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func newReceiver(t *testing.T) *Receiver {
	t.Helper()
	r, err := Start()
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, r.Close()) })
	return r
}

// send sends a message as an exporter's own client would not.
func send(t *testing.T, method, url string, body io.Reader, headers map[string]string) (*http.Response, []byte) {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), method, url, body)
	require.NoError(t, err)
	for name, value := range headers {
		req.Header.Set(name, value)
	}
	client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
	res, err := client.Do(req)
	require.NoError(t, err)
	defer res.Body.Close()
	answer, err := io.ReadAll(res.Body)
	require.NoError(t, err)
	return res, answer
}

func packed(t *testing.T, body []byte) *bytes.Buffer {
	t.Helper()
	var out bytes.Buffer
	w, err := gzip.NewWriterLevel(&out, gzip.BestSpeed)
	require.NoError(t, err)
	_, err = w.Write(body)
	require.NoError(t, err)
	require.NoError(t, w.Close())
	return &out
}

func message(t *testing.T, spans ...*tracepb.Span) []byte {
	t.Helper()
	body, err := proto.Marshal(&collectorpb.ExportTraceServiceRequest{ResourceSpans: []*tracepb.ResourceSpans{
		{ScopeSpans: []*tracepb.ScopeSpans{{Spans: spans}}},
	}})
	require.NoError(t, err)
	return body
}

// What the SDK sends is what is kept, packed or not.
func TestSpansOfTheSDKArrive(t *testing.T) {
	for name, compression := range map[string]otlptracehttp.Compression{
		"packed": otlptracehttp.GzipCompression, "not packed": otlptracehttp.NoCompression,
	} {
		t.Run(name, func(t *testing.T) {
			r := newReceiver(t)
			exporter, err := otlptracehttp.New(t.Context(),
				otlptracehttp.WithEndpointURL(r.Endpoint()), otlptracehttp.WithCompression(compression))
			require.NoError(t, err)
			provider := sdktrace.NewTracerProvider(sdktrace.WithBatcher(exporter),
				sdktrace.WithResource(resource.NewSchemaless(attribute.String("service.name", "shop"))))
			defer func() { require.NoError(t, provider.Shutdown(context.Background())) }()
			tracer := provider.Tracer("a scope")
			other := trace.NewSpanContext(trace.SpanContextConfig{TraceID: trace.TraceID{1}, SpanID: trace.SpanID{2}})
			start := time.Now()
			ctx, parent := tracer.Start(t.Context(), "parent", trace.WithTimestamp(start))
			_, child := tracer.Start(ctx, "child", trace.WithLinks(trace.Link{
				SpanContext: other, Attributes: []attribute.KeyValue{attribute.String("why", "so")},
			}), trace.WithAttributes(attribute.String("s", "text"), attribute.Int("i", 7), attribute.Bool("b", true), attribute.Float64("f", 0.5)))
			child.AddEvent("it happened", trace.WithAttributes(attribute.String("what", "that")))
			child.SetStatus(codes.Error, "no")
			child.End()
			parent.End(trace.WithTimestamp(start.Add(time.Second)))
			require.NoError(t, provider.ForceFlush(t.Context()))

			spans, lost := r.Take()
			require.Zero(t, lost)
			require.Len(t, spans, 2)
			got := spans[0]
			require.Equal(t, Ref{child.SpanContext().TraceID(), child.SpanContext().SpanID()}, got.Ref)
			require.Equal(t, parent.SpanContext().SpanID(), got.Parent)
			require.Equal(t, []string{"shop", "a scope", "child"}, []string{got.Service, got.Scope, got.Name})
			require.True(t, got.Failed)
			require.Equal(t, map[string]string{"s": "text", "i": "7", "b": "true", "f": "0.5"}, got.Attributes)
			require.Equal(t, []Event{{Name: "it happened", Attributes: map[string]string{"what": "that"}}}, got.Events)
			require.Equal(t, []Link{{Ref: Ref{trace.TraceID{1}, trace.SpanID{2}}, Attributes: map[string]string{"why": "so"}}}, got.Links)
			require.False(t, spans[1].Parent.IsValid())
			require.False(t, spans[1].Failed)
			require.Equal(t, time.Second, spans[1].End.Sub(spans[1].Start))
			require.WithinDuration(t, start, spans[1].Start, 0)

			spans, _ = r.Take()
			require.Empty(t, spans, "they are taken once")
		})
	}
}

// What can't be taken is refused with the status that tells the sender not to send it again, and a message that says why.
func TestNonsenseIsRefused(t *testing.T) {
	r := newReceiver(t)
	protobuf := map[string]string{"Content-Type": "application/x-protobuf"}
	with := func(name, value string) map[string]string {
		return map[string]string{"Content-Type": protobuf["Content-Type"], name: value}
	}
	good := message(t)
	for name, of := range map[string]struct {
		method, url string
		body        io.Reader
		headers     map[string]string
		want        int
	}{
		"no protobuf":         {http.MethodPost, r.Endpoint(), strings.NewReader("nonsense"), protobuf, 400},
		"cut off":             {http.MethodPost, r.Endpoint(), bytes.NewReader(message(t, span(1))[:9]), protobuf, 400},
		"not packed":          {http.MethodPost, r.Endpoint(), bytes.NewReader(good), with("Content-Encoding", "gzip"), 400},
		"packed and cut off":  {http.MethodPost, r.Endpoint(), bytes.NewReader(packed(t, good).Bytes()[:12]), with("Content-Encoding", "gzip"), 400},
		"packed otherwise":    {http.MethodPost, r.Endpoint(), bytes.NewReader(good), with("Content-Encoding", "br"), 415},
		"no type":             {http.MethodPost, r.Endpoint(), bytes.NewReader(good), nil, 415},
		"JSON":                {http.MethodPost, r.Endpoint(), strings.NewReader("{}"), map[string]string{"Content-Type": "application/json"}, 415},
		"a type that is none": {http.MethodPost, r.Endpoint(), bytes.NewReader(good), map[string]string{"Content-Type": ";;"}, 415},
		"GET":                 {http.MethodGet, r.Endpoint(), nil, protobuf, 405},
		"metrics":             {http.MethodPost, r.url + "/v1/metrics", bytes.NewReader(good), protobuf, 404},
		"too large":           {http.MethodPost, r.Endpoint(), bytes.NewReader(make([]byte, bodyLimit+1)), protobuf, 413},
		"a bomb":              {http.MethodPost, r.Endpoint(), packed(t, make([]byte, 2*bodyLimit)), with("Content-Encoding", "gzip"), 413},
	} {
		res, body := send(t, of.method, of.url, of.body, of.headers)
		require.Equal(t, of.want, res.StatusCode, name)
		require.Equal(t, "application/x-protobuf", res.Header.Get("Content-Type"), name)
		var why status.Status
		require.NoError(t, proto.Unmarshal(body, &why), name)
		require.NotEmpty(t, why.GetMessage(), name)
		require.NotZero(t, why.GetCode(), name)
		if of.want == http.StatusMethodNotAllowed {
			require.Equal(t, http.MethodPost, res.Header.Get("Allow"))
		}
	}
	spans, lost := r.Take()
	require.Empty(t, spans)
	require.Zero(t, lost)
}

// What stands between the unpacking and memory is the limit, not the sender.
func TestABombIsNotUnpacked(t *testing.T) {
	t.Parallel()
	bomb := packed(t, make([]byte, 2*bodyLimit))
	req := httptest.NewRequestWithContext(t.Context(), http.MethodPost, "/", bomb)
	req.Header.Set("Content-Encoding", "gzip")
	body, err := read(httptest.NewRecorder(), req)
	require.Error(t, err)
	require.LessOrEqual(t, len(body), bodyLimit+1)
	require.NotZero(t, bomb.Len(), "the rest of it was read")
}

// A message of the largest size is taken; spans without an id are not, and the sender is told how many.
func TestTheSenderIsToldWhatWasNotKept(t *testing.T) {
	r := newReceiver(t)
	headers := map[string]string{"Content-Type": "application/x-protobuf; charset=none"}
	large := span(1)
	large.Name = strings.Repeat("x", bodyLimit-100)
	for name, of := range map[string]struct {
		body []byte
		want int64
	}{
		"nothing":    {nil, 0},
		"large":      {message(t, large), 0},
		"no ids":     {message(t, span(1), &tracepb.Span{}, &tracepb.Span{TraceId: make([]byte, 16), SpanId: make([]byte, 8)}), 2},
		"short id":   {message(t, &tracepb.Span{TraceId: []byte{1}, SpanId: []byte{1}}), 1},
		"a bad link": {message(t, linked()), 0},
	} {
		res, body := send(t, http.MethodPost, r.Endpoint(), bytes.NewReader(of.body), headers)
		require.Equal(t, http.StatusOK, res.StatusCode, name)
		var answer collectorpb.ExportTraceServiceResponse
		require.NoError(t, proto.Unmarshal(body, &answer), name)
		require.Equal(t, of.want, answer.GetPartialSuccess().GetRejectedSpans(), name)
		require.Equal(t, of.want > 0, answer.GetPartialSuccess() != nil, name)
	}
	spans, lost := r.Take()
	require.Len(t, spans, 3)
	require.EqualValues(t, 3, lost)
	for _, s := range spans {
		require.Empty(t, s.Links)
	}
}

func TestMemoryIsBounded(t *testing.T) {
	t.Parallel()
	r := Receiver{limit: 100}
	many := make([]*tracepb.Span, 33)
	for i := range many {
		many[i] = span(byte(i + 1))
	}
	in := &collectorpb.ExportTraceServiceRequest{ResourceSpans: []*tracepb.ResourceSpans{{ScopeSpans: []*tracepb.ScopeSpans{{Spans: many}}}}}
	for range 5 {
		r.keep(in)
	}
	spans, lost := r.Take()
	require.Len(t, spans, r.limit)
	require.EqualValues(t, 5*len(many)-r.limit, lost)
}

func TestValuesAreText(t *testing.T) {
	t.Parallel()
	list := &commonpb.AnyValue{Value: &commonpb.AnyValue_ArrayValue{ArrayValue: &commonpb.ArrayValue{
		Values: []*commonpb.AnyValue{{Value: &commonpb.AnyValue_StringValue{StringValue: "one"}}},
	}}}
	require.Contains(t, text(list), "one")
	require.Empty(t, text(nil))
	require.Empty(t, text(&commonpb.AnyValue{}))
}

func span(id byte) *tracepb.Span {
	return &tracepb.Span{TraceId: bytes.Repeat([]byte{id}, 16), SpanId: bytes.Repeat([]byte{id}, 8), Name: "a span"}
}

func linked() *tracepb.Span {
	s := span(3)
	s.Links = []*tracepb.Span_Link{{TraceId: []byte{1}, SpanId: []byte{2}}}
	return s
}

func FuzzReceive(f *testing.F) {
	f.Add([]byte{}, "")
	f.Add([]byte("nonsense"), "gzip")
	f.Fuzz(func(t *testing.T, body []byte, encoding string) {
		r := Receiver{limit: 10}
		req := httptest.NewRequestWithContext(t.Context(), http.MethodPost, tracesPath, bytes.NewReader(body))
		req.Header.Set("Content-Type", contentType)
		req.Header.Set("Content-Encoding", encoding)
		w := httptest.NewRecorder()
		r.serve(w, req)
		require.Contains(t, []int{200, 400, 413, 415}, w.Code)
	})
}
