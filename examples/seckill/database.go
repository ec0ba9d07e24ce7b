package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/go-leasehold/leasehold/examples/seckill/shop"
	"github.com/go-leasehold/leasehold/segment"
)

// database stands for the table of orders. It is in the parent process, with a small HTTP face, so that all servers
// share it and none of them takes it along when it dies. What is paid is in a log, too, that nothing is ever taken
// from: it is the second book of the proof.
type database struct {
	mu   sync.Mutex
	rows map[key]*row
	log  []segment.Order // of orders that became paid

	server *http.Server
	url    string
	ended  chan struct{}
}

// key is what rows are unique by.
type key struct{ user, id string }

func keyOf(o segment.Order) key { return key{o.User, o.ID} }

type row struct {
	order segment.Order
	paid  bool
	begun time.Time
}

func startDatabase() (*database, error) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, fmt.Errorf("start the database: %w", err)
	}
	d := &database{rows: map[key]*row{}, url: "http://" + listener.Addr().String(), ended: make(chan struct{})}
	d.server = shop.NewServer(d.handler())
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

func (d *database) begin(o segment.Order) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.rows[keyOf(o)] == nil {
		d.rows[keyOf(o)] = &row{order: o, begun: time.Now()}
	}
}

func (d *database) paid(o segment.Order) {
	d.mu.Lock()
	defer d.mu.Unlock()
	r := d.rows[keyOf(o)]
	if r == nil {
		r = &row{begun: time.Now()}
		d.rows[keyOf(o)] = r
	}
	if !r.paid {
		d.log = append(d.log, o)
	}
	r.order, r.paid = o, true
}

func (d *database) drop(o segment.Order) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if r := d.rows[keyOf(o)]; r != nil && !r.paid {
		delete(d.rows, keyOf(o))
	}
}

func (d *database) unfinished(age time.Duration) []segment.Order {
	d.mu.Lock()
	defer d.mu.Unlock()
	found := []segment.Order{}
	for _, r := range d.rows {
		if !r.paid && time.Since(r.begun) >= age {
			found = append(found, r.order)
		}
	}
	return found
}

// book returns what has been paid.
func (d *database) book() []segment.Order {
	d.mu.Lock()
	defer d.mu.Unlock()
	return append([]segment.Order(nil), d.log...)
}

func (d *database) handler() http.Handler {
	mux := http.NewServeMux()
	post := func(path string, do func(o segment.Order)) {
		mux.HandleFunc("POST "+path, func(w http.ResponseWriter, r *http.Request) {
			var o segment.Order
			if err := json.NewDecoder(r.Body).Decode(&o); err != nil {
				http.Error(w, err.Error(), http.StatusBadRequest)
				return
			}
			do(o)
		})
	}
	post("/begin", d.begin)
	post("/paid", d.paid)
	post("/drop", d.drop)
	mux.HandleFunc("GET /unfinished", func(w http.ResponseWriter, r *http.Request) {
		age, err := strconv.ParseInt(r.FormValue("age"), 10, 64)
		if err != nil {
			http.Error(w, err.Error(), http.StatusBadRequest)
			return
		}
		_ = json.NewEncoder(w).Encode(d.unfinished(time.Duration(age))) // the client is gone, then
	})
	return mux
}

// connection is a server's way to the database.
type connection struct {
	url  string
	http *http.Client
}

var _ shop.Orders = (*connection)(nil)

func newConnection(url string) *connection { return &connection{url: url, http: newClient()} }

func (c *connection) close() { c.http.CloseIdleConnections() }

func (c *connection) Begin(ctx context.Context, o segment.Order) error {
	return c.post(ctx, "/begin", o)
}
func (c *connection) Paid(ctx context.Context, o segment.Order) error { return c.post(ctx, "/paid", o) }
func (c *connection) Drop(ctx context.Context, o segment.Order) error { return c.post(ctx, "/drop", o) }

func (c *connection) Unfinished(ctx context.Context, age time.Duration) (found []segment.Order, err error) {
	text, err := c.ask(ctx, http.MethodGet, fmt.Sprintf("/unfinished?age=%d", age), nil)
	if err != nil {
		return nil, err
	}
	err = json.Unmarshal(text, &found)
	return found, err
}

func (c *connection) post(ctx context.Context, path string, o segment.Order) error {
	body, err := json.Marshal(o)
	if err != nil {
		return err
	}
	_, err = c.ask(ctx, http.MethodPost, path, body)
	return err
}

func (c *connection) ask(ctx context.Context, method, path string, body []byte) ([]byte, error) {
	req, err := http.NewRequestWithContext(ctx, method, c.url+path, bytes.NewReader(body))
	if err != nil {
		return nil, err
	}
	res, err := c.http.Do(req)
	if err != nil {
		return nil, err
	}
	defer res.Body.Close() //nolint:errcheck // it was read to its end
	text, err := io.ReadAll(res.Body)
	if err == nil && res.StatusCode != http.StatusOK {
		err = fmt.Errorf("%s: %s", res.Status, strings.TrimSpace(string(text)))
	}
	if err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	return text, nil
}
