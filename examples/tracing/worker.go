package main

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"time"

	"github.com/go-leasehold/leasehold/examples/internal/fleet"
)

// workerVariable makes a copy of this program one of the services, and says what it has to know.
const workerVariable = "LEASEHOLD_TRACING_WORKER"

// The roles of services.
const (
	checkout  = "checkout"
	inventory = "inventory"
	reports   = "report"
)

// setup is what a service has to know.
type setup struct {
	Role      string
	Redis     string
	Receiver  string        // where spans go in any case
	Inventory string        `json:",omitempty"` // its URL
	Keys      string        // what the keys of locks begin with
	Alarm     time.Duration // what is too long for a hold
	Lockz     bool          `json:",omitempty"`
	TraceURL  string        `json:",omitempty"`
}

// word is one line from a worker to the parent: its first, and then an answer to each order, of which there is only one
// kind: to send all spans.
type word struct {
	Addr  string `json:",omitempty"` // where it serves
	Error string `json:",omitempty"`
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
	s, err := startService(context.Background(), to)
	if err != nil {
		line.Say(word{Error: err.Error()})
		return 1
	}
	line.Say(word{Addr: s.addr})
	for range line.Orders {
		var w word
		if err := s.flush(); err != nil {
			w.Error = err.Error()
		}
		line.Say(w)
	}
	ctx, cancel := context.WithTimeout(context.Background(), fleet.CloseLimit)
	defer cancel()
	if err := s.close(ctx); err != nil {
		fmt.Fprintf(os.Stderr, "%s: %v\n", to.Role, err)
		return 1
	}
	return 0
}
