package coordinator

import (
	"context"
	"time"

	"github.com/go-leasehold/leasehold/lease"
)

// ReadWrite is a handle on a read/write lock, in the terms of this package:
// package rwlock gives it the face that programs use. Like a [Mutex] it holds
// nothing by itself.
type ReadWrite struct{ handle }

// ReadWrite returns a handle on the read/write lock of a key. Options mean what
// they mean for [Coordinator.Mutex], for holds of either mode.
func (c *Coordinator) ReadWrite(key string, opts ...MutexOption) *ReadWrite {
	l := &ReadWrite{}
	l.init(c, key, lease.ReadWrite, opts)
	return l
}

// Lock is [Mutex.Lock] in the given mode. The owner of an exclusive hold may
// take a shared one; that of a shared hold gets [ErrUpgrade] where it asks for
// an exclusive one.
func (l *ReadWrite) Lock(ctx context.Context, mode lease.Mode) (*Hold, error) {
	return l.lock(ctx, mode, &call{wait: -1})
}

// TryLock is [Mutex.TryLock] in the given mode. A reader fails also where a
// writer waits.
func (l *ReadWrite) TryLock(ctx context.Context, mode lease.Mode) (*Hold, error) {
	return l.lock(ctx, mode, &call{try: true, wait: -1})
}

// TryLockFor is [Mutex.TryLockFor] in the given mode.
func (l *ReadWrite) TryLockFor(ctx context.Context, mode lease.Mode, d time.Duration) (*Hold, error) {
	name := "TryLockFor"
	if mode == lease.Shared {
		name = "TryRLockFor"
	}
	if d < 0 {
		return nil, invalid("%s(%v) is negative", name, d)
	}
	how := &call{wait: d}
	if d == 0 {
		how = &call{try: true, wait: -1}
	}
	return l.lock(ctx, mode, how)
}

// Do is [Mutex.Do] in the given mode.
func (l *ReadWrite) Do(ctx context.Context, mode lease.Mode, fn func(context.Context) error) error {
	switch {
	case mode == lease.Exclusive:
		return l.do(ctx, mode, "Write", fn)
	case mode != lease.Shared:
		return invalid("%v: neither %v nor %v", mode, lease.Exclusive, lease.Shared)
	case fn == nil:
		return l.do(ctx, mode, "Read", fn)
	}
	h, back := l.passGate(ctx)
	if h != nil {
		return h.read(ctx, fn)
	}
	err := l.do(ctx, mode, "Read", fn)
	if err != nil && back != nil {
		back.tick()
	}
	return err
}

// lock passes the gate if it can, and asks the actor if not.
func (l *ReadWrite) lock(ctx context.Context, mode lease.Mode, how *call) (*Hold, error) {
	switch mode {
	case lease.Shared:
	case lease.Exclusive:
		if how.try {
			return l.try(ctx, mode)
		}
		return l.acquire(ctx, mode, how)
	default:
		return nil, invalid("%v: neither %v nor %v", mode, lease.Exclusive, lease.Shared)
	}
	h, back := l.passGate(ctx)
	if h != nil {
		return h, nil
	}
	h, err := l.acquire(ctx, mode, how)
	if err != nil && back != nil {
		back.tick() // its context may have ended before it got there
	}
	return h, err
}

// passGate returns a read hold that costs next to nothing, where that can be
// had; otherwise nil, and the actor that has to be told of the call if it was sent
// back. A hold with an owner, a limit or a trace of its own is the actor's to make.
func (l *ReadWrite) passGate(ctx context.Context) (h *Hold, back *actor) {
	if ctx == nil || l.err != nil || l.conf.maxHold > 0 || l.conf.endWith != nil {
		return nil, nil
	}
	at := l.at.Load()
	if at == nil { // a new handle
		a, ok := l.c.actors.Load(l.key)
		if !ok {
			return nil, nil
		}
		at = a.spot
		l.at.Store(at)
	}
	g := at.gate.Load()
	if g == nil || ctx.Err() != nil || ownerOf(ctx) != nil {
		return nil, nil
	}
	if l.c.tel.Active() && l.c.tel.Wants(ctx) {
		return nil, nil // others may have to be told whom they wait for
	}
	b, sentBack := g.pass()
	if sentBack {
		return nil, g.actor
	}
	if b == nil {
		return nil, nil
	}
	p := &passedHold{
		Hold:    Hold{actor: g.actor, parent: ctx, token: g.token.Load(), mode: lease.Shared},
		passage: passage{gate: g, badge: b},
	}
	p.passed = &p.passage
	return &p.Hold, nil
}

// read calls fn under a hold that is passing.
func (h *Hold) read(ctx context.Context, fn func(context.Context) error) (err error) {
	if ctx.Done() != nil {
		stop := context.AfterFunc(ctx, func() {
			h.lock()
			c := h.claim
			if c != nil { // it is not unlocked yet
				c.kept = true
			}
			h.actor.mu.Unlock()
			if c != nil {
				h.actor.expire(c, ctx)
			}
		})
		defer stop()
	}
	defer func() {
		if lost := h.Unlock(); lost != nil {
			err = joinLoss(err, lost)
		}
	}()
	return fn(&readContext{Context: ctx, hold: h})
}

// Downgrade makes a shared hold of the exclusive hold of a read/write lock, with
// no moment in between in which anybody else could write. It does not wait:
// readers of this process may come in when it returns, those of others as soon as
// the store has heard of it. h is over then, as if it had been unlocked, and its context ends with
// [ErrReleased]; what it had of [MaxHold] and [EndWith] goes on for the new hold,
// as do its owner and its token.
//
// Where the owner has more exclusive holds of the key, the key stays exclusive
// until they are over. The error is [ErrNotExclusive] for a shared hold and for a
// mutex's, [ErrNotHeld] for one that is unlocked, or why the hold was lost.
func (h *Hold) Downgrade() (*Hold, error) {
	if h == nil {
		return nil, ErrNotHeld
	}
	a := h.actor
	now := a.enter()
	h.settle(now)
	next, err := h.downgrade()
	x := h.more
	a.leave(now)
	if err != nil {
		return nil, err
	}
	if x != nil {
		x.end(ErrReleased)
	}
	return next, nil
}

// downgrade passes what h has on to a shared handle of the same claim.
func (h *Hold) downgrade() (*Hold, error) {
	if err := h.endedLocked(); err != nil {
		return nil, err
	}
	a, c := h.actor, h.claim
	if h.mode != lease.Exclusive || a.kind != lease.ReadWrite {
		return nil, ErrNotExclusive
	}
	next := &Hold{actor: a, parent: h.parent, traced: h.traced}
	c.join(next, lease.Shared)
	c.inherit(h.number, next.number)
	h.over(c)
	if x := h.more; x != nil {
		if x.watched {
			x.cleanup.Stop()
		}
		if x.stops != nil {
			next.extras().stops, x.stops = x.stops, nil
		}
	}
	next.watch(a)
	c.handles--
	c.writes--
	if c.writes == 0 {
		a.soften(c)
	}
	return next, nil
}

// soften makes an exclusive hold, none of whose handles is that any more, a
// shared one. The store is told next.
func (a *actor) soften(c *claim) {
	c.mode = lease.Shared
	a.tellDowngraded(c)
	if c.exposed {
		a.expose(c)
	}
	if t := &a.cur; t.mode == lease.Exclusive {
		t.mode, t.lowering = lease.Shared, true
	}
}
