package coordinator

import (
	"context"

	"github.com/puzpuzpuz/xsync/v3"

	"github.com/go-leasehold/leasehold/lease"
	"github.com/go-leasehold/leasehold/telemetry"
)

// knowledge is what is known about a holder elsewhere: from client-side caching, which is told
// when it changes, so that it is an answer to a Cached TryLock; or from a holder's own answer,
// so that a TryLock knows whom to ask.
type knowledge struct {
	holder  string
	until   instant // the holder's TTL, if it isn't renewed; or how long the holder is asked first
	epoch   uint64  // Coordinator.heard when it was read: void when notices were lost since
	hearsay bool    // the holder said so: it may be over by now
}

// maxKnown bounds the actors kept for what they know of other holders: for
// [Cached], and so that TryLock knows whom to ask.
const maxKnown = 10_000

// know notes that another process holds the key, if there is room for it.
func (a *actor) know(k knowledge) {
	if a.elsewhere.holder == "" && a.c.knowing.Add(1) > maxKnown {
		a.c.knowing.Add(-1)
		return
	}
	k.epoch = a.c.heard.Load()
	a.elsewhere = k
	a.spot.denial.Store(nil)
	if !k.hearsay && !a.closing {
		a.spot.denial.Store(&denial{
			knowledge: k, kind: a.kind, count: a.c.past.denials(a.classOf()),
			err: &WaitError{Key: a.key, Holder: k.holder, Err: ErrNotAcquired},
		})
	}
}

func (a *actor) unlearn() {
	if a.elsewhere.holder != "" {
		a.c.knowing.Add(-1)
		a.elsewhere = knowledge{}
		a.spot.denial.Store(nil)
	}
}

// known says whether another process is known to hold the key.
func (a *actor) known(now instant) bool {
	k := &a.elsewhere
	return k.holder != "" && now < k.until && k.epoch == a.c.heard.Load()
}

// denial is what a Cached TryLock is told without asking anybody, the key's actor
// included: like the gate for readers, it costs no memory that cores pass to and fro.
// It is not changed once it is there.
type denial struct {
	knowledge
	kind  lease.Kind
	err   *WaitError     // the answer, the same for all
	count *xsync.Counter // of such answers
}

// try takes the key if nobody holds it.
func (l *handle) try(ctx context.Context, mode lease.Mode) (*Hold, error) {
	if l.conf.cached && mode == lease.Exclusive {
		if err := l.deny(ctx); err != nil {
			return nil, err
		}
	}
	return l.acquire(ctx, mode, &call{try: true, wait: -1})
}

// deny says that another process is known to have the key, or nil where the actor has to be
// asked. Calls of which telemetry is told go to the actor, as do those of an owner, who may be
// inside.
func (l *handle) deny(ctx context.Context) error {
	p := l.at.Load()
	if p == nil || l.refusal(ctx) != nil || l.c.tel.Active() || ownerOf(ctx) != nil {
		return nil
	}
	d := p.denial.Load()
	if d == nil || d.kind != l.kind || d.epoch != l.c.heard.Load() || l.c.clock.now() >= d.until {
		return nil
	}
	d.count.Inc()
	return d.err
}

// denials returns the counter of a class's denials. It outlives the key's actor: who
// counts does not hold its mutex.
func (p *past) denials(class *telemetry.Class) *xsync.Counter {
	p.Lock()
	defer p.Unlock()
	n := p.denied[class]
	if n == nil {
		if p.denied == nil {
			p.denied = map[*telemetry.Class]*xsync.Counter{}
		}
		n = xsync.NewCounter()
		p.denied[class] = n
	}
	return n
}
