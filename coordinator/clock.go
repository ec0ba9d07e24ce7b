package coordinator

import (
	"sync/atomic"
	"time"
)

// instant is a point in time: nanoseconds since the clock was made, counting
// those that the machine spent suspended.
type instant int64

// never is later than every instant.
const never = instant(1<<63 - 1)

// add returns the instant d later, or never where that is beyond counting.
func (t instant) add(d time.Duration) instant {
	if d > 0 && t > never-instant(d) {
		return never
	}
	return t + instant(d)
}

func (t instant) sub(u instant) time.Duration { return time.Duration(t - u) }

// jump is how far wall clock and monotonic clock may part between two looks
// before the clock asks whether the machine was suspended.
const jump = int64(time.Millisecond)

// clock tells instants. Go's monotonic clock stands still while a machine is
// suspended, and Redis's does not, so deadlines must count that time: after a
// suspension every instant is later by as long as it lasted.
//
// Asking the system how long it was suspended costs a system call, so now only
// looks whether the wall clock, which comes with the monotonic one at no cost,
// has moved against it; the watchdog asks every second.
type clock struct {
	base  time.Time
	slept func() (time.Duration, bool) // time suspended since boot; false: unknown here

	first  int64        // slept() at the beginning
	offset atomic.Int64 // wall clock less monotonic clock, at the last look
	lost   atomic.Int64 // time suspended since base
}

func newClock(slept func() (time.Duration, bool)) *clock {
	// Instants begin at a second, so that zero can mean none.
	k := &clock{base: time.Now().Add(-time.Second), slept: slept}
	if d, ok := slept(); ok {
		k.first = int64(d)
	}
	k.offset.Store(k.base.UnixNano())
	return k
}

// glance returns the present instant, without asking whether the machine was
// suspended just now. It costs half of now, and serves where nothing is granted.
func (k *clock) glance() instant {
	return instant(int64(time.Since(k.base)) + k.lost.Load())
}

// now returns the present instant.
func (k *clock) now() instant {
	t := time.Now()
	mono := int64(t.Sub(k.base))
	offset := t.UnixNano() - mono
	if d := offset - k.offset.Load(); d > jump || d < -jump {
		k.look(offset)
	}
	return instant(mono + k.lost.Load())
}

// at translates a time that was read by time.Now since the instant from, when
// the clock had lost as much as lost() told then. If the machine was suspended
// in between, nobody knows on which side of it the time was read: then it is
// from, the earliest that it can be.
func (k *clock) at(t time.Time, from instant, lost int64) instant {
	if k.lost.Load() != lost {
		return from
	}
	return max(from, instant(int64(t.Sub(k.base))+lost))
}

// look finds out how long the machine was suspended, and says whether that is
// more than was known. Where the system can't tell, a forward jump of the wall
// clock counts as a suspension: at worst a lease is given up too early.
func (k *clock) look(offset int64) bool {
	before := k.offset.Swap(offset)
	if d, ok := k.slept(); ok {
		lost := int64(d) - k.first
		// Below a millisecond it is the time between two readings.
		return lost-k.lost.Load() > jump && k.raise(lost)
	}
	if d := offset - before; d > 50*jump {
		return k.raise(k.lost.Load() + d)
	}
	return false
}

// check is look for the watchdog: it asks whatever the wall clock says.
func (k *clock) check() bool {
	t := time.Now()
	return k.look(t.UnixNano() - int64(t.Sub(k.base)))
}

func (k *clock) raise(lost int64) bool {
	for {
		known := k.lost.Load()
		if lost <= known {
			return false
		}
		if k.lost.CompareAndSwap(known, lost) {
			return true
		}
	}
}
