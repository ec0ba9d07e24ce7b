package coordinator

import (
	"sync"
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

const (
	// jump is how far wall clock and monotonic clock may part between two looks
	// before the clock asks whether the machine was suspended.
	jump = int64(time.Millisecond)
	// lookEvery is how old the last look may be when something is granted. A
	// look costs as much again as reading the monotonic clock. A suspension less
	// than that after a look goes unseen by grants of the same tenth of a
	// millisecond, as it does by holds that were granted just before it: until
	// the next look. Like every pause of a holder that is the token's to catch.
	lookEvery = int64(100 * time.Microsecond)
)

// clock tells instants. Go's monotonic clock stands still while a machine is
// suspended, and Redis's does not, so deadlines must count that time: after a
// suspension every instant is later by as long as it lasted.
//
// Asking the system how long it was suspended costs a system call, so now only
// looks whether the wall clock has moved against the monotonic one; the watchdog
// asks every second.
type clock struct {
	base  time.Time
	slept func() (time.Duration, bool) // time suspended since boot; false: unknown here

	first  int64        // slept() at the beginning
	looked atomic.Int64 // the monotonic clock at the last look
	offset atomic.Int64 // the wall clock less the monotonic clock then
	lost   atomic.Int64 // time suspended since base

	finding sync.Mutex // held by the one goroutine that changes offset and lost
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

// now returns the present instant.
func (k *clock) now() instant {
	mono := int64(time.Since(k.base))
	if mono-k.looked.Load() > lookEvery {
		k.look(false)
	}
	return instant(mono + k.lost.Load())
}

// wall pairs the present instant with the time of day.
func (k *clock) wall() wall {
	t := time.Now()
	return wall{instant(int64(t.Sub(k.base)) + k.lost.Load()), t}
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

// look finds out whether the machine was suspended since the last look: if the
// clocks have parted, or in any case if sure is set. Who sees that a look was
// made sees what it found, too.
func (k *clock) look(sure bool) {
	t := time.Now()
	mono := int64(t.Sub(k.base))
	offset := t.UnixNano() - mono
	if moved := offset - k.offset.Load(); sure || moved < -jump || jump < moved {
		k.find(offset)
	}
	k.looked.Store(mono)
}

func (k *clock) find(offset int64) {
	k.finding.Lock()
	defer k.finding.Unlock()
	moved := offset - k.offset.Load()
	if d, ok := k.slept(); ok {
		if lost := int64(d) - k.first; lost-k.lost.Load() > jump { // less is the time between two readings
			k.lost.Store(lost)
		}
	} else if moved > jump {
		// Where the system can't tell, a forward jump of the wall clock counts as
		// a suspension: at worst a lease is given up too early.
		k.lost.Add(moved)
	}
	k.offset.Store(offset)
}
