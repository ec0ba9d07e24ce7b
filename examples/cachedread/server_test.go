package main

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func TestServerServesProducts(t *testing.T) {
	t.Parallel()
	c := newCity(t, 0)
	s, err := startServer(c.addr)
	require.NoError(t, err)
	defer func() { require.NoError(t, s.close(t.Context())) }()
	client := newClient()
	defer client.CloseIdleConnections()
	ask := func(method, path, body string) (int, string) {
		t.Helper()
		req, err := http.NewRequestWithContext(t.Context(), method, "http://"+s.addr+path, strings.NewReader(body))
		require.NoError(t, err)
		res, err := client.Do(req)
		require.NoError(t, err)
		defer res.Body.Close()
		text, err := io.ReadAll(res.Body)
		require.NoError(t, err)
		return res.StatusCode, string(text)
	}
	status, _ := ask("GET", "/product/1", "")
	require.Equal(t, http.StatusServiceUnavailable, status, "between rounds")
	for _, locked := range []bool{false, true} {
		s.open(order{Locked: locked, Prefix: fmt.Sprintf("test:%v:", locked), Database: c.db.url, Products: products, Expiry: time.Hour})
		_, before := ask("GET", "/product/1", "")
		status, changed := ask("PUT", "/product/1", "a chair")
		require.Equal(t, http.StatusOK, status)
		require.NotEqual(t, before, changed)
		require.Contains(t, changed, `"name":"a chair"`)
		status, now := ask("GET", "/product/1", "")
		require.Equal(t, http.StatusOK, status)
		require.Equal(t, changed, now)
		for _, id := range []string{"4", "-1", "x"} {
			status, _ = ask("GET", "/product/"+id, "")
			require.Equal(t, http.StatusNotFound, status, id)
			status, _ = ask("PUT", "/product/"+id, "name")
			require.Equal(t, http.StatusNotFound, status, id)
		}
		status, _ = ask("PUT", "/product/1", strings.Repeat("x", nameLimit+1))
		require.Equal(t, http.StatusBadRequest, status)
		status, _ = ask("DELETE", "/product/1", "")
		require.Equal(t, http.StatusMethodNotAllowed, status)
		require.NotZero(t, s.shut().Rebuilds)
	}
}

// The error of a service is the client's to see, not half an answer.
func TestServerTellsOfErrors(t *testing.T) {
	t.Parallel()
	c := newCity(t, 0)
	s, err := startServer(c.addr)
	require.NoError(t, err)
	defer func() { require.NoError(t, s.close(t.Context())) }()
	s.open(order{Locked: true, Prefix: "test:", Database: "http://127.0.0.1:1", Products: products, Expiry: time.Hour})
	client := newClient()
	defer client.CloseIdleConnections()
	_, err = request(t.Context(), client, http.MethodGet, "http://"+s.addr+"/product/1", "")
	require.ErrorContains(t, err, "503")
	_, err = request(t.Context(), client, http.MethodPut, "http://"+s.addr+"/product/1", "name")
	require.ErrorContains(t, err, "503")
	require.Equal(t, counts{}, s.shut())
}

func TestWorkerAnswersEachOrder(t *testing.T) {
	c := newCity(t, 0)
	in, orders := io.Pipe()
	words, out := io.Pipe()
	exit := make(chan int)
	go func() { exit <- worker(c.addr, in, out) }()
	decoder := json.NewDecoder(bufio.NewReader(words))
	next := func() (w word) {
		t.Helper()
		require.NoError(t, decoder.Decode(&w))
		return w
	}
	addr := next().Addr
	require.NotEmpty(t, addr)
	give := json.NewEncoder(orders)
	require.NoError(t, give.Encode(order{Locked: true, Prefix: "test:", Database: c.db.url, Products: products, Expiry: time.Hour}))
	require.Equal(t, word{}, next())
	client := newClient()
	for range 3 {
		_, err := request(t.Context(), client, http.MethodGet, "http://"+addr+"/product/1", "")
		require.NoError(t, err)
	}
	client.CloseIdleConnections()
	require.NoError(t, give.Encode(order{}))
	require.Equal(t, word{Counts: counts{Rebuilds: 1, Memory: 2}}, next())
	require.NoError(t, orders.Close())
	require.Equal(t, 0, <-exit)
}
