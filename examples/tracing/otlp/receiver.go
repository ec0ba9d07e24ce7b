package otlp

import (
	"compress/gzip"
	"context"
	"errors"
	"fmt"
	"io"
	"mime"
	"net"
	"net/http"
	"sync"
	"time"

	collectorpb "go.opentelemetry.io/proto/otlp/collector/trace/v1"
	"google.golang.org/genproto/googleapis/rpc/status"
	"google.golang.org/grpc/codes"
	"google.golang.org/protobuf/proto"
)

const (
	// bodyLimit bounds a message, as it came and unpacked: what gRPC's default is.
	bodyLimit = 4 << 20
	// spanLimit bounds what is kept.
	spanLimit = 100_000
	// headerLimit and readLimit bound the wait for a request.
	headerLimit, readLimit = 10 * time.Second, 30 * time.Second

	contentType = "application/x-protobuf"
	tracesPath  = "/v1/traces"
)

// Receiver keeps the spans that are sent to it.
type Receiver struct {
	mu    sync.Mutex // of all below, and of reading a message: one at a time, so that what it takes to read one is bounded
	spans []Span
	lost  int64
	limit int // of spans

	server *http.Server
	url    string
	ended  chan struct{}
}

// Start starts a receiver.
func Start() (*Receiver, error) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, fmt.Errorf("start the receiver of spans: %w", err)
	}
	r := &Receiver{limit: spanLimit, url: "http://" + listener.Addr().String(), ended: make(chan struct{})}
	r.server = &http.Server{Handler: http.HandlerFunc(r.serve), ReadHeaderTimeout: headerLimit, ReadTimeout: readLimit}
	go func() {
		defer close(r.ended)
		_ = r.server.Serve(listener) // says that it was closed
	}()
	return r, nil
}

// Endpoint returns where an exporter of OTLP over HTTP sends its spans: a value for OTEL_EXPORTER_OTLP_TRACES_ENDPOINT.
func (r *Receiver) Endpoint() string { return r.url + tracesPath }

// Take returns the spans that have come, and keeps them no longer. lost is how many came that it could not keep.
func (r *Receiver) Take() (spans []Span, lost int64) {
	r.mu.Lock()
	defer r.mu.Unlock()
	spans, lost = r.spans, r.lost
	r.spans, r.lost = nil, 0
	return spans, lost
}

// Close ends the receiver.
func (r *Receiver) Close() error {
	ctx, cancel := context.WithTimeout(context.Background(), readLimit)
	defer cancel()
	err := r.server.Shutdown(ctx)
	<-r.ended
	return err
}

// refusal is why a message is not taken. Senders know by the status whether to send it again: none of ours is one to
// repeat.
type refusal struct {
	status int
	code   codes.Code
	text   string
}

func (r *refusal) Error() string { return r.text }

func refuse(status int, code codes.Code, format string, args ...any) error {
	return &refusal{status, code, fmt.Sprintf(format, args...)}
}

// serve takes one message, and answers as OTLP/HTTP has it: each answer is protobuf, errors too.
func (r *Receiver) serve(w http.ResponseWriter, req *http.Request) {
	answer, err := r.receive(w, req)
	code := http.StatusOK
	if err != nil {
		refused := &refusal{http.StatusBadRequest, codes.InvalidArgument, err.Error()}
		_ = errors.As(err, &refused)
		code = refused.status
		answer = &status.Status{Code: int32(refused.code), Message: refused.text}
	}
	if code == http.StatusMethodNotAllowed {
		w.Header().Set("Allow", http.MethodPost)
	}
	body, err := proto.Marshal(answer)
	if err != nil {
		body = nil // the status says enough
	}
	w.Header().Set("Content-Type", contentType)
	w.WriteHeader(code)
	_, _ = w.Write(body) // who hung up will send it again
}

func (r *Receiver) receive(w http.ResponseWriter, req *http.Request) (proto.Message, error) {
	media, _, _ := mime.ParseMediaType(req.Header.Get("Content-Type")) // one that can't be read is none of ours
	switch {
	case req.URL.Path != tracesPath:
		return nil, refuse(http.StatusNotFound, codes.Unimplemented, "there is %s here, and nothing else", tracesPath)
	case req.Method != http.MethodPost:
		return nil, refuse(http.StatusMethodNotAllowed, codes.Unimplemented, "messages come by POST")
	case media != contentType:
		return nil, refuse(http.StatusUnsupportedMediaType, codes.InvalidArgument, "content is to be %s", contentType)
	}
	body, err := read(w, req)
	if err != nil {
		return nil, err
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	var message collectorpb.ExportTraceServiceRequest
	if err := proto.Unmarshal(body, &message); err != nil {
		return nil, fmt.Errorf("read a message: %w", err)
	}
	return r.keep(&message), nil
}

// read returns a message's body, unpacked.
func read(w http.ResponseWriter, req *http.Request) ([]byte, error) {
	var from io.Reader = http.MaxBytesReader(w, req.Body, bodyLimit)
	switch encoding := req.Header.Get("Content-Encoding"); encoding {
	case "", "identity":
	case "gzip":
		unpacked, err := gzip.NewReader(from)
		if err != nil {
			return nil, tooLarge(err)
		}
		from = unpacked
	default:
		return nil, refuse(http.StatusUnsupportedMediaType, codes.InvalidArgument, "content is packed with gzip or not at all")
	}
	body, err := io.ReadAll(io.LimitReader(from, bodyLimit+1)) // a small body may unpack to a very large one
	if err == nil && len(body) > bodyLimit {
		err = &http.MaxBytesError{Limit: bodyLimit}
	}
	return body, tooLarge(err)
}

func tooLarge(err error) error {
	var large *http.MaxBytesError
	if errors.As(err, &large) {
		return refuse(http.StatusRequestEntityTooLarge, codes.ResourceExhausted, "a message is of %d bytes at most", large.Limit)
	}
	return err
}

// keep keeps the spans of a message, and answers how many it did not.
func (r *Receiver) keep(message *collectorpb.ExportTraceServiceRequest) *collectorpb.ExportTraceServiceResponse {
	spans, invalid := spansOf(message.GetResourceSpans())
	over := max(0, len(r.spans)+len(spans)-r.limit)
	r.spans = append(r.spans, spans[:len(spans)-over]...)
	rejected := invalid + int64(over)
	if rejected == 0 {
		return &collectorpb.ExportTraceServiceResponse{}
	}
	r.lost += rejected
	return &collectorpb.ExportTraceServiceResponse{PartialSuccess: &collectorpb.ExportTracePartialSuccess{
		RejectedSpans: rejected,
		ErrorMessage:  fmt.Sprintf("%d have no valid id, and %d were too many", invalid, over),
	}}
}
