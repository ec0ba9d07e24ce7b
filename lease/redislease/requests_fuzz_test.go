package redislease

import (
	"context"
	"errors"
	"log/slog"
	"math"
	"strings"
	"testing"
	"time"

	"github.com/redis/rueidis"
	"github.com/stretchr/testify/require"

	"github.com/go-leasehold/leasehold/internal/redistest"
	"github.com/go-leasehold/leasehold/lease"
)

// FuzzRequests: a request is refused by us, before anything is sent, or the scripts do what it says.
func FuzzRequests(f *testing.F) {
	add := func(op lease.Op, change func(*lease.Request)) {
		r := lease.Request{Op: op, Key: "k", Kind: lease.ReadWrite, Ticket: 1, Mode: lease.Exclusive, TTL: time.Second, Tokens: 3, Asker: "x:1"}
		r.Next = &lease.Next{Ticket: 2, Mode: lease.Shared, TTL: time.Second, Tokens: 2}
		if change != nil {
			change(&r)
		}
		f.Add(uint8(op), r.Key, uint8(r.Kind), uint64(r.Ticket), uint8(r.Mode), int64(r.TTL), uint8(3), r.Tokens, int64(r.Age), uint64(r.Next.Ticket), uint8(r.Next.Mode),
			r.Asker, r.Trace)
	}
	for op := lease.Acquire; op <= lease.Ask; op++ {
		add(op, nil)
		for _, ttl := range []time.Duration{math.MaxInt64, math.MinInt64, math.MaxInt64 - 1_000_000, 0, 1, time.Millisecond, maxTTL, maxTTL + 1} {
			add(op, func(r *lease.Request) { r.TTL = ttl })
			add(op, func(r *lease.Request) { r.Age = ttl })
		}
		for _, tokens := range []int{math.MaxInt, math.MinInt, 0, maxTokens, maxTokens + 1} {
			add(op, func(r *lease.Request) { r.Tokens = tokens })
		}
		add(op, func(r *lease.Request) { r.Key, r.Ticket = "", math.MaxUint64 })
		add(op, func(r *lease.Request) { r.Kind, r.Mode = 77, 77 })
		add(op, func(r *lease.Request) { r.Trace, r.Asker = trace, "" })
		add(op, func(r *lease.Request) { r.Key, r.Asker = strings.Repeat("}", 70_000), "a{b} c\n:7" })
	}
	server := redistest.Start(f)
	s, err := New(server.Option(), Config{Logger: slog.New(slog.DiscardHandler)})
	require.NoError(f, err)
	_, err = s.Open(context.Background(), "fuzz", func(lease.Event) {})
	require.NoError(f, err)
	f.Cleanup(func() { require.NoError(f, s.Close(context.Background())) })
	f.Fuzz(func(t *testing.T, op uint8, key string, kind uint8, ticket uint64, mode uint8, ttl int64, flags uint8, tokens int, age int64,
		next uint64, nextMode uint8, owner, traceparent string,
	) {
		is := func(bit int) bool { return flags&(1<<bit) != 0 }
		r := lease.Request{
			Op: lease.Op(op), Key: key, Kind: lease.Kind(kind), Ticket: lease.Ticket(ticket), Mode: lease.Mode(mode), TTL: time.Duration(ttl),
			Queue: is(0), Ask: is(1), Age: time.Duration(age), Tokens: tokens, Asker: owner, Holder: owner, Idle: is(2), Trace: traceparent, Annotated: is(3), Traced: is(4),
		}
		if is(5) {
			r.Next = &lease.Next{Ticket: lease.Ticket(next), Mode: lease.Mode(nextMode), TTL: r.TTL, Tokens: tokens, Age: r.Age, Ask: is(1), Traced: is(4)}
		}
		if is(6) {
			r.Watch = owner
		}
		server.Do(t, "FLUSHALL")
		if is(7) { // somebody else has it
			held := lease.Request{Op: lease.Acquire, Key: key, Kind: lease.ReadWrite, Ticket: 1 << 40, Mode: lease.Shared, TTL: time.Minute, Tokens: 1}
			_, err := send(t, s, held)
			require.NoError(t, err)
		}
		before := server.Keys(t, "*")
		reply, err := send(t, s, r)
		if validate(&r) != nil {
			require.Error(t, err)
			require.ErrorContains(t, err, "redislease: ")
			require.Less(t, len(err.Error()), 1000)
			require.Zero(t, reply)
			require.ElementsMatch(t, before, server.Keys(t, "*"))
			return
		}
		if is(7) && r.Kind == lease.Mutex && errors.Is(err, lease.ErrKind) {
			return
		}
		require.NoError(t, err)
		if r.Op == lease.Busy || r.Op == lease.Ask {
			require.Equal(t, lease.Done, reply.Status)
		} else {
			require.Contains(t, may[r.Op], reply.Status)
		}
		for _, name := range server.Keys(t, "*") {
			ms, err := server.DoErr("PTTL", name)
			require.NoError(t, err)
			left, err := ms.ToInt64()
			require.NoError(t, err)
			require.NotEqual(t, int64(-1), left, "%q would never end", name)
		}
	})
}

func send(t *testing.T, s *Store, r lease.Request) (reply lease.Reply, err error) {
	answered := make(chan struct{})
	s.Send(r, func(got lease.Reply, failure error) {
		reply, err = got, failure
		close(answered)
	})
	select {
	case <-answered:
	case <-time.After(time.Minute):
		require.Fail(t, "no answer")
	}
	return reply, err
}

// FuzzConfigs: a Config is refused with what is wrong and the limit, or the store's times make sense.
func FuzzConfigs(f *testing.F) {
	for _, d := range []time.Duration{0, 1, -1, math.MaxInt64, math.MinInt64, time.Second, 99 * time.Millisecond, 100 * time.Millisecond, time.Hour, maxTTL, maxTTL + 1} {
		f.Add(int64(d), int64(0), "lock:")
		f.Add(int64(0), int64(d), "{a}")
		f.Add(int64(d), int64(d), "}")
	}
	f.Fuzz(func(t *testing.T, ttl, retention int64, prefix string) {
		cfg := Config{TTL: time.Duration(ttl), TokenRetention: time.Duration(retention), Prefix: prefix}
		s, err := New(rueidis.ClientOption{InitAddress: []string{"127.0.0.1:1"}}, cfg)
		if err != nil {
			require.Nil(t, s)
			require.ErrorContains(t, err, "redislease: ")
			require.True(t, strings.Contains(err.Error(), "limit of") || strings.Contains(err.Error(), "below the TTL of") || strings.Contains(err.Error(), "exactly one {tag}"), err)
			return
		}
		require.Greater(t, s.config.patience(), time.Duration(0))
		require.GreaterOrEqual(t, s.config.TTL, minTTL)
		require.GreaterOrEqual(t, s.config.TokenRetention, s.config.TTL)
		require.NotEmpty(t, s.config.Prefix)
		require.NotContains(t, s.keep, "-")
		require.NoError(t, s.Close(t.Context()))
	})
}
