package segment

import (
	"cmp"
	"context"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/redis/rueidis"
	"github.com/stretchr/testify/require"

	"github.com/go-leasehold/leasehold/coordinator"
	"github.com/go-leasehold/leasehold/internal/redistest"
)

// hangs is how long a test waits for what has to happen: so long that only a hang reaches it.
const hangs = 30 * time.Second

// processAt returns a coordinator: what another process is to a stock.
func processAt(t testing.TB, option rueidis.ClientOption, opts ...coordinator.Option) *coordinator.Coordinator {
	t.Helper()
	quiet := coordinator.WithLogger(slog.New(slog.DiscardHandler))
	c, err := coordinator.New(option, append([]coordinator.Option{quiet}, opts...)...)
	require.NoError(t, err)
	t.Cleanup(func() { _ = shut(c) }) // whatever it can still hand over
	return c
}

func shut(c *coordinator.Coordinator) error {
	ctx, cancel := context.WithTimeout(context.Background(), hangs)
	defer cancel()
	return c.Close(ctx)
}

// opened returns a handle on a stock, not loaded.
func opened(t testing.TB, c *coordinator.Coordinator, name string, conf Config) *Stock {
	t.Helper()
	s, err := NewStock(c, name, conf)
	require.NoError(t, err)
	return s
}

// loaded returns a stock of the test's own on the shared server.
func loaded(t testing.TB, conf Config, units int64, opts ...coordinator.Option) *Stock {
	t.Helper()
	s := opened(t, processAt(t, redistest.Shared(t).Option(), opts...), redistest.Prefix(t), conf)
	require.NoError(t, s.Load(t.Context(), units))
	return s
}

// twin returns the same stock in another process.
func twin(t testing.TB, s *Stock, opts ...coordinator.Option) *Stock {
	t.Helper()
	return opened(t, processAt(t, redistest.Shared(t).Option(), opts...), s.name, s.conf)
}

// through returns the same stock behind something that is put before the server.
func through(t testing.TB, s *Stock, wrap func(server) server) *Stock {
	t.Helper()
	return newStock(s.c, s.name, s.conf, s.settings, wrap(s.server))
}

// loadedAt returns a stock of the test's own whose scripts go by a clock that the test sets.
func loadedAt(t testing.TB, conf Config, units int64) (*Stock, *serverClock) {
	t.Helper()
	s := opened(t, processAt(t, redistest.Shared(t).Option()), redistest.Prefix(t), conf)
	clock := newClock(t, redistest.Shared(t), s.name)
	s = through(t, s, clock.wrap)
	require.NoError(t, s.Load(t.Context(), units))
	return s, clock
}

// hooked calls a function before calls are sent, which may answer them itself, and one after.
type hooked struct {
	server
	before func(calls []call) []answer // nil: send them
	after  func(calls []call, answers []answer)
}

func (s *hooked) run(ctx context.Context, calls []call) []answer {
	if s.before != nil {
		if answers := s.before(calls); answers != nil {
			return answers
		}
	}
	answers := s.server.run(ctx, calls)
	if s.after != nil {
		s.after(calls, answers)
	}
	return answers
}

// failAll answers all calls with an error.
func failAll(calls []call, err error) []answer {
	answers := make([]answer, len(calls))
	for i := range answers {
		answers[i].err = err
	}
	return answers
}

// sent counts calls by script.
type sent struct {
	mu sync.Mutex
	n  map[string]int
}

func (c *sent) wrap(s server) server {
	c.n = map[string]int{}
	return &hooked{server: s, before: func(calls []call) []answer {
		c.mu.Lock()
		defer c.mu.Unlock()
		for i := range calls {
			c.n[calls[i].script.name]++
		}
		return nil
	}}
}

func (c *sent) of(name string) int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.n[name]
}

func (c *sent) all() (sum int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, n := range c.n {
		sum += n
	}
	return sum
}

// contents returns all that the server has of a stock, by key, in Redis's own form.
func contents(t testing.TB, server *redistest.Server, s *Stock) map[string]string {
	t.Helper()
	all := map[string]string{}
	for _, key := range keysOf(t, server, s.name) {
		m := server.Do(t, "DUMP", key)
		text, err := m.ToString()
		require.NoError(t, err)
		all[key] = fmt.Sprintf("%x", text)
	}
	return all
}

// keysOf returns the keys of a stock, but for its locks'.
func keysOf(t testing.TB, server *redistest.Server, name string) []string {
	t.Helper()
	// Others' keys stay where they are: there may be very many.
	return server.Keys(t, "*~stock:*{"+glob.Replace(escape.Replace(name))+"/*")
}

// glob writes what patterns have a meaning for.
var glob = strings.NewReplacer("*", `\*`, "?", `\?`, "[", `\[`, "]", `\]`, `\`, `\\`)

// audited are the books of all segments together. It fails the test where they don't balance.
func audited(t testing.TB, s *Stock) Books {
	t.Helper()
	audit, err := s.Audit(t.Context())
	require.NoError(t, err)
	return audit.Books
}

// hashAt reads a hash.
func hashAt(t testing.TB, server *redistest.Server, key string) map[string]string {
	t.Helper()
	m := server.Do(t, "HGETALL", key)
	fields, err := m.AsStrMap()
	require.NoError(t, err)
	return fields
}

// onRecord returns what is on record of an order at a home: in the present bucket, and else in the one before. Where both
// have one the present one holds: an order that was taken before the edge is written down once more where it is returned
// after it, and the old record stays until its bucket is dropped. Anything else that is on record twice is an error.
func onRecord(t testing.TB, h *home, field string) (string, error) {
	t.Helper()
	server, bucket := redistest.Shared(t), h.bucket.Load()
	present, before := hashAt(t, server, h.keys.orders(bucket))[field], hashAt(t, server, h.keys.orders(bucket-1))[field]
	if present != "" && before != "" && (before[0] != 't' || present != "r"+before[1:]) {
		return "", fmt.Errorf("%q is on record as %q, and in the bucket before as %q", field, present, before)
	}
	return cmp.Or(present, before), nil
}

// eventually waits until a condition holds.
func eventually(t testing.TB, what string, condition func() bool) {
	t.Helper()
	for deadline := time.Now().Add(hangs); !condition(); time.Sleep(time.Millisecond) {
		require.True(t, time.Now().Before(deadline), "in vain: %s", what)
	}
}

// within runs what must not hang.
func within(t testing.TB, what string, f func()) {
	t.Helper()
	done := make(chan struct{})
	go func() {
		defer close(done)
		f()
	}()
	timeout := time.NewTimer(hangs)
	defer timeout.Stop()
	select {
	case <-done:
	case <-timeout.C:
		require.Fail(t, "it hangs", what)
	}
}

// idAt returns an ID whose home is a segment.
func idAt(s *Stock, segment int, prefix string) string {
	for i := 0; ; i++ {
		if id := fmt.Sprintf("%s-%d", prefix, i); Index(id, s.Segments()) == segment {
			return id
		}
	}
}
