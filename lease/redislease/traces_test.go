package redislease_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/go-leasehold/leasehold/internal/redistest"
	"github.com/go-leasehold/leasehold/lease"
	"github.com/go-leasehold/leasehold/lease/redislease"
)

// traceparent makes traces that differ.
func traceparent(n int) string { return fmt.Sprintf("00-%032x-%016x-01", n+0xabc, n+1) }

func annotate(key string, ticket lease.Ticket, trace string) lease.Request {
	return lease.Request{Op: lease.Annotate, Key: key, Kind: lease.Mutex, Ticket: ticket, Trace: trace}
}

func traced(r lease.Request) lease.Request {
	r.Traced = true
	if r.Next != nil {
		r.Next.Traced = true
	}
	return r
}

func annotated(r lease.Request) lease.Request {
	r.Annotated = true
	return r
}

func passing(r lease.Request, trace string) lease.Request {
	r.Trace = trace
	return r
}

// holderName is where the traces of a key's holders are.
func holderName(key string) string { return "lock:~holder{lock:" + key + "}lock:" + key }

func integer(t testing.TB, server *redistest.Server, args ...string) int64 {
	t.Helper()
	message := server.Do(t, args...)
	n, err := message.AsInt64()
	require.NoError(t, err)
	return n
}

// modes are the makes of a lease.
func modes() map[string]func(lease.Request) lease.Request {
	return map[string]func(lease.Request) lease.Request{
		"mutex": func(r lease.Request) lease.Request { return r }, "write": exclusive, "read": shared,
	}
}

func TestTraceIsKeptAsTheProtocolSays(t *testing.T) {
	server := redistest.Shared(t)
	p, key := openPeer(t, server, "p", redislease.Config{}), redistest.Prefix(t)
	for name, as := range modes() {
		p.do(lease.Held, as(acquire(key, 1)))
		p.do(lease.Done, as(annotate(key, 1, traceparent(1))))
		message := server.Do(t, "HGETALL", holderName(key))
		fields, err := message.AsStrMap()
		require.NoError(t, err)
		require.Equal(t, map[string]string{"p:1": traceparent(1)}, fields, name)
		p.do(lease.Done, annotated(as(release(key, 1))))
		require.Len(t, server.Keys(t, "*"+key+"*"), 1, "%s: the counter", name)
	}
}

// TestTraceExpiresWithItsLock: no earlier, and not much later, after each command that lengthens either.
func TestTraceExpiresWithItsLock(t *testing.T) {
	server := redistest.Shared(t)
	p, key := openPeer(t, server, "p", redislease.Config{}), redistest.Prefix(t)
	for name, as := range modes() {
		requireTogether := func() {
			t.Helper()
			// Whichever is asked for first has a little more left, so both orders are tried.
			before, lock, after := integer(t, server, "PTTL", holderName(key)), integer(t, server, "PTTL", "lock:"+key), integer(t, server, "PTTL", holderName(key))
			require.LessOrEqual(t, lock, before+1, name)
			require.LessOrEqual(t, after, lock+1, name)
		}
		p.do(lease.Held, as(acquire(key, 1)))
		p.do(lease.Done, as(annotate(key, 1, traceparent(1))))
		requireTogether()
		for _, ttl := range []time.Duration{time.Hour, time.Second, 2 * time.Hour} {
			longer := annotated(as(renew(key, 1)))
			longer.TTL = ttl
			p.do(lease.Held, longer)
			requireTogether()
			longer.TTL, longer.Tokens = longer.TTL+time.Hour, 2
			p.do(lease.Held, longer)
			requireTogether()
		}
		if name == "write" {
			down := annotated(as(renew(key, 1)))
			down.Op, down.TTL = lease.Downgrade, 10*time.Hour
			for range 2 {
				p.do(lease.Held, down)
				requireTogether()
				down.TTL += time.Hour
			}
		}
		p.do(lease.Done, annotated(as(release(key, 1))))
	}
}

// TestNothingIsLeftOfTraces of those who let go, by whatever way, and what the dead have left goes with the next trace.
func TestNothingIsLeftOfTraces(t *testing.T) {
	server := redistest.Shared(t)
	p, key := openPeer(t, server, "p", redislease.Config{}), redistest.Prefix(t)
	left := func() int64 { return integer(t, server, "HLEN", holderName(key)) }
	for name, as := range modes() {
		p.do(lease.Held, as(acquire(key, 1)))
		p.do(lease.Done, as(annotate(key, 1, traceparent(1))))
		p.do(lease.Waiting, excluding(as, acquire(key, 2)))
		p.do(lease.Waiting, annotated(as(yield(key, 1, 3))))
		require.Zero(t, left(), name)
		p.do(lease.Done, as(release(key, 3)))

		p.do(lease.Done, excluding(as, annotate(key, 2, traceparent(2))))
		require.NoError(t, p.Force(t.Context(), key))
		require.Zero(t, left(), name)

		p.do(lease.Held, as(acquire(key, 4)))
		p.do(lease.Done, as(annotate(key, 4, traceparent(4))))
		server.Do(t, "DEL", "lock:"+key)
		p.do(lease.Done, annotated(as(release(key, 4)))) // it has lost the lease, and lets go all the same
		require.Zero(t, left(), name)

		p.do(lease.Held, as(acquire(key, 5)))
		p.do(lease.Done, as(annotate(key, 5, traceparent(5))))
		server.Do(t, "DEL", "lock:"+key) // it dies
		require.EqualValues(t, 1, left(), name)
		p.do(lease.Held, excluding(as, acquire(key, 6)))
		info, err := p.Inspect(t.Context(), key)
		require.NoError(t, err)
		require.Empty(t, info.Holders[0].Trace)
		p.do(lease.Done, excluding(as, annotate(key, 6, traceparent(6))))
		require.EqualValues(t, 1, left(), "%s: of the holder, who stands alone", name)
		p.do(lease.Done, annotated(excluding(as, release(key, 6))))
		require.Empty(t, server.Keys(t, holderName(key)), name)
	}
}

// excluding makes a request for the same kind of lock that excludes all others.
func excluding(as func(lease.Request) lease.Request, r lease.Request) lease.Request {
	r = as(r)
	r.Mode = lease.Exclusive
	return r
}

// TestFrontOfTheQueueIsTold, and no more, however long it is.
func TestFrontOfTheQueueIsTold(t *testing.T) {
	server, key := redistest.Shared(t), redistest.Prefix(t)
	a, b := openPeer(t, server, "a", redislease.Config{}), openPeer(t, server, "b", redislease.Config{})
	a.do(lease.Held, acquire(key, 1))
	for ticket := lease.Ticket(1); ticket <= 20; ticket++ {
		b.do(lease.Waiting, acquire(key, ticket))
	}
	a.do(lease.Done, annotate(key, 1, traceparent(1)))
	b.do(lease.Done, lease.Request{Op: lease.Busy, Key: key, Kind: lease.Mutex, Asker: "b:99"})
	eventually(t, func(c *collector) { require.NotEmpty(c, b.ofType(lease.InUse)) })
	told := b.ofType(lease.Traced)
	require.Len(t, told, 16)
	for i, e := range told {
		require.Equal(t, lease.Ticket(i+1), e.Ticket)
	}
}

// TestWhatIsNoTraceIsNotShown, whoever wrote it, and stops nobody.
func TestWhatIsNoTraceIsNotShown(t *testing.T) {
	server := redistest.Shared(t)
	p, key := openPeer(t, server, "p", redislease.Config{}), redistest.Prefix(t)
	for name, as := range modes() {
		for _, damage := range [][]string{
			{"HSET", holderName(key), "p:1", "nonsense"}, {"HSET", holderName(key), "p:1", ""},
			{"HSET", holderName(key), "p:1", strings.ToUpper(traceparent(10))}, {"SET", holderName(key), "somebody's data"},
		} {
			server.Do(t, "DEL", holderName(key))
			p.do(lease.Held, as(acquire(key, 1)))
			server.Do(t, damage...)
			require.Empty(t, p.do(lease.Waiting, traced(excluding(as, acquire(key, 2)))).Trace, name)
			info, err := p.Inspect(t.Context(), key)
			require.NoError(t, err)
			require.Empty(t, info.Holders[0].Trace, name)
			p.do(lease.Held, annotated(as(renew(key, 1))))
			p.do(lease.Waiting, annotated(traced(as(yield(key, 1, 3)))))
			require.Equal(t, lease.Ticket(2), p.event(lease.Granted).Ticket)
			require.NoError(t, p.Force(t.Context(), key))
			require.Equal(t, lease.Ticket(3), p.event(lease.Granted).Ticket)
			p.do(lease.Done, as(release(key, 3)))
		}
	}
	server.Do(t, "SET", holderName(key), "somebody's data")
	p.do(lease.Held, shared(acquire(key, 1)))
	_, err := p.try(shared(annotate(key, 1, traceparent(1))))
	require.ErrorIs(t, err, lease.ErrKind)
	p.do(lease.Held, shared(renew(key, 1)))
}

// TestForeignHashIsNotAnnotated: one without an expiry is no lock.
func TestForeignHashIsNotAnnotated(t *testing.T) {
	server := redistest.Shared(t)
	p, key := openPeer(t, server, "p", redislease.Config{}), redistest.Prefix(t)
	for _, fields := range [][]string{
		{"p:1", "1"}, {"mode", "read", "p:1", "1"}, {"mode", "write", "p:1:write", "1"}, {"mode", "fast", "p:1", "1"}, {"mode", "mutex", "p:1", "1"},
	} {
		server.Do(t, "DEL", "lock:"+key)
		server.Do(t, append([]string{"HSET", "lock:" + key}, fields...)...)
		for name, as := range modes() {
			p.do(lease.Lost, as(annotate(key, 1, traceparent(1))))
			require.Len(t, server.Keys(t, "*"+key+"*"), 1, "%v, %s", fields, name)
		}
	}
	server.Do(t, "SET", "lock:"+key, "somebody's data")
	_, err := p.try(annotate(key, 1, traceparent(1)))
	require.ErrorIs(t, err, lease.ErrKind)
}

// TestTraceOnACluster is in the slot of its lock, and stops nothing while that moves.
func TestTraceOnACluster(t *testing.T) {
	low, high := startPair(t)
	a, b := openPeer(t, low, "a", redislease.Config{}), openPeer(t, low, "b", redislease.Config{})
	const key = "k{foo}" // in slot 12182
	helpers := "{foo}lock:" + key
	for ticket := lease.Ticket(1); ticket <= 3; ticket++ {
		a.do(lease.Held, shared(acquire(key, ticket)))
		a.do(lease.Done, shared(annotate(key, ticket, traceparent(1))))
	}
	require.Equal(t, traceparent(1), b.do(lease.Waiting, traced(exclusive(acquire(key, 1)))).Trace)
	a.event(lease.Wanted)
	a.do(lease.Done, shared(annotate(key, 1, traceparent(2))))
	require.Equal(t, traceparent(2), b.event(lease.Traced).Trace)
	move(t, high, low, "lock:~holder"+helpers, func() {
		require.Empty(t, b.do(lease.Waiting, traced(exclusive(acquire(key, 1)))).Trace)
		_, err := a.try(shared(annotate(key, 1, traceparent(3))))
		require.Error(t, err)
		a.do(lease.Held, annotated(shared(renew(key, 1))))
		more := annotated(shared(renew(key, 1)))
		more.Tokens = 2
		a.do(lease.Held, more)
		a.do(lease.Done, annotated(shared(release(key, 1))))
		a.do(lease.Waiting, annotated(traced(exclusive(yield(key, 2, 4)))))
		info, err := b.Inspect(t.Context(), key)
		require.NoError(t, err)
		require.Len(t, info.Holders, 1)
		require.Equal(t, "a:3", info.Holders[0].Owner)
		high.Do(t, "DEL", "lock:"+key, "lock:~queue"+helpers, "lock:~token"+helpers)
		high.Do(t, "DEL", "lock:~reader:a:3"+helpers)
	})
	require.Equal(t, []string{"lock:~holder" + helpers}, low.Keys(t, "*"))
	require.Positive(t, integer(t, low, "PTTL", "lock:~holder"+helpers), "it expires there")
}
