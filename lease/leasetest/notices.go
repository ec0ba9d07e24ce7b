package leasetest

import (
	"time"

	"github.com/stretchr/testify/require"

	"github.com/go-leasehold/leasehold/lease"
)

var noticeCases = []testCase{
	{"WantGoesToEveryHolderAtEveryLook", testWantEveryLook},
	{"WantNamesWhoAsks", testWantAsker},
	{"NextAsksToo", testNextAsks},
	{"BusyAnswersTheAsker", testBusy},
	{"AskGoesToTheHolderAndChangesNothing", testAsk},
	{"ToldCountsWhoReceivedTheWant", testTold},
}

func testWantEveryLook(s *suite) {
	all, k := s.openAll("a", "b", "c", "w"), s.readWrite()
	readers, w := all[:3], all[3]
	s.skipUnless(w.can.Notices, "notices")
	for i, r := range readers {
		r.get(lease.Held, k.acquire(lease.Ticket(i+1), shared))
	}
	for range 3 {
		waiting := w.get(lease.Waiting, k.acquire(9))
		if w.can.Receipts {
			require.Equal(s, 3, waiting.Told)
		}
		for i, r := range readers {
			require.Empty(s, r.wanted(k, lease.Ticket(i+1)).Asker)
		}
	}
	for _, r := range readers {
		r.requireNoMessage(k)
	}
	w.requireNoMessage(k)
}

func testWantAsker(s *suite) {
	all, k := s.openAll("a", "b"), s.mutex()
	a, b := all[0], all[1]
	s.skipUnless(a.can.Notices, "notices")
	a.get(lease.Held, k.acquire(7))
	b.get(lease.Waiting, k.acquire(8, asking))
	require.Equal(s, b.owner(8), a.wanted(k, 7).Asker)
	b.get(lease.Waiting, k.acquire(8))
	require.Empty(s, a.wanted(k, 7).Asker)
}

func testNextAsks(s *suite) {
	all, k := s.openAll("a", "b"), s.mutex()
	a, b := all[0], all[1]
	s.skipUnless(a.can.Notices, "notices")
	a.get(lease.Held, k.acquire(1))
	b.get(lease.Waiting, k.acquire(1))
	a.get(lease.Waiting, k.release(1, next(2), nextAsking))
	b.granted(k, 1)
	require.Equal(s, a.owner(2), b.wanted(k, 1).Asker)
}

func testBusy(s *suite) {
	all, k := s.openAll("a", "b"), s.mutex()
	a, b := all[0], all[1]
	s.skipUnless(a.can.Notices, "notices")
	a.get(lease.Held, k.acquire(1))
	b.get(lease.Waiting, k.acquire(5, asking))
	a.get(lease.Done, k.busy(a.wanted(k, 1).Asker))
	b.event("in use", func(e lease.Event) bool {
		return e.Type == lease.InUse && e.Key == k.key && e.Ticket == 5
	})
	s.requireHolders(a, k, a.owner(1))
	s.requireWaiters(a, k, b.owner(5))

	a.get(lease.Done, k.busy("no-such-coordinator:1"))
	a.requireNoMessage(k)
}

func testAsk(s *suite) {
	all, k := s.openAll("a", "b"), s.mutex()
	a, b := all[0], all[1]
	s.skipUnless(a.can.Notices, "notices")
	a.get(lease.Held, k.acquire(1))
	told := b.get(lease.Done, k.ask(5, a.owner(1))).Told
	asked := a.event("asked", func(e lease.Event) bool {
		return e.Type == lease.Asked && e.Key == k.key && e.Ticket == 1
	})
	require.Equal(s, b.owner(5), asked.Asker)
	s.requireHolders(a, k, a.owner(1))
	s.requireWaiters(a, k)
	a.get(lease.Done, k.busy(asked.Asker))
	b.event("in use", func(e lease.Event) bool {
		return e.Type == lease.InUse && e.Key == k.key && e.Ticket == 5
	})
	a.get(lease.Done, k.busy(asked.Asker, idle))
	b.event("changed", func(e lease.Event) bool {
		return e.Type == lease.Changed && e.Key == k.key && e.Ticket == 5
	})
	gone := b.get(lease.Done, k.ask(6, "no-such-coordinator:1")).Told
	if b.can.Receipts {
		require.Equal(s, 1, told)
		require.Zero(s, gone)
	} else {
		require.Negative(s, told)
		require.Negative(s, gone)
	}
	a.requireNoMessage(k)
	b.requireNoMessage(k)
}

func testTold(s *suite) {
	all, k := s.openAll("a", "b", "w"), s.readWrite()
	a, b, w := all[0], all[1], all[2]
	a.get(lease.Held, k.acquire(1, shared))
	b.get(lease.Held, k.acquire(1, shared))
	b.close()
	told := w.get(lease.Waiting, k.acquire(1)).Told
	if !w.can.Receipts {
		require.Negative(s, told)
		return
	}
	// The server may hear of a store's end a moment after it.
	lookUntilTold := func(want int) {
		for end := time.Now().Add(patience); told != want; s.env.Sleep(time.Millisecond) {
			require.True(s, time.Now().Before(end), "%d are told, not %d", told, want)
			told = w.get(lease.Waiting, k.acquire(1)).Told
		}
	}
	lookUntilTold(1)
	a.close()
	lookUntilTold(0)
}
