package faulttest

import (
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/go-leasehold/leasehold/coordinator"
	"github.com/go-leasehold/leasehold/internal/faults"
	"github.com/go-leasehold/leasehold/internal/redistest"
)

// refusals are errors that a server may answer any command with, and what of it an error tells in words.
var refusals = map[string]struct{ text, says string }{
	"MISCONF":     {"MISCONF Redis is configured to save RDB snapshots, but it's currently unable to persist to disk.", "can't write its snapshots"},
	"OOM":         {"OOM command not allowed when used memory > 'maxmemory'.", "maxmemory"},
	"READONLY":    {"READONLY You can't write against a read only replica.", "read-only replica"},
	"LOADING":     {"LOADING Redis is loading the dataset in memory", "loading its data set"},
	"BUSY":        {"BUSY Redis is busy running a script. You can only call SCRIPT KILL or SHUTDOWN NOSAVE.", "busy with a script"},
	"CLUSTERDOWN": {"CLUSTERDOWN The cluster is down", "cluster is down"},
	"MASTERDOWN":  {"MASTERDOWN Link with MASTER is down and replica-serve-stale-data is set to 'no'.", "lost its master"},
	"NOREPLICAS":  {"NOREPLICAS Not enough good replicas to write.", "too few replicas"},
	"ERR":         {"ERR something that this version has never heard of", "something that this version has never heard of"},
}

// refuse has the proxy answer the commands of one script with an error, n times.
func refuse(p *faults.Proxy, script, text string, n int64) *wire {
	var told atomic.Int64
	return meddle(p, func(cmd []string) faults.Action {
		if is(script)(cmd) && told.Add(1) <= n {
			return faults.Fail(text)
		}
		return faults.Pass
	})
}

// J4: each error, on each command. An acquire is tried again while somebody waits, a renewal for as long as the lease
// lasts, a release until its lease would be over; TryLock tells at once.
func TestEachRefusalOnEachCommandIsOutlasted(t *testing.T) {
	t.Parallel()
	const ttl = 3 * time.Second
	for code, refusal := range refusals {
		t.Run(code, func(t *testing.T) {
			t.Parallel()
			server := redistest.Shared(t)
			prefix := redistest.Prefix(t)
			proxy := faults.NewProxy(t, server.Addr())
			c := steady(t, proxy.Addr(), ours(ttl)...)

			refuse(proxy, "acquire", refusal.text, 1<<30)
			_, took, err := try(t, c.Mutex(prefix+"try"))
			require.ErrorIs(t, err, coordinator.ErrUnavailable)
			require.ErrorContains(t, err, refusal.says)
			require.Less(t, took, ttl/3+slack)

			net := refuse(proxy, "acquire", refusal.text, 2)
			hold := grab(t, c.Mutex(prefix+"k"))
			require.Equal(t, 3, net.count(both(is("acquire"), about(prefix+"k"))))

			before := stats(c).Renewals
			net = refuse(proxy, "renew", refusal.text, 2)
			eventually(t, ttl, "a renewal after those refused", func() bool { return stats(c).Renewals > before })
			require.GreaterOrEqual(t, net.count(is("renew")), 3)
			require.NoError(t, hold.Err())

			net = refuse(proxy, "release", refusal.text, 2)
			require.NoError(t, hold.Unlock())
			eventually(t, ttl+slack, "the release after those refused", func() bool { return !exists(t, server, prefix+"k") })
			eventually(t, slack, "nothing left to do", func() bool { return len(c.Snapshot().Keys) == 0 })
			require.Equal(t, 3, net.count(both(is("release"), about(prefix+"k"))))
			require.Zero(t, stats(c).FailedReleases)
		})
	}
}

// J4: a release is refused for as long as the lease would have lasted. That is told to the operator, and no more is
// tried.
func TestReleaseThatNeverWorksIsReported(t *testing.T) {
	t.Parallel()
	const ttl = 1500 * time.Millisecond
	server := redistest.Shared(t)
	key := redistest.Prefix(t) + "k"
	proxy := faults.NewProxy(t, server.Addr())
	log, logged := logTo()
	c := steady(t, proxy.Addr(), ours(ttl, logged)...)
	hold := grab(t, c.Mutex(key))
	net := refuse(proxy, "release", refusals["MISCONF"].text, 1<<30)
	require.NoError(t, hold.Unlock(), "the hold was safe until now; Unlock does not wait for Redis")
	require.True(t, exists(t, server, key))
	eventually(t, ttl+slack, "the key gone by itself", func() bool { return !exists(t, server, key) })
	eventually(t, ttl+slack, "the report", func() bool { return stats(c).FailedReleases == 1 })
	eventually(t, slack, "nothing left to do", func() bool { return len(c.Snapshot().Keys) == 0 })
	require.Greater(t, net.count(is("release")), 2)
	staysQuiet(t, net, ttl, both(about(key), is("release")), "a command after it was given up")
	eventually(t, slack, "the log line", func() bool { return log.String() != "" })
	require.Contains(t, log.String(), "release failed")
	require.Contains(t, log.String(), key)
	require.Contains(t, log.String(), "MISCONF")
}
