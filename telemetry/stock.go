package telemetry

import (
	"context"
	"slices"
	"strings"
	"sync"
	"sync/atomic"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/metric"
)

// Operation is what a call asks of a stock: a value of [AttrOperation].
type Operation uint8

// The operations.
const (
	OperationDeduct Operation = iota
	OperationDeductAll
	OperationReserve
	OperationConfirm
	OperationCancel
	OperationReturn
	OperationReturnAll
	OperationRestock
	operations int = iota
)

var operationNames = [operations]string{"deduct", "deduct_all", "reserve", "confirm", "cancel", "return", "return_all", "restock"}

// String returns the name of the operation.
func (o Operation) String() string { return operationNames[o] }

// orderOutcomes are what an order may come to. Those that only an order that wants
// units can come to are last.
var orderOutcomes = [...]Outcome{
	Done, Repeated, Refused, Expired, Timeout, Canceled, Uncertain, Unavailable, Closed, SoldOut, Limited,
}

// always are those that are told also while there are none, so that the first is seen as
// a step.
var always = map[Outcome]bool{Done: true, SoldOut: true, Uncertain: true, Unavailable: true}

// wants says that an operation asks for units.
func (o Operation) wants() bool { return o <= OperationReserve }

// outcomes are those that an operation may have.
func (o Operation) outcomes() []Outcome {
	if o.wants() {
		return orderOutcomes[:]
	}
	return orderOutcomes[:len(orderOutcomes)-2]
}

// answer says where an outcome is counted.
func answer(o Outcome) int {
	for i := range orderOutcomes {
		if orderOutcomes[i] == o {
			return i
		}
	}
	panic("telemetry: no outcome of an order: " + string(o))
}

// Stocks counts what a process does with the stocks of a class. Counting costs an
// atomic addition or two, whether anybody listens or not; who listens reads the
// sums when it collects.
type Stocks struct {
	class *Class

	orders                                  [operations][len(orderOutcomes)]atomic.Int64
	units                                   [operations]atomic.Int64
	commands, failures, moves, moved, looks atomic.Int64

	mu      sync.Mutex
	sources map[*source]struct{}
	past    [operations]int64 // of sources that are over
}

// source is orders that are counted elsewhere, for even an addition would cost too
// much.
type source struct{ of func(Operation) int64 }

// Stocks returns what counts for the stocks of a class. Metrics have them from then
// on.
func (c *Class) Stocks() *Stocks {
	if s := c.stocks.Load(); s != nil {
		return s
	}
	c.stocks.CompareAndSwap(nil, &Stocks{class: c, sources: map[*source]struct{}{}})
	return c.stocks.Load()
}

// Class returns whose they are.
func (s *Stocks) Class() *Class { return s.class }

// Answered counts orders that were answered alike, and their units where they were
// carried out.
func (s *Stocks) Answered(op Operation, o Outcome, orders, units int64) {
	s.orders[op][answer(o)].Add(orders)
	if o == Done {
		s.units[op].Add(units)
	}
}

// Batched records how many orders one command carried.
func (s *Stocks) Batched(orders int64) { s.class.batched(orders) }

// Sent counts commands, and those of them that were not answered, or with an error.
func (s *Stocks) Sent(commands, failures int64) {
	s.commands.Add(commands)
	if failures > 0 {
		s.failures.Add(failures)
	}
}

// Moved counts requests to segments for units that another is short of, and what
// they gave.
func (s *Stocks) Moved(moves, units int64) {
	s.moves.Add(moves)
	s.moved.Add(units)
}

// Looked counts a look at all segments of a stock.
func (s *Stocks) Looked() { s.looks.Add(1) }

// Known has orders counted that are answered as sold out with no command: of tells,
// by operation, how many there were, whenever somebody collects, and a last time in
// stop. It must not lead to what is to be garbage-collected before stop is called.
func (s *Stocks) Known(of func(Operation) int64) (stop func()) {
	x := &source{of}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.sources[x] = struct{}{}
	return func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		if _, there := s.sources[x]; !there {
			return
		}
		delete(s.sources, x)
		for op := range s.past {
			s.past[op] += x.of(Operation(op))
		}
	}
}

// known returns the orders that were answered with no command, by operation.
func (s *Stocks) known() (sums [operations]int64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	sums = s.past
	for x := range s.sources {
		for op := range sums {
			sums[op] += x.of(Operation(op))
		}
	}
	return sums
}

// stockObservables are the metrics of stocks that are observed.
type stockObservables struct {
	orders, units, known                    metric.Int64ObservableCounter
	commands, failures, moves, moved, looks metric.Int64ObservableCounter
}

func (o *stockObservables) all() []metric.Observable {
	return []metric.Observable{o.orders, o.units, o.known, o.commands, o.failures, o.moves, o.moved, o.looks}
}

func (o *stockObservables) make(sum func(name, unit, what string) metric.Int64ObservableCounter) {
	o.orders = sum(MetricStockOrders, "{order}", "Orders of stock answered")
	o.units = sum(MetricStockUnits, "{unit}", "Units of stock in orders that were carried out")
	o.known = sum(MetricStockKnown, "{order}", "Orders answered as sold out with no command")
	o.commands = sum(MetricStockCommands, "{command}", "Commands sent for stock")
	o.failures = sum(MetricStockFailures, "{command}", "Commands for stock that were not answered, or with an error")
	o.moves = sum(MetricStockMoves, "{move}", "Requests to segments for units")
	o.moved = sum(MetricStockMoved, "{unit}", "Units that segments gave to others")
	o.looks = sum(MetricStockLooks, "{look}", "Looks at all segments of a stock")
}

// stocks returns all that there are, a class each.
func (s *classes) stocks() (all []*Stocks) {
	s.mu.RLock()
	defer s.mu.RUnlock()
	for _, c := range s.byName {
		if x := c.stocks.Load(); x != nil {
			all = append(all, x)
		}
	}
	// Where there are more series than an SDK takes, it is to be the same that are left out.
	slices.SortFunc(all, func(a, b *Stocks) int { return strings.Compare(a.class.name, b.class.name) })
	return all
}

// observe tells the sums of a class. An operation that nobody has used is not
// there, but for the first, and an outcome that there was none of neither, but for some:
// 64 classes with all of them would be more series than an SDK takes.
func (o *stockObservables) observe(to metric.Observer, s *Stocks) {
	class := AttrClass.String(s.class.name)
	by := func(more ...attribute.KeyValue) metric.ObserveOption {
		return metric.WithAttributeSet(attribute.NewSet(append(more, class)...))
	}
	known := s.known()
	for i := range operations {
		op := Operation(i)
		var orders [len(orderOutcomes)]int64
		used := op == OperationDeduct || known[i] > 0
		for j := range orders {
			orders[j] = s.orders[i][j].Load()
			used = used || orders[j] > 0
		}
		if !used {
			continue
		}
		orders[answer(SoldOut)] += known[i]
		of := AttrOperation.String(op.String())
		for _, x := range op.outcomes() {
			if n := orders[answer(x)]; n > 0 || always[x] {
				to.ObserveInt64(o.orders, n, by(of, AttrOutcome.String(string(x))))
			}
		}
		to.ObserveInt64(o.units, s.units[i].Load(), by(of))
		if op.wants() {
			to.ObserveInt64(o.known, known[i], by(of))
		}
	}
	of := by()
	to.ObserveInt64(o.commands, s.commands.Load(), of)
	to.ObserveInt64(o.failures, s.failures.Load(), of)
	to.ObserveInt64(o.moves, s.moves.Load(), of)
	to.ObserveInt64(o.moved, s.moved.Load(), of)
	to.ObserveInt64(o.looks, s.looks.Load(), of)
}

// batched records how many orders one command carried.
func (c *Class) batched(orders int64) {
	if c.t.Timing() {
		c.t.soon.put(func() { c.t.batch.Record(context.Background(), orders, c.plain...) })
	}
}
