package jaegertest

import (
	"encoding/json"
	"net/http"
	"testing"

	"github.com/stretchr/testify/require"
)

// linked returns an attribute of each of a span's links, in their order, "" for a link that has none of that name. The
// API of Jaeger's UI leaves the attributes of links out; its newer API answers with OTLP, which has them. Its ids are in
// hexadecimal digits, as the protocol's JSON form has them.
func (j *jaeger) linked(t *testing.T, of spanID, attribute string) []string {
	t.Helper()
	body, status := j.read(t, "/api/v3/traces/"+of.trace, nil)
	require.Equal(t, http.StatusOK, status, "%s", body)
	var answer struct {
		Result struct {
			ResourceSpans []struct {
				ScopeSpans []struct {
					Spans []otlpSpan `json:"spans"`
				} `json:"scopeSpans"`
			} `json:"resourceSpans"`
		} `json:"result"`
	}
	require.NoError(t, json.Unmarshal(body, &answer), "%s", body)
	for _, r := range answer.Result.ResourceSpans {
		for _, scope := range r.ScopeSpans {
			for _, s := range scope.Spans {
				if s.SpanID == of.span {
					return s.linked(attribute)
				}
			}
		}
	}
	require.FailNow(t, "no such span", "%v in %s", of, body)
	return nil
}

type otlpSpan struct {
	SpanID string `json:"spanId"`
	Links  []struct {
		Attributes []struct {
			Key   string `json:"key"`
			Value struct {
				Text string `json:"stringValue"`
			} `json:"value"`
		} `json:"attributes"`
	} `json:"links"`
}

func (s otlpSpan) linked(attribute string) []string {
	var values []string
	for _, l := range s.Links {
		value := ""
		for _, a := range l.Attributes {
			if a.Key == attribute {
				value = a.Value.Text
			}
		}
		values = append(values, value)
	}
	return values
}
