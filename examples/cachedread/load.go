package main

import (
	"context"
	"fmt"
	"math/rand/v2"
	"net/http"
	"sync"
	"sync/atomic"
	"time"

	"github.com/go-leasehold/leasehold/examples/internal/report"
)

// skew is how much more the first products are asked for than the others (Zipf's exponent).
const skew = 1.1

// load is the clients of one round: each sends one request after the other, to any of the servers.
type load struct {
	urls   []string
	writes float64 // share of the requests
	http   *http.Client

	newest []atomic.Uint64 // for each product, the newest version in any answer that has come in
	reads  atomic.Int64
	writ   atomic.Int64
	stale  atomic.Int64
}

func newLoad(urls []string, s settings) *load {
	return &load{urls: urls, writes: s.writes / 100, http: newClient(), newest: make([]atomic.Uint64, s.keys)}
}

// run lets so many clients ask until stop is closed, or one of them meets with an error. When they are told to stop,
// those who wait for an answer still get it, and count.
func (l *load) run(ctx context.Context, clients int, stop <-chan struct{}) (report.Samples, error) {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	defer l.http.CloseIdleConnections()
	waits := make([]report.Samples, clients)
	var wg sync.WaitGroup
	for i := range clients {
		wg.Go(func() {
			dice := rand.New(rand.NewPCG(rand.Uint64(), rand.Uint64()))
			zipf := rand.NewZipf(dice, skew, 1, uint64(len(l.newest)-1))
			for {
				select {
				case <-stop:
					return
				case <-ctx.Done():
					return
				default:
				}
				if err := l.request(ctx, dice, int(zipf.Uint64()), &waits[i]); err != nil {
					cancel(err) // the first one is the one to tell
					return
				}
			}
		})
	}
	wg.Wait()
	var all report.Samples
	for _, w := range waits {
		all.Merge(w)
	}
	return all, context.Cause(ctx)
}

// request sends one request. A read is stale if its answer is older than one that had come in, to anybody, before
// it was sent: from a PUT, or from another GET.
func (l *load) request(ctx context.Context, dice *rand.Rand, id int, waits *report.Samples) error {
	url := fmt.Sprintf("%s/product/%d", l.urls[dice.IntN(len(l.urls))], id)
	if dice.Float64() < l.writes {
		p, err := request(ctx, l.http, http.MethodPut, url, fmt.Sprintf("name %d", dice.Uint32()))
		if err != nil {
			return err
		}
		l.writ.Add(1)
		l.note(p)
		return nil
	}
	newest := l.newest[id].Load()
	start := time.Now()
	p, err := request(ctx, l.http, http.MethodGet, url, "")
	if err != nil {
		return err
	}
	waits.Add(time.Since(start))
	l.reads.Add(1)
	if p.Version < newest {
		l.stale.Add(1)
	}
	l.note(p)
	return nil
}

// note remembers a version that has been shown.
func (l *load) note(p product) {
	newest := &l.newest[p.ID]
	for {
		n := newest.Load()
		if p.Version <= n || newest.CompareAndSwap(n, p.Version) {
			return
		}
	}
}
