package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"sync"
	"time"

	"github.com/go-leasehold/leasehold/examples/internal/report"
)

// workerVariable makes a copy of this program a worker, and says where its Redis is.
const workerVariable = "LEASEHOLD_QUICKSTART_WORKER"

const (
	// reportEvery is how often a worker says how far it is.
	reportEvery = 200 * time.Millisecond
	// closeLimit bounds a worker's good-bye.
	closeLimit = 10 * time.Second
)

// order is one line from the parent to a worker: start a round, or, without keys, stop it. The end of the input
// ends the worker.
type order struct {
	Prefix     string `json:",omitempty"` // of the counters' keys; a number follows
	Keys       int    `json:",omitempty"`
	Goroutines int    `json:",omitempty"`
}

// word is one line from a worker to the parent.
type word struct {
	Ready bool           `json:",omitempty"`
	Locks int64          // so far in this round
	Done  bool           `json:",omitempty"` // the round is over
	Waits report.Samples // of the round that is over
	Error string         `json:",omitempty"`
}

// worker is the life of one process, and returns its exit code. It takes its orders from its parent alone: a
// Ctrl-C is the parent's affair, and the parent's death ends the input.
func worker(addr string, in io.Reader, out io.Writer) int {
	signal.Ignore(os.Interrupt)
	voice := &voice{encoder: json.NewEncoder(out)}
	i, err := newIncrementer(addr)
	if err != nil {
		voice.say(word{Error: err.Error()})
		return 1
	}
	voice.say(word{Ready: true})
	orders := listen(in)
	for o := range orders {
		if o.Keys > 0 {
			voice.say(round(i, o, orders, voice))
		}
	}
	ctx, cancel := context.WithTimeout(context.Background(), closeLimit)
	defer cancel()
	if err := i.close(ctx); err != nil {
		fmt.Fprintln(os.Stderr, "quickstart worker:", err)
		return 1
	}
	return 0
}

// round works until the next order, and says how far it is meanwhile. The end of all orders ends it at once, for
// nobody waits for its result any more.
func round(i *incrementer, o order, orders <-chan order, voice *voice) word {
	i.done.Store(0)
	ctx, abandon := context.WithCancelCause(context.Background())
	defer abandon(nil)
	stop := make(chan struct{})
	over := make(chan struct{})
	var wg sync.WaitGroup
	wg.Go(func() {
		ticker := time.NewTicker(reportEvery)
		defer ticker.Stop()
		for {
			select {
			case <-ticker.C:
				voice.say(word{Locks: i.done.Load()})
			case _, ok := <-orders:
				if !ok {
					abandon(errors.New("the parent is gone"))
				}
				close(stop)
				return
			case <-over:
				return
			}
		}
	})
	waits, err := i.run(ctx, o, stop)
	close(over)
	wg.Wait()
	w := word{Done: true, Locks: i.done.Load(), Waits: waits}
	if err != nil {
		w.Error = err.Error()
	}
	return w
}

// listen turns the input's lines into orders; the channel is closed when the input ends.
func listen(in io.Reader) <-chan order {
	orders := make(chan order)
	go func() {
		defer close(orders)
		decoder := json.NewDecoder(bufio.NewReader(in))
		for {
			var o order
			if decoder.Decode(&o) != nil {
				return
			}
			orders <- o
		}
	}()
	return orders
}

// voice writes lines from several goroutines.
type voice struct {
	mu      sync.Mutex
	encoder *json.Encoder
}

func (v *voice) say(w word) {
	v.mu.Lock()
	defer v.mu.Unlock()
	_ = v.encoder.Encode(w) // fails when the parent is gone, which ends the input too
}
