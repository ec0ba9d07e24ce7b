package redislease_test

import (
	"bytes"
	"log/slog"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/go-leasehold/leasehold/internal/redistest"
	"github.com/go-leasehold/leasehold/lease"
	"github.com/go-leasehold/leasehold/lease/redislease"
)

// codes are those of the problems, in their order.
func codes(problems []lease.Problem) (all []string) {
	for _, p := range problems {
		all = append(all, p.Code)
	}
	return all
}

func TestCheckFindsNothingOnAGoodServer(t *testing.T) {
	server := redistest.Start(t)
	p := openPeer(t, server, "p", redislease.Config{})
	problems, err := p.Check(t.Context())
	require.NoError(t, err)
	require.Empty(t, problems)
	require.Empty(t, server.Keys(t, "*"), "nothing is left of what was tried")
}

func TestCheckFindsEviction(t *testing.T) {
	server := redistest.Start(t, "--maxmemory", "100mb")
	p := openPeer(t, server, "p", redislease.Config{})
	for _, policy := range []string{"allkeys-lru", "volatile-lru", "volatile-ttl", "allkeys-random"} {
		server.Do(t, "CONFIG", "SET", "maxmemory-policy", policy)
		problems, err := p.Check(t.Context())
		require.NoError(t, err)
		require.Equal(t, []string{redislease.ProblemEviction}, codes(problems))
		require.True(t, problems[0].Fatal)
		require.Contains(t, problems[0].Text, policy)
		require.Contains(t, problems[0].Text, "104857600")
	}
	server.Do(t, "CONFIG", "SET", "maxmemory", "0")
	problems, err := p.Check(t.Context())
	require.NoError(t, err)
	require.False(t, problems[0].Fatal, "nothing is evicted without a limit")
	server.Do(t, "CONFIG", "SET", "maxmemory-policy", "noeviction")
}

// TestMissingIsToldToTheOpener, who logs it: the store itself does not.
func TestMissingIsToldToTheOpener(t *testing.T) {
	option := redistest.Shared(t).Option()
	option.AlwaysRESP2 = true
	var log bytes.Buffer
	store, err := redislease.New(option, redislease.Config{Logger: slog.New(slog.NewTextHandler(&log, nil))})
	require.NoError(t, err)
	can, err := store.Open(t.Context(), "check-resp2", func(lease.Event) {})
	require.NoError(t, err)
	require.False(t, can.Tracking)
	require.Len(t, can.Missing, 1)
	problems, err := store.Check(t.Context())
	require.NoError(t, err)
	require.Equal(t, []string{redislease.ProblemTracking}, codes(problems))
	require.False(t, problems[0].Fatal)
	require.NoError(t, store.Close(t.Context()))
	require.Empty(t, log.String())
}

// restricted opens a store as a user that the rule was made into, less what without names.
func restricted(t *testing.T, server *redistest.Server, prefix string, without ...string) (*peer, error) {
	t.Helper()
	rule := strings.Fields(redislease.ACLRule("app", prefix))
	for _, command := range without {
		n := len(rule)
		rule = slices.DeleteFunc(rule, func(word string) bool { return word == command })
		require.Less(t, len(rule), n, "%s was not in the rule", command)
	}
	server.Do(t, append(rule, ">pass")...)
	option := server.Option()
	option.Username, option.Password = "app", "pass"
	p := newPeer(t, option, redislease.Config{Prefix: prefix})
	p.id = "p"
	var err error
	p.can, err = p.Open(t.Context(), "p", p.record)
	t.Cleanup(p.close)
	return p, err
}

// TestRuleIsEnough: everything works as the user that ACLRule makes.
func TestRuleIsEnough(t *testing.T) {
	for _, prefix := range []string{"lock:", "{app}:", "odd*?[x]:"} {
		server := redistest.Start(t)
		p, err := restricted(t, server, prefix)
		require.NoError(t, err)
		require.Empty(t, p.can.Missing)
		everything(t, p)
		problems, err := p.Check(t.Context())
		require.NoError(t, err)
		require.Equal(t, []string{redislease.ProblemUnknown, redislease.ProblemUnknown}, codes(problems))
		for _, problem := range problems {
			require.False(t, problem.Fatal)
			require.Contains(t, problem.Text, "INFO", "it may not look")
		}
	}
}

// everything uses each script, and each of their ways that needs another command.
func everything(t *testing.T, p *peer) {
	t.Helper()
	watched := acquire("k", 1)
	watched.Watch = p.id + ":1"
	require.True(t, p.do(lease.Held, watched).Watched)
	p.do(lease.Held, acquire("k", 1))
	more := renew("k", 1)
	more.Tokens = 4
	p.do(lease.Held, more)
	for ticket := lease.Ticket(2); ticket < 22; ticket++ {
		p.do(lease.Waiting, acquire("k", ticket))
	}
	longer := acquire("k", 3)
	longer.TTL = time.Hour
	p.do(lease.Waiting, longer)
	p.do(lease.Done, annotate("k", 1, traceparent(1)))
	p.do(lease.Waiting, traced(longer))
	p.do(lease.Held, annotated(renew("k", 1)))
	p.do(lease.Waiting, annotated(passing(yield("k", 1, 100), traceparent(1))))
	p.event(lease.Granted)
	p.do(lease.Done, lease.Request{Op: lease.Busy, Key: "k", Kind: lease.Mutex, Asker: p.id + ":5"})
	p.event(lease.InUse)
	p.do(lease.Done, release("k", 5))
	require.NoError(t, p.Force(t.Context(), "k"))
	p.event(lease.Changed)

	p.do(lease.Held, exclusive(acquire("rw", 1)))
	p.do(lease.Waiting, shared(acquire("rw", 2)))
	down := exclusive(renew("rw", 1))
	down.Op, down.Tokens = lease.Downgrade, 2
	p.do(lease.Held, down)
	p.do(lease.Held, shared(acquire("rw", 3)))
	p.do(lease.Waiting, exclusive(acquire("rw", 4)))
	p.do(lease.Held, shared(renew("rw", 1)))
	p.do(lease.Done, shared(annotate("rw", 1, traceparent(1))))
	p.do(lease.Done, shared(annotate("rw", 1, "")))
	p.do(lease.Done, annotated(shared(release("rw", 1))))
	_, err := p.Inspect(t.Context(), "rw")
	require.NoError(t, err)
	require.NoError(t, p.Force(t.Context(), "rw"))
	p.do(lease.Done, exclusive(release("rw", 4)))
	slow := shared(acquire("rw", 5))
	slow.TTL = time.Millisecond
	p.do(lease.Held, slow)
	p.do(lease.Held, shared(acquire("rw", 6)))
	eventually(t, func(c *collector) {
		info, err := p.Inspect(t.Context(), "rw")
		require.NoError(c, err)
		require.Len(c, info.Holders, 1)
	})
	p.do(lease.Held, shared(renew("rw", 6))) // drops the dead one
}

// TestMissingRightsAreNamed by Open, for a script that is stopped half way would do harm.
func TestMissingRightsAreNamed(t *testing.T) {
	server := redistest.Start(t)
	inScripts := 0
	for _, command := range redislease.Commands {
		switch command {
		case "auth", "hello", "ping", "select", "asking", "role", "cluster|slots", "cluster|shards", "client|setname",
			"client|caching", "client|tracking", "subscribe", "ssubscribe", "spublish", "pubsub|shardnumsub":
			continue
		case "eval":
			_, err := restricted(t, server, "lock:", "+eval")
			require.ErrorContains(t, err, "the user is not permitted to run scripts")
			continue
		case "evalsha":
			p, err := restricted(t, server, "lock:", "+evalsha")
			require.NoError(t, err)
			_, err = p.try(acquire("k", 1))
			require.ErrorContains(t, err, "the user is not permitted to run scripts")
			problems, err := p.Check(t.Context())
			require.NoError(t, err)
			require.Equal(t, redislease.ProblemACL, problems[0].Code)
			require.Contains(t, problems[0].Text, "EVALSHA")
			continue
		}
		inScripts++
		_, err := restricted(t, server, "lock:", "+"+command)
		require.ErrorContains(t, err, "not permitted", command)
		require.ErrorContains(t, err, "scripts may not call "+strings.ToUpper(command)+" on lock:*")
	}
	require.Equal(t, 21, inScripts)
	_, err := restricted(t, server, "lock:", "~lock:*")
	require.ErrorContains(t, err, "no permissions to access one of the keys")
	_, err = restricted(t, server, "lock:", "&lock:*")
	require.ErrorContains(t, err, "PUBLISH")
}

// TestRightsTakenAwayAreNamed by Check.
func TestRightsTakenAwayAreNamed(t *testing.T) {
	server := redistest.Start(t)
	p, err := restricted(t, server, "lock:")
	require.NoError(t, err)
	server.Do(t, "ACL", "SETUSER", "app", "-zadd", "-hset")
	problems, err := p.Check(t.Context())
	require.NoError(t, err)
	require.Equal(t, []string{redislease.ProblemACL, redislease.ProblemACL}, codes(problems)[:2])
	require.Contains(t, problems[0].Text, "HSET")
	require.Contains(t, problems[1].Text, "ZADD")
}

// TestLesserRightsCostOnlyWhatNeedsThem.
func TestLesserRightsCostOnlyWhatNeedsThem(t *testing.T) {
	server := redistest.Start(t)
	p, err := restricted(t, server, "lock:", "+client|tracking")
	require.NoError(t, err)
	require.False(t, p.can.Tracking)
	require.True(t, p.can.Receipts)
	require.Contains(t, p.can.Missing[0], "CLIENT TRACKING")
	p.do(lease.Held, acquire("k", 1))

	deaf, err := restricted(t, server, "lock:", "+subscribe")
	require.NoError(t, err)
	require.False(t, deaf.can.Notices)
	require.False(t, deaf.can.Receipts)
	require.Contains(t, deaf.can.Missing[0], "the inbox")
	reply := deaf.do(lease.Waiting, acquire("k", 2))
	require.Equal(t, -1, reply.Told)
	p.do(lease.Done, release("k", 1))
	deaf.do(lease.Held, acquire("k", 2)) // it was not passed over, though it could not be told
	problems, err := deaf.Check(t.Context())
	require.NoError(t, err)
	require.Contains(t, codes(problems), redislease.ProblemInbox)
}
