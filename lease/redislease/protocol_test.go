package redislease_test

import (
	"fmt"
	"os"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/go-leasehold/leasehold/internal/redistest"
	"github.com/go-leasehold/leasehold/lease"
	"github.com/go-leasehold/leasehold/lease/redislease"
)

// TestCommandsAreFew counts what the server runs for each request, the calls inside
// scripts included.
func TestCommandsAreFew(t *testing.T) {
	server := redistest.Start(t)
	quiet := server.Option()
	quiet.Dialer.KeepAlive = time.Hour // the background ping is a command too
	var all []*peer
	for _, id := range []string{"p1", "p2", "p3", "p4", "p5"} {
		all = append(all, openWith(t, quiet, id, redislease.Config{}))
	}
	a := all[0]
	a.do(lease.Held, acquire("warm", 1)) // the scripts become known
	a.do(lease.Held, renew("warm", 1))
	a.do(lease.Done, release("warm", 1))
	count := func(what string, most int64, do func()) {
		t.Helper()
		before := server.Commands()
		do()
		got := server.Commands() - before
		t.Logf("%-40s %2d commands", what, got)
		require.LessOrEqual(t, got, most, what)
	}
	count("acquire, uncontended", 6, func() { a.do(lease.Held, acquire("k", 1)) })
	count("renew, uncontended", 5, func() { a.do(lease.Held, renew("k", 1)) })
	tokens := renew("k", 1)
	tokens.Tokens = 64
	count("renew with tokens", 8, func() { a.do(lease.Held, tokens) })
	watched := renew("k", 1)
	watched.Watch = a.id + ":1"
	count("renew with tracking", 7, func() { a.do(lease.Held, watched) })
	atOnce := acquire("k", 1)
	atOnce.Queue = false
	count("try, held by another", 6, func() { all[1].do(lease.Denied, atOnce) })
	for i, p := range all[1:] {
		count(fmt.Sprintf("acquire, %d wait", i), 11, func() { p.do(lease.Waiting, acquire("k", 1)) })
	}
	count("look of a waiter", 9, func() { all[2].do(lease.Waiting, acquire("k", 1)) })
	for i, p := range all[:4] { // each turn: the next is granted, the former waits again
		count(fmt.Sprintf("turn %d", i), 12, func() {
			p.do(lease.Waiting, yield("k", 1, 2))
			all[i+1].event(lease.Granted)
		})
	}
	for _, p := range all {
		p.do(lease.Done, release("k", 2))
		p.do(lease.Done, release("k", 1))
	}
	a.do(lease.Held, acquire("k", 9))
	count("release, uncontended", 5, func() { a.do(lease.Done, release("k", 9)) })
	count("read, uncontended", 8, func() { a.do(lease.Held, shared(acquire("rw", 1))) })
	count("read beside a reader", 12, func() { all[1].do(lease.Held, shared(acquire("rw", 1))) })
	count("renew of a reader", 8, func() { a.do(lease.Held, shared(renew("rw", 1))) })
	count("release beside a reader", 6, func() { a.do(lease.Done, shared(release("rw", 1))) })
	count("release of the last reader", 6, func() { all[1].do(lease.Done, shared(release("rw", 1))) })
}

// TestLongQueueKeepsItsOrder: longer than what a release reads of it.
func TestLongQueueKeepsItsOrder(t *testing.T) {
	p, key := openPeer(t, redistest.Shared(t), "p", redislease.Config{}), redistest.Prefix(t)
	const waiters = 50
	p.do(lease.Held, acquire(key, 1))
	for ticket := lease.Ticket(2); ticket < 2+waiters; ticket++ {
		require.Equal(t, int(ticket)-2, p.do(lease.Waiting, acquire(key, ticket)).Rank)
	}
	for ticket := lease.Ticket(1); ticket < waiters; ticket++ {
		reply := p.do(lease.Waiting, yield(key, ticket, 1000+ticket))
		require.Equal(t, waiters-1, reply.Rank)
		e := p.event(lease.Granted)
		require.Equal(t, ticket+1, e.Ticket)
		require.True(t, e.Contended)
		require.Equal(t, e.Last, reply.Token)
		require.Equal(t, lease.Owner(p.id, e.Ticket), reply.Holder)
	}
	aged := yield(key, waiters, 5000)
	aged.Next.Age = time.Hour
	require.Equal(t, 0, p.do(lease.Waiting, aged).Rank)
}

// TestManyReadersComeInTogether: more than what is read of the queue at once.
func TestManyReadersComeInTogether(t *testing.T) {
	p, key := openPeer(t, redistest.Shared(t), "p", redislease.Config{}), redistest.Prefix(t)
	const readers = 40
	p.do(lease.Held, exclusive(acquire(key, 1)))
	for ticket := lease.Ticket(2); ticket < 2+readers; ticket++ {
		p.do(lease.Waiting, shared(acquire(key, ticket)))
	}
	p.do(lease.Waiting, exclusive(acquire(key, 100)))
	p.do(lease.Waiting, shared(acquire(key, 101)))
	p.do(lease.Done, exclusive(release(key, 1)))
	var newest uint64
	for i := range lease.Ticket(readers + 1) {
		e := p.event(lease.Granted)
		if i == readers {
			require.EqualValues(t, 101, e.Ticket) // also who came after the next writer
		} else {
			require.Equal(t, i+2, e.Ticket)
		}
		require.True(t, e.Contended)
		require.Greater(t, e.First, newest)
		newest = e.Last
	}
	info, err := p.Inspect(t.Context(), key)
	require.NoError(t, err)
	require.Len(t, info.Holders, readers+1)
	require.Len(t, info.Waiters, 1)
}

// TestTokensGoOnFromACounterAheadOfTheClock, and none loses a digit.
func TestTokensGoOnFromACounterAheadOfTheClock(t *testing.T) {
	server := redistest.Shared(t)
	p, key := openPeer(t, server, "p", redislease.Config{}), redistest.Prefix(t)
	counter := "lock:~token{lock:" + key + "}lock:" + key
	ahead := uint64(1<<52 + 12345)
	server.Do(t, "SET", counter, strconv.FormatUint(ahead, 10)+":0")
	reply := p.do(lease.Held, acquire(key, 1))
	require.Equal(t, ahead+1, reply.First)
	require.Equal(t, ahead+8, reply.Last)
	again := renew(key, 1)
	again.Tokens = 3
	reply = p.do(lease.Held, again)
	require.Equal(t, ahead+9, reply.First)
	p.do(lease.Waiting, acquire(key, 2))
	p.do(lease.Done, release(key, 1))
	require.Equal(t, ahead+12, p.event(lease.Granted).First)
	value, err := readString(t, server, "GET", counter)
	require.NoError(t, err)
	require.True(t, strings.HasPrefix(value, strconv.FormatUint(ahead+19, 10)+":"), value)
}

func readString(t testing.TB, server *redistest.Server, args ...string) (string, error) {
	message := server.Do(t, args...)
	return message.ToString()
}

// TestSinceStaysWithTheHolder, whatever tokens it takes later.
func TestSinceStaysWithTheHolder(t *testing.T) {
	p, key := openPeer(t, redistest.Shared(t), "p", redislease.Config{}), redistest.Prefix(t)
	for _, as := range []func(lease.Request) lease.Request{func(r lease.Request) lease.Request { return r }, shared, exclusive} {
		p.do(lease.Held, as(acquire(key, 1)))
		first, err := p.Inspect(t.Context(), key)
		require.NoError(t, err)
		require.False(t, first.Holders[0].Since.IsZero())
		more := as(renew(key, 1))
		more.Tokens, more.TTL = 5, time.Hour
		p.do(lease.Held, more)
		p.do(lease.Held, as(acquire(key, 1)))
		second, err := p.Inspect(t.Context(), key)
		require.NoError(t, err)
		require.Equal(t, first.Holders[0].Since, second.Holders[0].Since)
		require.Greater(t, second.Holders[0].TTL, 30*time.Minute)
		p.do(lease.Done, as(release(key, 1)))
	}
}

// TestServerBefore62: SET has no GET there. The scripts are run with an option that no
// version knows instead.
func TestServerBefore62(t *testing.T) {
	server, key := redistest.Shared(t), redistest.Prefix(t)
	var source [3]string
	for i, name := range []string{"prelude", "acquire", "functions"} {
		file, err := os.ReadFile("scripts/" + name + ".lua")
		require.NoError(t, err)
		source[i] = string(file)
	}
	text := source[0] + strings.Replace(source[1], "-- functions.lua\n", source[2], 1)
	text = strings.ReplaceAll(text, "keep, 'GET')", "keep, 'NO SUCH OPTION')")
	require.Contains(t, text, "NO SUCH OPTION")
	var newest int64
	for _, owner := range []string{"a:1", "a:1", "b:1"} {
		message := server.Do(t, "EVAL", text, "3", "lock:"+key, "lock:~queue{x}"+key, "lock:~token{x}"+key,
			"mutex", "PUBLISH", "lock:~inbox:", "", "60000", "6", "12", owner, "M", "60000", "10", "0", "0", "-1")
		answer, err := message.ToArray()
		require.NoError(t, err)
		values := make([]int64, 4)
		for i := range values {
			values[i], err = answer[i].ToInt64()
			require.NoError(t, err)
		}
		if owner == "b:1" {
			require.Equal(t, int64(3), values[0])
			require.Equal(t, newest, values[3])
			break
		}
		require.Equal(t, int64(1), values[0])
		require.Greater(t, values[1], newest)
		newest = values[2]
	}
}

// TestForeignHashIsRefused: one without an expiry is no lock, whatever its fields are called, and nothing touches it.
func TestForeignHashIsRefused(t *testing.T) {
	server := redistest.Shared(t)
	p, key := openPeer(t, server, "p", redislease.Config{}), redistest.Prefix(t)
	for _, fields := range [][]string{
		{"name", "bob"}, {"name", "bob", "mode", "fast"}, {"name", "bob", "mode", "read"}, {"name", "bob", "mode", "write"},
		{"mode", "read"}, {"p:1", "1"},
	} {
		server.Do(t, "DEL", "lock:"+key)
		server.Do(t, append([]string{"HSET", "lock:" + key}, fields...)...)
		dump, err := readString(t, server, "DUMP", "lock:"+key)
		require.NoError(t, err)
		calls := map[string]func() error{
			"inspect": func() error { _, err := p.Inspect(t.Context(), key); return err },
			"force":   func() error { return p.Force(t.Context(), key) },
		}
		for name, r := range map[string]lease.Request{
			"acquire": acquire(key, 2), "read": shared(acquire(key, 2)), "write": exclusive(acquire(key, 2)),
		} {
			calls[name] = func() error { _, err := p.try(r); return err }
		}
		for name, call := range calls {
			require.ErrorIs(t, call(), lease.ErrKind, "%s: %v", name, fields)
		}
		for _, r := range []lease.Request{release(key, 3), shared(release(key, 3)), renew(key, 3), shared(renew(key, 3))} {
			_, _ = p.try(r) // lost, or refused
		}
		after, err := readString(t, server, "DUMP", "lock:"+key)
		require.NoError(t, err)
		require.Equal(t, dump, after, "%v", fields)
		require.Len(t, server.Keys(t, "*"+key+"*"), 1, "%v: nothing else was written", fields)
	}
}

// TestNothingOutlivesItsTTL: after the last event only the counters are left.
func TestNothingOutlivesItsTTL(t *testing.T) {
	server := redistest.Shared(t)
	p, key := openPeer(t, server, "p", redislease.Config{}), redistest.Prefix(t)
	for _, as := range []func(lease.Request) lease.Request{exclusive, shared} {
		p.do(lease.Held, as(acquire(key, 1)))
		p.do(lease.Waiting, exclusive(acquire(key, 2)))
		p.do(lease.Waiting, as(acquire(key, 3)))
		for _, name := range server.Keys(t, "*"+key+"*") {
			message := server.Do(t, "PTTL", name)
			left, err := message.AsInt64()
			require.NoError(t, err)
			require.Positive(t, left, name)
			limit := time.Minute
			if name == "lock:"+key {
				limit += limit / 4 // that of readers, each of whom has a deadline of its own
			}
			if !strings.Contains(name, "~token") {
				require.LessOrEqual(t, left, limit.Milliseconds(), name)
			}
		}
		for ticket := lease.Ticket(1); ticket < 4; ticket++ {
			p.do(lease.Done, exclusive(release(key, ticket)))
		}
		left := server.Keys(t, "*"+key+"*")
		require.Len(t, left, 1)
		require.Contains(t, left[0], "~token")
	}
}

// TestGhostLeavesNoTimeBehind: a writer that nobody heard of was a holder for a moment within the script.
func TestGhostLeavesNoTimeBehind(t *testing.T) {
	server := redistest.Shared(t)
	p, key := openPeer(t, server, "p", redislease.Config{}), redistest.Prefix(t)
	p.do(lease.Held, shared(acquire(key, 1)))
	p.do(lease.Waiting, exclusive(acquire(key, 2)))
	p.do(lease.Waiting, shared(acquire(key, 3)))
	queue := "lock:~queue{lock:" + key + "}lock:" + key
	server.Do(t, "ZADD", queue, "1", "W36000000/8:ghost:1") // before all others
	p.do(lease.Done, exclusive(release(key, 2)))
	reply := p.do(lease.Waiting, exclusive(yield(key, 1, 4)))
	require.Equal(t, "p:3", reply.Holder)
	require.LessOrEqual(t, reply.Remaining, time.Minute)
	require.LessOrEqual(t, integer(t, server, "PTTL", "lock:"+key), (time.Minute * 5 / 4).Milliseconds())
}
