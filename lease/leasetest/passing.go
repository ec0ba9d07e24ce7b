package leasetest

import (
	"sync"

	"github.com/stretchr/testify/require"

	"github.com/go-leasehold/leasehold/lease"
)

// requirePassed says that the messages about the key were, in this order, the trace
// of the hold before, and the grant; or the grant alone if there was no trace.
func (c *client) requirePassed(k subject, t lease.Ticket, trace string) {
	c.s.Helper()
	told := c.messages(k)
	if trace != "" {
		require.NotEmpty(c.s, told)
		require.Equal(c.s, lease.Event{Type: lease.Traced, Key: k.key, Ticket: t, Trace: trace, Passing: true}, told[0])
		told = told[1:]
	}
	require.Len(c.s, told, 1)
	require.Equal(c.s, lease.Granted, told[0].Type)
	require.Equal(c.s, t, told[0].Ticket)
	require.Empty(c.s, told[0].Trace)
}

func testPassing(s *suite) {
	all := s.openAll("a", "b", "c")
	a, b, c := all[0], all[1], all[2]
	s.skipUnless(a.can.Notices, "notices")
	for _, k := range []subject{s.mutex(), s.readWrite()} {
		a.get(lease.Held, k.acquire(1))
		b.get(lease.Waiting, k.acquire(2))
		c.get(lease.Waiting, k.acquire(3))
		a.get(lease.Done, k.release(1, passing(traceparent(1))))
		b.requirePassed(k, 2, traceparent(1))
		c.requireNoMessage(k)
		s.requireTraces(a, k, b.owner(2), "") // it is of a hold that is over
		b.get(lease.Done, k.release(2))
		c.requirePassed(k, 3, "")
	}
}

// testPassingNext: also where the next asks, or has a place in the queue already.
func testPassingNext(s *suite) {
	all := s.openAll("a", "b")
	a, b := all[0], all[1]
	s.skipUnless(a.can.Notices, "notices")
	for name, changes := range map[string][]func(*lease.Request){
		"plain": {next(2)}, "asks": {next(2), nextAsking}, "traced": {next(2), nextTraced}, "waits": {next(3)},
	} {
		for _, k := range []subject{s.mutex(), s.readWrite()} {
			a.get(lease.Held, k.acquire(1))
			b.get(lease.Waiting, k.acquire(1))
			a.get(lease.Waiting, k.acquire(3))
			reply := a.get(lease.Waiting, k.release(1, append(changes, passing(traceparent(1)))...))
			require.Equal(s, b.owner(1), reply.Holder, name)
			require.Empty(s, reply.Trace, name)
			told := b.messages(k)
			require.GreaterOrEqual(s, len(told), 2, name)
			require.Equal(s, lease.Event{Type: lease.Traced, Key: k.key, Ticket: 1, Trace: traceparent(1), Passing: true}, told[0], name)
			require.Equal(s, lease.Granted, told[1].Type, name)
		}
	}
}

func testPassingReaders(s *suite) {
	all, k := s.openAll("a", "b", "c", "d"), s.readWrite()
	a, b, c, d := all[0], all[1], all[2], all[3]
	s.skipUnless(a.can.Notices, "notices")
	a.get(lease.Held, k.acquire(1))
	b.get(lease.Waiting, k.acquire(2, shared))
	d.get(lease.Waiting, k.acquire(4))
	c.get(lease.Waiting, k.acquire(3, shared))
	a.get(lease.Done, k.release(1, passing(traceparent(1))))
	b.requirePassed(k, 2, traceparent(1))
	c.requirePassed(k, 3, traceparent(1))
	d.requireNoMessage(k)

	// The first reader that leaves passes nothing on, and the last one its own hold.
	b.get(lease.Done, k.release(2, passing(traceparent(2))))
	d.requireNoMessage(k)
	c.get(lease.Done, k.release(3, passing(traceparent(3))))
	d.requirePassed(k, 4, traceparent(3))
}

func testPassingNobody(s *suite) {
	all := s.openAll("a", "b", "c")
	a, b, c := all[0], all[1], all[2]
	for _, k := range []subject{s.mutex(), s.readWrite()} {
		a.get(lease.Held, k.acquire(1))
		a.get(lease.Held, k.release(1, next(2), passing(traceparent(1)))) // by the reply
		a.requireNoMessage(k)
		b.get(lease.Waiting, k.acquire(1))
		c.get(lease.Waiting, k.acquire(1))
		b.get(lease.Done, k.release(1, passing(traceparent(2)))) // withdraws
		c.requireNoMessage(k)
		a.get(lease.Done, k.release(2))
		c.get(lease.Done, k.release(1, passing(traceparent(3))))
		s.requireHolders(a, k)
	}
}

// testAnnotateAnyTime has each hold annotated while other commands of the key are on
// their way, on both sides.
func testAnnotateAnyTime(s *suite) {
	all, k := s.openAll("a", "b", "c"), s.readWrite()
	s.skipUnless(all[0].can.Notices, "notices")
	var wg sync.WaitGroup
	for i, c := range all {
		wg.Go(func() {
			for t := range lease.Ticket(20) {
				t++
				changes := []func(*lease.Request){traced}
				if int(t)%3 == i {
					changes = append(changes, shared)
				}
				first := c.send(k.annotate(t, traceparent(int(t)))) // before it holds, or when
				if reply := c.do(k.acquire(t, changes...)); reply.Status == lease.Waiting {
					c.granted(k, t)
				}
				early := c.send(k.annotate(t, traceparent(int(t))))
				renewed := c.send(k.renew(t, annotated))
				late := c.send(k.annotate(t, traceparent(int(t)+1)))
				released := c.send(k.release(t, annotated, passing(traceparent(int(t)))))
				for _, answers := range []<-chan answer{first, early, late} {
					reply, err := s.await(answers)
					if err != nil || reply.Status != lease.Done && reply.Status != lease.Lost {
						s.Errorf("annotate: %v, %v", reply.Status, err)
					}
				}
				for _, answers := range []<-chan answer{renewed, released} {
					if _, err := s.await(answers); err != nil {
						s.Errorf("%v", err)
					}
				}
			}
		})
	}
	wg.Wait()
	s.requireHolders(all[0], k)
	s.requireWaiters(all[0], k)
	all[0].get(lease.Held, k.acquire(100))
	s.requireTraces(all[0], k, all[0].owner(100), "")
}

func testAlreadyGranted(s *suite) {
	all := s.openAll("a", "b")
	a, b := all[0], all[1]
	for name, of := range renewable(s) {
		k := of.k
		require.False(s, a.get(lease.Held, k.acquire(1)).Already, name)
		require.False(s, b.get(lease.Waiting, k.acquire(1, of.changes...)).Already, name)
		a.get(lease.Done, k.release(1))
		require.True(s, b.get(lease.Held, k.acquire(1, of.changes...)).Already, name)
		require.True(s, b.get(lease.Held, k.acquire(1, append(of.changes, atOnce)...)).Already, name)
		require.False(s, b.get(lease.Held, k.renew(1)).Already, name)
		b.get(lease.Done, k.release(1))
		require.False(s, b.get(lease.Held, k.acquire(2, of.changes...)).Already, name)
	}
}

// testAlready: not for what the very command brings, whoever was before it.
func testAlready(s *suite) {
	s.skipUnless(s.env.Delete != nil, "way to delete a key")
	all := s.openAll("a", "b")
	a, b := all[0], all[1]
	for name, of := range renewable(s) {
		k := of.k
		for range 2 {
			require.False(s, a.get(lease.Held, k.acquire(1, of.changes...)).Already, name)
			require.True(s, a.get(lease.Held, k.acquire(1, of.changes...)).Already, name)
			a.get(lease.Done, k.release(1))
		}
		a.get(lease.Held, k.acquire(2))
		b.get(lease.Waiting, k.acquire(3, of.changes...))
		s.env.Delete(k.key)
		require.False(s, b.get(lease.Held, k.acquire(3, of.changes...)).Already, "%s: its turn came by this", name)
		require.True(s, b.get(lease.Held, k.acquire(3, of.changes...)).Already, name)
	}
	k := s.readWrite()
	a.get(lease.Held, k.acquire(1, shared))
	require.False(s, b.get(lease.Held, k.acquire(1, shared)).Already)
	require.False(s, a.get(lease.Denied, k.acquire(1)).Already)
	require.True(s, a.get(lease.Held, k.acquire(1, shared)).Already)
}

func testAlreadyNext(s *suite) {
	all := s.openAll("a", "b")
	a, b := all[0], all[1]
	for _, k := range []subject{s.mutex(), s.readWrite()} {
		a.get(lease.Held, k.acquire(1))
		require.False(s, a.get(lease.Held, k.release(1, next(2))).Already)
		require.True(s, a.get(lease.Held, k.release(1, next(2))).Already, "sent again")
		b.get(lease.Waiting, k.acquire(1))
		require.False(s, a.get(lease.Waiting, k.release(2, next(3))).Already)
		b.get(lease.Done, k.release(1))
		require.True(s, a.get(lease.Held, k.release(2, next(3))).Already, "a grant that was not heard")
		require.False(s, a.get(lease.Held, k.release(3, next(4))).Already)
	}
}
