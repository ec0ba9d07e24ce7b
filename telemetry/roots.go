package telemetry

import (
	"sync/atomic"
	"time"
)

// roots bounds how many traces begin in a second: a service whose locks are not
// taken for traced requests must neither pay a sampler's decision for each of a
// million locks, nor flood who stores the traces.
type roots struct {
	perSecond int
	base      time.Time
	next      atomic.Int64 // ns since base; where the allowance of a second would be used up to
	spent     atomic.Bool  // until a timer ends it: there is none left
}

// restFor is for how long nobody looks at the clock once the allowance is spent. It
// is spent where locks are so many that the look would cost more than all else.
const restFor = 10 * time.Millisecond

// take says whether one more may begin. (The generic cell rate algorithm: an
// allowance of one second, filled evenly, but for the rest.)
func (r *roots) take() bool {
	if r.perSecond == 0 || r.spent.Load() {
		return false
	}
	now := int64(time.Since(r.base))
	for {
		next := r.next.Load()
		after := r.after(next, now)
		if after > now+int64(time.Second) {
			if r.spent.CompareAndSwap(false, true) {
				time.AfterFunc(restFor, func() { r.spent.Store(false) })
			}
			return false
		}
		if r.next.CompareAndSwap(next, after) {
			return true
		}
	}
}

// left says whether one more might.
func (r *roots) left() bool {
	if r.perSecond == 0 || r.spent.Load() {
		return false
	}
	now := int64(time.Since(r.base))
	return r.after(r.next.Load(), now) <= now+int64(time.Second)
}

func (r *roots) after(next, now int64) int64 {
	return max(next, now) + int64(time.Second)/int64(r.perSecond)
}
