package segment

import (
	"context"
	"errors"
	"hash/maphash"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/puzpuzpuz/xsync/v3"
	"github.com/redis/rueidis"

	"github.com/go-leasehold/leasehold/coordinator"
	"github.com/go-leasehold/leasehold/telemetry"
)

const (
	// maxOnRecord bounds the orders whose names a process remembers to answer
	// "sold out" by itself: 1 M take some 40 MB. Over it, it asks.
	maxOnRecord = 1_000_000
	// verifyEvery is how often what is known is compared with the server while
	// it is used; with verifyWithin, the longest that a dead connection goes
	// unnoticed: a second.
	verifyEvery  = 500 * time.Millisecond
	verifyWithin = 500 * time.Millisecond
	// idleChecks is after how many of them with no use it is dropped.
	idleChecks = 20
	// learnRest is how much longer than the last learning took there is none.
	learnRest = 10
	// scanCount is how many records are asked for at once.
	scanCount = 1000
)

// soldOut is what a process knows of a stock that is sold out: how much is left at
// most, and which orders are on record. It holds until an invalidation, a call of
// this process that gives units back, a lost connection, or the first deadline of a
// reservation.
type soldOut struct {
	stock *Stock
	err   error // ErrSoldOut, made once
	seed  maphash.Seed
	every time.Duration // verifyEvery

	known    atomic.Pointer[knowledge]
	answered atomic.Pointer[answered] // nil: nothing was ever known

	mu        sync.Mutex // guards what follows, and that known is of the present generation
	grown     uint64     // generation: grows with whatever may have made knowledge void
	learning  bool
	deaf      bool      // the server has no tracking
	notBefore time.Time // the next learning
}

// knowledge is never changed.
type knowledge struct {
	sum      int64               // an order of more units is sold out
	records  map[uint64]struct{} // hashes of user and ID; theirs are asked for
	revs     []string            // of each segment
	used     atomic.Bool         // since the last check
	answered *answered
}

// answered counts orders that were answered with no command, by operation: of those that want units.
type answered [telemetry.OperationReserve + 1]*xsync.Counter

// of returns how many of an operation there were.
func (n *answered) of(op telemetry.Operation) int64 {
	if n == nil || int(op) >= len(n) {
		return 0
	}
	return n[op].Value()
}

func (k *soldOut) init(s *Stock) {
	k.stock, k.seed, k.every = s, maphash.MakeSeed(), verifyEvery
	k.err = s.about(ErrSoldOut, nil)
}

// answers says whether an order is known not to be served.
func (k *soldOut) answers(o *Order, op telemetry.Operation) bool {
	known := k.known.Load()
	if known == nil || o.Quantity <= known.sum {
		return false
	}
	if o.ID != "" && len(known.records) > 0 {
		if _, ok := known.records[k.hash(o.User, o.ID)]; ok {
			return false
		}
	}
	if !known.used.Load() {
		known.used.Store(true)
	}
	known.answered[op].Inc()
	return true
}

func (k *soldOut) hash(user, id string) uint64 {
	return maphash.String(k.seed, user)*31 + maphash.String(k.seed, id)
}

// counting returns what counts the orders that are answered with no command, from the first time on that there may be
// any. One goroutine at a time calls it: the one that learns.
func (k *soldOut) counting() *answered {
	if n := k.answered.Load(); n != nil {
		return n
	}
	n := &answered{}
	for i := range n {
		n[i] = xsync.NewCounter()
	}
	k.answered.Store(n)
	// Where the stock is used no more, its numbers remain.
	runtime.AddCleanup(k.stock, func(stop func()) { stop() }, k.stock.told.Known(n.of))
	return n
}

// generation is to be read before the first look of a proof.
func (k *soldOut) generation() uint64 {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.grown
}

// forget makes void what is known, and what is just being proved.
func (k *soldOut) forget() {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.grown++
	k.known.Store(nil)
}

// learn is told that at most sum units are available, as seen in a look that began at a time. It asks, on a
// goroutine that ends with the answers, for what is on record, and then watches.
func (k *soldOut) learn(sum int64, seen survey, began time.Time, generation uint64) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.learning || k.deaf || k.grown != generation || k.known.Load() != nil || time.Now().Before(k.notBefore) {
		return
	}
	k.learning = true
	k.stock.counters.learning.Add(1)
	go func() {
		started := time.Now()
		known, stop, err := k.collect(sum, seen)
		k.mu.Lock()
		k.learning = false
		k.deaf = errors.Is(err, coordinator.ErrNeedsRedis)
		k.notBefore = time.Now().Add(learnRest * time.Since(started))
		ok := err == nil && known != nil && k.grown == generation
		if ok {
			k.known.Store(known)
		}
		k.mu.Unlock()
		if !ok {
			stop()
			return
		}
		k.keep(known, generation, began, earliest(seen), stop)
	}()
}

// earliest is when the first reservation comes back; negative: none does.
func earliest(seen survey) time.Duration {
	first := time.Duration(-1)
	for i := range seen {
		if e := seen[i].earliest; e >= 0 && (first < 0 || e < first) {
			first = e
		}
	}
	return first
}

// collect watches all segments, and reads what is on record. Without an error
// and knowledge, something has changed meanwhile, or there is too much.
func (k *soldOut) collect(sum int64, seen survey) (*knowledge, func(), error) {
	s := k.stock
	var stops []func()
	stop := func() {
		for _, f := range stops {
			f()
		}
	}
	for _, h := range s.homes {
		f, err := s.c.Watch(h.keys.raised, k.forget)
		if err != nil {
			return nil, stop, err
		}
		stops = append(stops, f)
	}
	known := &knowledge{sum: sum, records: map[uint64]struct{}{}, answered: k.counting()}
	revs, err := k.revs()
	if err != nil {
		return nil, stop, err
	}
	for i := range seen {
		if set := s.epoch.Load(); set == nil || revs[i] != *set+" "+number(seen[i].raised) {
			return nil, stop, nil
		}
	}
	known.revs = revs
	// What comes on record later wants no more than sum, or will be told. What is open comes first: a reservation that
	// is confirmed meanwhile is found in one or the other.
	for _, h := range s.homes {
		bucket := h.bucket.Load()
		for _, name := range []string{h.keys.open, h.keys.orders(bucket), h.keys.orders(bucket - 1)} {
			enough, err := k.scan(name, known.records)
			if err != nil || !enough {
				return nil, stop, err
			}
		}
	}
	return known, stop, nil
}

// revs reads, with tracking, what of each segment changes with whatever makes "sold out" untrue.
func (k *soldOut) revs() ([]string, error) {
	s := k.stock
	client, err := s.c.Plain()
	if err != nil {
		return nil, err
	}
	reads := make([]rueidis.Completed, len(s.homes))
	for i, h := range s.homes {
		reads[i] = client.B().Get().Key(h.keys.raised).Build()
	}
	ctx, cancel := context.WithTimeout(context.Background(), verifyWithin)
	defer cancel()
	results, err := s.c.Tracked(ctx, reads...)
	s.tellRead(len(reads), err)
	if err != nil {
		return nil, err
	}
	revs := make([]string, len(results))
	for i, result := range results {
		if revs[i], err = result.ToString(); err != nil {
			return nil, err
		}
	}
	return revs, nil
}

// scan notes the orders of a hash; false where there are too many.
func (k *soldOut) scan(name string, records map[uint64]struct{}) (bool, error) {
	client, err := k.stock.c.Plain()
	if err != nil {
		return false, err
	}
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	for cursor := uint64(0); ; {
		entry, err := client.Do(ctx, client.B().Hscan().Key(name).Cursor(cursor).Count(scanCount).Build()).AsScanEntry()
		k.stock.tellRead(1, err)
		if err != nil {
			return false, err
		}
		for i := 0; i < len(entry.Elements); i += 2 {
			if user, id, ok := parseField(entry.Elements[i]); ok {
				records[k.hash(user, id)] = struct{}{}
			}
		}
		if len(records) > maxOnRecord {
			return false, nil
		}
		if cursor = entry.Cursor; cursor == 0 {
			return true, nil
		}
	}
}

// parseField is the inverse of Order.field; ok is false for what is no user's order.
func parseField(field string) (user, id string, ok bool) {
	length, rest, ok := strings.Cut(field, ":")
	n, err := strconv.Atoi(length)
	if !ok || err != nil || n < 0 || n > len(rest) || strconv.Itoa(n) != length {
		return "", "", false
	}
	return rest[:n], rest[n:], true
}

// keep looks after what is known until it is void or nobody uses it, and then ends the watching. first is when, after
// start, the first reservation comes back.
func (k *soldOut) keep(known *knowledge, generation uint64, start time.Time, first time.Duration, stop func()) {
	idle := 0
	var check func()
	check = func() {
		if first >= 0 && time.Since(start) >= first {
			k.drop(generation)
		}
		if k.known.Load() != known {
			stop()
			return
		}
		if known.used.Swap(false) {
			idle = 0
		} else {
			idle++
		}
		revs, err := k.revs()
		ok := err == nil && idle < idleChecks
		for i := range revs {
			ok = ok && revs[i] == known.revs[i]
		}
		if !ok {
			k.drop(generation)
			stop()
			return
		}
		time.AfterFunc(k.next(start, first), check)
	}
	time.AfterFunc(k.next(start, first), check)
}

// next is when to check next: at the first deadline of a reservation, if that comes sooner.
func (k *soldOut) next(start time.Time, first time.Duration) time.Duration {
	if left := first - time.Since(start); first >= 0 && left < k.every {
		return max(left, 0)
	}
	return k.every
}

// drop forgets what is known, if nothing newer is.
func (k *soldOut) drop(generation uint64) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.grown == generation {
		k.grown++
		k.known.Store(nil)
	}
}
