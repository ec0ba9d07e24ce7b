package leasetest

import (
	"strings"

	"github.com/stretchr/testify/require"

	"github.com/go-leasehold/leasehold/lease"
)

var keyCases = []testCase{
	{"AnyStringIsAKey", testOddKeys},
}

// oddKeys are what users may call a lock.
func oddKeys() []string {
	binary := make([]byte, 256)
	for i := range binary {
		binary[i] = byte(i)
	}
	return []string{
		"a", "a{b}c", "{}a", "a}b{c", "{a}", "{", "}", "{}", "{{a}}", "a{}{b}",
		" ", "with spaces", "two\nlines\r\n", "tab\t", "quote\"'`\\", "%s%d%%", "*", "?[a-z]", "~queue{a}a", "~", "~~a",
		":", "a:1", "lock:a", "日本語", "\x00", string(binary), strings.Repeat("k", 64<<10),
	}
}

func testOddKeys(s *suite) {
	all := s.openAll("a", "b")
	a, b := all[0], all[1]
	for i, odd := range oddKeys() {
		// What makes the key unique stands behind, where it changes no hash tag.
		kind := lease.Mutex
		if i%2 == 1 {
			kind = lease.ReadWrite
		}
		k := subject{kind: kind, key: odd}
		if len(odd) < 64<<10 {
			k.key += "/" + s.run
		} else {
			k.key = odd[:len(odd)-len(s.run)] + s.run
		}
		testOddKey(s, a, b, k)
	}
}

func testOddKey(s *suite, a, b *client, k subject) {
	s.Helper()
	watch := k.acquire(1)
	watch.Watch = a.owner(1)
	held := a.get(lease.Held, watch)
	require.Equal(s, a.can.Tracking, held.Present, "key %.100q", k.key)
	require.Equal(s, a.owner(1), b.get(lease.Waiting, k.acquire(1, asking)).Holder)
	s.requireHolders(a, k, a.owner(1))
	s.requireWaiters(a, k, b.owner(1))
	if a.can.Notices {
		require.Equal(s, b.owner(1), a.wanted(k, 1).Asker)
		a.get(lease.Done, k.busy(b.owner(1)))
		b.event("in use", func(e lease.Event) bool {
			return e.Type == lease.InUse && e.Key == k.key && e.Ticket == 1
		})
	}
	a.get(lease.Held, k.renew(1))
	a.get(lease.Waiting, k.release(1, next(2)))
	if b.can.Notices {
		b.granted(k, 1)
	}
	b.get(lease.Done, k.release(1))
	s.requireHolders(a, k, a.owner(2))
	if !b.can.Tracking {
		a.get(lease.Done, k.release(2))
		return
	}
	b.get(lease.Denied, k.acquire(3, atOnce, watching(b.owner(3))))
	a.get(lease.Done, k.release(2))
	b.changed(k)
}
