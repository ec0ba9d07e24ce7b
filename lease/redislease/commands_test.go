package redislease_test

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/go-leasehold/leasehold/internal/redistest"
	"github.com/go-leasehold/leasehold/lease"
	"github.com/go-leasehold/leasehold/lease/redislease"
)

// ran is what the server ran meanwhile inside scripts, and how often where that is more than once.
func ran(t testing.TB, server *redistest.Server, do func()) []string {
	t.Helper()
	server.Do(t, "CONFIG", "RESETSTAT")
	do()
	text, err := readString(t, server, "INFO", "commandstats")
	require.NoError(t, err)
	var all []string
	for line := range strings.Lines(text) {
		name, rest, ok := strings.Cut(strings.TrimPrefix(line, "cmdstat_"), ":calls=")
		count, _, _ := strings.Cut(rest, ",")
		switch {
		case !ok, name == "info", name == "evalsha", strings.HasPrefix(name, "config|"):
		case count == "1":
			all = append(all, name)
		default:
			all = append(all, name+"+"+count)
		}
	}
	slices.Sort(all)
	return all
}

// lasting makes the TTL longer than before, so that it is surely changed.
func lasting(r lease.Request, minutes int) lease.Request {
	r.TTL = time.Duration(minutes) * time.Minute
	return r
}

// TestTracesCostNothingUnlessAskedFor has all that the server runs for each request, without a trace and with one.
func TestTracesCostNothingUnlessAskedFor(t *testing.T) {
	server := redistest.Start(t)
	quiet := server.Option()
	quiet.Dialer.KeepAlive = time.Hour // the background ping is a command too
	a, b := openWith(t, quiet, "a", redislease.Config{}), openWith(t, quiet, "b", redislease.Config{})
	atOnce := acquire("k", 9)
	atOnce.Queue = false
	down := exclusive(renew("rw", 1))
	down.Op = lease.Downgrade
	for _, key := range []string{"warm", "rw"} { // the scripts become known
		a.do(lease.Held, exclusive(acquire(key, 1)))
		a.do(lease.Held, exclusive(renew(key, 1)))
		a.do(lease.Done, exclusive(annotate(key, 1, traceparent(1))))
		warm := down
		warm.Key = key
		a.do(lease.Held, warm)
		a.do(lease.Done, annotated(exclusive(release(key, 1))))
	}
	for _, step := range []struct {
		what     string
		p        *peer
		status   lease.Status
		request  lease.Request
		commands string
	}{
		{"acquire", a, lease.Held, acquire("k", 1), "exists hset pexpire set time"},
		{"acquire what is mine", a, lease.Held, traced(lasting(acquire("k", 1), 2)), "exists get hgetall pexpire pttl set time zrange"},
		{"renew", a, lease.Held, lasting(renew("k", 1), 3), "hmget pexpire pttl zcard"},
		{"renew with a trace", a, lease.Held, annotated(lasting(renew("k", 1), 4)), "hmget pexpire+2 pttl+2 zcard"},
		{"try", b, lease.Denied, atOnce, "exists get hgetall pttl zrange"},
		{"try, traced", b, lease.Denied, traced(atOnce), "exists get hgetall hmget pttl zrange"},
		{"wait", b, lease.Waiting, acquire("k", 1), "exists get hgetall pexpire pttl+2 publish time zadd zrange"},
		{"look", b, lease.Waiting, acquire("k", 1), "exists get hgetall pttl+2 publish zrange"},
		{"look, traced", b, lease.Waiting, traced(acquire("k", 1)), "exists get hgetall hmget pttl+2 publish zrange"},
		{"annotate", a, lease.Done, annotate("k", 1, traceparent(1)), "del hmget hset pexpire pttl publish zrange"},
		{"take back", a, lease.Done, annotate("k", 1, ""), "del hmget pttl"},
		{"hand over", a, lease.Waiting, yield("k", 1, 2), "hdel hset pexpire+2 pttl publish pubsub|numsub set time zadd zrange zrem"},
		{"hand over, traced", b, lease.Waiting, traced(yield("k", 1, 2)), "hdel hset pexpire+2 pttl publish pubsub|numsub set time zadd zrange zrem"},
		{"hand over a trace", a, lease.Waiting, annotated(passing(yield("k", 2, 3), traceparent(1))), "hdel+2 hset pexpire+2 pttl publish+2 pubsub|numsub set time zadd zrange zrem"},
		{"release", b, lease.Done, release("k", 2), "hdel hset pexpire publish pubsub|numsub set time zrange zrem"},
		{"release, and nobody waits", a, lease.Done, release("k", 3), "hdel zrange"},

		{"write", a, lease.Held, exclusive(acquire("rw", 1)), "exists hset pexpire set time"},
		{"downgrade", a, lease.Held, lasting(down, 2), "get hdel hgetall hset pexpire pttl set time zcard zrange"},
		{"downgrade with a trace", a, lease.Held, annotated(lasting(down, 3)), "hgetall mget pexpire+2 pttl+2 set time zcard zrange"},
		{"read", b, lease.Held, shared(acquire("rw", 1)), "exists hgetall hset mget pttl set+2 time zrange"},
		{"renew of a reader", b, lease.Held, shared(renew("rw", 1)), "get hmget pttl set time zcard"},
		{"renew of a reader with a trace", b, lease.Held, annotated(shared(renew("rw", 1))), "get hmget pexpire pttl+2 set time zcard"},
		{"release beside a reader", b, lease.Done, shared(release("rw", 1)), "del hdel hgetall mget zrange"},
		{"wait to write", b, lease.Waiting, exclusive(acquire("rw", 2)), "exists get hgetall mget pexpire pttl publish time zadd zrange"},
		{"hand over to a writer", a, lease.Waiting, shared(yield("rw", 1, 2)), "del hgetall hset mget pexpire+2 pttl publish pubsub|numsub set time zadd zrange zrem"},
		{"hand over to a reader", b, lease.Done, exclusive(release("rw", 2)), "del hgetall hset pexpire pttl publish pubsub|numsub set+2 time zrange zrem"},
		{"release of the last reader", a, lease.Done, shared(release("rw", 2)), "del hgetall mget zrange"},
	} {
		commands := strings.ReplaceAll(strings.Join(ran(t, server, func() { step.p.do(step.status, step.request) }), " "), " +", "+")
		require.Equal(t, step.commands, commands, step.what)
	}
}
