package jaegertest

import (
	"bytes"
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/go-leasehold/leasehold/telemetry"
)

// requireTags holds a span to the values of tags; "" is none.
func requireTags(t *testing.T, s spanView, tags map[string]string) {
	t.Helper()
	for key, value := range tags {
		require.Equal(t, value, s.tag(key), "%s of %s", key, s.OperationName)
	}
}

// requireHidden looks for a key, for fencing tokens, and for the text of scripts, in all that Jaeger has of services.
func requireHidden(t *testing.T, j *jaeger, services []string, key string, tokens ...string) {
	t.Helper()
	for _, service := range services {
		texts := j.texts(t, service)
		require.Error(t, hidden(texts, telemetry.ScopeName), "the spans are in what is looked at")
		require.NoError(t, hidden(texts, append(tokens, key, "redis.call", "KEYS[", "ARGV[", "EVALSHA", "evalsha")...))
	}
}

// hidden says where one of the words is found.
func hidden(texts []string, words ...string) error {
	for _, text := range texts {
		for _, word := range words {
			if strings.Contains(text, word) {
				return fmt.Errorf("%q is in %q", word, text)
			}
		}
	}
	return nil
}

// texts returns all names and values in a service's traces, as both of Jaeger's APIs show them.
func (j *jaeger) texts(t *testing.T, service string) []string {
	t.Helper()
	var texts []string
	for _, trace := range j.find(t, service) {
		for _, path := range []string{"/api/traces/", "/api/v3/traces/"} {
			body, status := j.read(t, path+trace.TraceID, nil)
			require.Equal(t, http.StatusOK, status, "%s", body)
			decoder := json.NewDecoder(bytes.NewReader(body))
			decoder.UseNumber()
			var answer any
			require.NoError(t, decoder.Decode(&answer), "%s", body)
			texts = gather(texts, answer)
		}
	}
	return texts
}

// times are the fields that are left out: a fencing token is a time in µs as well, and so may be the same.
var times = map[string]bool{
	"startTime": true, "duration": true, "timestamp": true,
	"startTimeUnixNano": true, "endTimeUnixNano": true, "timeUnixNano": true,
}

// gather adds what is in a JSON value.
func gather(texts []string, value any) []string {
	switch value := value.(type) {
	case map[string]any:
		for name, inner := range value {
			if !times[name] {
				texts = gather(append(texts, name), inner)
			}
		}
	case []any:
		for _, inner := range value {
			texts = gather(texts, inner)
		}
	case nil:
	default:
		texts = append(texts, fmt.Sprint(value))
	}
	return texts
}
