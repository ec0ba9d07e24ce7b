package main

import (
	"sync"

	"github.com/go-leasehold/leasehold/segment"
)

// ledger is what the buyers were told: the third book of the proof.
type ledger struct {
	mu    sync.Mutex
	told  map[key]*told // of orders that were ever taken
	units int64         // that somebody was told to have paid for
}

// told is what the answers to an order said.
type told struct {
	quantity  int64
	firsts    int  // yeses to POST /buy that said it was the first
	paid      bool // it has been paid
	cancelled bool
	expired   bool // it was paid too late
	silent    bool // it was to be paid, and the buyer went away before the answer
}

func newLedger() *ledger { return &ledger{told: map[key]*told{}} }

// note notes what an answer, or the lack of one, says of an order.
func (l *ledger) note(o segment.Order, what func(*told)) {
	l.mu.Lock()
	defer l.mu.Unlock()
	t := l.told[keyOf(o)]
	if t == nil {
		t = &told{quantity: o.Quantity}
		l.told[keyOf(o)] = t
	}
	before := t.paid
	what(t)
	if t.paid && !before {
		l.units += t.quantity
	}
}

// taken notes a yes to POST /buy.
func (l *ledger) taken(o segment.Order, repeated, paid bool) {
	l.note(o, func(t *told) {
		if !repeated {
			t.firsts++
		}
		t.paid = t.paid || paid
	})
}

// sold is how many units somebody was told to have paid for.
func (l *ledger) sold() int64 {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.units
}
