package memlease

import (
	"slices"
	"time"

	"github.com/go-leasehold/leasehold/lease"
)

// entry is what the server keeps of one key. Server.mu guards it. Its methods
// change nothing but the entry; what others are told of it is in verbs.go.
type entry struct {
	name string

	foreign bool       // the key has a value that is no lock
	kind    lease.Kind // of the lock that holders hold
	holders []*holder  // in the order of their grants

	queue      []*waiter // by score
	queueUntil time.Time // when the queue is forgotten

	token      uint64 // the newest given out
	tokenUntil time.Time

	watchers []watcher
	timer    *time.Timer // fires when the watched key may have expired
}

// holder has the lease until its deadline, by the server's clock.
type holder struct {
	owner    string
	mode     lease.Mode
	deadline time.Time
	since    time.Time
	trace    string // of the hold that its process is in, where that was told
}

// waiter is a place in the queue.
type waiter struct {
	owner  string
	kind   lease.Kind
	mode   lease.Mode
	ttl    time.Duration // what it gets with the lease
	tokens int
	score  int64 // arrival in µs
}

// watcher is a store that is told of the next change of the key, unless it lost
// its connection since.
type watcher struct {
	store *Store
	life  uint64
}

func (e *entry) holder(owner string) *holder {
	for _, h := range e.holders {
		if h.owner == owner {
			return h
		}
	}
	return nil
}

func (e *entry) rank(owner string) int {
	return slices.IndexFunc(e.queue, func(w *waiter) bool { return w.owner == owner })
}

// admits says whether a lease of the mode may stand beside the present ones.
func (e *entry) admits(mode lease.Mode) bool {
	if len(e.holders) == 0 {
		return true
	}
	return mode == lease.Shared && e.holders[0].mode == lease.Shared
}

// place is where a waiter of that age would stand in the queue. Those of one
// score keep the order of their arrival.
func (e *entry) place(age time.Duration, now time.Time) (index int, score int64) {
	score = now.UnixMicro()
	if age < 0 {
		if n := len(e.queue); n > 0 {
			score = max(score, e.queue[n-1].score+1)
		}
		return len(e.queue), score
	}
	score -= age.Microseconds()
	for index = len(e.queue); index > 0 && e.queue[index-1].score > score; index-- {
	}
	return index, score
}

// block takes n fresh tokens. The counter follows the clock, so that tokens grow
// across the counter's own expiry.
func (e *entry) block(n int, now time.Time, retention time.Duration) (first, last uint64) {
	if n <= 0 {
		return 0, 0
	}
	newest := max(e.token, uint64(max(now.UnixMicro(), 0)))
	e.token = newest + uint64(n)
	e.tokenUntil = now.Add(retention)
	return newest + 1, e.token
}

// extend lengthens a lease, and never shortens it.
func (h *holder) extend(ttl time.Duration, now time.Time) (longer bool) {
	deadline := now.Add(ttl)
	if !deadline.After(h.deadline) {
		return false
	}
	h.deadline = deadline
	return true
}

// keepQueue lengthens the queue's life.
func (e *entry) keepQueue(ttl time.Duration, now time.Time) {
	if until := now.Add(ttl); until.After(e.queueUntil) {
		e.queueUntil = until
	}
}

// hold makes an owner a holder.
func (e *entry) hold(kind lease.Kind, owner string, mode lease.Mode, ttl time.Duration, now time.Time) {
	e.kind = kind
	e.holders = append(e.holders, &holder{owner: owner, mode: mode, deadline: now.Add(ttl), since: now})
}

// remove takes an owner out of the holders.
func (e *entry) remove(owner string) bool {
	n := len(e.holders)
	e.holders = slices.DeleteFunc(e.holders, func(h *holder) bool { return h.owner == owner })
	return len(e.holders) < n
}

// withdraw takes an owner out of the queue.
func (e *entry) withdraw(owner string) {
	if i := e.rank(owner); i >= 0 {
		e.queue = slices.Delete(e.queue, i, i+1)
	}
}

// soonest is the first end among the holders' leases, which is when a waiter
// should look again; latest is the last one, when the key is gone altogether.
func (e *entry) soonest() time.Time {
	end := e.holders[0].deadline
	for _, h := range e.holders[1:] {
		if h.deadline.Before(end) {
			end = h.deadline
		}
	}
	return end
}

func (e *entry) latest() time.Time {
	end := e.holders[0].deadline
	for _, h := range e.holders[1:] {
		if h.deadline.After(end) {
			end = h.deadline
		}
	}
	return end
}

// blank says that forgetting the entry loses nothing.
func (e *entry) blank(now time.Time) bool {
	return !e.foreign && len(e.holders) == 0 && len(e.queue) == 0 && len(e.watchers) == 0 &&
		(e.token == 0 || !now.Before(e.tokenUntil))
}

// info is what Inspect tells.
func (e *entry) info(now time.Time) lease.Info {
	info := lease.Info{Key: e.name, Token: e.token}
	if len(e.holders) > 0 {
		info.Kind = e.kind
	}
	for _, h := range e.holders {
		info.Holders = append(info.Holders, lease.Holder{
			Owner: h.owner, Mode: h.mode, TTL: h.deadline.Sub(now), Since: h.since, Trace: h.trace,
		})
	}
	for _, w := range e.queue {
		info.Waiters = append(info.Waiters, lease.Waiter{
			Owner: w.owner, Mode: w.mode, TTL: w.ttl, Since: time.UnixMicro(w.score),
		})
	}
	return info
}
