package leasetest

import (
	"time"

	"github.com/stretchr/testify/require"

	"github.com/go-leasehold/leasehold/lease"
)

var watchCases = []testCase{
	{"WatchSaysWhetherTheOwnerIsThere", testWatchPresent},
	{"WatcherIsToldOfChanges", testWatcherTold},
	{"WatcherIsNotToldOfItsOwnChanges", testWatcherOwnChanges},
	{"HolderIsToldOfDeletion", testHolderToldOfDeletion},
	{"WatcherIsToldOfTheEnd", testWatcherToldOfEnd},
	{"EveryoneIsToldOfAFlush", testFlush},
	{"WatchWithoutTrackingIsIgnored", testWatchIgnored},
}

func testWatchPresent(s *suite) {
	all := s.openAll("a", "b")
	a, b := all[0], all[1]
	s.skipUnless(a.can.Tracking, "tracking")
	for _, of := range renewable(s) {
		k := of.k
		held := a.get(lease.Held, k.acquire(1, append(of.changes, watching(a.owner(1)))...))
		require.True(s, held.Watched)
		require.True(s, held.Present)
		waiting := b.get(lease.Waiting, k.acquire(1, watching(b.owner(1))))
		require.True(s, waiting.Watched)
		require.False(s, waiting.Present)
		denied := b.get(lease.Denied, k.acquire(2, atOnce, watching(a.owner(1))))
		require.True(s, denied.Watched)
		require.True(s, denied.Present)
		renewed := a.get(lease.Held, k.renew(1, watching(a.owner(1))))
		require.True(s, renewed.Watched)
		require.True(s, renewed.Present)
		require.False(s, a.get(lease.Held, k.renew(1)).Watched)
		a.get(lease.Done, k.release(1))
		lost := a.get(lease.Lost, k.renew(1, watching(a.owner(1))))
		require.False(s, lost.Present)
	}
}

func testWatcherTold(s *suite) {
	all, k := s.openAll("a", "b"), s.mutex()
	a, b := all[0], all[1]
	s.skipUnless(a.can.Tracking, "tracking")
	a.get(lease.Held, k.acquire(1))
	watch := k.acquire(1, atOnce, watching(b.owner(1)))
	for range 3 { // armed anew each time
		b.get(lease.Denied, watch)
		a.get(lease.Done, k.release(1))
		b.changed(k)
		a.get(lease.Held, k.acquire(1))
	}
	b.get(lease.Denied, watch)
	a.get(lease.Held, k.renew(1, lasting(4*long)))
	b.changed(k)
}

// news makes sure that whatever tracking had to tell before has been told, by a
// change of another key that is watched too.
func (c *client) news(other *client) []lease.Event {
	c.s.Helper()
	k := c.s.mutex()
	other.get(lease.Held, k.acquire(1))
	c.get(lease.Denied, k.acquire(1, atOnce, watching(c.owner(1))))
	other.get(lease.Done, k.release(1))
	c.changed(k)
	return c.take(func(e lease.Event) bool { return e.Type == lease.Changed })
}

func testWatcherOwnChanges(s *suite) {
	all, k := s.openAll("a", "b"), s.mutex()
	a, b := all[0], all[1]
	s.skipUnless(a.can.Tracking, "tracking")
	watch := watching(a.owner(1))
	a.get(lease.Held, k.acquire(1, watch))
	for i := range 4 {
		a.get(lease.Held, k.renew(1, watch, lasting(time.Duration(i+1)*long)))
	}
	b.get(lease.Waiting, k.acquire(1)) // who waits doesn't change the holders
	a.get(lease.Held, k.renew(1, watch, lasting(8*long)))
	a.get(lease.Done, k.release(1))
	require.Empty(s, a.news(b))
}

func testHolderToldOfDeletion(s *suite) {
	s.skipUnless(s.env.Delete != nil, "deletion from outside")
	a := s.open("a")
	s.skipUnless(a.can.Tracking, "tracking")
	for _, of := range renewable(s) {
		k := of.k
		a.get(lease.Held, k.acquire(1, append(of.changes, watching(a.owner(1)))...))
		a.get(lease.Held, k.renew(1, lasting(2*long), watching(a.owner(1))))
		s.env.Delete(k.key)
		a.changed(k)
		a.get(lease.Lost, k.renew(1))
	}
}

func testWatcherToldOfEnd(s *suite) {
	all := s.openAll("a", "b")
	a, b := all[0], all[1]
	s.skipUnless(a.can.Tracking, "tracking")
	s.withShortLease(func(ttl time.Duration) bool {
		k := s.mutex()
		sent := time.Now()
		a.get(lease.Held, k.acquire(1, lasting(ttl)))
		ends := time.Now().Add(ttl) // at the latest
		if b.do(k.acquire(1, watching(b.owner(1)))).Status != lease.Waiting || time.Since(sent) >= ttl {
			return false // or it may have ended between the look and the watch: then there is no change to tell of
		}
		// A server with many keys may find out late that one has ended, unless
		// somebody looks at it.
		s.env.Sleep(time.Until(ends) + time.Millisecond)
		_, err := a.store.Inspect(s.Context(), k.key)
		require.NoError(s, err)
		b.changed(k)
		s.requireNotBefore(sent.Add(ttl))
		b.get(lease.Held, k.acquire(1))
		return true
	})
}

func testFlush(s *suite) {
	s.skipUnless(s.env.Flush != nil, "flush")
	all, k := s.openAll("a", "b"), s.mutex()
	a, b := all[0], all[1]
	s.skipUnless(a.can.Tracking, "tracking")
	a.get(lease.Held, k.acquire(1, watching(a.owner(1))))
	b.get(lease.Waiting, k.acquire(1, watching(b.owner(1))))
	s.env.Flush()
	for _, c := range []*client{a, b} {
		c.event("changed all", func(e lease.Event) bool { return e.Type == lease.ChangedAll })
	}
	a.get(lease.Lost, k.renew(1))
	s.env.Sleep(time.Millisecond) // with the counter lost, tokens go on with the clock
	b.get(lease.Held, k.acquire(1))
}

func testWatchIgnored(s *suite) {
	a, k := s.open("a"), s.mutex()
	s.skipUnless(!a.can.Tracking, "lack of tracking")
	reply := a.get(lease.Held, k.acquire(1, watching(a.owner(1))))
	require.False(s, reply.Watched)
	require.False(s, reply.Present)
}
