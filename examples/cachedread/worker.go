package main

import (
	"context"
	"fmt"
	"io"
	"os"
	"time"

	"github.com/go-leasehold/leasehold/examples/internal/fleet"
)

// workerVariable makes a copy of this program one of the servers, and says where its Redis is.
const workerVariable = "LEASEHOLD_CACHEDREAD_WORKER"

// order is one line from the parent to a worker: begin a round, or, without products, end it. Each has one answer. The
// end of the input ends the worker.
type order struct {
	Locked   bool          `json:",omitempty"` // with the lock, or naively
	Prefix   string        `json:",omitempty"` // of all keys in Redis
	Database string        `json:",omitempty"` // its URL
	Products int           `json:",omitempty"`
	Expiry   time.Duration `json:",omitempty"`
}

// word is one line from a worker to the parent: its first, and then an answer to each order.
type word struct {
	Addr   string `json:",omitempty"` // where it serves
	Counts counts // of the round that is over
	Error  string `json:",omitempty"`
}

// Failure is for the parent to see.
func (w word) Failure() string { return w.Error }

// worker is the life of one process, and returns its exit code. It takes its orders from its parent alone: a
// Ctrl-C is the parent's affair, and the parent's death ends the input.
func worker(redisAddr string, in io.Reader, out io.Writer) int {
	line := fleet.NewLine[order](in, out)
	s, err := startServer(redisAddr)
	if err != nil {
		line.Say(word{Error: err.Error()})
		return 1
	}
	line.Say(word{Addr: s.addr})
	for o := range line.Orders {
		var answer word
		if o.Products > 0 {
			s.open(o)
		} else {
			answer.Counts = s.shut()
		}
		line.Say(answer)
	}
	ctx, cancel := context.WithTimeout(context.Background(), fleet.CloseLimit)
	defer cancel()
	if err := s.close(ctx); err != nil {
		fmt.Fprintln(os.Stderr, "cachedread worker:", err)
		return 1
	}
	return 0
}
