package torture

import (
	"context"
	"errors"
	"math/rand/v2"
	"time"

	"github.com/go-leasehold/leasehold/coordinator"
	"github.com/go-leasehold/leasehold/internal/history"
	"github.com/go-leasehold/leasehold/rwlock"
)

// lane is one goroutine of a process.
type lane struct {
	*history.Lane
	p     *player
	slow  bool // keeps to slow places
	rnd   *rand.Rand
	owner history.ID      // of calls with ctx
	ctx   context.Context // has an owner
	over  *history.Handle // one that has ended, whose writes may still come
}

func newLane(p *player, number int) *lane {
	return &lane{
		Lane: p.rec.Lane(number), p: p, slow: number < 2, rnd: rand.New(rand.NewPCG(p.order.Seed, uint64(1+number))),
		owner: p.rec.ID(), ctx: coordinator.WithOwner(context.Background()),
	}
}

// chance is true in so many of a hundred cases.
func (l *lane) chance(percent int) bool { return l.rnd.IntN(100) < percent }

// place chooses where to go.
func (l *lane) place() place {
	for {
		if at := oneOf(l.rnd, l.p.order.Places...); at.Slow == l.slow {
			return at
		}
	}
}

// visit locks, stays and unlocks.
func (l *lane) visit() {
	at := l.place()
	mode := history.Write
	if at.Kind == readWrite && !l.chance(at.Writes) {
		mode = history.Read
	}
	ctx, owner := context.Background(), history.ID("")
	if l.chance(20) {
		ctx, owner = l.ctx, l.owner
	}
	if l.chance(30) {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, time.Duration(l.rnd.IntN(4000))*time.Microsecond)
		defer cancel()
	}
	if at.Kind == mutex && owner == "" && l.chance(5) {
		l.together(ctx)
		return
	}
	lock := l.p.lock(l.rnd, at)
	l.enter(ctx, lock, mode, owner, 0)
	if at.Kind == readWrite && !l.slow && l.chance(30) {
		for range l.rnd.IntN(8) { // reads in a row open the short way
			l.enter(context.Background(), lock, history.Read, "", 0)
		}
	}
}

// enter locks by one of the ways there are. The hold is owner's, if that is not "".
func (l *lane) enter(ctx context.Context, lock lock, mode history.Mode, owner history.ID, depth int) {
	var try, wait, limited = lock.TryLock, lock.Lock, lock.TryLockFor
	if mode == history.Read {
		try, wait, limited = lock.TryRLock, lock.RLock, lock.TryRLockFor
	}
	limit := time.Duration(l.rnd.IntN(5000)) * time.Microsecond
	var h *history.Handle
	switch l.rnd.IntN(5) {
	case 0:
		l.do(ctx, lock, mode, owner, depth)
		return
	case 1:
		h = l.Lock(lock.Key(), mode, owner, "TryLock", func() (history.Hold, error) { return try(ctx) })
	case 2:
		h = l.Lock(lock.Key(), mode, owner, "TryLockFor", func() (history.Hold, error) { return limited(ctx, limit) })
	default:
		h = l.Lock(lock.Key(), mode, owner, "Lock", func() (history.Hold, error) { return wait(ctx) })
	}
	if h != nil {
		l.stay(lock, h, mode, depth)
	}
}

// do locks by Do, Read or Write.
func (l *lane) do(ctx context.Context, lock lock, mode history.Mode, owner history.ID, depth int) {
	way, name := lock.Do, "Do"
	if mode == history.Read {
		way, name = lock.Read, "Read"
	}
	call, left := history.Now(), int64(0)
	var h *history.Handle
	err := way(ctx, func(ctx context.Context) error {
		h = l.Entered(lock.Key(), mode, owner, name, call, rwlock.Hold{Hold: coordinator.HoldFrom(ctx)})
		l.inside(lock, h, ctx, mode, depth)
		left = history.Now()
		return nil
	})
	if h == nil {
		l.Refused(lock.Key(), mode, name, call, err)
		return
	}
	h.Left(name, left, err)
}

// together locks several mutexes, all or none.
func (l *lane) together(ctx context.Context) {
	var keys []string
	for _, at := range l.p.order.Places {
		if at.Kind == mutex && !at.Slow && l.chance(70) {
			keys = append(keys, at.key())
		}
	}
	if len(keys) == 0 {
		return
	}
	call := history.Now()
	holds, err := l.p.c.LockAll(ctx, keys...)
	if err != nil {
		for _, key := range keys {
			l.Refused(key, history.Write, "LockAll", call, err)
		}
		return
	}
	var all []*history.Handle
	for _, hold := range holds.All() {
		all = append(all, l.Entered(hold.Key(), history.Write, "", "LockAll", call, hold))
	}
	l.pause()
	for _, h := range all {
		l.write(h)
	}
	for _, h := range all {
		h.Unlock()
	}
}

// stay is the time inside, and the end of it.
func (l *lane) stay(lock lock, h *history.Handle, mode history.Mode, depth int) {
	l.inside(lock, h, nil, mode, depth)
	if lock.kind == mutex || mode == history.Read {
		h.Unlock()
		return
	}
	if l.chance(10) {
		l.outlive(lock, h)
		return
	}
	if l.chance(30) {
		next := h.Downgrade(func() (history.Hold, error) { return h.Hold.(rwlock.Hold).Downgrade() })
		if next == nil {
			return
		}
		if err := h.Hold.Unlock(); !errors.Is(err, coordinator.ErrNotHeld) {
			l.Odd(lock.Key(), history.Now(), "Unlock after Downgrade of %s: %v", h.ID, err)
		}
		h = next
		l.inside(lock, h, nil, history.Read, depth)
	}
	h.Unlock()
}

// outlive unlocks a write hold whose owner goes on reading, which is a downgrade.
func (l *lane) outlive(lock lock, h *history.Handle) {
	ctx := h.Hold.(rwlock.Hold).Context()
	r := l.Lock(lock.Key(), history.Read, h.Owner, "RLock", func() (history.Hold, error) { return lock.RLock(ctx) })
	h.Unlock()
	if r != nil {
		l.inside(lock, r, nil, history.Read, 2)
		r.Unlock()
	}
}

// inside is some time in which a hold is asked now and then, writes to the fenced store, and its owner comes in again.
// ctx is the hold's, or nil.
func (l *lane) inside(lock lock, h *history.Handle, ctx context.Context, mode history.Mode, depth int) {
	pauses := max(0, l.rnd.IntN(6)-2)
	if l.slow {
		pauses = l.rnd.IntN(12)
	}
	for range pauses {
		l.pause()
		if mode == history.Write && l.chance(30) {
			l.write(h)
			l.over = h
		}
		if l.over != nil && l.over != h && l.chance(10) {
			l.write(l.over) // as one that was long on its way
		}
		if !h.Valid() && l.chance(50) {
			return
		}
	}
	if depth < 2 && l.chance(15) {
		if ctx == nil {
			ctx = h.Hold.(interface{ Context() context.Context }).Context()
		}
		again := history.Write
		if lock.kind == readWrite && l.chance(70) {
			again = history.Read
		}
		l.enter(ctx, lock, again, h.Owner, depth+1) // to write, of a hold to read: it is refused
		if l.chance(50) {
			h.Valid()
		}
	}
}

// write writes to the fenced store. Whether the hold is safe is not asked: that is what the store is for.
func (l *lane) write(h *history.Handle) {
	var v Verdict
	w := Write{Key: h.Key(), Token: h.Token(), Hold: h.ID}
	if err := l.p.fence.Call("Fence.Write", w, &v); err != nil {
		orExit(err) // it is no part of what is made to fail
	}
}

// pause is mostly short, but for a slow lane.
func (l *lane) pause() {
	switch {
	case !l.slow:
		time.Sleep(time.Duration(l.rnd.IntN(1000)) * time.Microsecond)
	case !l.p.end.Load():
		time.Sleep(l.p.order.TTL * time.Duration(l.rnd.IntN(25)) / 100)
	}
}
