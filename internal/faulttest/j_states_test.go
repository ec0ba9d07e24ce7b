package faulttest

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/redis/rueidis"
	"github.com/stretchr/testify/require"

	"github.com/go-leasehold/leasehold/coordinator"
	"github.com/go-leasehold/leasehold/internal/faults"
	"github.com/go-leasehold/leasehold/internal/redistest"
)

// state is a way in which a server is there and refuses locks.
type state struct {
	code    string // of its errors
	says    string // what an error tells of it, in words
	newSays string // where it differs, to a process that comes later
	args    []string
	inflict func(t testing.TB, s *redistest.Server) (heal func())
	opens   bool // a new process gets a coordinator all the same
}

// states are brought about for real, not by the proxy.
var states = map[string]state{
	"out of memory": {code: "OOM", says: "maxmemory", opens: true, inflict: func(t testing.TB, s *redistest.Server) func() {
		return setConfig(t, s, "maxmemory", "1", "0")
	}},
	"too few replicas": {code: "NOREPLICAS", says: "too few replicas", opens: true, inflict: func(t testing.TB, s *redistest.Server) func() {
		return setConfig(t, s, "min-replicas-to-write", "1", "0")
	}},
	"read-only": {code: "READONLY", says: "read-only replica", inflict: func(t testing.TB, s *redistest.Server) func() {
		s.Do(t, "REPLICAOF", "127.0.0.1", "1") // nobody is there, so it keeps what it has
		return func() { s.Do(t, "REPLICAOF", "NO", "ONE") }
	}},
	"cut off replica": {code: "MASTERDOWN", says: "lost its master", newSays: "read-only replica", inflict: func(t testing.TB, s *redistest.Server) func() {
		s.Do(t, "CONFIG", "SET", "replica-serve-stale-data", "no")
		s.Do(t, "REPLICAOF", "127.0.0.1", "1")
		return func() { s.Do(t, "REPLICAOF", "NO", "ONE") }
	}},
	"failed snapshot": {code: "MISCONF", says: "can't write its snapshots", opens: true, inflict: failSnapshot},
	"busy script":     {code: "BUSY", says: "busy with a script", inflict: runForEver},
	"loading": {code: "LOADING", says: "loading its data set", inflict: load,
		args: []string{"--enable-debug-command", "yes", "--loading-process-events-interval-bytes", "1024"}},
}

func setConfig(t testing.TB, s *redistest.Server, name, bad, good string) func() {
	s.Do(t, "CONFIG", "SET", name, bad)
	return func() { s.Do(t, "CONFIG", "SET", name, good) }
}

// failSnapshot puts a directory where the snapshot's file is to go.
func failSnapshot(t testing.TB, s *redistest.Server) func() {
	message := s.Do(t, "CONFIG", "GET", "dir")
	found, err := message.AsStrMap()
	require.NoError(t, err)
	require.NoError(t, os.MkdirAll(filepath.Join(found["dir"], "dump.rdb"), 0o700))
	s.Do(t, "CONFIG", "SET", "save", "3600 1000000")
	s.Do(t, "BGSAVE")
	eventually(t, hangs, "a failed snapshot", func() bool {
		message := s.Do(t, "INFO", "persistence")
		text, err := message.ToString()
		return err == nil && strings.Contains(text, "rdb_last_bgsave_status:err")
	})
	return func() { s.Do(t, "CONFIG", "SET", "stop-writes-on-bgsave-error", "no") }
}

// runForEver keeps the server busy with a script that does not end.
func runForEver(t testing.TB, s *redistest.Server) func() {
	s.Do(t, "CONFIG", "SET", "busy-reply-threshold", "10")
	killer := s.Client(t)
	ended := make(chan struct{})
	go func() { // ends when the script is killed
		defer close(ended)
		_, _ = s.DoErr("EVAL", "while true do end", "0")
	}()
	answers := func() string { return answer(t, killer, "PING") }
	eventually(t, hangs, "a busy server", func() bool { return strings.HasPrefix(answers(), "BUSY") })
	healed := false
	heal := func() {
		if !healed {
			healed = true
			eventually(t, hangs, "the script killed", func() bool {
				answer(t, killer, "SCRIPT", "KILL")
				return answers() == "PONG"
			})
			<-ended
		}
	}
	t.Cleanup(heal) // else nothing else could end
	return heal
}

// load makes the server load its data set again, a little at a time.
func load(t testing.TB, s *redistest.Server) func() {
	for i := range 200 {
		s.Do(t, "SET", fmt.Sprintf("filler:%d", i), strings.Repeat(fmt.Sprintf("%d", i), 3000), "PX", "600000")
	}
	s.Do(t, "CONFIG", "SET", "rdbcompression", "no")
	s.Do(t, "CONFIG", "SET", "key-load-delay", "50000") // µs for each key
	other := s.Client(t)
	ended := make(chan struct{})
	go func() { // ends when the server has loaded
		defer close(ended)
		_, _ = s.DoErr("DEBUG", "RELOAD")
	}()
	eventually(t, hangs, "a loading server", func() bool { return strings.HasPrefix(answer(t, other, "GET", "x"), "LOADING") })
	healed := false
	heal := func() {
		if !healed {
			healed = true
			require.Equal(t, "OK", answer(t, other, "CONFIG", "SET", "key-load-delay", "0"))
			<-ended
		}
	}
	t.Cleanup(heal)
	return heal
}

// answer is what the server says to a command, be it an error.
func answer(t testing.TB, client rueidis.Client, words ...string) string {
	message, err := client.Do(context.Background(), client.B().Arbitrary(words...).Build()).ToMessage()
	if err != nil {
		return err.Error()
	}
	text, _ := message.ToString()
	return text
}

// J4: a server that refuses writes is not contention. Try says so, waits and holds outlast it, what was unlocked
// meanwhile is freed, and everything works when it is over, in the same process.
func TestServerThatRefusesWritesIsNotContention(t *testing.T) {
	t.Parallel()
	for name, bad := range states {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			const ttl = 3 * time.Second
			server := redistest.Start(t, bad.args...)
			proxy := faults.NewProxy(t, server.Addr())
			net := listen(proxy)
			c := steady(t, proxy.Addr(), ours(ttl, coordinator.WithUnavailableAfter(0))...)
			held, unlocked := grab(t, c.Mutex("held")), grab(t, c.Mutex("unlocked"))
			connections := proxy.Accepted()
			heal := bad.inflict(t, server)

			hold, took, err := try(t, c.Mutex("tried"))
			require.Nil(t, hold)
			require.ErrorIs(t, err, coordinator.ErrUnavailable)
			require.NotErrorIs(t, err, coordinator.ErrNotAcquired)
			require.ErrorContains(t, err, bad.says)
			require.ErrorContains(t, err, bad.code)
			require.Less(t, took, ttl/3+slack)
			waits := lockLater(t.Context(), c.Mutex("waited"))
			require.NoError(t, unlocked.Unlock(), "it was safe until now")
			eventually(t, hangs, "tries again", func() bool {
				return net.count(both(is("acquire"), about("waited"))) > 2
			})
			require.Empty(t, waits)
			require.NoError(t, held.Err())
			if bad.code == "READONLY" {
				eventually(t, slack, "a look for the new master", func() bool { return proxy.Accepted() > connections })
			}
			heal()

			out := await(t, waits, hangs, "the wait")
			require.NoError(t, out.err)
			require.NoError(t, out.hold.Unlock())
			eventually(t, ttl+slack, "the release made up for", func() bool { return !exists(t, server, "unlocked") })
			free(t, c, "tried")
			require.NoError(t, held.Err(), "it did not last as long as the lease")
			eventually(t, ttl, "a renewal", func() bool { return pttl(t, server, "lock:held") > ttl/2 })
			require.NoError(t, held.Unlock())
		})
	}
}
