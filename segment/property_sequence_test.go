package segment

import (
	"errors"
	"flag"
	"fmt"
	"os"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"
)

// One thing happens after the other, but for what is said to happen between two commands: so what a call is told can
// be judged exactly, and a plan that fails is made smaller.
func TestStockInSequence(t *testing.T) {
	rapidRuns(t, "40")
	coordinators := coordinatorsFor(t)
	rapid.Check(t, func(r *rapid.T) {
		s := drawSale.Draw(r, "sale")
		if err := newWorld(t, s, coordinators, map[string]int{}).sequence(); err != nil {
			r.Fatalf("%v\n%v", err, s)
		}
	})
}

// rapidRuns sets how often rapid runs a test: in normal runs n times.
func rapidRuns(t *testing.T, n string) {
	t.Helper()
	switch env := os.Getenv("LEASEHOLD_TORTURE"); env {
	case "":
	case "1":
		n = "2000"
	default:
		n = env
	}
	before := flag.Lookup("rapid.checks").Value.String()
	require.NoError(t, flag.Set("rapid.checks", n))
	t.Cleanup(func() { require.NoError(t, flag.Set("rapid.checks", before)) })
}

// sequence has everything happen, one after the other, and says what went wrong first.
func (w *world) sequence() error {
	if err := w.do(&deed{What: actLoad, Mishaps: w.sale.Loading}); err != nil {
		return err
	}
	if err := w.do(&deed{What: actLoad, Process: 1}); err != nil { // every process does so when it starts
		return err
	}
	for i := range w.sale.Deeds {
		if err := w.do(&w.sale.Deeds[i]); err != nil {
			return fmt.Errorf("deed %d: %w", i, err)
		}
	}
	return w.end()
}

// do has a deed done, judges what it was told, and compares what Redis has with what it should have.
func (w *world) do(d *deed) error {
	i := d.Process % len(w.processes)
	p := w.processes[i]
	switch d.What {
	case actNothing:
		return nil
	case actClock:
		w.advance(d.By)
		return w.compare()
	case actNewStock:
		w.processes[i] = w.open(p.c)
		return nil
	}
	var between aside
	p.faulty.aside = func(d *deed) { between.note(w.between(i, d)) }
	v := w.begin(p, d, scripted(d.Mishaps))
	out := w.call(p, d)
	own := w.ownKnowledge(p, d, out)
	for _, other := range w.processes {
		if err := w.quiet(other); err != nil {
			return err
		}
	}
	x := w.window(v, d, out)
	w.count(x)
	w.refuse(x)
	if gone, _ := p.faulty.state(); gone {
		w.processes[i] = w.open(p.c)
	}
	p.faulty.begin(0, plain)
	return errors.Join(x.judge(), own, between.first(), w.wrong(), w.compare(), w.settled())
}

// ownKnowledge wants a process that has given units back to know of it at once, without being told by the server.
func (w *world) ownKnowledge(p *shop, d *deed, out told) error {
	if out.err != nil || d.What != actReturn && d.What != actCancel && d.What != actRestock {
		return nil
	}
	known := p.stock.sold.known.Load()
	w.mayhem.mu.Lock()
	defer w.mayhem.mu.Unlock()
	now := w.mayhem.book.moments[len(w.mayhem.book.moments)-1].available
	if known != nil && known.sum < now {
		return fmt.Errorf("after its own %s a process knows that %d are left, and it is %d", d.What, known.sum, now)
	}
	return nil
}

// aside keeps what went wrong in between.
type aside struct {
	mu  sync.Mutex
	err error
}

func (a *aside) note(err error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.err == nil {
		a.err = err
	}
}

func (a *aside) first() error {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.err
}

// between has another process do something between two commands of one.
func (w *world) between(i int, d *deed) error {
	if d.What == actClock {
		w.advance(d.By)
		return nil
	}
	other := d.Process % len(w.processes)
	if other == i {
		other = (i + 1) % len(w.processes)
	}
	p := w.processes[other]
	v := w.begin(p, d, plain)
	out := w.call(p, d)
	if err := w.quiet(p); err != nil {
		return err
	}
	x := w.window(v, d, out)
	x.alone = false
	w.count(x)
	return x.judge()
}

// advance moves the clock. What a process knows for so long by its own clock is over with it.
func (w *world) advance(by time.Duration) {
	now := time.UnixMicro(w.mayhem.book.now).Add(by)
	w.mayhem.setClock(now, func() { w.clock.set(w.t, now) })
	for _, p := range w.processes {
		p.stock.sold.forget()
	}
}

// wrong is what contradicts the chronicle.
func (w *world) wrong() error {
	w.mayhem.mu.Lock()
	defer w.mayhem.mu.Unlock()
	if all := w.mayhem.book.wrong; len(all) > 0 {
		return errors.New(all[0])
	}
	return nil
}

// end is when everything is over: copies have arrived, deadlines have passed, nothing befalls anybody. Then the
// books are exact, every unit can still be sold, and not one more.
func (w *world) end() error {
	w.mayhem.arriveAll()
	w.advance(4 * remembers)
	p := w.open(w.processes[0].c)
	w.processes = append(w.processes, p)
	last := len(w.processes) - 1
	if err := w.do(&deed{What: actLoad, Process: last}); err != nil { // ends one that a crash has left
		return fmt.Errorf("at the end: %w", err)
	}
	if err := w.do(&deed{What: actAudit, Process: last}); err != nil {
		return fmt.Errorf("at the end: %w", err)
	}
	left, err := p.stock.Remaining(w.t.Context())
	if err != nil {
		return fmt.Errorf("at the end: %w", err)
	}
	for n := 0; left > 0; n++ {
		o := Order{ID: "last", User: fmt.Sprintf("last%d", n), Quantity: left}
		if w.conf.PerUser > 0 {
			o.Quantity = min(left, w.conf.PerUser)
		}
		if _, err := p.stock.Deduct(w.t.Context(), o); err != nil {
			return fmt.Errorf("at the end, %d of %d units: %w", o.Quantity, left, err)
		}
		left -= o.Quantity
	}
	for _, q := range w.processes {
		if gone, _ := q.faulty.state(); gone {
			continue
		}
		late := Order{ID: "too late", User: "nobody", Quantity: 1}
		if _, err = q.stock.Deduct(w.t.Context(), late); errors.Is(err, ErrEpoch) { // it was not told of a reset yet
			_, err = q.stock.Deduct(w.t.Context(), late)
		}
		if !errors.Is(err, ErrSoldOut) {
			return fmt.Errorf("at the end, one too many: %w", err)
		}
		if err := w.quiet(q); err != nil {
			return err
		}
	}
	return errors.Join(w.wrong(), w.compare(), w.tidy(), w.tookNothing())
}

// refuse notes a deed that is over for good: what of it is still on its way must not take any more. (A command that
// was answered is not run once more by any network; that is there to be hard on what says that it can be.)
func (w *world) refuse(x *window) {
	for _, m := range x.deed.Mishaps {
		if m.What == doubled {
			return
		}
	}
	err := x.out.err
	if errors.Is(err, ErrSoldOut) || errors.Is(err, ErrUserLimit) || errors.Is(err, ErrNotDone) {
		if !errors.Is(err, ErrUncertain) {
			w.refused = append(w.refused, x.watch.tag)
		}
	}
}

// tookNothing says which of these deeds has taken something after all.
func (w *world) tookNothing() error {
	w.mayhem.mu.Lock()
	defer w.mayhem.mu.Unlock()
	for _, tag := range w.refused {
		if n := w.mayhem.book.tookBy[tag]; n > 0 {
			return fmt.Errorf("a deed (number %d, with those in between) was told that it took nothing, and a late command of it took %d units", tag, n)
		}
	}
	return nil
}

// count notes what a call has met.
func (w *world) count(x *window) {
	m := w.mayhem
	m.mu.Lock()
	defer m.mu.Unlock()
	for what, err := range map[string]error{
		"sold out": ErrSoldOut, "user limit": ErrUserLimit, "mismatch": ErrOrderMismatch, "told returned": ErrReturned,
		"told expired": ErrExpired, "told reserved": ErrReserved, "told confirmed": ErrConfirmed, "told unknown": ErrUnknownOrder,
		"uncertain": ErrUncertain, "not done": ErrNotDone, "told epoch": ErrEpoch, "told not loaded": ErrNotLoaded, "told loaded": ErrLoaded,
	} {
		if errors.Is(x.out.err, err) {
			m.reached[what]++
			if x.watch.commands == m.commands {
				m.reached[what+" with no command"]++
			}
			m.reached[fmt.Sprintf("%s of %s", what, x.deed.What)]++
		}
	}
	if x.out.err == nil {
		m.reached["done: "+string(x.deed.What)]++
	}
	if x.out.repeated {
		m.reached["told again"]++
		if x.watch.knew {
			m.reached["told again while sold out is known"]++
		}
	}
}
