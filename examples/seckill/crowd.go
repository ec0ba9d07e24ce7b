package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"net/http"
	"sync"
	"sync/atomic"
	"time"

	"github.com/go-leasehold/leasehold/examples/internal/report"
	"github.com/go-leasehold/leasehold/examples/seckill/shop"
)

const (
	// askLimit is how long a buyer waits for an answer before the same order goes to another server.
	askLimit = 15 * time.Second
	// downFor is about how long a buyer pauses where nobody answers.
	downFor = 20 * time.Millisecond
	// lookEvery is how often somebody looks how much is left.
	lookEvery = 50 * time.Millisecond
	// idlePerHost is how many connections a client keeps: as many as there may be clients.
	idlePerHost = 1000
)

// newClient returns a client that keeps its connections.
func newClient() *http.Client {
	return &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: idlePerHost, DisableCompression: true}}
}

// crowd is all buyers: so many at a time try to buy, one order after the other. What comes after a reservation, the
// payment mostly, they do beside that.
type crowd struct {
	s      settings
	urls   []atomic.Pointer[string]
	http   *http.Client
	ledger *ledger
	third  chan struct{} // closed when a third of the units is taken
	stop   chan struct{} // closed when no more orders are to begin
	fail   context.CancelCauseFunc

	tally   tally
	taken   atomic.Int64 // units
	errands sync.WaitGroup
	closing sync.Once

	mu                sync.Mutex
	accepted, soldOut report.Samples // of buyers who have ended: how long the answer took
}

// tally counts.
type tally struct {
	orders, accepted, soldOut, limited, expired atomic.Int64 // buying

	lost atomic.Int64 // tries with no answer
	busy atomic.Int64 // tries that were to be repeated: 429 and 503
	odd  atomic.Int64 // GET /stock that can't be
}

func newCrowd(s settings, urls []atomic.Pointer[string]) *crowd {
	return &crowd{
		s: s, urls: urls, http: newClient(), ledger: newLedger(), third: make(chan struct{}), stop: make(chan struct{}),
	}
}

// run lets the buyers buy until stop is closed, or one of them meets with an answer that should not be. What they have begun
// they end, which limit bounds.
func (c *crowd) run(limit context.Context) error {
	ctx, fail := context.WithCancelCause(limit)
	c.fail = fail
	defer fail(nil)
	defer c.http.CloseIdleConnections()
	var wg sync.WaitGroup
	for i := range c.s.clients {
		wg.Go(func() {
			b := newBuyer(c, i)
			for !c.stopped() && ctx.Err() == nil {
				if err := b.buy(ctx); err != nil {
					fail(err) // the first one is the one to tell
				}
			}
			b.end()
		})
	}
	wg.Go(func() { c.watch(ctx) })
	wg.Wait()
	c.errands.Wait()
	return context.Cause(ctx)
}

func (c *crowd) stopped() bool {
	select {
	case <-c.stop:
		return true
	default:
		return false
	}
}

// took notes that units were taken.
func (c *crowd) took(n int64) {
	if c.taken.Add(n) >= c.s.stock/3 {
		c.closing.Do(func() { close(c.third) })
	}
}

// watch is one who keeps looking how much is left.
func (c *crowd) watch(ctx context.Context) {
	for i := 0; c.pause(ctx, lookEvery); i++ {
		status, answer, err := c.send(ctx, i, http.MethodGet, "/stock", nil)
		if err == nil && status == http.StatusOK && (answer.Left == nil || *answer.Left < 0 || *answer.Left > c.s.stock) {
			c.tally.odd.Add(1)
		}
	}
}

// pause waits for a while; false where the sale has ended before.
func (c *crowd) pause(ctx context.Context, d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-c.stop:
	case <-ctx.Done():
	}
	return false
}

// insist has something done to an order until there is an answer that is the last word: first at the server of a number,
// and then at one after the other. With hangUp, the first try waits no longer for its answer, which is lost then.
func (c *crowd) insist(ctx context.Context, at int, path string, o *shop.Order, hangUp time.Duration) (r reply) {
	for try := 0; ; try++ {
		patience := askLimit
		if try == 0 && hangUp > 0 {
			patience = hangUp
		}
		start := time.Now()
		asking, cancel := context.WithTimeout(ctx, patience)
		status, answer, err := c.send(asking, at+try, http.MethodPost, path, o)
		cancel()
		wait := time.Second // as Retry-After says
		switch {
		case err == nil && status != http.StatusTooManyRequests && status != http.StatusServiceUnavailable:
			return reply{status: status, answer: answer, took: time.Since(start), repeated: try > 0}
		case ctx.Err() != nil:
			return reply{err: fmt.Errorf("%s of %+v: no answer: %w", path, *o, context.Cause(ctx))}
		case err != nil:
			c.tally.lost.Add(1)
			wait = downFor
		default:
			c.tally.busy.Add(1)
		}
		time.Sleep(wait/2 + rand.N(wait))
	}
}

// send sends one request to the server of a number.
func (c *crowd) send(ctx context.Context, at int, method, path string, o *shop.Order) (status int, answer shop.Answer, err error) {
	var body []byte
	if o != nil {
		if body, err = json.Marshal(o); err != nil {
			return 0, answer, err
		}
	}
	url := *c.urls[at%len(c.urls)].Load() + path
	req, err := http.NewRequestWithContext(ctx, method, url, bytes.NewReader(body))
	if err != nil {
		return 0, answer, err
	}
	res, err := c.http.Do(req)
	if err != nil {
		return 0, answer, err
	}
	defer res.Body.Close() //nolint:errcheck // it was read to its end
	if err := json.NewDecoder(res.Body).Decode(&answer); err != nil {
		return 0, answer, err
	}
	return res.StatusCode, answer, nil
}
