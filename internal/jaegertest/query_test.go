package jaegertest

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

const (
	// lookLimit is how long a test waits for Jaeger to show what it was sent: it only decides how soon a hopeless
	// test ends.
	lookLimit = 30 * time.Second
	lookEvery = 20 * time.Millisecond
)

// jaeger is a running Jaeger, as its query API shows it.
type jaeger struct{ addresses }

// The types of Jaeger's JSON, as far as they are looked at.
type (
	traceView struct {
		TraceID   string                 `json:"traceID"`
		Spans     []spanView             `json:"spans"`
		Processes map[string]processView `json:"processes"`
	}
	processView struct {
		ServiceName string `json:"serviceName"`
		Tags        []tag  `json:"tags"`
	}
	spanView struct {
		TraceID       string      `json:"traceID"`
		SpanID        string      `json:"spanID"`
		OperationName string      `json:"operationName"`
		References    []reference `json:"references"`
		StartTime     int64       `json:"startTime"` // µs since 1970
		Duration      int64       `json:"duration"`  // µs
		Tags          []tag       `json:"tags"`
		Logs          []event     `json:"logs"`
		ProcessID     string      `json:"processID"`

		service string // that of its process
	}
	reference struct {
		RefType string `json:"refType"`
		TraceID string `json:"traceID"`
		SpanID  string `json:"spanID"`
	}
	event struct {
		Timestamp int64 `json:"timestamp"`
		Fields    []tag `json:"fields"`
	}
	tag struct {
		Key   string `json:"key"`
		Value any    `json:"value"` // numbers are json.Number
	}
)

// services returns the names of the services that Jaeger knows of.
func (j *jaeger) services(t *testing.T) []string {
	t.Helper()
	var names []string
	j.get(t, "/api/services", nil, &names)
	return names
}

// find searches a service's traces, as a person does in the UI: with "operation", "tags", "minDuration".
func (j *jaeger) find(t *testing.T, service string, more ...string) []traceView {
	t.Helper()
	query := url.Values{"service": {service}, "limit": {"1000"}}
	for i := 0; i < len(more); i += 2 {
		query.Set(more[i], more[i+1])
	}
	var found []traceView
	j.get(t, "/api/traces", query, &found)
	for i := range found {
		found[i].name()
	}
	return found
}

// await returns a trace once it has that many spans.
func (j *jaeger) await(t *testing.T, id string, spans int) traceView {
	t.Helper()
	var found []traceView
	require.Eventually(t, func() bool {
		found = nil
		return j.get(t, "/api/traces/"+id, nil, &found) == http.StatusOK && len(found) == 1 && len(found[0].Spans) >= spans
	}, lookLimit, lookEvery, "trace %s has %d spans", id, spans)
	found[0].name()
	require.Len(t, found[0].Spans, spans, "trace %s", id)
	return found[0]
}

// get asks the query API, and returns the status. Without a trace it is 404.
func (j *jaeger) get(t *testing.T, path string, query url.Values, data any) int {
	t.Helper()
	body, status := j.read(t, path, query)
	var answer struct {
		Data   json.RawMessage `json:"data"`
		Errors []struct {
			Message string `json:"msg"`
		} `json:"errors"`
	}
	require.NoError(t, json.Unmarshal(body, &answer), "%s: %s", path, body)
	if status == http.StatusNotFound {
		return status
	}
	require.Equal(t, http.StatusOK, status, "%s: %s", path, body)
	require.Empty(t, answer.Errors, path)
	decoder := json.NewDecoder(bytes.NewReader(answer.Data))
	decoder.UseNumber() // a fencing token has more digits than a float
	require.NoError(t, decoder.Decode(data), "%s: %s", path, body)
	return status
}

// read returns an answer's text.
func (j *jaeger) read(t *testing.T, path string, query url.Values) ([]byte, int) {
	t.Helper()
	where := url.URL{Scheme: "http", Host: j.query, Path: path, RawQuery: query.Encode()}
	request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, where.String(), nil)
	require.NoError(t, err)
	request.Close = true // no connection is kept that the leak check would find
	response, err := http.DefaultClient.Do(request)
	require.NoError(t, err)
	defer response.Body.Close()
	body, err := io.ReadAll(response.Body)
	require.NoError(t, err)
	return body, response.StatusCode
}

// name tells each span the service it is of.
func (v *traceView) name() {
	for i := range v.Spans {
		v.Spans[i].service = v.Processes[v.Spans[i].ProcessID].ServiceName
	}
}

// span returns the one span of that name.
func (v *traceView) span(t *testing.T, operation string) spanView {
	t.Helper()
	var found []spanView
	for _, s := range v.Spans {
		if s.OperationName == operation {
			found = append(found, s)
		}
	}
	require.Len(t, found, 1, "spans called %s in trace %s: %v", operation, v.TraceID, v.operations())
	return found[0]
}

// operations returns the names of a trace's spans.
func (v *traceView) operations() []string {
	var names []string
	for _, s := range v.Spans {
		names = append(names, s.OperationName)
	}
	return names
}

// is says which span it is.
func (s spanView) is() spanID { return spanID{s.TraceID, s.SpanID} }

// end returns when it ended, in µs since 1970.
func (s spanView) end() int64 { return s.StartTime + s.Duration }

// events returns the names of its events.
func (s spanView) events() []string {
	var names []string
	for _, e := range s.Logs {
		names = append(names, text(e.Fields, "event"))
	}
	return names
}

// tag returns an attribute's value as text, "" if there is none.
func (s spanView) tag(key string) string { return text(s.Tags, key) }

func text(tags []tag, key string) string {
	for _, t := range tags {
		if t.Key == key {
			return fmt.Sprint(t.Value)
		}
	}
	return ""
}
