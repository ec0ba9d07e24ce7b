package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"
)

// database stands for the slow thing behind the cache. It is in the parent process, with a small HTTP face, so that
// all servers share it and it can count who asks.
//
// It has a fence, as a table would with one more column: all that a lock's holder does names its token, in SQL
//
//	UPDATE product SET fence = $token, name = $name, version = version + 1 WHERE id = $id AND fence <= $token
//
// and likewise, with the fence alone, before the query of a rebuild.
type database struct {
	delay    time.Duration
	rows     []row
	queries  atomic.Int64
	overlaps atomic.Int64 // queries that began while another one of the same row ran

	server *http.Server
	url    string
	ended  chan struct{}
}

type row struct {
	mu      sync.Mutex
	product product
	fence   uint64
	queries int // that run
}

// startDatabase starts a database with so many products, of version 1.
func startDatabase(products int, delay time.Duration) (*database, error) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, fmt.Errorf("start the database: %w", err)
	}
	d := &database{
		delay: delay, rows: make([]row, products), url: "http://" + listener.Addr().String(), ended: make(chan struct{}),
	}
	for id := range d.rows {
		d.rows[id].product = product{ID: id, Version: 1, Name: "new"}
	}
	d.server = newServer(d.handler())
	go func() {
		defer close(d.ended)
		_ = d.server.Serve(listener) // says that it was closed
	}()
	return d, nil
}

func (d *database) close() {
	_ = d.server.Close() // nobody asks any more
	<-d.ended
}

// query returns a product as it was when the query came in, as any database does, however long it takes.
func (d *database) query(ctx context.Context, id int, token uint64) (product, error) {
	r := &d.rows[id]
	r.mu.Lock()
	if token < r.fence {
		r.mu.Unlock()
		return product{}, errFenced
	}
	r.fence = token
	p := r.product
	d.queries.Add(1)
	if r.queries > 0 {
		d.overlaps.Add(1)
	}
	r.queries++
	r.mu.Unlock()

	err := sleep(ctx, d.delay)

	r.mu.Lock()
	defer r.mu.Unlock()
	r.queries--
	return p, err
}

// update changes a product. Like any database it may do so when the client has given up.
func (d *database) update(ctx context.Context, id int, name string, token uint64) (product, error) {
	_ = sleep(context.WithoutCancel(ctx), d.delay/10)
	r := &d.rows[id]
	r.mu.Lock()
	defer r.mu.Unlock()
	if token < r.fence {
		return product{}, errFenced
	}
	r.fence = token
	r.product.Version++
	r.product.Name = name
	return r.product, nil
}

func sleep(ctx context.Context, d time.Duration) error {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

func (d *database) handler() http.Handler {
	mux := http.NewServeMux()
	serve := func(do func(r *http.Request, id int, token uint64) (product, error)) http.HandlerFunc {
		return func(w http.ResponseWriter, r *http.Request) {
			id, err := strconv.Atoi(r.PathValue("id"))
			token, err2 := strconv.ParseUint(r.FormValue("token"), 10, 64)
			if err != nil || err2 != nil || id < 0 || id >= len(d.rows) {
				http.Error(w, "no such row", http.StatusNotFound)
				return
			}
			p, err := do(r, id, token)
			answer(w, &p, err)
		}
	}
	mux.HandleFunc("GET /row/{id}", serve(func(r *http.Request, id int, token uint64) (product, error) {
		return d.query(r.Context(), id, token)
	}))
	mux.HandleFunc("PUT /row/{id}", serve(func(r *http.Request, id int, token uint64) (product, error) {
		name, err := io.ReadAll(io.LimitReader(r.Body, nameLimit))
		if err != nil {
			return product{}, err
		}
		return d.update(r.Context(), id, string(name), token)
	}))
	return mux
}

// connection is a server's way to the database.
type connection struct {
	url  string
	http *http.Client
}

func newConnection(url string) *connection { return &connection{url: url, http: newClient()} }

func (c *connection) close() { c.http.CloseIdleConnections() }

// load returns a product as the database has it.
func (c *connection) load(ctx context.Context, id int, token uint64) (product, error) {
	return request(ctx, c.http, http.MethodGet, c.row(id, token), "")
}

// update changes a product in the database.
func (c *connection) update(ctx context.Context, id int, name string, token uint64) (product, error) {
	return request(ctx, c.http, http.MethodPut, c.row(id, token), name)
}

func (c *connection) row(id int, token uint64) string {
	return fmt.Sprintf("%s/row/%d?token=%d", c.url, id, token)
}

// request asks one of our servers, who all answer with a product.
func request(ctx context.Context, client *http.Client, method, url, body string) (p product, err error) {
	req, err := http.NewRequestWithContext(ctx, method, url, strings.NewReader(body))
	if err != nil {
		return p, err
	}
	res, err := client.Do(req)
	if err != nil {
		return p, err
	}
	defer res.Body.Close() //nolint:errcheck // it was read to its end
	text, err := io.ReadAll(res.Body)
	switch {
	case err != nil:
		return p, fmt.Errorf("%s %s: %w", method, url, err)
	case res.StatusCode == http.StatusConflict:
		return p, fmt.Errorf("%s %s: %w", method, url, errFenced)
	case res.StatusCode != http.StatusOK:
		return p, fmt.Errorf("%s %s: %s: %s", method, url, res.Status, strings.TrimSpace(string(text)))
	}
	if err := json.Unmarshal(text, &p); err != nil {
		return p, fmt.Errorf("%s %s: %w", method, url, err)
	}
	return p, nil
}

// answer writes a product, or what is wrong.
func answer(w http.ResponseWriter, p *product, err error) {
	if err == nil {
		var text []byte
		if text, err = json.Marshal(p); err == nil {
			answerText(w, text)
			return
		}
	}
	status := http.StatusServiceUnavailable
	if errors.Is(err, errFenced) {
		status = http.StatusConflict
	}
	http.Error(w, err.Error(), status)
}

func answerText(w http.ResponseWriter, text []byte) {
	w.Header().Set("Content-Type", "application/json")
	_, _ = w.Write(text) // the client is gone, then
}
