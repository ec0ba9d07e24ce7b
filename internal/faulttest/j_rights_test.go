package faulttest

import (
	"context"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/redis/rueidis"
	"github.com/stretchr/testify/require"

	"github.com/go-leasehold/leasehold/coordinator"
	"github.com/go-leasehold/leasehold/internal/redistest"
	"github.com/go-leasehold/leasehold/lease/redislease"
)

// appPrefix is what limited users may touch.
const appPrefix = "app:"

// limited makes a user by the documented rule, changed by words, and returns how to connect as it.
func limited(t testing.TB, s *redistest.Server, name string, words ...string) rueidis.ClientOption {
	t.Helper()
	s.Do(t, append(append(strings.Fields(redislease.ACLRule(name, appPrefix)), ">secret"), words...)...)
	option := patient(s.Addr())
	option.Username, option.Password = name, "secret"
	return option
}

// as returns a coordinator of a limited user.
func as(t testing.TB, option rueidis.ClientOption, opts ...coordinator.Option) *coordinator.Coordinator {
	t.Helper()
	return join(t, option, append([]coordinator.Option{coordinator.WithKeyPrefix(appPrefix)}, opts...)...)
}

// J2: a user limited to the prefix and to the documented commands. Whatever locks do, nothing is refused and nothing
// lies outside the prefix.
func TestLimitedUserCanDoEverything(t *testing.T) {
	t.Parallel()
	const ttl = 1500 * time.Millisecond
	server := redistest.Start(t)
	option := limited(t, server, "app")
	require.Empty(t, denials(t, server))
	c, other := as(t, option, ours(ttl)...), as(t, option, ours(ttl)...)
	require.Empty(t, c.Snapshot().Capabilities.Missing)

	hold := grab(t, c.Mutex("k"))
	_, _, err := try(t, other.Mutex("k", coordinator.Cached()))
	require.ErrorIs(t, err, coordinator.ErrNotAcquired)
	waits := lockLater(t.Context(), other.Mutex("k", coordinator.Fair(), coordinator.TTL(2*ttl)))
	awaitQueue(t, other, "k", 1)
	before := stats(c).Renewals
	eventually(t, hangs, "renewals and looks, with tracking too", func() bool { return stats(c).Renewals > before+1 })
	require.NoError(t, hold.Unlock())
	next := await(t, waits, hangs, "the hand-over")
	require.NoError(t, next.err)
	abandoned, cancel := context.WithCancel(context.Background())
	gone := lockLater(abandoned, c.Mutex("k"))
	awaitQueue(t, c, "k", 1)
	cancel()
	require.ErrorIs(t, await(t, gone, hangs, "the cancelled wait").err, context.Canceled)
	require.NoError(t, c.ForceUnlock(t.Context(), "k"))
	require.ErrorIs(t, await2(t, next.hold), coordinator.ErrLeaseLost)
	all, err := c.LockAll(t.Context(), "k", "a{b}c", "{}x")
	require.NoError(t, err)
	require.NoError(t, all.Unlock())
	_, err = c.Check(t.Context())
	require.NoError(t, err)
	require.NoError(t, c.Close(t.Context()))

	require.Empty(t, slices.DeleteFunc(denials(t, server), func(denied string) bool {
		// Check looks where it may not, and says so; CLIENT SETINFO is unknown to this server anyway.
		return denied == "info" || denied == "config|get" || denied == "client|setinfo"
	}))
	for _, name := range server.Keys(t, "*") {
		require.True(t, strings.HasPrefix(name, appPrefix), name)
	}
}

// await2 waits until a hold is lost, and unlocks it.
func await2(t testing.TB, hold *coordinator.Hold) error {
	t.Helper()
	eventually(t, hangs, "the loss", func() bool { return !hold.Valid() })
	return hold.Unlock()
}

// denials are the commands, keys and channels that the server refused users.
func denials(t testing.TB, s *redistest.Server) (objects []string) {
	t.Helper()
	message := s.Do(t, "ACL", "LOG")
	entries, err := message.ToArray()
	require.NoError(t, err)
	for _, e := range entries {
		fields, err := e.AsMap()
		require.NoError(t, err)
		object := fields["object"]
		text, err := object.ToString()
		require.NoError(t, err)
		objects = append(objects, text)
	}
	return objects
}

// J2: rights are missing. What locks can't do without is refused at the start, and named; what they can do without is
// named too, and locks work. It is never found out at Unlock.
func TestMissingRightIsNamedAtTheStart(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	for name, missing := range map[string]struct {
		rule []string
		says []string
	}{
		"scripts":         {[]string{"-@scripting"}, []string{"not permitted to run scripts"}},
		"publish":         {[]string{"-publish"}, []string{"not permitted", "PUBLISH"}},
		"the channels":    {[]string{"resetchannels"}, []string{"not permitted", "PUBLISH"}},
		"the keys":        {[]string{"resetkeys"}, []string{"not permitted", "keys"}},
		"a hash's change": {[]string{"-hdel"}, []string{"not permitted", "HDEL"}},
		"expiry":          {[]string{"-pexpire"}, []string{"not permitted", "PEXPIRE"}},
	} {
		option := limited(t, server, strings.ReplaceAll(name, " ", ""), missing.rule...)
		_, quiet := logTo()
		c, err := coordinator.New(option, coordinator.WithKeyPrefix(appPrefix), quiet)
		require.Nil(t, c, name)
		require.ErrorIs(t, err, coordinator.ErrUnavailable, name)
		for _, says := range missing.says {
			require.ErrorContains(t, err, says, name)
		}
	}
	for name, missing := range map[string]struct {
		rule []string
		says string
	}{
		"subscribe": {[]string{"-subscribe"}, "inbox"},
		"tracking":  {[]string{"-client|tracking"}, "TRACKING"},
	} {
		option := limited(t, server, name, missing.rule...)
		c, other := as(t, option, ours(time.Second)...), as(t, option, ours(time.Second)...)
		require.Contains(t, strings.Join(c.Snapshot().Capabilities.Missing, "\n"), missing.says)
		problems, err := c.Check(t.Context())
		require.NoError(t, err)
		var texts []string
		for _, p := range problems {
			require.False(t, p.Fatal, p.Text)
			texts = append(texts, p.Text)
		}
		require.Contains(t, strings.Join(texts, "\n"), missing.says)
		hold := grab(t, c.Mutex(name))
		waits := lockLater(t.Context(), other.Mutex(name))
		awaitQueue(t, c, name, 1)
		require.NoError(t, hold.Unlock())
		out := await(t, waits, hangs, "the hand-over")
		require.NoError(t, out.err)
		require.NoError(t, out.hold.Unlock())
	}
}

// J2: a right is taken away under a running process. Calls say so, at once or in their time, and Check names it.
func TestRightTakenAwayIsNamed(t *testing.T) {
	t.Parallel()
	const ttl = time.Second
	server := redistest.Start(t)
	c := as(t, limited(t, server, "app"), ours(ttl, coordinator.WithUnavailableAfter(ttl/2))...)
	held := grab(t, c.Mutex("held"))
	server.Do(t, "ACL", "SETUSER", "app", "-@scripting")
	_, took, err := try(t, c.Mutex("k"))
	require.ErrorIs(t, err, coordinator.ErrUnavailable)
	require.ErrorContains(t, err, "not permitted to run scripts")
	require.Less(t, took, ttl/3+slack)
	out := await(t, lockLater(t.Context(), c.Mutex("k")), ttl+slack, "Lock")
	require.ErrorIs(t, out.err, coordinator.ErrUnavailable)
	require.ErrorContains(t, out.err, "not permitted to run scripts")
	problems, err := c.Check(t.Context())
	require.NoError(t, err)
	require.NotEmpty(t, problems)
	require.True(t, problems[0].Fatal)
	require.Contains(t, problems[0].Text, "EVAL")
	require.ErrorIs(t, ended(t, held, ttl+slack), coordinator.ErrLeaseLost, "it could not be renewed")
	require.ErrorIs(t, held.Unlock(), coordinator.ErrLeaseLost)
	server.Do(t, "ACL", "SETUSER", "app", "+eval", "+evalsha")
	free(t, c, "held")
	free(t, c, "k")
}
