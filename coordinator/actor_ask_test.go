package coordinator

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/go-leasehold/leasehold/lease"
)

// heardOf has a TryLock find out, by way of the store, that other:1 has the key and is busy.
func heardOf(t *testing.T, s *script, c *Coordinator) {
	t.Helper()
	a := tryOf(t, c.Mutex("k"))
	q := s.next(lease.Acquire)
	q.waits()
	s.emit(lease.InUse, "k", q.Ticket)
	a.fails(ErrNotAcquired)
	s.next(lease.Release).end()
}

// question returns the question that is sent just now, to the holder itself.
func question(t *testing.T, s *script) *sent {
	t.Helper()
	q := s.next(lease.Ask)
	require.Equal(t, "other:1", q.Holder)
	return q
}

func (q *sent) heardBy(n int) { q.reply(lease.Reply{Status: lease.Done, Told: n}) }

func TestTryLockAsksTheHolderThatWasBusyItself(t *testing.T) {
	scripted(t, func(t *testing.T, s *script, c *Coordinator) {
		heardOf(t, s, c)
		for range 3 {
			time.Sleep(900 * time.Millisecond) // each answer lets it be asked for a second more
			a, b := tryOf(t, c.Mutex("k")), tryOf(t, c.Mutex("k"))
			q := question(t, s)
			q.heardBy(1)
			time.Sleep(time.Millisecond)
			s.emit(lease.InUse, "k", q.Ticket)
			w := a.fails(ErrNotAcquired)
			require.Equal(t, "other:1", w.Holder)
			require.Equal(t, time.Millisecond, w.Waited)
			b.fails(ErrNotAcquired)
			s.quiet(0) // the store never knew of it: nothing is released
		}
		s.quiet(time.Second + time.Millisecond)
		require.Zero(t, c.live.Load(), "what was heard is forgotten")
		tryOf(t, c.Mutex("k"))
		s.next(lease.Acquire).held(1, 100)
	})
}

func TestTryLockBehindTheHoldersAnswerAsksItAnew(t *testing.T) {
	scripted(t, func(t *testing.T, s *script, c *Coordinator) {
		heardOf(t, s, c)
		a := tryOf(t, c.Mutex("k"))
		q := question(t, s)
		s.emit(lease.InUse, "k", q.Ticket) // before it is known that the question was heard
		a.fails(ErrNotAcquired)
		b := tryOf(t, c.Mutex("k"))
		again := question(t, s)
		require.NotEqual(t, q.Ticket, again.Ticket)
		q.heardBy(0) // of the one before
		b.waits()
		s.emit(lease.InUse, "k", again.Ticket)
		b.fails(ErrNotAcquired)
	})
}

// Whatever comes but "busy", the store has to say who has the key.
func TestTryLockAsksTheStoreWhereTheHolderDoesNotSayBusy(t *testing.T) {
	for name, answer := range map[string]func(s *script, c *Coordinator, q *sent) time.Duration{
		"it is idle":         func(s *script, _ *Coordinator, q *sent) time.Duration { s.emit(lease.Changed, "k", q.Ticket); return 0 },
		"nobody heard":       func(_ *script, _ *Coordinator, q *sent) time.Duration { q.heardBy(0); return 0 },
		"the question fails": func(_ *script, _ *Coordinator, q *sent) time.Duration { q.fail(lease.ErrStoreClosed); return 0 },
		"no answer":          func(_ *script, _ *Coordinator, q *sent) time.Duration { q.heardBy(1); return askFor },
		"notices are lost": func(s *script, _ *Coordinator, _ *sent) time.Duration {
			s.tell(lease.Event{Type: lease.Disconnected})
			s.tell(lease.Event{Type: lease.Connected})
			return 0
		},
	} {
		t.Run(name, func(t *testing.T) {
			scripted(t, func(t *testing.T, s *script, c *Coordinator) {
				heardOf(t, s, c)
				a := tryOf(t, c.Mutex("k"))
				q := s.within(0, lease.Ask)
				after := answer(s, c, q)
				acquire := s.after(after, lease.Acquire)
				require.True(t, acquire.Ask)
				acquire.held(1, 100)
				require.EqualValues(t, 1, a.holds().Token())
			})
		})
	}
}

func TestLockDoesNotWaitForTheAnswerToATryLock(t *testing.T) {
	scripted(t, func(t *testing.T, s *script, c *Coordinator) {
		heardOf(t, s, c)
		a := tryOf(t, c.Mutex("k"))
		q := question(t, s)
		b := lockOf(t, c.Mutex("k"))
		s.next(lease.Acquire).waits()
		s.emit(lease.InUse, "k", q.Ticket)
		a.fails(ErrNotAcquired)
		b.waits()
	})
}

func TestTryLockThatGivesUpLeavesNothingAtTheHolder(t *testing.T) {
	scripted(t, func(t *testing.T, s *script, c *Coordinator) {
		heardOf(t, s, c)
		ctx, cancel := context.WithCancel(context.Background())
		a := begin(t, func() (*Hold, error) { return c.Mutex("k").TryLock(ctx) })
		q := question(t, s)
		cancel()
		a.fails(ErrNotAcquired)
		s.emit(lease.InUse, "k", q.Ticket)
		s.quiet(time.Minute)
	})
}

func TestHolderAnswersWhoAsks(t *testing.T) {
	scripted(t, func(t *testing.T, s *script, c *Coordinator) {
		a := lockOf(t, c.Mutex("k"))
		q := s.next(lease.Acquire)
		q.held(1, 100)
		hold := a.holds()
		answers := func(ticket lease.Ticket, idle bool) {
			t.Helper()
			s.tell(lease.Event{Type: lease.Asked, Key: "k", Ticket: ticket, Asker: "other:7"})
			r := s.next(lease.Busy)
			require.Equal(t, "other:7", r.Asker)
			require.Equal(t, idle, r.Idle)
			r.end()
		}
		answers(q.Ticket, false)
		answers(q.Ticket+1, true) // of another life
		require.NoError(t, hold.Unlock())
		answers(q.Ticket, true) // it is retained, and nobody is in
		require.NoError(t, lockOf(t, c.Mutex("k")).holds().Unlock())
		s.after(c.conf.retention, lease.Release).end() // nobody wants it: it was retained as ever
		answers(q.Ticket, true)
		s.tell(lease.Event{Type: lease.Asked, Key: "nobody here knows it", Ticket: 1, Asker: "other:7"})
		require.True(t, s.next(lease.Busy).Idle)
	})
}
