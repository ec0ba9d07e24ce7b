package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"sync"
	"time"

	"github.com/go-leasehold/leasehold/examples/internal/fleet"
	"github.com/go-leasehold/leasehold/examples/internal/report"
)

// workerVariable makes a copy of this program a worker, and says where its Redis is.
const workerVariable = "LEASEHOLD_QUICKSTART_WORKER"

// reportEvery is how often a worker says how far it is.
const reportEvery = 200 * time.Millisecond

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

// Failure is for the parent to see.
func (w word) Failure() string { return w.Error }

// worker is the life of one process, and returns its exit code. It takes its orders from its parent alone: a
// Ctrl-C is the parent's affair, and the parent's death ends the input.
func worker(addr string, in io.Reader, out io.Writer) int {
	line := fleet.NewLine[order](in, out)
	i, err := newIncrementer(addr)
	if err != nil {
		line.Say(word{Error: err.Error()})
		return 1
	}
	line.Say(word{Ready: true})
	for o := range line.Orders {
		if o.Keys > 0 {
			line.Say(round(i, o, line))
		}
	}
	ctx, cancel := context.WithTimeout(context.Background(), fleet.CloseLimit)
	defer cancel()
	if err := i.close(ctx); err != nil {
		fmt.Fprintln(os.Stderr, "quickstart worker:", err)
		return 1
	}
	return 0
}

// round works until the next order, and says how far it is meanwhile. The end of all orders ends it at once, for
// nobody waits for its result any more.
func round(i *incrementer, o order, line *fleet.Line[order]) word {
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
				line.Say(word{Locks: i.done.Load()})
			case _, ok := <-line.Orders:
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
