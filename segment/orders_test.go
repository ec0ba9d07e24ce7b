package segment

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/go-leasehold/leasehold/coordinator"
	"github.com/go-leasehold/leasehold/internal/redistest"
)

// An order in these tests is of 2 units of 10, and lives through what verbs do to it.
const (
	orderedUnits = 2
	reservedFor  = 40 * time.Minute // longer than the stock remembers orders
)

// state is what an order may be when a call comes.
type state int

const (
	isNone state = iota
	isTaken
	isHeld    // reserved
	isOverdue // reserved, and its deadline is over; nobody has looked since
	isReturned
	isExpired // overdue, and back
)

// prepare are the calls that lead to a state.
var prepare = map[state][]verb{
	isNone: {}, isTaken: {deduct}, isHeld: {reserve}, isOverdue: {reserve}, isReturned: {deduct, giveBack}, isExpired: {reserve},
}

// ledger is what the books say in a state.
func (s state) ledger() Books {
	b := Books{Loaded: 10, Left: 10}
	switch s {
	case isTaken:
		b.Left, b.Sold = 8, orderedUnits
	case isHeld:
		b.Left, b.Reserved = 8, orderedUnits
	}
	return b
}

// reaction is what a verb does in a state: the error, if it was done before, and the state after.
type reaction struct {
	err      error
	repeated bool
	after    state
}

// reactions by verb and state.
var reactions = map[verb][6]reaction{
	deduct: {
		isNone: {after: isTaken}, isTaken: {repeated: true, after: isTaken}, isHeld: {ErrReserved, false, isHeld},
		isOverdue: {ErrExpired, false, isExpired}, isReturned: {ErrReturned, false, isReturned}, isExpired: {ErrExpired, false, isExpired},
	},
	reserve: {
		isNone: {after: isHeld}, isTaken: {repeated: true, after: isTaken}, isHeld: {repeated: true, after: isHeld},
		isOverdue: {ErrExpired, false, isExpired}, isReturned: {ErrReturned, false, isReturned}, isExpired: {ErrExpired, false, isExpired},
	},
	confirm: {
		isNone: {ErrUnknownOrder, false, isNone}, isTaken: {repeated: true, after: isTaken}, isHeld: {after: isTaken},
		isOverdue: {ErrExpired, false, isExpired}, isReturned: {ErrReturned, false, isReturned}, isExpired: {ErrExpired, false, isExpired},
	},
	cancel: {
		isNone: {ErrUnknownOrder, false, isReturned}, isTaken: {ErrConfirmed, false, isTaken}, isHeld: {after: isReturned},
		isOverdue: {repeated: true, after: isExpired}, isReturned: {repeated: true, after: isReturned}, isExpired: {repeated: true, after: isExpired},
	},
	giveBack: {
		isNone: {ErrUnknownOrder, false, isReturned}, isTaken: {after: isReturned}, isHeld: {after: isReturned},
		isOverdue: {repeated: true, after: isExpired}, isReturned: {repeated: true, after: isReturned}, isExpired: {repeated: true, after: isExpired},
	},
	extend: {
		isNone: {ErrUnknownOrder, false, isNone}, isTaken: {repeated: true, after: isTaken}, isHeld: {after: isHeld},
		isOverdue: {ErrExpired, false, isExpired}, isReturned: {ErrReturned, false, isReturned}, isExpired: {ErrExpired, false, isExpired},
	},
	query: {
		isNone: {ErrUnknownOrder, false, isNone}, isTaken: {repeated: true, after: isTaken}, isHeld: {ErrReserved, false, isHeld},
		isOverdue: {ErrExpired, false, isExpired}, isReturned: {ErrReturned, false, isReturned}, isExpired: {ErrExpired, false, isExpired},
	},
}

// call has a verb done to an order by the method that users call, where there is one.
func (v verb) call(t *testing.T, s *Stock, o Order) (Receipt, error) {
	t.Helper()
	switch v {
	case deduct:
		return s.Deduct(t.Context(), o)
	case reserve:
		r, err := s.Reserve(t.Context(), o, reservedFor)
		if err != nil {
			require.Nil(t, r)
			return Receipt{}, err
		}
		return r.Receipt, nil
	case confirm:
		return s.Confirm(t.Context(), o)
	case cancel:
		return Receipt{}, s.Cancel(t.Context(), o)
	case giveBack:
		return Receipt{}, s.Return(t.Context(), o)
	}
	out := s.do(t.Context(), s.home(&o), v.step(o))
	return s.receipt(&o, s.home(&o), &out)
}

// step asks a verb of one order.
func (v verb) step(o Order) order {
	return order{verb: v, field: o.field(), quantity: o.Quantity, ttl: reservedFor}
}

// reach brings an order into a state.
func (s state) reach(t *testing.T, stock *Stock, clock *serverClock, o Order) {
	t.Helper()
	for _, v := range prepare[s] {
		_, err := v.call(t, stock, o)
		require.NoError(t, err)
	}
	if s == isOverdue || s == isExpired {
		clock.add(t, reservedFor)
	}
	if s == isExpired {
		_, err := stock.look()
		require.NoError(t, err)
	}
}

// remembered is the state that the record of an order tells of.
func remembered(t *testing.T, stock *Stock, o Order) state {
	t.Helper()
	outcomes, err := stock.homes[0].ask(&batch{orders: []order{query.step(o)}})
	require.NoError(t, err)
	return map[status]state{
		statusUnknown: isNone, statusAgain: isTaken, statusReserved: isHeld, statusReturned: isReturned, statusExpired: isExpired,
	}[outcomes[0].status]
}

// orderConfs are of stocks with one segment, with and without a limit per user: scripts differ by that.
var orderConfs = []Config{
	{Segments: 1, Remember: 30 * time.Minute, PerUser: 5},
	{Segments: 1, Remember: 30 * time.Minute},
}

// place is where a call finds an order.
type place struct {
	conf   Config
	before bool // in the bucket before the present one
	unsaid bool // the quantity is not said, where it need not be
}

func places() (all []place) {
	for _, conf := range orderConfs {
		all = append(all, place{conf: conf}, place{conf: conf, before: true}, place{conf: conf, unsaid: true})
	}
	return all
}

func (p place) String() string {
	return fmt.Sprintf("limit %d, bucket before: %v", p.conf.PerUser, p.before)
}

// with returns a stock of 10 units with an order of it in a state.
func (p place) with(t *testing.T, c *coordinator.Coordinator, from state) (*Stock, Order) {
	t.Helper()
	server := redistest.Shared(t)
	s := opened(t, c, redistest.Prefix(t), p.conf)
	clock := newClock(t, server, s.name)
	clock.edge(t, p.conf.Remember, 0)
	s = through(t, s, clock.wrap)
	require.NoError(t, s.Load(t.Context(), 10))
	o := Order{ID: "o", User: "u", Quantity: orderedUnits}
	from.reach(t, s, clock, o)
	if p.before && from != isOverdue {
		clock.edge(t, p.conf.Remember, 0)
		_, err := s.look()
		require.NoError(t, err)
	}
	return s, o
}

// TestEveryVerbInEveryState: what is answered, what the books say after it, and that what was refused has
// changed nothing in Redis; on record in the same bucket of orders or in the one before.
func TestEveryVerbInEveryState(t *testing.T) {
	t.Parallel()
	server := redistest.Shared(t)
	c := processAt(t, server.Option())
	for v, of := range reactions {
		for from, want := range of {
			for _, p := range places() {
				t.Run(fmt.Sprintf("%c in state %d, %v", v, from, p), func(t *testing.T) {
					s, o := p.with(t, c, state(from))
					was := contents(t, server, s)
					asked := o
					if p.unsaid {
						if v != confirm && v != cancel && v != giveBack && v != query {
							return
						}
						asked.Quantity = 0 // stands for what is on record
					}
					receipt, err := v.call(t, s, asked)
					require.ErrorIs(t, err, want.err)
					if err == nil && v != cancel && v != giveBack {
						require.Equal(t, Receipt{Repeated: want.repeated, Quantity: orderedUnits}, receipt)
					} else {
						require.Equal(t, Receipt{}, receipt)
					}
					if state(from) == want.after && v != extend {
						require.Equal(t, was, contents(t, server, s), "nothing has changed")
					}
					require.Equal(t, want.after.ledger(), audited(t, s))
					require.Equal(t, want.after, remembered(t, s, o))
					users := map[string]string{"": "0"}
					if p.conf.PerUser > 0 && (want.after == isTaken || want.after == isHeld) {
						users["u"] = "2"
					}
					require.Equal(t, users, hashAt(t, server, s.homes[0].keys.users))
				})
			}
		}
	}
}

// TestAnotherQuantity is refused in every state in which there is an order.
func TestAnotherQuantity(t *testing.T) {
	t.Parallel()
	server := redistest.Shared(t)
	c := processAt(t, server.Option())
	for v := range reactions {
		for from := range prepare {
			if from == isNone {
				continue
			}
			for _, p := range places() {
				if p.unsaid {
					continue
				}
				t.Run(fmt.Sprintf("%c in state %d, %v", v, from, p), func(t *testing.T) {
					s, o := p.with(t, c, from)
					was := contents(t, server, s)
					other := o
					other.Quantity++
					_, err := v.call(t, s, other)
					require.ErrorIs(t, err, ErrOrderMismatch)
					require.ErrorContains(t, err, `"o"`)
					after := from
					if from == isOverdue {
						after = isExpired
					} else {
						require.Equal(t, was, contents(t, server, s))
					}
					require.Equal(t, after.ledger(), audited(t, s))
					require.Equal(t, after, remembered(t, s, o))
				})
			}
		}
	}
}

// TestEveryVerbInOneBatch: the same, when what led to the state is in the same script.
func TestEveryVerbInOneBatch(t *testing.T) {
	t.Parallel()
	server := redistest.Shared(t)
	c := processAt(t, server.Option())
	statuses := map[error]status{
		ErrReserved: statusReserved, ErrReturned: statusReturned, ErrUnknownOrder: statusUnknown, ErrConfirmed: statusTaken,
	}
	for v, of := range reactions {
		for from, want := range of {
			if state(from) == isOverdue || state(from) == isExpired {
				continue // takes time, and a script has none
			}
			s := opened(t, c, redistest.Prefix(t), Config{Segments: 1})
			require.NoError(t, s.Load(t.Context(), 10))
			o := Order{ID: "o", User: "u", Quantity: orderedUnits}
			var b batch
			for _, v := range prepare[state(from)] {
				b.orders = append(b.orders, v.step(o))
			}
			mismatch := v.step(o)
			mismatch.quantity++
			b.orders = append(b.orders, v.step(o), mismatch)
			outcomes, err := s.homes[0].ask(&b)
			require.NoError(t, err)
			n := len(outcomes)
			what := fmt.Sprintf("%c in state %d", v, from)
			for _, out := range outcomes[:n-2] {
				require.Equal(t, statusDone, out.status, what)
			}
			expect := statusDone
			if want.err != nil {
				expect = statuses[want.err]
			} else if want.repeated {
				expect = statusAgain
			}
			require.Equal(t, expect, outcomes[n-2].status, what)
			if want.after == isNone {
				require.Equal(t, statusUnknown, outcomes[n-1].status, what)
			} else {
				require.Equal(t, statusMismatch, outcomes[n-1].status, what)
			}
			require.Equal(t, want.after.ledger(), audited(t, s), what)
			require.Equal(t, want.after, remembered(t, s, o), what)
			require.Equal(t, map[string]string{"": ""}, without(hashAt(t, server, s.homes[0].keys.open), want.after == isHeld, o), what)
		}
	}
}

// without takes an order out of a hash in which it must or must not be.
func without(fields map[string]string, there bool, o Order) map[string]string {
	if there {
		if _, ok := fields[o.field()]; !ok {
			return nil
		}
		delete(fields, o.field())
	}
	return fields
}

// TestRefusalsLeaveNothing: neither a record nor a count of the user, nor any other change.
func TestRefusalsLeaveNothing(t *testing.T) {
	t.Parallel()
	server := redistest.Shared(t)
	s := loaded(t, Config{Segments: 2, PerUser: 3}, 5)
	_, err := s.Deduct(t.Context(), Order{ID: "a", User: "u", Quantity: 3})
	require.NoError(t, err)
	audited(t, s)
	was := contents(t, server, s)
	for i, refused := range []struct {
		order Order
		err   error
	}{
		{Order{ID: "b", User: "u", Quantity: 1}, ErrUserLimit},
		{Order{User: "u", Quantity: 1}, ErrUserLimit},
		{Order{ID: "c", User: "v", Quantity: 3}, ErrSoldOut},
		{Order{User: "v", Quantity: 3}, ErrSoldOut},
	} {
		_, err := s.Deduct(t.Context(), refused.order)
		require.ErrorIs(t, err, refused.err, i)
		if refused.order.ID != "" {
			_, err = s.Reserve(t.Context(), refused.order, time.Minute)
			require.ErrorIs(t, err, refused.err, i)
		}
		audited(t, s)
	}
	now := contents(t, server, s)
	for i := range 2 {
		// Units may have been moved for an order that found too few; nothing else may.
		delete(was, s.homes[i].keys.books)
		delete(now, s.homes[i].keys.books)
	}
	require.Equal(t, was, now)
	require.Equal(t, Books{Loaded: 5, Sold: 3, Left: 2}, audited(t, s))
}

// TestReservedAgainHasTheFirstDeadline, and one that is confirmed says so.
func TestReservedAgainHasTheFirstDeadline(t *testing.T) {
	t.Parallel()
	s, clock := loadedAt(t, Config{Segments: 1}, 5)
	o := Order{ID: "o", Quantity: 1}
	began := time.Now()
	r, err := s.Reserve(t.Context(), o, time.Hour)
	require.NoError(t, err)
	require.WithinRange(t, r.Deadline, began.Add(time.Hour), time.Now().Add(time.Hour))
	require.False(t, r.Confirmed)
	clock.add(t, 10*time.Minute)
	began = time.Now()
	r, err = s.Reserve(t.Context(), o, 5*time.Hour)
	require.NoError(t, err)
	require.True(t, r.Repeated)
	require.WithinRange(t, r.Deadline, began.Add(50*time.Minute), time.Now().Add(50*time.Minute))
	require.NoError(t, r.Confirm(t.Context()))
	r, err = s.Reserve(t.Context(), o, time.Hour)
	require.NoError(t, err)
	require.True(t, r.Confirmed)
	require.True(t, r.Deadline.IsZero())
	require.ErrorIs(t, r.Cancel(t.Context()), ErrConfirmed)
}

// TestUserAndIDAreTheOrder: neither alone, nor what they make when written one after the other.
func TestUserAndIDAreTheOrder(t *testing.T) {
	t.Parallel()
	s := loaded(t, Config{Segments: 1}, 100)
	orders := []Order{
		{ID: "ab"}, {ID: "b", User: "a"}, {ID: "a", User: "b"}, {ID: "2:ab"}, {ID: "b", User: "2:a"}, {ID: "1:ab"}, {ID: "ab", User: "0:"},
		{ID: "0:ab"}, {ID: "", User: "ab"}, {ID: " ab"}, {ID: "ab\x00"}, {ID: "ab\r\n"}, {ID: "\xff\xfe", User: "\x00"},
	}
	for i, o := range orders {
		o.Quantity = 1
		r, err := s.Deduct(t.Context(), o)
		require.NoError(t, err)
		require.False(t, r.Repeated, i)
	}
	for i, o := range orders {
		o.Quantity = 1
		r, err := s.Deduct(t.Context(), o)
		require.NoError(t, err)
		require.Equal(t, o.ID != "", r.Repeated, i)
	}
	require.Equal(t, int64(len(orders)+1), audited(t, s).Sold, "the one without an ID was taken twice")
}

// TestErrorsNameTheOrder and the stock, for whoever reads the log.
func TestErrorsNameTheOrder(t *testing.T) {
	t.Parallel()
	s := loaded(t, Config{Segments: 1}, 5)
	_, err := s.Confirm(t.Context(), Order{ID: "o-17", User: "u-4", Quantity: 1})
	require.ErrorIs(t, err, ErrUnknownOrder)
	for _, part := range []string{`"o-17"`, `"u-4"`, s.name} {
		require.ErrorContains(t, err, part)
	}
}
