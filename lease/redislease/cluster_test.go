package redislease_test

import (
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/go-leasehold/leasehold/internal/redistest"
	"github.com/go-leasehold/leasehold/lease"
	"github.com/go-leasehold/leasehold/lease/redislease"
)

// startCluster starts a cluster of one master that has all slots.
func startCluster(t testing.TB) *redistest.Server {
	t.Helper()
	server := redistest.Start(t, "--cluster-enabled", "yes")
	server.Do(t, "CLUSTER", "ADDSLOTSRANGE", "0", "16383")
	eventually(t, func(c *collector) {
		info, err := readString(t, server, "CLUSTER", "INFO")
		require.NoError(c, err)
		require.Contains(c, info, "cluster_state:ok")
	})
	return server
}

func TestInboxOfEachSlotInUse(t *testing.T) {
	server := startCluster(t)
	a, b := openPeer(t, server, "a", redislease.Config{}), openPeer(t, server, "b", redislease.Config{})
	require.True(t, a.can.Receipts)
	require.Empty(t, a.can.Missing)
	channels := func() []string {
		message := server.Do(t, "PUBSUB", "SHARDCHANNELS", "lock:~inbox:*")
		names, err := message.AsStrSlice()
		require.NoError(t, err)
		return names
	}
	require.Empty(t, channels(), "none before the first use")
	for _, key := range []string{"a", "b", "{a}2"} {
		a.do(lease.Held, acquire(key, 1))
		b.do(lease.Waiting, acquire(key, 1)) // at once, though its inbox had to be subscribed first
		require.Equal(t, key, a.event(lease.Wanted).Key)
		a.do(lease.Done, release(key, 1))
		require.Equal(t, key, b.event(lease.Granted).Key)
		b.do(lease.Held, renew(key, 1))
	}
	require.Len(t, channels(), 6, "three slots, two coordinators")
	for _, name := range channels() {
		require.True(t, strings.HasSuffix(name, "}"), name)
	}

	server.Do(t, "CLIENT", "KILL", "TYPE", "pubsub")
	require.Error(t, b.event(lease.Disconnected).Err)
	b.event(lease.Connected)
	a.event(lease.Connected)
	b.do(lease.Held, renew("a", 1))
	a.do(lease.Waiting, acquire("a", 5))
	b.event(lease.Wanted)

	problems, err := a.Check(t.Context())
	require.NoError(t, err)
	require.Equal(t, []string{redislease.ProblemCluster}, codes(problems))
	require.Contains(t, problems[0].Text, "cluster-require-full-coverage")
	a.close()
	b.close()
	eventually(t, func(c *collector) { require.Empty(c, channels()) }) // their connections are closed
	stats, err := readString(t, server, "INFO", "commandstats")
	require.NoError(t, err)
	require.NotContains(t, stats, "unsubscribe", "the client can't be trusted with the answers")
}

// TestNobodyIsToldOfAGrantThatIsNot: while a slot moves, a lock that the last holder has left can't be given to the next
// one on the old node. Whoever is told of a grant has the lock in Redis.
func TestNobodyIsToldOfAGrantThatIsNot(t *testing.T) {
	low, high := startPair(t)
	a, b := openPeer(t, low, "a", redislease.Config{}), openPeer(t, low, "b", redislease.Config{})
	n := 0
	keyOfHigh := func() string {
		for {
			n++
			if key := "k" + strconv.Itoa(n); integer(t, high, "CLUSTER", "KEYSLOT", "lock:"+key) > 8191 {
				return key
			}
		}
	}
	for name, as := range modes() {
		for _, change := range []func(lease.Request) lease.Request{
			func(r lease.Request) lease.Request { return r },
			func(r lease.Request) lease.Request { return passing(r, traceparent(1)) },
			func(r lease.Request) lease.Request { r.Next = yield(r.Key, 1, 3).Next; return r },
		} {
			key := keyOfHigh()
			a.do(lease.Held, as(acquire(key, 1)))
			b.do(lease.Waiting, excluding(as, acquire(key, 2)))
			move(t, high, low, holderName(key), func() {
				_, err := a.try(as(change(release(key, 1))))
				require.Error(t, err, name)
				b.do(lease.Done, lease.Request{Op: lease.Busy, Key: key, Kind: lease.Mutex, Asker: "b:99"})
				eventually(t, func(c *collector) { require.NotEmpty(c, b.ofType(lease.InUse)) })
				require.Empty(t, b.ofType(lease.Granted), name)
				b.event(lease.InUse)
				for _, left := range high.Keys(t, "*lock:"+key) {
					high.Do(t, "DEL", left)
				}
			})
		}
	}
}
