package coordinator

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/go-leasehold/leasehold/lease"
)

// bed is where a test puts the machine to sleep.
type bed struct {
	slept   time.Duration
	unknown bool // the system can't tell
}

func (b *bed) ask() (time.Duration, bool) { return b.slept, !b.unknown }

// sleep suspends the machine: neither monotonic clock nor timers go on, the wall
// clock does.
func (b *bed) sleep(k *clock, d time.Duration) {
	synctest.Wait()
	b.slept += d
	stepWall(k, d)
}

// stepWall makes it look as if the wall clock had gone ahead, and the last look as
// if it was long ago.
func stepWall(k *clock, d time.Duration) {
	k.offset.Add(-int64(d))
	k.looked.Store(0)
}

// onABed runs a test on a machine that can be suspended.
func onABed(t *testing.T, test func(t *testing.T, s *script, c *Coordinator, b *bed), opts ...Option) {
	t.Helper()
	scripted(t, func(t *testing.T, s *script, c *Coordinator) {
		b := &bed{slept: time.Hour}
		c.clock.slept = b.ask
		c.clock.first = int64(b.slept)
		test(t, s, c, b)
	}, opts...)
}

func TestClockCountsSuspensions(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := &bed{slept: time.Hour}
		k := newClock(b.ask)
		begin := k.now()
		require.Positive(t, begin)
		time.Sleep(time.Second)
		require.Equal(t, time.Second, k.now().sub(begin))
		b.sleep(k, time.Minute)
		require.Equal(t, time.Minute+time.Second, k.now().sub(begin))
		require.Equal(t, time.Minute+time.Second, k.now().sub(begin), "once")
		b.slept += time.Minute // and the wall clock was put back meanwhile
		require.Equal(t, time.Minute+time.Second, k.now().sub(begin))
		k.look(true) // the watchdog asks all the same
		require.Equal(t, 2*time.Minute+time.Second, k.now().sub(begin))
	})
}

func TestClockTakesAStepOfTheWallClockForNothingWhereTheSystemTells(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := &bed{slept: time.Hour}
		k := newClock(b.ask)
		begin := k.now()
		for _, d := range []time.Duration{time.Hour, -time.Hour, time.Millisecond} {
			stepWall(k, d)
			require.Equal(t, begin, k.now())
		}
		b.slept += 900 * time.Microsecond // the time between two readings
		k.look(true)
		require.Equal(t, begin, k.now())
	})
}

func TestClockCountsEveryForwardJumpWhereTheSystemCantTell(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := &bed{unknown: true}
		k := newClock(b.ask)
		begin := k.now()
		stepWall(k, time.Minute)
		require.Equal(t, time.Minute, k.now().sub(begin))
		stepWall(k, -time.Minute)
		require.Equal(t, time.Minute, k.now().sub(begin))
		for range 10 { // and not only the long ones
			stepWall(k, 40*time.Millisecond)
			k.now()
		}
		require.GreaterOrEqual(t, k.now().sub(begin), time.Minute+400*time.Millisecond)
	})
}

func TestClockTranslatesTimes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := &bed{slept: time.Hour}
		k := newClock(b.ask)
		from, lost := k.now(), k.lost.Load()
		time.Sleep(time.Second)
		at := time.Now()
		time.Sleep(time.Second)
		require.Equal(t, from.add(time.Second), k.at(at, from, lost))
		require.Equal(t, from, k.at(at.Add(-time.Hour), from, lost), "not before it was sent")
		require.Equal(t, from, k.at(time.Time{}, from, lost))
		b.sleep(k, time.Minute)
		k.now()
		require.Equal(t, from, k.at(at, from, lost), "the earliest it can be")
		require.Equal(t, from.add(time.Minute+time.Second), k.at(at, from, k.lost.Load()))
	})
}

func TestInstantsEnd(t *testing.T) {
	require.Equal(t, never, never.add(time.Second))
	require.Equal(t, never, instant(5).add(time.Duration(never)))
	require.Equal(t, instant(7), instant(5).add(2))
	require.Equal(t, instant(3), instant(5).add(-2))
}

func TestSleptIsKnownAndDoesNotGrowWhileAwake(t *testing.T) {
	before, ok := slept()
	if !ok {
		t.Skip("this system does not tell")
	}
	after, _ := slept()
	require.InDelta(t, before.Seconds(), after.Seconds(), 0.1)
	require.GreaterOrEqual(t, before, -time.Millisecond)
}

// What the actor does about it.

func TestSuspensionEndsHoldsThatOutlastedTheirLease(t *testing.T) {
	t.Run("found by who asks", func(t *testing.T) {
		onABed(t, func(t *testing.T, s *script, c *Coordinator, b *bed) {
			h := lockOf(t, c.Mutex("k")).holdsAfter(s)
			b.sleep(c.clock, believed-time.Nanosecond)
			require.True(t, h.Valid())
			b.sleep(c.clock, 2*time.Millisecond)
			require.False(t, h.Valid())
			require.ErrorIs(t, h.Err(), ErrLeaseLost)
		})
	})
	t.Run("found by the watchdog", func(t *testing.T) {
		onABed(t, func(t *testing.T, s *script, c *Coordinator, b *bed) {
			h := lockOf(t, c.Mutex("k")).holdsAfter(s)
			ctx := h.Context()
			time.Sleep(500 * time.Millisecond)
			b.sleep(c.clock, time.Minute)
			time.Sleep(500 * time.Millisecond)
			synctest.Wait()
			require.ErrorIs(t, context.Cause(ctx), ErrLeaseLost)
			s.next(lease.Release)
		})
	})
	t.Run("found by the next call", func(t *testing.T) {
		onABed(t, func(t *testing.T, s *script, c *Coordinator, b *bed) {
			unlock(t, lockOf(t, c.Mutex("k")).holdsAfter(s))
			b.sleep(c.clock, time.Minute)
			a := lockOf(t, c.Mutex("k"))
			a.waits() // what is retained is not granted any more
			s.next(lease.Release)
		})
	})
}

func TestSuspensionShorterThanTheLeaseIsCounted(t *testing.T) {
	onABed(t, func(t *testing.T, s *script, c *Coordinator, b *bed) {
		h := lockOf(t, c.Mutex("k")).holdsAfter(s)
		time.Sleep(100 * time.Millisecond)
		b.sleep(c.clock, 2*time.Second)
		time.Sleep(believed - 2100*time.Millisecond - 1)
		require.True(t, h.Valid())
		time.Sleep(time.Nanosecond)
		require.False(t, h.Valid())
	})
}

func TestSuspensionBetweenSendingAndAnswerCounts(t *testing.T) {
	onABed(t, func(t *testing.T, s *script, c *Coordinator, b *bed) {
		a := lockOf(t, c.Mutex("k"))
		q := s.next(lease.Acquire)
		time.Sleep(100 * time.Millisecond)
		b.sleep(c.clock, 2*time.Second)
		// A later copy was sent after the suspension, or before: nobody knows.
		q.reply(lease.Reply{Status: lease.Held, First: 1, Last: 100, Sent: q.at.Add(100 * time.Millisecond), Resent: true})
		endsIn(t, a.holds(), believed-2100*time.Millisecond, ErrLeaseLost)
	})
}

func TestSuspensionEndsMaxHold(t *testing.T) {
	onABed(t, func(t *testing.T, s *script, c *Coordinator, b *bed) {
		h := lockOf(t, c.Mutex("k", MaxHold(time.Second))).holdsAfter(s)
		b.sleep(c.clock, time.Second)
		require.ErrorIs(t, h.Err(), ErrHoldExpired)
		require.ErrorIs(t, h.Extend(time.Second), ErrHoldExpired)
	})
}

func TestSuspensionNoticedByOneKeyEndsTheHoldsOfAll(t *testing.T) {
	onABed(t, func(t *testing.T, s *script, c *Coordinator, b *bed) {
		h := lockOf(t, c.Mutex("k", TTL(30*time.Second))).holdsAfter(s)
		ctx := h.Context()
		time.Sleep(200 * time.Millisecond)
		b.sleep(c.clock, time.Minute)
		lockOf(t, c.Mutex("another")) // is first to look at the clock
		s.next(lease.Acquire).held(1, 100)
		time.Sleep(watchEvery)
		synctest.Wait()
		require.ErrorIs(t, context.Cause(ctx), ErrLeaseLost)
	})
}

func TestTimersAreRearmedAfterASuspension(t *testing.T) {
	onABed(t, func(t *testing.T, s *script, c *Coordinator, b *bed) {
		time.Sleep(watchEvery - 800*time.Millisecond)
		h := lockOf(t, c.Mutex("k")).holdsAfter(s) // its timer is to fire for the renewal, in 1 s
		time.Sleep(750 * time.Millisecond)
		b.sleep(c.clock, 2100*time.Millisecond)
		s.after(50*time.Millisecond, lease.Renew) // when the watchdog looks; it is not answered
		endsIn(t, h, believed-2900*time.Millisecond, ErrLeaseLost)
	})
}

func TestUnlockAfterASuspensionTellsOfTheLoss(t *testing.T) {
	onABed(t, func(t *testing.T, s *script, c *Coordinator, b *bed) {
		h := lockOf(t, c.Mutex("k")).holdsAfter(s)
		b.sleep(c.clock, time.Minute)
		require.ErrorIs(t, h.Unlock(), ErrLeaseLost)
	})
}
