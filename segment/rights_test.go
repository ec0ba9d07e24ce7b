package segment

import (
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/go-leasehold/leasehold/coordinator"
	"github.com/go-leasehold/leasehold/internal/redistest"
	"github.com/go-leasehold/leasehold/lease/redislease"
)

var called = regexp.MustCompile(`(?:call|pcall)\('([A-Z]+)'`)

// TestCommandsAreAllThatScriptsCall, and rights.lua tries each of them.
func TestCommandsAreAllThatScriptsCall(t *testing.T) {
	t.Parallel()
	files, err := scriptFiles.ReadDir("scripts")
	require.NoError(t, err)
	tried := source("rights")
	for _, file := range files {
		text := source(strings.TrimSuffix(file.Name(), ".lua"))
		for _, found := range called.FindAllStringSubmatch(text, -1) {
			command := strings.ToLower(found[1])
			require.True(t, slices.Contains(Commands, command) || slices.Contains(redislease.Commands, command), "%s of %s", command, file.Name())
			if command != "time" {
				require.Contains(t, tried, "{'"+found[1]+"',", "%s of %s", command, file.Name())
			}
		}
	}
	for _, command := range Commands {
		require.NotContains(t, redislease.Commands, command)
		require.Contains(t, tried, "{'"+strings.ToUpper(command)+"',")
	}
}

// limited is a process whose user may run the commands of locks, and more.
func limited(t *testing.T, server *redistest.Server, user string, more ...string) *Stock {
	t.Helper()
	rule := strings.Fields(redislease.ACLRule(user, "lock:", more...))
	server.Do(t, append(rule, "nopass")...)
	option := server.Option()
	option.Username, option.Password = user, "any"
	c := processAt(t, option)
	s, err := NewStock(c, "sku", Config{Segments: 2})
	require.NoError(t, err)
	return s
}

// TestUserWithTheRights can do all there is.
func TestUserWithTheRights(t *testing.T) {
	t.Parallel()
	server := redistest.Alone(t)
	s := limited(t, server, "seller", Commands...)
	ctx := t.Context()
	require.NoError(t, s.Load(ctx, 10))
	r, err := s.Reserve(ctx, Order{ID: "a", User: "u", Quantity: 8}, reservedFor)
	require.NoError(t, err)
	require.NoError(t, r.Confirm(ctx))
	_, err = s.Deduct(ctx, Order{ID: "b", User: "v", Quantity: 2})
	require.NoError(t, err)
	_, err = s.Deduct(ctx, Order{ID: "c", User: "v", Quantity: 1})
	require.ErrorIs(t, err, ErrSoldOut)
	eventually(t, "it is known", func() bool {
		_, err = s.Deduct(ctx, Order{ID: "c", User: "v", Quantity: 1})
		require.ErrorIs(t, err, ErrSoldOut)
		return s.Snapshot().Known > 0
	})
	_, err = s.Audit(ctx)
	require.NoError(t, err)
	require.NoError(t, s.Drop(ctx))
	require.Empty(t, server.Keys(t, "lock:~stock:*"))
}

// TestUserWithoutTheRights is told so by the first use, before anything is changed.
func TestUserWithoutTheRights(t *testing.T) {
	t.Parallel()
	server := redistest.Alone(t)
	s := limited(t, server, "locksmith")
	err := s.Load(t.Context(), 10)
	require.ErrorIs(t, err, coordinator.ErrUnavailable)
	for _, command := range Commands {
		require.ErrorContains(t, err, strings.ToUpper(command))
	}
	require.NotContains(t, err.Error(), "ZADD")
	server.Do(t, "ACL", "SETUSER", "locksmith", "+unlink")
	_, err = s.Deduct(t.Context(), Order{ID: "a", Quantity: 1})
	require.ErrorContains(t, err, "ZRANGEBYSCORE")
	require.Empty(t, server.Keys(t, "lock:~stock:*"))
}
