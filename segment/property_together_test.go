package segment

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"pgregory.net/rapid"
)

// Several goroutines of several processes do things at once. Their commands are still run one by one, so whatever
// a call is told must have been so at some moment between its beginning and its end.
func TestStockTogether(t *testing.T) {
	rapidRuns(t, "30")
	coordinators := coordinatorsFor(t)
	rapid.Check(t, func(r *rapid.T) {
		s := drawTogether.Draw(r, "sale")
		if err := newWorld(t, s, coordinators, map[string]int{}).together(); err != nil {
			r.Fatalf("%v\n%v", err, s)
		}
	})
}

// together has everything happen, and says what went wrong first.
func (w *world) together() error {
	if err := w.do(&deed{What: actLoad}); err != nil {
		return err
	}
	c := &crew{w: w, random: rand.New(rand.NewPCG(w.sale.Seed, 1)), at: make([]sync.RWMutex, len(w.processes))}
	for _, p := range w.processes {
		c.haunt(p)
	}
	var all sync.WaitGroup
	for i, deeds := range w.sale.Crew {
		all.Go(func() {
			for j := range deeds {
				if err := c.do(&deeds[j]); err != nil {
					c.wrong.note(fmt.Errorf("deed %d.%d: %w", i, j, err))
					return
				}
			}
		})
	}
	stop := make(chan struct{})
	var clock sync.WaitGroup
	clock.Go(func() { c.tick(stop) })
	all.Wait()
	close(stop)
	clock.Wait()
	for _, p := range append(c.dead, w.processes...) {
		p.faulty.begin(0, plain)
		if err := w.quiet(p); err != nil {
			return err
		}
	}
	return errors.Join(c.wrong.first(), w.wrong(), w.compare(), c.ledger(), w.end())
}

// crew is what goroutines of a run share.
type crew struct {
	w     *world
	wrong aside

	mu     sync.Mutex
	random *rand.Rand
	dead   []*shop
	sold   int64 // units that deducts without an ID were told to have
	maybe  int64 // or may have

	at []sync.RWMutex // guard the world's processes
}

// haunt has mishaps befall a process's commands.
func (c *crew) haunt(p *shop) {
	kinds := []misfortune{unreachable, lostCommand, lostReply, lostReply, doubled, delayed, crashBefore, crashAfter, crashDuring}
	p.faulty.begin(0, func(*call) mishap {
		c.mu.Lock()
		defer c.mu.Unlock()
		if c.random.IntN(1000) >= c.w.sale.Chance {
			return mishap{}
		}
		m := mishap{What: kinds[c.random.IntN(len(kinds))], Later: c.random.IntN(100)}
		if m.What >= crashBefore && c.random.IntN(4) > 0 {
			m.What = lostReply // a crash ends all that the process does
		}
		return m
	})
}

// do has a deed done, and judges what it was told.
func (c *crew) do(d *deed) error {
	if d.What == actNothing {
		return nil
	}
	i := d.Process % len(c.w.processes)
	p := c.process(i)
	v := c.w.begin(p, d, nil)
	out := c.w.call(p, d)
	x := c.w.window(v, d, out)
	// Calls of one process share commands, so whose copies come later is not known.
	x.stray, x.alone = true, false
	if gone, _ := p.faulty.state(); gone {
		c.replace(i, p)
	}
	if d.What == actUnnamed {
		c.mu.Lock()
		switch {
		case out.err == nil:
			c.sold += d.quantity()
		case errors.Is(out.err, ErrUncertain):
			c.maybe += d.quantity()
		}
		c.mu.Unlock()
	}
	return errors.Join(x.judge(), c.w.wrong())
}

func (c *crew) process(i int) *shop {
	c.at[i].RLock()
	defer c.at[i].RUnlock()
	return c.w.processes[i]
}

// replace starts a process anew that has crashed.
func (c *crew) replace(i int, p *shop) {
	c.at[i].Lock()
	defer c.at[i].Unlock()
	if c.w.processes[i] != p {
		return
	}
	c.w.processes[i] = c.w.open(p.c)
	c.haunt(c.w.processes[i])
	c.mu.Lock()
	defer c.mu.Unlock()
	c.dead = append(c.dead, p)
}

// tick moves the clock on, by much more than the time that really passes.
func (c *crew) tick(stop chan struct{}) {
	for {
		c.mu.Lock()
		by := time.Duration(c.random.Int64N(int64(remembers / 8)))
		c.mu.Unlock()
		select {
		case <-stop:
			return
		case <-time.After(2 * time.Millisecond):
		}
		m := c.w.mayhem
		m.mu.Lock()
		now := time.UnixMicro(m.book.now).Add(by)
		m.mu.Unlock()
		m.setClock(now, func() { c.w.clock.set(c.w.t, now) })
		for i := range c.at {
			c.process(i).stock.sold.forget()
		}
	}
}

// ledger compares what deducts without an ID were told with what they took.
func (c *crew) ledger() error {
	c.w.mayhem.arriveAll()
	c.w.mayhem.mu.Lock()
	defer c.w.mayhem.mu.Unlock()
	took := int64(0)
	for _, n := range c.w.mayhem.book.unnamed {
		took += n
	}
	if took < c.sold || took > c.sold+c.maybe {
		return fmt.Errorf("orders without an ID took %d units, and were told %d, perhaps %d more", took, c.sold, c.maybe)
	}
	return nil
}
