package redislease_test

import (
	"net"
	"strconv"
	"testing"

	"github.com/redis/rueidis"
	"github.com/stretchr/testify/require"

	"github.com/go-leasehold/leasehold/internal/redistest"
	"github.com/go-leasehold/leasehold/lease"
	"github.com/go-leasehold/leasehold/lease/redislease"
)

// startNode starts a node of a cluster that no other will take for dead.
func startNode(t testing.TB) *redistest.Server {
	t.Helper()
	return redistest.Start(t, "--cluster-enabled", "yes", "--cluster-node-timeout", "600000")
}

// startPair starts a cluster of two masters with half of the slots each.
func startPair(t testing.TB) (low, high *redistest.Server) {
	t.Helper()
	low, high = startNode(t), startNode(t)
	low.Do(t, "CLUSTER", "ADDSLOTSRANGE", "0", "8191")
	high.Do(t, "CLUSTER", "ADDSLOTSRANGE", "8192", "16383")
	high.Do(t, "CLUSTER", "SET-CONFIG-EPOCH", "2")
	meet(t, low, high)
	return low, high
}

// meet has the last server join the others, and waits until all know of all.
func meet(t testing.TB, servers ...*redistest.Server) {
	t.Helper()
	host, port, err := net.SplitHostPort(servers[0].Addr())
	require.NoError(t, err)
	servers[len(servers)-1].Do(t, "CLUSTER", "MEET", host, port)
	for _, server := range servers {
		eventually(t, func(c *collector) {
			info, err := readString(t, server, "CLUSTER", "INFO")
			require.NoError(c, err)
			require.Contains(c, info, "cluster_state:ok")
			require.Contains(c, info, "cluster_known_nodes:"+strconv.Itoa(len(servers)))
			require.Contains(c, info, "cluster_slots_assigned:16384")
		})
	}
}

// move moves a slot that has at most the given key.
func move(t testing.TB, from, to *redistest.Server, key string, halfway func()) {
	t.Helper()
	message := from.Do(t, "CLUSTER", "KEYSLOT", key)
	n, err := message.AsInt64()
	require.NoError(t, err)
	slot := strconv.FormatInt(n, 10)
	source, err := readString(t, from, "CLUSTER", "MYID")
	require.NoError(t, err)
	target, err := readString(t, to, "CLUSTER", "MYID")
	require.NoError(t, err)
	to.Do(t, "CLUSTER", "SETSLOT", slot, "IMPORTING", source)
	from.Do(t, "CLUSTER", "SETSLOT", slot, "MIGRATING", target)
	host, port, err := net.SplitHostPort(to.Addr())
	require.NoError(t, err)
	from.Do(t, "MIGRATE", host, port, key, "0", "10000")
	halfway()
	to.Do(t, "CLUSTER", "SETSLOT", slot, "NODE", target)
	from.Do(t, "CLUSTER", "SETSLOT", slot, "NODE", target)
}

func TestManyNamesOnACluster(t *testing.T) {
	server := startCluster(t)
	p := openPeer(t, server, "p", redislease.Config{})
	other, err := rueidis.NewClient(server.Option())
	require.NoError(t, err)
	defer other.Close()
	manyNames(t, p, other, 1000)
}

// TestManyNamesOnTwoNodes: each read goes to the node that has its slot, and after it when that moves.
func TestManyNamesOnTwoNodes(t *testing.T) {
	low, high := startPair(t)
	p := openPeer(t, low, "p", redislease.Config{})
	manyNames(t, p, plainOf(t, p), 1000)

	// foo is in slot 12182, bar in 5061.
	plain := plainOf(t, p)
	foo, bar := watch(t, p, "foo"), watch(t, p, "bar")
	set(t, plain, "foo", "1")
	set(t, plain, "bar", "1")
	values := func(want ...string) {
		t.Helper()
		for i, result := range read(t, p, "foo", "bar") {
			value, err := result.ToString()
			require.NoError(t, err)
			require.Equal(t, want[i], value)
		}
	}
	values("1", "1")
	move(t, high, low, "foo", func() {
		eventually(t, func(c *collector) { require.EqualValues(c, 1, foo.calls.Load(), "it has left its node") })
		results := read(t, p, "foo", "bar")
		require.ErrorContains(t, results[0].Error(), "ASK")
		require.NoError(t, results[1].Error())
		require.EqualValues(t, 1, foo.calls.Load())
	})
	values("1", "1")
	set(t, plain, "foo", "2")
	eventually(t, func(c *collector) { require.EqualValues(c, 2, foo.calls.Load(), "and is tracked on the new one") })
	values("2", "1")
	require.Zero(t, bar.calls.Load())
	p.do(lease.Held, acquire("foo", 1))
}

// TestTrackedFollowsAMove: where the list of slots is out of date, and where the node that has the slot is a new one.
func TestTrackedFollowsAMove(t *testing.T) {
	low, high := startPair(t)
	p := openPeer(t, low, "p", redislease.Config{})
	plain := plainOf(t, p)
	set(t, plain, "foo", "1")
	foo := watch(t, p, "foo")
	for _, wrong := range []string{low.Addr(), "127.0.0.1:1", ""} {
		before := foo.calls.Load()
		results, err := p.TrackedAt(t.Context(), wrong, plain.B().Get().Key("foo").Build())
		require.NoError(t, err)
		require.NoError(t, results[0].Error())
		high.Do(t, "SET", "foo", wrong)
		eventually(t, func(c *collector) { require.Equal(c, before+1, foo.calls.Load()) })
	}

	third := startNode(t)
	meet(t, low, high, third)
	read(t, p, "foo")
	before := foo.calls.Load()
	move(t, high, third, "foo", func() {})
	eventually(t, func(c *collector) { require.Equal(c, before+1, foo.calls.Load()) })
	read(t, p, "foo", "bar")
	third.Do(t, "SET", "foo", "third")
	eventually(t, func(c *collector) { require.Equal(c, before+2, foo.calls.Load()) })

	low.Kill()
	for range 10 { // whichever node is asked for the slots first
		read(t, p, "foo")
	}
	_, err := p.Tracked(t.Context(), plain.B().Get().Key("foo").Build(), plain.B().Get().Key("bar").Build())
	require.ErrorContains(t, err, "the server is down")
}
