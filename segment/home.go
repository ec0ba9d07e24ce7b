package segment

import (
	"errors"
	"fmt"
	"math"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"github.com/redis/rueidis"

	"github.com/go-leasehold/leasehold/coordinator"
)

// home is one segment, as this process reaches it.
type home struct {
	stock *Stock
	index int
	keys  keys

	bucket atomic.Int64 // of orders, the one that the server last named
	long   atomic.Int64 // how many batches are still to go the long way
	lane   lane
	puller puller
}

func newHome(s *Stock, i int) *home {
	h := &home{stock: s, index: i, keys: newKeys(s.settings.KeyPrefix, s.name, i)}
	h.lane.home, h.puller.home = h, h
	h.bucket.Store(time.Now().UnixMicro() / s.conf.Remember.Microseconds()) // a guess: the server says if it is wrong
	return h
}

// verb is what an order asks of its home, by the letter that the script has for it.
type verb byte

// The verbs. Each order of one is done once, but for those without an ID.
const (
	deduct    verb = 'D'
	reserve   verb = 'V'
	confirm   verb = 'C'
	cancel    verb = 'X'
	giveBack  verb = 'R'
	restock   verb = 'S'
	extend    verb = 'E'
	query     verb = 'Q' // what is on record
	unnamed   verb = 'N' // deduct, with no ID: counts for its user
	nameless  verb = 'A' // deduct, with neither ID nor user
	cancelled verb = 0   // left before it was sent
)

// once says that it must not be done twice, and the script can't tell.
func (v verb) once() bool { return v == unnamed || v == nameless }

// takes says that it wants units; the others are of orders that have some.
func (v verb) takes() bool { return v == deduct || v == reserve || v.once() }

// order is what one call asks.
type order struct {
	verb     verb
	maybe    bool   // a copy that was not answered may still come, and take
	field    string // what it is called on record
	quantity int64
	ttl      time.Duration // reserve, extend
}

// outcome is what became of it.
type outcome struct {
	status status
	detail *detail // where there is more to say
}

// detail is what the answers of most orders don't have.
type detail struct {
	err      error         // of statusFailed
	left     time.Duration // until the deadline, when it was asked; 0: there is none
	asked    time.Time     // when that was, before the script was run
	quantity int64         // on record
	maybe    bool          // of a refusal: a copy that was not answered may still take
}

// status is an answer of the script, by the number it has there.
type status int

const (
	statusShort    status = 0
	statusDone     status = 1
	statusAgain    status = 2
	statusMismatch status = -1
	statusReturned status = -2
	statusExpired  status = -3
	statusReserved status = -4
	statusOver     status = -5
	statusUnknown  status = -6
	statusBusy     status = -7
	statusTaken    status = -8
	statusFull     status = -9
	statusFailed   status = -100 // see err
)

// known says that a server can answer it: statusFailed is ours.
func (s status) known() bool { return statusFull <= s && s <= statusAgain }

func failed(err error) outcome { return outcome{statusFailed, &detail{err: err}} }

// credit is the total that a donor has ever given to a segment.
type credit struct {
	donor int
	total string
}

var errUnreadable = errors.New("segment: an answer makes no sense")

// batch is what is asked of one home in one script.
type batch struct {
	credits  []credit
	orders   []order // one answer each
	nameless []group // and one each
}

func (b *batch) size() int64 {
	n := len(b.orders)
	for i := range b.nameless {
		n += b.nameless[i].count
	}
	return int64(n)
}

// group is a number of orders with neither ID nor user, of one quantity.
type group struct {
	quantity int64
	count    int
	served   int // set by the answer
}

// longFor is how many batches go the long way at once when one has found something open.
const longFor = 64

// short says that a batch can go the short way.
func (h *home) short(b *batch) bool {
	if len(b.credits) > 0 || h.stock.conf.PerUser > 0 || h.long.Load() > 0 && h.long.Add(-1) >= 0 {
		return false
	}
	for i := range b.orders {
		if b.orders[i].verb != deduct {
			return false
		}
	}
	return true
}

// tries bounds how often the server may name another bucket in one call: it
// changes once in Config.Remember.
const tries = 5

// ask has one script do what the batch asks. It returns one outcome for each
// order; nil where nothing at all was done.
func (h *home) ask(b *batch) ([]outcome, error) {
	var failing outage
	return h.askSince(&failing, b)
}

// askSince is ask of a home that has not answered for some time: calls that have waited behind
// others are not to wait for as long again.
func (h *home) askSince(failing *outage, b *batch) ([]outcome, error) {
	s, script := h.stock, ordersScript
	if size := b.size(); size > 0 {
		s.counters.orders.Add(size)
		s.told.Batched(size)
	}
	if h.short(b) {
		script = deductScript
	}
	for range tries {
		set, err := s.set()
		if err != nil {
			return nil, err
		}
		asked := time.Now()
		s.counters.scripts.Add(1)
		a := s.persist(failing, []call{h.call(script, set, b)})[0]
		if a.err != nil {
			s.noteEpoch(set, a.err)
			return nil, a.err
		}
		values, err := a.message.ToArray()
		if err != nil || len(values) == 0 {
			return nil, fmt.Errorf("%w: orders: %w", coordinator.ErrUnavailable, errUnreadable)
		}
		if stored, bucket, other := another(values); other {
			if err := h.rotate(set, stored, bucket); err != nil {
				return nil, err
			}
			continue
		}
		if len(values) == 1 && word(values) == "long" {
			script = ordersScript
			h.long.Store(longFor)
			continue
		}
		outcomes, err := h.read(b, values, asked)
		for i := range outcomes {
			if out := &outcomes[i]; a.maybe && (out.status == statusShort || out.status == statusOver) {
				out.detail = &detail{maybe: true}
			}
		}
		return outcomes, err
	}
	return nil, fmt.Errorf("%w: stock %q: the server names another bucket each time", coordinator.ErrUnavailable, s.name)
}

// common are the keys and arguments that most scripts begin with.
func (h *home) common(set string) (keys, args []string) {
	bucket := h.bucket.Load()
	keys = []string{h.keys.books, h.keys.orders(bucket), h.keys.orders(bucket - 1), h.keys.open, h.keys.due, h.keys.users, h.keys.raised}
	args = []string{set, h.stock.remember(), number(bucket), number(h.stock.conf.PerUser)}
	return keys, args
}

// call makes a batch into a call. Orders that ask the same, one behind the
// other, are a group.
func (h *home) call(script *script, set string, b *batch) call {
	keys, head := h.common(set)
	if script == deductScript {
		keys = keys[:3]
	}
	args := make([]string, 0, len(head)+1+2*len(b.credits)+4*len(b.nameless)+len(b.orders)+16)
	args = append(append(args, head...), strconv.Itoa(len(b.credits)))
	for _, c := range b.credits {
		args = append(args, strconv.Itoa(c.donor), c.total)
	}
	once := len(b.nameless) > 0
	for i := 0; i < len(b.orders); {
		first := &b.orders[i]
		once = once || first.verb.once()
		at := len(args)
		args = append(args, string(first.verb), number(first.quantity), micros(first.ttl), "")
		n := 0
		for ; i < len(b.orders); i, n = i+1, n+1 {
			o := &b.orders[i]
			if o.verb != first.verb || o.quantity != first.quantity || o.ttl != first.ttl {
				break
			}
			args = append(args, o.field)
		}
		args[at+3] = strconv.Itoa(n)
	}
	for _, g := range b.nameless {
		args = append(args, string(nameless), number(g.quantity), "0", strconv.Itoa(g.count))
	}
	return call{script: script, keys: keys, args: args, once: once}
}

// another tells whether the script has named another bucket than the caller,
// and which, and which is stored.
func another(values []rueidis.RedisMessage) (stored, bucket int64, other bool) {
	if len(values) != 3 || word(values) != "now" {
		return 0, 0, false
	}
	bucket, ok := count(&values[1])
	stored, also := count(&values[2])
	if !ok || !also {
		return 0, 0, false
	}
	return stored, bucket, true
}

// count is a number that is not negative, sent as a text, for Redis would cut it off elsewhere.
func count(m *rueidis.RedisMessage) (n int64, ok bool) {
	text, err := m.ToString()
	if err != nil {
		return 0, false
	}
	n, err = strconv.ParseInt(text, 10, 64)
	return n, err == nil && n >= 0
}

// rotate has the segment go on to a bucket, if it is not there yet.
func (h *home) rotate(set string, stored, bucket int64) error {
	if stored != bucket {
		k := &h.keys
		a := h.stock.run(call{
			script: rotateScript,
			keys:   []string{k.books, k.orders(bucket), k.orders(bucket - 1), k.orders(stored), k.orders(stored - 1), k.raised},
			args:   []string{set, h.stock.remember(), number(bucket), number(stored)},
		})[0]
		if a.err != nil {
			return a.err
		}
		values, _ := a.message.ToArray()
		_, now, ok := another(values)
		if !ok {
			return fmt.Errorf("%w: rotate: %w", coordinator.ErrUnavailable, errUnreadable)
		}
		bucket = now
	}
	h.bucket.Store(bucket)
	return nil
}

// word is a string that stands for itself in an answer.
func word(values []rueidis.RedisMessage) string {
	if !values[0].IsString() {
		return ""
	}
	w, _ := values[0].ToString()
	return w
}

// read reads the answers of a batch.
func (h *home) read(b *batch, values []rueidis.RedisMessage, asked time.Time) ([]outcome, error) {
	outcomes := make([]outcome, len(b.orders))
	if len(values) == 1 && word(values) == "all" {
		for i := range outcomes {
			outcomes[i].status = statusDone
		}
		for i := range b.nameless {
			b.nameless[i].served = b.nameless[i].count
		}
		return outcomes, nil
	}
	unreadable := fmt.Errorf("%w: orders: %w", coordinator.ErrUnavailable, errUnreadable)
	if _, err := values[0].ToInt64(); err != nil {
		return nil, unreadable // a word that nobody knows
	}
	values = values[1:]
	if len(values) != len(b.orders)+len(b.nameless) {
		return nil, fmt.Errorf("%w: %d answers of %d", unreadable, len(values), len(b.orders)+len(b.nameless))
	}
	raised := false
	for i := range outcomes {
		var ok bool
		if outcomes[i], ok = parseOutcome(&values[i], asked); !ok {
			return nil, unreadable
		}
		switch o := &b.orders[i]; o.verb {
		case giveBack, cancel, restock:
			raised = true
		case reserve:
			if outcomes[i].status == statusDone {
				outcomes[i].detail = &detail{left: o.ttl, asked: asked, quantity: o.quantity}
			}
		}
	}
	for i := range b.nameless {
		n, err := values[len(outcomes)+i].ToInt64()
		if err != nil || n < 0 || n > int64(b.nameless[i].count) {
			return nil, unreadable
		}
		b.nameless[i].served = int(n)
	}
	if raised {
		// Before anybody is told: whoever restocks and then deducts is not to
		// hear of what was known before.
		h.stock.sold.forget()
	}
	return outcomes, nil
}

func parseOutcome(m *rueidis.RedisMessage, asked time.Time) (outcome, bool) {
	if m.IsInt64() {
		n, err := m.ToInt64()
		return outcome{status: status(n)}, err == nil && status(n).known()
	}
	values, err := m.ToArray()
	if err != nil || len(values) != 3 {
		return outcome{}, false
	}
	var three [3]int64
	for i := range three {
		if three[i], err = values[i].ToInt64(); err != nil {
			return outcome{}, false
		}
	}
	if !status(three[0]).known() || three[2] < 0 {
		return outcome{}, false
	}
	return outcome{status(three[0]), &detail{left: ofMicros(three[1]), asked: asked, quantity: three[2]}}, true
}

// ofMicros is a number of µs that a server told, within what a Duration can be.
func ofMicros(n int64) time.Duration {
	const most = int64(math.MaxInt64 / time.Microsecond)
	return time.Duration(min(max(n, -most), most)) * time.Microsecond
}

func number(n int64) string { return strconv.FormatInt(n, 10) }

// cut splits the settings that scripts state into epoch and terms.
func cut(set string) (epoch, terms string, ok bool) { return strings.Cut(set, ":") }
