package main

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"

	"github.com/go-leasehold/leasehold/examples/internal/fleet"
	"github.com/go-leasehold/leasehold/segment"
)

// workerVariable makes a copy of this program one of the servers, and says what it has to know.
const workerVariable = "LEASEHOLD_SECKILL_WORKER"

// word is one line from a worker to the parent: its first, and then an answer to each order, of which there is only one
// kind: to tell what it has done.
type word struct {
	Addr  string           `json:",omitempty"` // where it serves
	Stock segment.Snapshot // what it did with the stock
	Error string           `json:",omitempty"`
}

// Failure is for the parent to see.
func (w word) Failure() string { return w.Error }

// worker is the life of one process, and returns its exit code. It takes its orders from its parent alone: a
// Ctrl-C is the parent's affair, and the parent's death ends the input.
func worker(text string, in io.Reader, out io.Writer) int {
	line := fleet.NewLine[struct{}](in, out)
	var to setup
	if err := json.Unmarshal([]byte(text), &to); err != nil {
		line.Say(word{Error: err.Error()})
		return 1
	}
	s, err := startServer(context.Background(), to)
	if err != nil {
		line.Say(word{Error: err.Error()})
		return 1
	}
	line.Say(word{Addr: s.addr})
	for range line.Orders {
		line.Say(word{Stock: s.sale.Stock().Snapshot()})
	}
	ctx, cancel := context.WithTimeout(context.Background(), fleet.CloseLimit)
	defer cancel()
	if err := s.close(ctx); err != nil {
		fmt.Fprintln(os.Stderr, "seckill worker:", err)
		return 1
	}
	return 0
}
