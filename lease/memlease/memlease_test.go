package memlease_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/go-leasehold/leasehold/lease"
	"github.com/go-leasehold/leasehold/lease/memlease"
)

var errLost = errors.New("lost on the way")

// client is a store and what it was told.
type client struct {
	*memlease.Store

	events chan lease.Event
}

func open(t *testing.T, s *memlease.Server, id string) client {
	t.Helper()
	c := client{s.Store(), make(chan lease.Event, 1000)}
	_, err := c.Open(t.Context(), id, func(e lease.Event) { c.events <- e })
	require.NoError(t, err)
	return c
}

func (c client) do(t *testing.T, r lease.Request) lease.Reply {
	t.Helper()
	reply, err := c.try(r)
	require.NoError(t, err)
	return reply
}

func (c client) try(r lease.Request) (reply lease.Reply, err error) {
	answered := make(chan struct{})
	c.Send(r, func(p lease.Reply, e error) {
		reply, err = p, e
		close(answered)
	})
	<-answered
	return reply, err
}

// told waits until all is quiet and returns the events that came.
func (c client) told() (events []lease.Event) {
	synctest.Wait()
	for {
		select {
		case e := <-c.events:
			events = append(events, e)
		default:
			return events
		}
	}
}

func acquire(ticket lease.Ticket) lease.Request {
	return lease.Request{
		Op: lease.Acquire, Key: "k", Kind: lease.Mutex, Ticket: ticket, Mode: lease.Exclusive,
		TTL: 3 * time.Second, Queue: true, Age: -1, Tokens: 10,
	}
}

func renew(ticket lease.Ticket) lease.Request {
	return lease.Request{Op: lease.Renew, Key: "k", Kind: lease.Mutex, Ticket: ticket, TTL: 3 * time.Second}
}

func release(ticket lease.Ticket) lease.Request {
	return lease.Request{Op: lease.Release, Key: "k", Kind: lease.Mutex, Ticket: ticket}
}

// bubble runs a test in virtual time, with a server.
func bubble(t *testing.T, test func(t *testing.T, s *memlease.Server), opts ...memlease.Option) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		s := memlease.NewServer(opts...)
		defer s.Close()
		test(t, s)
	})
}

func TestReleaseGrantsToTheHeadOfTheQueue(t *testing.T) {
	bubble(t, func(t *testing.T, s *memlease.Server) {
		a, b := open(t, s, "a"), open(t, s, "b")
		first := a.do(t, acquire(1))
		require.Equal(t, lease.Held, first.Status)
		require.Equal(t, uint64(9), first.Last-first.First)

		waiting := b.do(t, acquire(1))
		require.Equal(t, lease.Waiting, waiting.Status)
		require.Equal(t, 1, waiting.Told)
		require.Equal(t, "a:1", waiting.Holder)
		require.Equal(t, 3*time.Second, waiting.Remaining)
		require.Equal(t, []lease.Event{{Type: lease.Wanted, Key: "k", Ticket: 1}}, a.told())

		require.Equal(t, lease.Done, a.do(t, release(1)).Status)
		events := b.told()
		require.Len(t, events, 1)
		require.Equal(t, lease.Granted, events[0].Type)
		require.Greater(t, events[0].First, first.Last)
	})
}

func TestLatencyIsTakenOnEveryLeg(t *testing.T) {
	bubble(t, func(t *testing.T, s *memlease.Server) {
		a := open(t, s, "a")
		start := time.Now()
		reply := a.do(t, acquire(1))
		require.Equal(t, 30*time.Millisecond, time.Since(start))
		require.Equal(t, start, reply.Sent)

		b := open(t, s, "b")
		require.Equal(t, lease.Waiting, b.do(t, acquire(1)).Status)
		a.do(t, release(1))
		require.Empty(t, b.told())
		time.Sleep(20 * time.Millisecond) // the event took 40 ms, the reply 20
		require.Len(t, b.told(), 1)
	}, memlease.WithLatency(10*time.Millisecond, 20*time.Millisecond, 40*time.Millisecond))
}

func TestRequestWithoutAnswerFailsAfterAThirdOfItsTTL(t *testing.T) {
	bubble(t, func(t *testing.T, s *memlease.Server) {
		a := open(t, s, "a")
		s.FaultNext(lease.Acquire, 1, memlease.Fault{Delay: 2 * time.Second})
		start := time.Now()
		_, err := a.try(acquire(1))
		require.ErrorIs(t, err, memlease.ErrTimeout)
		require.Equal(t, time.Second, time.Since(start))
		info, err := s.Inspect("k")
		require.NoError(t, err)
		require.Empty(t, info.Holders)

		time.Sleep(1001 * time.Millisecond)
		info, err = s.Inspect("k")
		require.NoError(t, err)
		require.Len(t, info.Holders, 1, "it takes effect when it arrives")
	})
}

func TestLostReplies(t *testing.T) {
	bubble(t, func(t *testing.T, s *memlease.Server) {
		a := open(t, s, "a")
		s.FaultNext(lease.Acquire, 1, memlease.Fault{Err: errLost})
		_, err := a.try(acquire(1))
		require.ErrorIs(t, err, errLost)
		require.Equal(t, lease.Lost, a.do(t, renew(1)).Status, "nothing was done")

		s.FaultNext(0, 1, memlease.Fault{Err: errLost, Applied: true})
		_, err = a.try(acquire(1))
		require.ErrorIs(t, err, errLost)
		require.Equal(t, lease.Held, a.do(t, renew(1)).Status, "it was done")

		start := time.Now()
		s.FaultNext(lease.Renew, 1, memlease.Fault{Resend: true})
		reply := a.do(t, renew(1))
		require.True(t, reply.Resent)
		require.False(t, reply.Sent.Before(start))
		require.False(t, a.do(t, renew(1)).Resent)
	})
}

func TestLateCopyTakesEffectAgain(t *testing.T) {
	bubble(t, func(t *testing.T, s *memlease.Server) {
		a := open(t, s, "a")
		s.FaultNext(lease.Acquire, 1, memlease.Fault{Late: time.Second})
		require.True(t, a.do(t, acquire(1)).Resent)
		a.do(t, release(1))
		require.Equal(t, lease.Lost, a.do(t, renew(1)).Status)
		time.Sleep(1001 * time.Millisecond)
		require.Equal(t, lease.Held, a.do(t, renew(1)).Status, "an orphan")
	})
}

func TestDownStoreChangesNothing(t *testing.T) {
	bubble(t, func(t *testing.T, s *memlease.Server) {
		a, b := open(t, s, "a"), open(t, s, "b")
		s.SetDown(errLost)
		_, err := a.try(acquire(1))
		require.ErrorIs(t, err, errLost)
		_, err = a.Inspect(t.Context(), "k")
		require.ErrorIs(t, err, errLost)
		s.SetDown(nil)
		b.SetDown(errLost)
		_, err = b.try(acquire(1))
		require.ErrorIs(t, err, errLost)
		require.Equal(t, lease.Held, a.do(t, acquire(1)).Status)
		b.SetDown(nil)
		require.Equal(t, lease.Waiting, b.do(t, acquire(1)).Status)
	})
}

func TestWaiterOutOfReachIsPassedOver(t *testing.T) {
	bubble(t, func(t *testing.T, s *memlease.Server) {
		a, b, c, d := open(t, s, "a"), open(t, s, "b"), open(t, s, "c"), open(t, s, "d")
		for _, each := range []client{a, b, c, d} {
			each.do(t, acquire(1))
		}
		b.Kill()
		_, err := b.try(acquire(1))
		require.ErrorIs(t, err, memlease.ErrKilled)
		c.Disconnect(errLost)
		require.Equal(t, []lease.Event{{Type: lease.Disconnected, Err: errLost}}, c.told())
		a.do(t, release(1))
		require.Len(t, d.told(), 1)
		require.Empty(t, c.told())

		c.Connect()
		require.Equal(t, []lease.Event{{Type: lease.Connected}}, c.told())
		require.Equal(t, lease.Waiting, c.do(t, acquire(1)).Status)
	})
}

func TestDroppedEventsWereReceived(t *testing.T) {
	bubble(t, func(t *testing.T, s *memlease.Server) {
		a, b := open(t, s, "a"), open(t, s, "b")
		s.DropEvents(func(id string, e lease.Event) bool { return id == "b" && e.Type == lease.Granted })
		a.do(t, acquire(1))
		b.do(t, acquire(1))
		a.do(t, release(1))
		require.Empty(t, b.told())
		require.Equal(t, lease.Held, b.do(t, renew(1)).Status)
	})
}

func TestStoresWithLess(t *testing.T) {
	bubble(t, func(t *testing.T, s *memlease.Server) {
		a, b := open(t, s, "a"), open(t, s, "b")
		watching := acquire(1)
		watching.Watch = "a:1"
		require.False(t, a.do(t, watching).Watched)
		require.Equal(t, -1, b.do(t, acquire(1)).Told)
		b.Kill()
		a.do(t, release(1))
		require.Empty(t, a.told())
		require.Equal(t, lease.Waiting, a.do(t, acquire(2)).Status, "the dead waiter has it")
		time.Sleep(3001 * time.Millisecond)
		require.Equal(t, lease.Held, a.do(t, acquire(2)).Status)
	}, memlease.WithoutNotices(), memlease.WithoutTracking())
}

func TestSteppedClockExpiresLeases(t *testing.T) {
	bubble(t, func(t *testing.T, s *memlease.Server) {
		a := open(t, s, "a")
		a.do(t, acquire(1))
		s.StepClock(4 * time.Second)
		require.Equal(t, lease.Lost, a.do(t, renew(1)).Status)
	})
}

func TestEndOfAWatchedKeyIsTold(t *testing.T) {
	bubble(t, func(t *testing.T, s *memlease.Server) {
		a, b := open(t, s, "a"), open(t, s, "b")
		a.do(t, acquire(1))
		watching := acquire(1)
		watching.Watch = "b:1"
		reply := b.do(t, watching)
		require.True(t, reply.Watched)
		require.False(t, reply.Present)
		time.Sleep(2999 * time.Millisecond)
		require.Empty(t, b.told())
		time.Sleep(2 * time.Millisecond)
		require.Equal(t, []lease.Event{{Type: lease.Changed, Key: "k"}}, b.told())
	})
}

func TestFlushIsToldToAllWhoTrack(t *testing.T) {
	bubble(t, func(t *testing.T, s *memlease.Server) {
		a, b := open(t, s, "a"), open(t, s, "b")
		a.do(t, acquire(1))
		s.Flush()
		require.Equal(t, []lease.Event{{Type: lease.ChangedAll}}, a.told())
		require.Equal(t, []lease.Event{{Type: lease.ChangedAll}}, b.told())
		require.Equal(t, lease.Lost, a.do(t, renew(1)).Status)
	})
}

func TestHookSeesEveryRequest(t *testing.T) {
	bubble(t, func(t *testing.T, s *memlease.Server) {
		a := open(t, s, "a")
		var seen []lease.Op
		s.OnRequest(func(id string, r lease.Request) {
			require.Equal(t, "a", id)
			seen = append(seen, r.Op)
		})
		a.do(t, acquire(1))
		a.do(t, renew(1))
		a.do(t, release(1))
		require.Equal(t, []lease.Op{lease.Acquire, lease.Renew, lease.Release}, seen)
	})
}

func TestReplaySpeaksForAnyCoordinator(t *testing.T) {
	bubble(t, func(t *testing.T, s *memlease.Server) {
		a := open(t, s, "a")
		reply, err := s.Replay("elsewhere", acquire(1))
		require.NoError(t, err)
		require.Equal(t, lease.Held, reply.Status)
		waiting := a.do(t, acquire(1))
		require.Equal(t, lease.Waiting, waiting.Status)
		require.Zero(t, waiting.Told)
		_, err = s.Replay("elsewhere", release(1))
		require.NoError(t, err)
		require.Len(t, a.told(), 1)
	})
}

func TestCloseAnswersWhatWasSent(t *testing.T) {
	bubble(t, func(t *testing.T, s *memlease.Server) {
		a := open(t, s, "a")
		var answers []error
		for i := range 10 {
			a.Send(acquire(lease.Ticket(i+1)), func(_ lease.Reply, err error) { answers = append(answers, err) })
		}
		require.NoError(t, a.Close(t.Context()))
		require.Equal(t, make([]error, 10), answers)
		_, err := a.try(acquire(1))
		require.ErrorIs(t, err, lease.ErrStoreClosed)

		b := open(t, s, "b")
		ended, cancel := context.WithCancel(t.Context())
		cancel()
		failed := make(chan error, 1)
		b.Send(acquire(1), func(_ lease.Reply, err error) { failed <- err })
		_ = b.Close(ended)
		require.ErrorIs(t, <-failed, lease.ErrStoreClosed)
	}, memlease.WithLatency(time.Millisecond, time.Millisecond, time.Millisecond))
}

func TestUnusedKeysAreForgotten(t *testing.T) {
	bubble(t, func(t *testing.T, s *memlease.Server) {
		a := open(t, s, "a")
		r := acquire(1)
		for i := range 5000 {
			r.Key = string(rune(i + 1))
			a.do(t, r)
			time.Sleep(10 * time.Millisecond)
		}
		require.Less(t, s.Keys(), 1100)
	}, memlease.WithTokenRetention(time.Second))
}
