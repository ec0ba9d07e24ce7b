package faulttest

import (
	"context"
	"log/slog"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/redis/rueidis"
	"github.com/stretchr/testify/require"

	"github.com/go-leasehold/leasehold/coordinator"
	"github.com/go-leasehold/leasehold/internal/childproc"
	"github.com/go-leasehold/leasehold/internal/faults"
	"github.com/go-leasehold/leasehold/internal/redistest"
)

// slack is what a busy machine may add to a bound: little beside a hang, and much beside a scheduler's delay.
const slack = 2 * time.Second

// meddle notes every command that passes p, and has decide say what becomes of it.
func meddle(p *faults.Proxy, decide faults.Hook) *wire {
	w := &wire{}
	p.OnCommand(func(cmd []string) faults.Action {
		w.note(cmd)
		return decide(cmd)
	})
	return w
}

// about returns a match for the commands that name the key's lock.
func about(key string) func(cmd []string) bool {
	return func(cmd []string) bool { return slices.Contains(cmd, "lock:"+key) }
}

// both returns a match for the commands that each of two likes.
func both(a, b func(cmd []string) bool) func(cmd []string) bool {
	return func(cmd []string) bool { return a(cmd) && b(cmd) }
}

// takes is a match for the commands that get or keep a lease. A release may be repeated at will.
func takes(cmd []string) bool { return is("acquire")(cmd) || is("renew")(cmd) }

// notPing is a match for all commands but the connection's own heartbeat.
func notPing(cmd []string) bool { return !faults.Is("ping")(cmd) }

// staysQuiet requires that no command passes for d that match likes.
func staysQuiet(t testing.TB, w *wire, d time.Duration, match func(cmd []string) bool, what string) {
	t.Helper()
	before := w.count(match)
	time.Sleep(d) // the absence of something has no event to wait for
	require.Equal(t, before, w.count(match), "%s: %v", what, last(w, match))
}

// last is the newest command that match likes, for a failure's message.
func last(w *wire, match func(cmd []string) bool) []string {
	if all := w.all(match); len(all) > 0 {
		return all[len(all)-1].cmd
	}
	return nil
}

// exists says whether the key's lock is in Redis.
func exists(t testing.TB, s *redistest.Server, key string) bool {
	t.Helper()
	message := s.Do(t, "EXISTS", "lock:"+key)
	n, err := message.AsInt64()
	require.NoError(t, err)
	return n > 0
}

// try calls TryLock with a limit that only a hang reaches, and returns how long it took.
func try(t testing.TB, m *coordinator.Mutex) (hold *coordinator.Hold, took time.Duration, err error) {
	t.Helper()
	within(t, hangs, "TryLock", func() {
		start := time.Now()
		hold, err = m.TryLock(context.Background())
		took = time.Since(start)
	})
	return hold, took, err
}

// free requires that another process can have the key, and has it give it back. It tries until the first one's
// release, which Unlock does not wait for, has arrived.
func free(t testing.TB, other *coordinator.Coordinator, key string) {
	t.Helper()
	require.NoError(t, take(t, other.Mutex(key)).Unlock())
}

// busy requires that another process can't have the key.
func busy(t testing.TB, other *coordinator.Coordinator, key string) {
	t.Helper()
	hold, _, err := try(t, other.Mutex(key))
	require.ErrorIs(t, err, coordinator.ErrNotAcquired)
	require.Nil(t, hold)
}

// patient is how to connect with the time-outs that a TTL of 30 s has, so that a slow machine is not taken for a
// silent server where the TTL of a test is short.
func patient(addr string) rueidis.ClientOption {
	option := at(addr)
	option.ConnWriteTimeout, option.Dialer.Timeout, option.Dialer.KeepAlive = 3*time.Second, 3*time.Second, time.Second
	return option
}

// steady is process with a patient client.
func steady(t testing.TB, addr string, opts ...coordinator.Option) *coordinator.Coordinator {
	t.Helper()
	return join(t, patient(addr), opts...)
}

// join returns a coordinator that must be able to hand everything over when the test ends.
func join(t testing.TB, option rueidis.ClientOption, opts ...coordinator.Option) *coordinator.Coordinator {
	t.Helper()
	c := joinAtRisk(t, option, opts...)
	t.Cleanup(func() { require.NoError(t, shut(c)) })
	return c
}

// joinAtRisk is join for one that may have no server when the test ends.
func joinAtRisk(t testing.TB, option rueidis.ClientOption, opts ...coordinator.Option) *coordinator.Coordinator {
	t.Helper()
	log, logged := logTo()
	c, err := coordinator.New(option, append([]coordinator.Option{logged}, opts...)...)
	require.NoError(t, err)
	t.Cleanup(func() {
		_ = shut(c) // whatever it can still hand over
		if t.Failed() && log.String() != "" {
			t.Logf("log of %s:\n%s", c.ID(), log)
		}
	})
	return c
}

// untracked is patient without client-side caching: nothing is looked at after 100 ms, so that every renewal is one
// by schedule.
func untracked(addr string) rueidis.ClientOption {
	option := patient(addr)
	option.DisableCache = true
	return option
}

// grab is take with a context that never ends, so that the hold's own context ends for the lock's reasons only.
func grab(t testing.TB, m *coordinator.Mutex) (hold *coordinator.Hold) {
	t.Helper()
	within(t, hangs, "Lock", func() {
		var err error
		if hold, err = m.Lock(context.Background()); err != nil {
			t.Error(err)
		}
	})
	require.NotNil(t, hold)
	return hold
}

// ended waits until a hold's context has ended, and returns the cause.
func ended(t testing.TB, hold *coordinator.Hold, limit time.Duration) error {
	t.Helper()
	await(t, hold.Context().Done(), limit, "the end of the hold's context")
	return context.Cause(hold.Context())
}

// logTo is a logger for tests that read what was logged.
func logTo() (*childproc.Tail, coordinator.Option) {
	log := &childproc.Tail{}
	return log, coordinator.WithLogger(slog.New(slog.NewTextHandler(log, nil)))
}

// ours is what the tests give a process of their own where only one setting matters.
func ours(ttl time.Duration, more ...coordinator.Option) []coordinator.Option {
	return append([]coordinator.Option{coordinator.WithTTL(ttl), coordinator.WithRetention(0)}, more...)
}

// info reads one number from INFO.
func info(t testing.TB, s *redistest.Server, section, field string) int64 {
	t.Helper()
	message := s.Do(t, "INFO", section)
	text, err := message.ToString()
	require.NoError(t, err)
	for line := range strings.Lines(text) {
		if value, ok := strings.CutPrefix(line, field+":"); ok {
			n, err := strconv.ParseInt(strings.TrimSpace(value), 10, 64)
			require.NoError(t, err)
			return n
		}
	}
	require.FailNow(t, "no such field in INFO", field)
	return 0
}
