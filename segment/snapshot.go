package segment

import (
	"sync/atomic"

	"github.com/go-leasehold/leasehold/telemetry"
)

// Snapshot counts what this process did with a stock since it was made. Orders over
// several stocks are not counted, but for the looks and moves that they need.
type Snapshot struct {
	Orders   int64 // that were sent to their home; one that waits there for units, once for each try
	Scripts  int64 // in which they travelled
	SoldOut  int64 // orders that were refused for want of units
	Known    int64 // of them, those that were answered with no command at all
	Moves    int64 // of units, asked of other segments
	Surveys  int64 // looks at all segments: to move units, to prove that none are left, to audit
	Learning int64 // times that what is needed to answer with no command was read
}

// counters are what Snapshot tells.
type counters struct {
	orders, scripts, soldOut, moves, surveys, learning atomic.Int64
}

// Snapshot tells what this process did with the stock.
func (s *Stock) Snapshot() Snapshot {
	n, known := &s.counters, int64(0)
	for op := range telemetry.OperationReserve + 1 {
		known += s.sold.answered.Load().of(op)
	}
	return Snapshot{
		Orders: n.orders.Load(), Scripts: n.scripts.Load(), SoldOut: n.soldOut.Load() + known, Known: known,
		Moves: n.moves.Load(), Surveys: n.surveys.Load(), Learning: n.learning.Load(),
	}
}
