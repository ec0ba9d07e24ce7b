package coordinator

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"strings"
	"time"

	"github.com/go-leasehold/leasehold/lease"
	"github.com/go-leasehold/leasehold/lease/memlease"
)

// What happens in the runs of TestRandomLoadUnderFaults.

var quiet = slog.New(slog.NewTextHandler(io.Discard, nil))

// befall has a fault happen.
func (p *plan) befall(f fault) {
	time.Sleep(f.At)
	store := p.stores[f.Process]
	switch f.What {
	case "reply lost":
		p.server.FaultNext(0, f.N, memlease.Fault{Err: errLost, Applied: true})
	case "re-sent":
		p.server.FaultNext(0, f.N, memlease.Fault{Resend: true})
	case "refused":
		p.server.FaultNext(0, f.N, memlease.Fault{Err: errStore})
	case "late copy":
		p.server.FaultNext(0, f.N, memlease.Fault{Err: errLost, Applied: true, Late: f.Lasts + 1})
	case "late copy of a re-sent one":
		p.server.FaultNext(lease.Acquire, f.N, memlease.Fault{Resend: true, Late: f.Lasts + 1})
	case "delay":
		p.server.FaultNext(0, f.N, memlease.Fault{Delay: f.Lasts})
	case "disconnect":
		store.Disconnect(errStore)
		time.Sleep(f.Lasts)
		store.Connect()
	case "drop events":
		id := p.coordinators[f.Process].ID()
		p.server.DropEvents(func(to string, _ lease.Event) bool { return to == id })
		time.Sleep(f.Lasts)
		p.server.DropEvents(nil)
	case "down":
		store.SetDown(errStore)
		time.Sleep(f.Lasts)
		store.SetDown(nil)
	case "delete", "force":
		p.mu.Lock()
		p.outside[f.Key] = time.Now()
		p.mu.Unlock()
		if f.What == "delete" {
			p.server.Delete(keyNames[f.Key])
		} else if err := p.server.Force(keyNames[f.Key]); err != nil {
			p.fail("force: %v", err)
		}
	case "kill":
		store.Kill()
	}
}

// work makes the calls of a worker.
func (p *plan) work(w worker) {
	for _, s := range w.Steps {
		time.Sleep(s.Pause)
		ctx, cancel := context.WithCancel(context.Background())
		how := call{wait: -1}
		switch {
		case s.How == 1:
			how.try = true
		case s.Limit > 0 && s.How == 2:
			how.wait = s.Limit
		case s.Limit > 0:
			time.AfterFunc(s.Limit, cancel)
		}
		p.once(ctx, w.Process, s, how)
		cancel()
	}
}

// once locks, works and unlocks.
func (p *plan) once(ctx context.Context, process int, s step, how call) {
	c, cached := p.coordinators[process], p.cached[process*len(keyNames)+s.Key]
	conf := &mutexConfig{ttl: c.conf.ttl, maxHold: s.MaxHold, fair: s.Fair}
	mode := lease.Exclusive
	if s.Shared {
		mode = lease.Shared
	}
	lock := func() (*Hold, error) { return acquire(ctx, c, keyNames[s.Key], kindOf(s.Key), mode, conf, how) }
	if s.Cached {
		lock = func() (*Hold, error) { return cached.try(ctx, mode) }
	}
	h, err := lock()
	if err != nil {
		var w *WaitError
		if !errors.As(err, &w) || !errors.Is(err, ErrNotAcquired) && !errors.Is(err, ErrUnavailable) || h != nil {
			p.fail("Lock: %v", err)
		}
		return
	}
	x := p.granted(c, h, s)
	if denied := cached.deny(ctx); denied != nil && h.Valid() {
		p.fail("held here, and a Cached TryLock is told %v", denied)
	}
	if s.Reenter {
		in, err := acquire(context.WithoutCancel(h.Context()), c, keyNames[s.Key], kindOf(s.Key), mode, conf, call{wait: time.Millisecond})
		switch {
		case err == nil && in.Token() == h.Token():
			defer func() { _ = in.Unlock() }() // told below
		case h.Valid():
			p.fail("re-entry: %v", err)
		case err == nil:
			_ = in.Unlock() // the hold was lost, and this is another
		}
	}
	held := h.Context()
	time.Sleep(s.Hold)
	was := h.Valid()
	if !was && s.Hold > 0 {
		time.Sleep(time.Nanosecond) // the timer may be of this very moment
		if held.Err() == nil {
			p.fail("the context of a hold that is over goes on: %v", h.Err())
		}
	}
	p.mu.Lock()
	delete(p.active, x)
	p.mu.Unlock()
	err = h.Unlock()
	switch {
	case err == nil && !was:
		p.fail("Unlock says nil of a hold that was over")
	case err != nil && !errors.Is(err, ErrLeaseLost) && !errors.Is(err, ErrHoldExpired):
		p.fail("Unlock: %v", err)
	case errors.Is(h.Unlock(), nil):
		p.fail("Unlock twice says nil")
	}
}

// granted checks a new hold against all before it.
func (p *plan) granted(c *Coordinator, h *Hold, s step) *watchedHold {
	x := &watchedHold{Hold: h, key: s.Key, shared: s.Shared, id: c.ID()}
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.undisturbed(s.Key) {
		before := p.newestAll[s.Key]
		if s.Shared {
			before = max(p.newestExclusive[s.Key], 1) - 1 // readers may have the token of the write before them
		}
		if h.Token() <= before {
			p.failLocked("%s: token %d after %d", keyNames[s.Key], h.Token(), before)
		}
	}
	p.newestAll[s.Key] = max(p.newestAll[s.Key], h.Token())
	if !s.Shared {
		p.newestExclusive[s.Key] = max(p.newestExclusive[s.Key], h.Token())
	}
	p.active[x] = true
	p.exclusion()
	return x
}

// undisturbed says whether nobody changed the key behind the holders' back for
// as long as they may not know.
func (p *plan) undisturbed(key int) bool {
	return p.outside[key].IsZero() || time.Since(p.outside[key]) > p.TTL
}

// exclusion checks that no two holds are valid that exclude each other.
func (p *plan) exclusion() {
	var readers, writers [2]int
	for x := range p.active {
		switch {
		case !x.Valid():
		case x.shared:
			readers[x.key]++
		default:
			writers[x.key]++
		}
	}
	for key := range keyNames {
		if p.undisturbed(key) && (writers[key] > 1 || writers[key] == 1 && readers[key] > 0) {
			p.failLocked("%s: %d writers beside %d readers", keyNames[key], writers[key], readers[key])
		}
	}
}

// watchOver checks holds again and again: against each other, and against the
// store, which must not think differently.
func (p *plan) watchOver(stop <-chan struct{}) {
	ticker := time.NewTicker(7 * time.Millisecond)
	defer ticker.Stop()
	for {
		select {
		case <-stop:
			return
		case <-ticker.C:
		}
		p.mu.Lock()
		p.exclusion()
		for x := range p.active {
			if !p.undisturbed(x.key) || !x.Valid() {
				continue
			}
			if info, err := p.server.Inspect(keyNames[x.key]); (err != nil || !holds(info, x.id)) && x.Valid() {
				p.failLocked("%s: process %s believes in a lease that the store does not know: %+v, %v",
					keyNames[x.key], x.id, info, err)
			}
		}
		p.mu.Unlock()
	}
}

// holds says whether a process is among the holders.
func holds(info lease.Info, id string) bool {
	for _, h := range info.Holders {
		if strings.HasPrefix(h.Owner, id+":") {
			return true
		}
	}
	return false
}
