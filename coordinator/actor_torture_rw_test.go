package coordinator

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/go-leasehold/leasehold/lease"
)

// What is done under the holds of TestRandomReadersAndWriters.

// inside is what is done under a hold.
func (p *rwPlan) inside(l *ReadWrite, h *Hold, mode lease.Mode, s rwStep) {
	x := p.in(h, l, mode)
	var held context.Context
	if s.Ask {
		held = h.Context()
	}
	time.Sleep(s.Hold)
	switch s.What {
	case "read and enter again", "read and try to write":
		p.again(l, h, s)
	case "downgrade":
		h, x, held = p.downgrade(l, h, x, held)
		time.Sleep(s.Hold)
	case "write twice, downgrade one":
		in, err := l.Lock(context.WithoutCancel(h.Context()), lease.Exclusive)
		if err != nil || in.Token() != h.Token() {
			p.unlessLost(h, "a write in a write: %v", err)
			if err == nil {
				p.unlock(in, s) // of another hold
			}
			break
		}
		r, err := in.Downgrade()
		if err != nil {
			p.unlessLost(h, "downgrade: %v", err)
			p.unlock(in, s)
			break
		}
		defer func() { p.unlock(r, s) }() // after the write: its unlock is a downgrade
	case "unlock the write first":
		r, err := l.Lock(context.WithoutCancel(h.Context()), lease.Shared)
		if err != nil || r.Token() != h.Token() {
			p.unlessLost(h, "a read in a write: %v", err)
			if err == nil {
				p.unlock(r, s)
			}
			break
		}
		p.out(x)
		p.unlock(h, s)
		h, held, x = r, nil, p.note(r, l, lease.Shared)
		time.Sleep(s.Hold)
	}
	if !h.Valid() && held != nil {
		time.Sleep(time.Nanosecond) // the timer may be of this very moment
		if held.Err() == nil {
			p.fail("the context of a hold that is over goes on: %v", h.Err())
		}
	}
	p.out(x)
	p.unlock(h, s)
}

// downgrade makes a read of a write.
func (p *rwPlan) downgrade(l *ReadWrite, h *Hold, x *watchedHold, held context.Context) (*Hold, *watchedHold, context.Context) {
	r, err := h.Downgrade()
	if err != nil {
		p.unlessLost(h, "downgrade: %v", err)
		return h, x, held
	}
	p.out(x)
	if r.Token() != h.Token() || !errors.Is(h.Unlock(), ErrNotHeld) || held != nil && held.Err() == nil {
		p.fail("what is left of a write that was downgraded: %v", h.Err())
	}
	x = p.note(r, l, lease.Shared)
	p.mu.Lock()
	p.compare(x)
	p.mu.Unlock()
	return r, x, nil
}

// again has the owner of a read enter again, or try to write.
func (p *rwPlan) again(l *ReadWrite, h *Hold, s rwStep) {
	ctx := context.WithoutCancel(h.Context())
	if s.What == "read and try to write" {
		w, err := l.TryLock(ctx, lease.Exclusive)
		if !errors.Is(err, ErrUpgrade) {
			p.unlessLost(h, "a reader that tries to write: %v", err)
		}
		if err == nil {
			p.unlock(w, s)
		}
		return
	}
	in, err := l.TryLock(ctx, lease.Shared)
	if err != nil || in.Token() != h.Token() {
		p.unlessLost(h, "a reader that enters again: %v", err)
	}
	if err == nil {
		p.unlock(in, s)
	}
}

// unlessLost fails, unless the hold is over anyway.
func (p *rwPlan) unlessLost(h *Hold, format string, args ...any) {
	if h.Valid() {
		p.fail(format, args...)
	}
}

// unlock ends a hold, by two at once if the step says so.
func (p *rwPlan) unlock(h *Hold, s rwStep) {
	was := h.Valid()
	var errs [2]error
	var both sync.WaitGroup
	if s.Twice {
		both.Go(func() { errs[1] = h.Unlock() })
		errs[0] = h.Unlock()
		both.Wait()
	} else {
		errs[0] = h.Unlock()
		errs[1] = h.Unlock()
	}
	content := 0
	for _, err := range errs {
		switch {
		case err == nil:
			content++
		case !errors.Is(err, ErrLeaseLost) && !errors.Is(err, ErrHoldExpired) && !errors.Is(err, ErrNotHeld):
			p.fail("Unlock: %v", err)
		}
	}
	if content > 1 || content > 0 && !was {
		p.fail("Unlock is content too often: %v, and it was valid: %v", errs, was)
	}
}
