package shop

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/go-leasehold/leasehold/coordinator"
	"github.com/go-leasehold/leasehold/examples/internal/devredis"
	"github.com/go-leasehold/leasehold/segment"
)

// counter is where buyers stand.
type counter struct {
	t   *testing.T
	url string
	log *bytes.Buffer // to be read when nothing is served
}

func serve(t *testing.T, s *Sale, limits Limits) *counter {
	t.Helper()
	var log bytes.Buffer
	if limits.Requests == 0 {
		limits.Requests = 100
	}
	if limits.Work == 0 {
		limits.Work = wait
	}
	limits.Quantity = 20
	server := httptest.NewServer(Handler(s, limits, slog.New(slog.NewTextHandler(&log, nil))))
	t.Cleanup(server.Close)
	t.Cleanup(http.DefaultClient.CloseIdleConnections)
	return &counter{t: t, url: server.URL, log: &log}
}

// send sends a body as it is.
func (c *counter) send(method, path, body string) (*http.Response, Answer) {
	res, answer, err := c.try(method, path, body)
	require.NoError(c.t, err)
	return res, answer
}

func (c *counter) try(method, path, body string) (*http.Response, Answer, error) {
	req, err := http.NewRequest(method, c.url+path, strings.NewReader(body))
	if err != nil {
		return nil, Answer{}, err
	}
	res, err := http.DefaultClient.Do(req)
	if err != nil {
		return nil, Answer{}, err
	}
	defer res.Body.Close()
	text, err := io.ReadAll(res.Body)
	if err != nil {
		return nil, Answer{}, err
	}
	var answer Answer
	_ = json.Unmarshal(text, &answer) // where there is nothing of ours the test sees it
	return res, answer, nil
}

// ask wants a status and a code, or a state.
func (c *counter) ask(status int, code, path string, o Order) Answer {
	c.t.Helper()
	body, err := json.Marshal(o)
	require.NoError(c.t, err)
	res, answer := c.send(http.MethodPost, path, string(body))
	require.Equal(c.t, fmt.Sprint(status, " ", code), fmt.Sprint(res.StatusCode, " ", answer.Code+answer.State), "%+v", answer)
	require.Equal(c.t, "application/json", res.Header.Get("Content-Type"))
	if status != http.StatusOK {
		require.NotEmpty(c.t, answer.Message)
		require.Equal(c.t, res.Header.Get(requestHeader), answer.Request)
	}
	retry := status == http.StatusTooManyRequests || status == http.StatusServiceUnavailable
	require.Equal(c.t, retry, res.Header.Get("Retry-After") != "")
	return answer
}

func TestEachOutcomeHasItsStatus(t *testing.T) {
	t.Parallel()
	m := newMarket(t)
	c := serve(t, m.open(t, newTable(), Config{Units: 20, PerUser: 8}), Limits{})
	ann := func(id string, quantity int64) Order { return Order{User: "ann", ID: id, Quantity: quantity} }

	first := c.ask(200, "reserved", "/buy", ann("1", 2))
	require.False(t, first.Repeated)
	require.WithinDuration(t, time.Now().Add(time.Hour), first.Deadline, wait)
	again := c.ask(200, "reserved", "/buy", ann("1", 2))
	require.True(t, again.Repeated)
	require.WithinDuration(t, first.Deadline, again.Deadline, wait)
	c.ask(422, "mismatch", "/buy", ann("1", 3))
	c.ask(409, "reserved", "/buy", Order{User: "ann", ID: "1", Quantity: 2, Now: true})
	c.ask(404, "unknown", "/pay", ann("none", 0))
	require.False(t, c.ask(200, "paid", "/pay", ann("1", 0)).Repeated)
	require.True(t, c.ask(200, "paid", "/pay", ann("1", 0)).Repeated)
	c.ask(200, "paid", "/buy", ann("1", 2))
	c.ask(409, "paid", "/cancel", ann("1", 0))

	c.ask(200, "reserved", "/buy", ann("2", 1))
	c.ask(200, "cancelled", "/cancel", ann("2", 0))
	c.ask(200, "cancelled", "/cancel", ann("2", 0))
	c.ask(409, "cancelled", "/pay", ann("2", 0))
	c.ask(409, "cancelled", "/buy", ann("2", 1))
	c.ask(200, "cancelled", "/cancel", ann("never", 0))

	now := Order{User: "bob", ID: "1", Quantity: 7, Now: true}
	require.False(t, c.ask(200, "paid", "/buy", now).Repeated, "another user's order of the same ID")
	require.True(t, c.ask(200, "paid", "/buy", now).Repeated)
	c.ask(403, "user_limit", "/buy", Order{User: "bob", ID: "2", Quantity: 2})
	c.ask(200, "reserved", "/buy", Order{User: "eve", ID: "1", Quantity: 8})
	c.ask(409, "sold_out", "/buy", ann("3", 6))
	res, answer := c.send("GET", "/stock", "")
	require.Equal(t, 200, res.StatusCode)
	require.NotNil(t, answer.Left)
	require.EqualValues(t, 3, *answer.Left)
	res, answer = c.send("GET", "/healthz", "")
	require.Equal(t, 200, res.StatusCode)
	require.Equal(t, "ok", answer.State)
	require.Empty(t, c.log.String(), "nothing of this is for the log")
}

func TestLatePaymentIsGone(t *testing.T) {
	t.Parallel()
	m := newMarket(t)
	c := serve(t, m.open(t, newTable(), Config{Hold: 20 * time.Millisecond}), Limits{})
	late := c.ask(200, "reserved", "/buy", Order{User: "ann", ID: "1", Quantity: 10})
	require.Eventually(t, func() bool { return time.Now().After(late.Deadline.Add(20 * time.Millisecond)) }, wait, time.Millisecond)
	c.ask(200, "reserved", "/buy", Order{User: "bob", ID: "1", Quantity: 10}) // has what ann did not pay for
	answer := c.ask(410, "expired", "/pay", Order{User: "ann", ID: "1"})
	require.Contains(t, answer.Message, "not paid for in time")
	c.ask(410, "expired", "/pay", Order{User: "ann", ID: "1"})
	c.ask(410, "expired", "/buy", Order{User: "ann", ID: "1", Quantity: 10})
}

func TestNonsenseIsRefusedBeforeAnythingIsAsked(t *testing.T) {
	t.Parallel()
	m := newMarket(t)
	s := m.open(t, newTable(), Config{})
	c := serve(t, s, Limits{})
	before := s.Stock().Snapshot()
	long := strings.Repeat("x", segment.MaxID+1)
	for body, want := range map[string]string{
		``:     "EOF",
		`null`: "user must have 1 to 128 bytes",
		`[]`:   "cannot unmarshal",
		`{"user": "ann", "order": "1", "quantity": 1`:              "EOF",
		`{"user": "ann", "order": "1", "quantity": 1} {}`:          "more than one order",
		`{"user": "ann", "order": "1", "quantity": 1, "price": 1}`: "unknown field",
		`{"user": "ann", "order": "1", "quantity": 1.5}`:           "cannot unmarshal",
		`{"user": "ann", "order": "1", "quantity": "1"}`:           "cannot unmarshal",
		`{"user": "ann", "order": "1", "quantity": 0}`:             "quantity must be from 1 to 20",
		`{"user": "ann", "order": "1", "quantity": -1}`:            "quantity must be from 1 to 20",
		`{"user": "ann", "order": "1", "quantity": 21}`:            "quantity must be from 1 to 20",
		`{"user": "", "order": "1", "quantity": 1}`:                "user must have",
		`{"user": "ann", "quantity": 1}`:                           "order must have",
		`{"user": "` + long + `", "order": "1", "quantity": 1}`:    "user must have",
		`{"user": "ann", "order": "` + long + `", "quantity": 1}`:  "order must have",
	} {
		res, answer := c.send("POST", "/buy", body)
		require.Equal(t, 400, res.StatusCode, body)
		require.Equal(t, "invalid", answer.Code, body)
		require.Contains(t, answer.Message, want, body)
	}
	res, answer := c.send("POST", "/pay", `{"user": "`+strings.Repeat("x", bodyLimit)+`"}`)
	require.Equal(t, 413, res.StatusCode)
	require.Contains(t, answer.Message, "4096 bytes")
	res, _ = c.send("POST", "/cancel", `{"user": "ann"}`)
	require.Equal(t, 400, res.StatusCode)
	for _, path := range []string{"/buy", "/pay", "/cancel"} {
		res, _ = c.send("GET", path, "")
		require.Equal(t, 405, res.StatusCode)
	}
	res, _ = c.send("GET", "/else", "")
	require.Equal(t, 404, res.StatusCode)
	require.Equal(t, before.Orders, s.Stock().Snapshot().Orders)
	m.requireBooks(t, s, 0, 0, 10)
}

// More than a process may serve at once are put off, and so are those who wait too many at one segment.
func TestTooManyArePutOff(t *testing.T) {
	t.Parallel()
	m, db := newMarket(t), newTable()
	db.pause = make(chan struct{})
	c := serve(t, m.open(t, db, Config{}), Limits{Requests: 1})
	served := make(chan int)
	go func() {
		res, _, err := c.try("POST", "/buy", `{"user": "ann", "order": "1", "quantity": 1, "now": true}`)
		if err != nil {
			t.Error(err)
			close(served)
			return
		}
		served <- res.StatusCode
	}()
	db.pause <- struct{}{} // it is being served
	res, answer := c.send("GET", "/stock", "")
	require.Equal(t, 429, res.StatusCode)
	require.Equal(t, "busy", answer.Code)
	require.Equal(t, "1", res.Header.Get("Retry-After"))
	c.ask(429, "busy", "/buy", Order{User: "bob", ID: "1", Quantity: 1})
	res, _ = c.send("GET", "/healthz", "")
	require.Equal(t, 200, res.StatusCode, "it is well, if busy")
	res, _ = c.send("POST", "/buy", "nonsense")
	require.Equal(t, 400, res.StatusCode, "that takes no place")
	close(db.pause)
	require.Equal(t, 200, <-served)
	c.ask(200, "paid", "/buy", Order{User: "ann", ID: "1", Quantity: 1, Now: true})
}

// While Redis does not answer, one waits for it and the next is put off. What became of the first is found out by sending it again.
func TestSilentRedis(t *testing.T) {
	t.Parallel()
	m, db := newMarket(t), newTable()
	require.Equal(t, devredis.RedisServer, m.server.Kind, "`make test` installs it")
	s := m.open(t, db, Config{Segments: 1, Waiting: 1})
	_, err := s.Deduct(t.Context(), order("before", 1)) // the scripts are known
	require.NoError(t, err)
	c := serve(t, s, Limits{Work: 50 * time.Millisecond})
	pause := m.redis.B().ClientPause().Timeout(60_000).Write().Build()
	require.NoError(t, m.redis.Do(t.Context(), pause).Error())
	c.ask(503, "uncertain", "/buy", Order{User: "ann", ID: "1", Quantity: 1})
	c.ask(429, "busy", "/buy", Order{User: "ann", ID: "2", Quantity: 1}) // the first one's call still waits
	require.NoError(t, m.redis.Do(t.Context(), m.redis.B().ClientUnpause().Build()).Error())
	require.Eventually(t, func() bool {
		res, answer := c.send("POST", "/buy", `{"user": "ann", "order": "1", "quantity": 1}`)
		return res.StatusCode == 200 && answer.Repeated
	}, wait, 10*time.Millisecond)
	m.requireBooks(t, s, 1, 1, 8)
}

func TestNoRedisAndNoDatabase(t *testing.T) {
	t.Parallel()
	m, db := newMarket(t), newTable()
	c := serve(t, m.open(t, db, Config{}), Limits{})
	db.breaks(errors.New("no luck today"))
	now := Order{User: "ann", ID: "1", Quantity: 1, Now: true}
	require.NotContains(t, c.ask(503, "uncertain", "/buy", now).Message, "no luck", "that is for the log")
	db.breaks(nil)
	require.True(t, c.ask(200, "paid", "/buy", now).Repeated)
	require.Contains(t, c.log.String(), "no luck today")
	require.NoError(t, m.server.Close())
	require.Eventually(t, func() bool { // what is left is known for a moment
		res, _ := c.send("GET", "/healthz", "")
		return res.StatusCode == 503
	}, wait, time.Millisecond)
	res, answer := c.send("POST", "/buy", `{"user": "ann", "order": "2", "quantity": 1}`)
	require.Equal(t, 503, res.StatusCode)
	require.Contains(t, []string{"unavailable", "uncertain"}, answer.Code)
}

// What can't well be brought about: each error of a sale has its place.
func TestEachErrorHasItsStatus(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		err    error
		status int
		code   string
	}{
		{segment.ErrSoldOut, 409, "sold_out"},
		{coordinator.ErrTooManyWaiters, 429, "busy"},
		{segment.ErrNotLoaded, 503, "closed"},
		{segment.ErrEpoch, 503, "closed"},
		{segment.ErrNotDone, 503, "unavailable"},
		{fmt.Errorf("%w: %w", segment.ErrUncertain, coordinator.ErrUnavailable), 503, "uncertain"},
		{coordinator.ErrUnavailable, 503, "unavailable"},
		{coordinator.ErrClosed, 503, "unavailable"},
		{database(segment.ErrUncertain), 503, "uncertain"},
		{database(errors.New("else")), 503, "uncertain"},
		{errors.New("else"), 500, "internal"},
	} {
		var log bytes.Buffer
		f := &face{log: slog.New(slog.NewTextHandler(&log, nil))}
		w := httptest.NewRecorder()
		f.refuse(w, fmt.Errorf("%w: about it", c.err))
		require.Equal(t, c.status, w.Code, c.err)
		require.Contains(t, w.Body.String(), `"code":"`+c.code+`"`)
		require.NotContains(t, w.Body.String(), "about it", "that is for the log")
		require.Equal(t, c.status >= 500, strings.Contains(log.String(), "about it"))
	}
}

func TestRequestsHaveIDs(t *testing.T) {
	t.Parallel()
	h := (&face{}).named(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
	ask := func(id string) string {
		r := httptest.NewRequest("GET", "/", nil)
		r.Header.Set(requestHeader, id)
		w := httptest.NewRecorder()
		h.ServeHTTP(w, r)
		return w.Header().Get(requestHeader)
	}
	require.Equal(t, "a-b.c_7", ask("a-b.c_7"))
	seen := map[string]bool{}
	for _, id := range []string{"", "a b", "a\"b", strings.Repeat("x", 65)} {
		got := ask(id)
		require.Regexp(t, validRequest, got)
		require.NotEqual(t, id, got)
		require.False(t, seen[got])
		seen[got] = true
	}
}

func TestServerHasLimits(t *testing.T) {
	t.Parallel()
	s := NewServer(http.NotFoundHandler())
	for _, d := range []time.Duration{s.ReadHeaderTimeout, s.ReadTimeout, s.WriteTimeout, s.IdleTimeout} {
		require.Positive(t, d)
	}
	s.ReadHeaderTimeout = 20 * time.Millisecond
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	ended := make(chan error)
	go func() { ended <- s.Serve(listener) }()
	slow, err := net.Dial("tcp", listener.Addr().String())
	require.NoError(t, err)
	defer slow.Close()
	_, err = slow.Write([]byte("POST /buy HTTP/1.1\r\nHost: "))
	require.NoError(t, err)
	require.NoError(t, slow.SetReadDeadline(time.Now().Add(wait)))
	_, err = io.ReadAll(slow)
	require.NoError(t, err, "the server hangs up")
	res, err := http.Post("http://"+listener.Addr().String(), "", nil)
	require.NoError(t, err)
	require.NoError(t, res.Body.Close())
	req, err := http.NewRequest("GET", "http://"+listener.Addr().String(), nil)
	require.NoError(t, err)
	req.Header.Set("X-Much", strings.Repeat("x", 2*headerBytes))
	res, err = http.DefaultClient.Do(req)
	require.NoError(t, err)
	require.NoError(t, res.Body.Close())
	require.Equal(t, http.StatusRequestHeaderFieldsTooLarge, res.StatusCode)
	require.NoError(t, s.Close())
	require.ErrorIs(t, <-ended, http.ErrServerClosed)
	http.DefaultClient.CloseIdleConnections()
}
