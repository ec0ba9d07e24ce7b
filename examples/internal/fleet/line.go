package fleet

import (
	"bufio"
	"encoding/json"
	"io"
	"os"
	"os/signal"
	"sync"
)

// Line is what a worker has to do with its parent. O are the orders.
type Line[O any] struct {
	// Orders is closed when the parent is done with the worker, or is no more.
	Orders <-chan O

	mu      sync.Mutex
	encoder *json.Encoder
}

// NewLine makes this process a worker, which takes its orders from its parent alone: a Ctrl-C is the parent's affair.
func NewLine[O any](in io.Reader, out io.Writer) *Line[O] {
	signal.Ignore(os.Interrupt)
	return &Line[O]{Orders: listen[O](in), encoder: json.NewEncoder(out)}
}

// listen turns the input's lines into orders; the channel is closed when the input ends.
func listen[O any](in io.Reader) <-chan O {
	orders := make(chan O)
	go func() {
		defer close(orders)
		decoder := json.NewDecoder(bufio.NewReader(in))
		for {
			var o O
			if decoder.Decode(&o) != nil {
				return
			}
			orders <- o
		}
	}()
	return orders
}

// Say tells the parent; several goroutines may.
func (l *Line[O]) Say(word any) {
	l.mu.Lock()
	defer l.mu.Unlock()
	_ = l.encoder.Encode(word) // fails when the parent is gone, which ends the input too
}
