package faulttest

import (
	"context"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/go-leasehold/leasehold/coordinator"
	"github.com/go-leasehold/leasehold/internal/faults"
	"github.com/go-leasehold/leasehold/internal/redistest"
)

// losses are the ways in which a reply is lost after the server ran the command.
var losses = map[string]faults.Action{
	"and the connection with it": faults.DropReply,
	"in silence":                 faults.Silence,
}

// loseReplies loses the replies of the first n commands of one script.
func loseReplies(p *faults.Proxy, script string, n int64, how faults.Action) *wire {
	var lost atomic.Int64
	return meddle(p, func(cmd []string) faults.Action {
		if is(script)(cmd) && lost.Add(1) <= n {
			return how
		}
		return faults.Pass
	})
}

// E1: the server grants, and the reply is lost, once or several times. The command sent again is the same acquire:
// one holder in Redis, a count of one, one unlock frees it.
func TestLostReplyOfAnAcquireIsNotASecondAcquire(t *testing.T) {
	t.Parallel()
	const ttl = 1500 * time.Millisecond
	for name, how := range losses {
		for _, times := range []int64{1, 4} {
			t.Run(name+", "+map[int64]string{1: "once", 4: "four times"}[times], func(t *testing.T) {
				t.Parallel()
				server := redistest.Shared(t)
				key := redistest.Prefix(t) + "k"
				proxy := faults.NewProxy(t, server.Addr())
				c := steady(t, proxy.Addr(), ours(ttl, coordinator.WithUnavailableAfter(0))...)
				other := steady(t, server.Addr(), ours(ttl)...)
				net := loseReplies(proxy, "acquire", times, how)

				hold := grab(t, c.Mutex(key))
				require.Greater(t, net.count(is("acquire")), int(times))
				require.Equal(t, 1, hold.Count())
				require.Len(t, owners(t, server, key), 1)
				require.Equal(t, []string{"1"}, values(t, server, key), "Redisson would read a hold count here")
				require.Empty(t, inspect(t, other, key).Waiters)
				busy(t, other, key)
				token := hold.Token()
				require.NoError(t, hold.Unlock())
				next := take(t, other.Mutex(key))
				require.Greater(t, next.Token(), token)
				require.NoError(t, next.Unlock())
				eventually(t, ttl+slack, "no key left", func() bool { return !exists(t, server, key) })
			})
		}
	}
}

// E1: every reply to the acquire is lost for as long as the call lasts. The error says that the outcome is unknown,
// and the lease, of which nobody knows, is released or runs out; nothing renews it.
func TestAcquireWithUnknownOutcomeLeavesNothing(t *testing.T) {
	t.Parallel()
	const ttl = 1500 * time.Millisecond
	for name, how := range losses {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			server := redistest.Shared(t)
			key := redistest.Prefix(t) + "k"
			proxy := faults.NewProxy(t, server.Addr())
			c := steady(t, proxy.Addr(), ours(ttl, coordinator.WithUnavailableAfter(ttl/2))...)
			net := loseReplies(proxy, "acquire", 1<<30, how)

			hold, took, err := try(t, c.Mutex(key+"try"))
			require.ErrorIs(t, err, coordinator.ErrUnavailable)
			require.Nil(t, hold)
			require.Less(t, took, ttl/3+slack)
			within(t, ttl+slack, "Lock", func() { hold, err = c.Mutex(key).Lock(context.Background()) })
			require.ErrorIs(t, err, coordinator.ErrUnavailable)
			require.Nil(t, hold)
			require.Positive(t, net.count(is("acquire")))
			gone := func() bool { return !exists(t, server, key) && !exists(t, server, key+"try") }
			eventually(t, ttl+slack, "no key left", gone)
			eventually(t, ttl+slack, "nothing left to do", func() bool { return len(c.Snapshot().Keys) == 0 })
			require.Zero(t, net.count(is("renew")))
			require.True(t, gone(), "a late release set it free, a late acquire did not take it")
		})
	}
}

// E1: the replies of renewals are lost. The lease goes on, with one holder and the same token.
func TestLostReplyOfARenewalIsHarmless(t *testing.T) {
	t.Parallel()
	const ttl = 2 * time.Second
	for name, how := range losses {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			server := redistest.Shared(t)
			key := redistest.Prefix(t) + "k"
			proxy := faults.NewProxy(t, server.Addr())
			c := steady(t, proxy.Addr(), ours(ttl)...)
			net := loseReplies(proxy, "renew", 2, how)
			hold := grab(t, c.Mutex(key))
			token, owner := hold.Token(), owners(t, server, key)
			eventually(t, 2*ttl, "renewals whose reply came", func() bool { return stats(c).Renewals > 0 && net.count(is("renew")) > 3 })
			require.NoError(t, hold.Err())
			require.Equal(t, token, hold.Token())
			require.Equal(t, owner, owners(t, server, key))
			require.Equal(t, 1, hold.Count())
			require.NoError(t, hold.Unlock())
			eventually(t, slack, "no key left", func() bool { return !exists(t, server, key) })
		})
	}
}

// E1: the reply of the release is lost, and the process has locked again when it is sent once more. It touches the
// hold it was meant for only.
func TestLostReplyOfAReleaseTouchesNoLaterHold(t *testing.T) {
	t.Parallel()
	const ttl = 4 * time.Second
	for name, how := range losses {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			server := redistest.Shared(t)
			key := redistest.Prefix(t) + "k"
			proxy := faults.NewProxy(t, server.Addr())
			c := steady(t, proxy.Addr(), ours(ttl, coordinator.WithUnavailableAfter(0))...)
			other := steady(t, server.Addr(), ours(ttl)...)
			net := loseReplies(proxy, "release", 2, how)
			first := grab(t, c.Mutex(key))
			require.NoError(t, first.Unlock())
			second := grab(t, c.Mutex(key))
			require.Greater(t, second.Token(), first.Token())
			eventually(t, hangs, "the release sent again", func() bool { return net.count(is("release")) > 2 })
			require.ErrorIs(t, first.Unlock(), coordinator.ErrNotHeld)
			busy(t, other, key)
			require.NoError(t, second.Err())
			require.Len(t, owners(t, server, key), 1)
			require.NoError(t, second.Unlock())
			free(t, other, key)
		})
	}
}

// E1: the reply to a wait is lost. The process stands in the queue once, and is granted once.
func TestLostReplyOfAWaitIsNotASecondPlaceInTheQueue(t *testing.T) {
	t.Parallel()
	const ttl = 1500 * time.Millisecond
	server := redistest.Shared(t)
	key := redistest.Prefix(t) + "k"
	proxy := faults.NewProxy(t, server.Addr())
	c := steady(t, proxy.Addr(), ours(ttl)...)
	other := steady(t, server.Addr(), ours(ttl)...)
	held := grab(t, other.Mutex(key))
	net := loseReplies(proxy, "acquire", 3, faults.DropReply)
	waits := lockLater(t.Context(), c.Mutex(key))
	eventually(t, hangs, "a look that was answered", func() bool {
		return net.count(is("acquire")) > 3 && queuedIn(c, key)
	})
	require.Len(t, inspect(t, other, key).Waiters, 1)
	require.NoError(t, held.Unlock())
	got := await(t, waits, hangs, "the grant")
	require.NoError(t, got.err)
	require.Greater(t, got.hold.Token(), held.Token())
	require.Len(t, owners(t, server, key), 1)
	require.NoError(t, got.hold.Unlock())
	free(t, other, key)
}

// queuedIn says whether the process knows that it waits in Redis's queue.
func queuedIn(c *coordinator.Coordinator, key string) bool {
	for _, k := range c.Snapshot().Keys {
		if k.Key == key {
			return k.Phase == "queued"
		}
	}
	return false
}

// values are the counts of a held mutex in Redis.
func values(t testing.TB, s *redistest.Server, key string) []string {
	t.Helper()
	message := s.Do(t, "HVALS", "lock:"+key)
	found, err := message.AsStrSlice()
	require.NoError(t, err)
	return found
}
