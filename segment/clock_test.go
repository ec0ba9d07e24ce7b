package segment

import (
	"context"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/go-leasehold/leasehold/internal/redistest"
)

// serverClock is a clock that scripts read instead of the server's: a key of its own, which a
// test sets. It begins at the server's present time.
type serverClock struct {
	server *redistest.Server
	key    string

	mu      sync.Mutex
	scripts map[*script]*script
}

// newClock returns a clock in a key of the test's own. Keys expire by the real clock all the same.
func newClock(t testing.TB, server *redistest.Server, name string) *serverClock {
	t.Helper()
	if server.Kind() == redistest.Cluster {
		t.Skip("a clock in a key can be read in one slot only, and the segments of a stock are in several")
	}
	c := &serverClock{server: server, key: "clock:" + name, scripts: map[*script]*script{}}
	c.set(t, time.Now())
	return c
}

// set has it be a moment.
func (c *serverClock) set(t testing.TB, now time.Time) {
	t.Helper()
	µs := now.UnixMicro()
	c.server.Do(t, "SET", c.key, strconv.FormatInt(µs/1e6, 10)+" "+strconv.FormatInt(µs%1e6, 10))
}

// now returns the moment that it shows.
func (c *serverClock) now(t testing.TB) time.Time {
	t.Helper()
	m := c.server.Do(t, "GET", c.key)
	text, err := m.ToString()
	require.NoError(t, err)
	s, µs, _ := strings.Cut(text, " ")
	seconds, err := strconv.ParseInt(s, 10, 64)
	require.NoError(t, err)
	rest, err := strconv.ParseInt(µs, 10, 64)
	require.NoError(t, err)
	return time.Unix(seconds, rest*1000)
}

// add moves it, back as well.
func (c *serverClock) add(t testing.TB, d time.Duration) {
	t.Helper()
	c.set(t, c.now(t).Add(d))
}

// edge moves it to the first moment of the next bucket of orders, and by d from there.
func (c *serverClock) edge(t testing.TB, remember, d time.Duration) {
	t.Helper()
	now := c.now(t).UnixMicro()
	next := (now/remember.Microseconds() + 1) * remember.Microseconds()
	c.set(t, time.UnixMicro(next).Add(d))
}

// of is a script that reads this clock.
func (c *serverClock) of(s *script) *script {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.scripts[s] == nil {
		const read = "redis.call('TIME')"
		if strings.Count(s.text, read) != 1 {
			panic("the script " + s.name + " does not read the time once, by " + read)
		}
		c.scripts[s] = makeScript(s.name, strings.Replace(s.text, read,
			"{string.match(redis.call('GET', '"+c.key+"'), '(%d+) (%d+)')}", 1))
	}
	return c.scripts[s]
}

// wrap has all scripts that pass through a server read this clock.
func (c *serverClock) wrap(s server) server { return clocked{s, c} }

type clocked struct {
	server
	clock *serverClock
}

func (s clocked) run(ctx context.Context, calls []call) []answer {
	mine := make([]call, len(calls))
	for i := range calls {
		mine[i] = calls[i]
		mine[i].script = s.clock.of(calls[i].script)
	}
	return s.server.run(ctx, mine)
}
