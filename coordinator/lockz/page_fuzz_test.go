package lockz

import (
	"encoding/json"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strconv"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/stretchr/testify/require"

	"github.com/go-leasehold/leasehold/coordinator"
)

// FuzzPage: whatever is asked for, and whatever keys are called, the page is one that a browser, or a program, takes for what it
// is: no key and no query adds a tag, limits are kept, and what is not known is refused.
func FuzzPage(f *testing.F) {
	for _, query := range []string{
		"", "q=a", "format=json&q=%3Cscript%3E", "format=xml", "limit=0&each=-1&refresh=99999999999999999999", "limit=1", "q=%ff%fe&format=json", "%zz&;", "fleet=1&format=json",
		"q=" + strings.Repeat("x", 2*maxQuery), "refresh=-1", "format=json&format=html", "limit=1e9", "q=" + strings.Repeat("%C3%A9", maxQuery/2+1) + "&format=json",
	} {
		f.Add("GET", query, "text/html", "a")
	}
	for _, key := range []string{"<script>alert(1)</script>", `"><img src=x onerror=x>`, "'", "{{.}}", "\x00\xff", "</title>", "a\nb", strings.Repeat("<", 200), "&lt;", "javascript:x", "--><!--"} {
		f.Add("GET", "q="+url.QueryEscape(key), "*/*", key)
		f.Add("GET", "format=json&q="+url.QueryEscape(key), "*/*", key)
	}
	for _, accept := range []string{"application/json", "application/json;q=0.1,text/html;q=0.2", "application/json;q=nan", "text/html;q=nan,application/json", ",;q=,", "APPLICATION/JSON;q=1e400"} {
		f.Add("GET", "", accept, "a")
	}
	f.Add("POST", "", "", "a")
	f.Add("HEAD", "format=json", "", "a")
	f.Add("", "", "", "a")
	f.Fuzz(func(t *testing.T, method, query, accept, key string) {
		if key == "" || len(key) > coordinator.MaxKey {
			return
		}
		page := rendered(t, method, query, accept, key)
		asked, _ := url.ParseQuery(query)
		format := asked.Get("format")
		switch {
		case method != http.MethodGet && method != http.MethodHead:
			require.Equal(t, http.StatusMethodNotAllowed, page.Code)
			return
		case format != "" && format != "json" && format != "html":
			require.Equal(t, http.StatusBadRequest, page.Code)
			return
		}
		require.Equal(t, http.StatusOK, page.Code, page.Body)
		require.Equal(t, policy, page.Header().Get("Content-Security-Policy"))
		isJSON := strings.HasPrefix(page.Header().Get("Content-Type"), "application/json")
		require.True(t, format == "" || isJSON == (format == "json"))
		if method == http.MethodHead {
			require.Empty(t, page.Body.String())
			return
		}
		body := page.Body.String()
		require.True(t, utf8.ValidString(body))
		require.Equal(t, strconv.Itoa(len(body)), page.Header().Get("Content-Length"))
		if isJSON {
			var p Page
			require.NoError(t, json.Unmarshal([]byte(body), &p))
			require.LessOrEqual(t, len(p.Query), 3*maxQuery, "a byte that is no letter takes three")
			if asked.Get("q") == "" {
				require.Len(t, p.Keys, 1)
				require.Equal(t, nameOf(key), p.Keys[0].Name)
				require.Equal(t, len(key), p.Keys[0].Bytes)
			}
			return
		}
		// The same page of a key and a query that can't be tags has as many.
		harmless := strings.NewReplacer("<", "(", ">", ")", "%3C", "(", "%3c", "(", "%3E", ")", "%3e", ")")
		if strings.ContainsAny(key+asked.Get("q"), "()") || strings.Contains(query, "=%") && !utf8.ValidString(asked.Get("q")) {
			return // then it could be found where the other is not
		}
		other := rendered(t, method, harmless.Replace(query), accept, harmless.Replace(key)).Body.String()
		require.Equal(t, strings.Count(other, "<"), strings.Count(body, "<"), "%q", key)
		require.Equal(t, strings.Count(other, ">"), strings.Count(body, ">"), "%q", key)
	})
}

// rendered is the page of a process that has one key.
func rendered(t *testing.T, method, query, accept, key string) (w *httptest.ResponseRecorder) {
	onStage(t, func(t *testing.T, s *scene) {
		s.lock(s.ctx, key)
		w = httptest.NewRecorder()
		s.page.ServeHTTP(w, (&http.Request{Method: method, URL: &url.URL{Path: "/", RawQuery: query}, Header: http.Header{"Accept": {accept}}}).WithContext(t.Context()))
	}, coordinator.WithLogger(slog.New(slog.DiscardHandler)))
	return w
}
