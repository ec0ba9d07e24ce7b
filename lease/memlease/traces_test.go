package memlease_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/go-leasehold/leasehold/lease"
	"github.com/go-leasehold/leasehold/lease/memlease"
)

const trace = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"

func annotate(ticket lease.Ticket) lease.Request {
	return lease.Request{Op: lease.Annotate, Key: "k", Kind: lease.Mutex, Ticket: ticket, Trace: trace}
}

func TestTracesAreLostAsOtherNoticesAre(t *testing.T) {
	bubble(t, func(t *testing.T, s *memlease.Server) {
		a, b := open(t, s, "a"), open(t, s, "b")
		a.do(t, acquire(1))
		b.do(t, acquire(2))
		s.DropEvents(func(id string, e lease.Event) bool { return id == "b" && e.Type == lease.Traced })
		require.Equal(t, lease.Done, a.do(t, annotate(1)).Status)
		gone := release(1)
		gone.Trace = trace
		a.do(t, gone)
		events := b.told()
		require.Len(t, events, 1)
		require.Equal(t, lease.Granted, events[0].Type)

		s.DropEvents(nil)
		a.do(t, acquire(3))
		b.told()
		a.Disconnect(errLost)
		require.Equal(t, lease.Done, b.do(t, annotate(2)).Status)
		a.Connect()
		for _, e := range a.told() {
			require.NotEqual(t, lease.Traced, e.Type)
		}
	})
}

func TestTraceIsToldToSixteen(t *testing.T) {
	bubble(t, func(t *testing.T, s *memlease.Server) {
		a, b := open(t, s, "a"), open(t, s, "b")
		a.do(t, acquire(1))
		for ticket := range lease.Ticket(20) {
			b.do(t, acquire(ticket+1))
		}
		a.do(t, annotate(1))
		events := b.told()
		require.Len(t, events, 16)
		for i, e := range events {
			require.Equal(t, lease.Event{Type: lease.Traced, Key: "k", Ticket: lease.Ticket(i + 1), Trace: trace}, e)
		}
	})
}

// TestLateAnnotateFindsNothing: the ticket has been retired.
func TestLateAnnotateFindsNothing(t *testing.T) {
	bubble(t, func(t *testing.T, s *memlease.Server) {
		a, b := open(t, s, "a"), open(t, s, "b")
		a.do(t, acquire(1))
		b.do(t, acquire(1))
		s.FaultNext(lease.Annotate, 1, memlease.Fault{Late: time.Second})
		a.do(t, annotate(1))
		a.do(t, release(1))
		b.told()
		a.do(t, acquire(2))
		a.told()
		b.told()
		time.Sleep(time.Second)
		require.Empty(t, a.told())
		require.Empty(t, b.told())
		info, err := s.Inspect("k")
		require.NoError(t, err)
		require.Equal(t, "b:1", info.Holders[0].Owner)
		require.Empty(t, info.Holders[0].Trace)
		reply, err := s.Replay("a", annotate(1))
		require.NoError(t, err)
		require.Equal(t, lease.Lost, reply.Status)
	})
}
