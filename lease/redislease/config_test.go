package redislease_test

import (
	"testing"
	"time"

	"github.com/redis/rueidis"
	"github.com/stretchr/testify/require"

	"github.com/go-leasehold/leasehold/internal/redistest"
	"github.com/go-leasehold/leasehold/lease"
	"github.com/go-leasehold/leasehold/lease/redislease"
)

func TestUnfitOptionsAreRefused(t *testing.T) {
	for name, change := range map[string]func(*rueidis.ClientOption, *redislease.Config){
		"InitAddress is empty":     func(o *rueidis.ClientOption, _ *redislease.Config) { o.InitAddress = nil },
		"ClientOption.ReplicaOnly": func(o *rueidis.ClientOption, _ *redislease.Config) { o.ReplicaOnly = true },
		"ClientOption.SendToReplicas": func(o *rueidis.ClientOption, _ *redislease.Config) {
			o.SendToReplicas = func(rueidis.Completed) bool { return false }
		},
		"ClientOption.ConnLifetime":                          func(o *rueidis.ClientOption, _ *redislease.Config) { o.ConnLifetime = time.Hour },
		"ClientOption.DisableAutoPipelin":                    func(o *rueidis.ClientOption, _ *redislease.Config) { o.DisableAutoPipelining = true },
		"ClientOption.Standalone":                            func(o *rueidis.ClientOption, _ *redislease.Config) { o.Standalone.EnableRedirect = true },
		"a TTL of 99ms is below the limit of 100ms":          func(_ *rueidis.ClientOption, c *redislease.Config) { c.TTL = 99 * time.Millisecond },
		"a TTL of -1s is below":                              func(_ *rueidis.ClientOption, c *redislease.Config) { c.TTL = -time.Second },
		"a token retention of 1s is below the TTL of 30s":    func(_ *rueidis.ClientOption, c *redislease.Config) { c.TokenRetention = time.Second },
		`the prefix "a{" must have no brace, or exactly one`: func(_ *rueidis.ClientOption, c *redislease.Config) { c.Prefix = "a{" },
	} {
		option, cfg := rueidis.ClientOption{InitAddress: []string{"127.0.0.1:1"}}, redislease.Config{}
		change(&option, &cfg)
		store, err := redislease.New(option, cfg)
		require.ErrorContains(t, err, name)
		require.Nil(t, store)
	}
}

func TestNewDoesNotConnect(t *testing.T) {
	store, err := redislease.New(rueidis.ClientOption{InitAddress: []string{"127.0.0.1:1"}}, redislease.Config{})
	require.NoError(t, err)
	_, err = store.Inspect(t.Context(), "k")
	require.ErrorContains(t, err, "not open")
	require.NoError(t, store.Close(t.Context()))
	require.NoError(t, store.Close(t.Context()))
	_, err = store.Check(t.Context())
	require.ErrorIs(t, err, lease.ErrStoreClosed)
}

func TestBadIDsAreRefused(t *testing.T) {
	for _, id := range []string{"", "a:b", "a{b", "a}", "a b", "a\n", "\x7f"} {
		p := newPeer(t, redistest.Shared(t).Option(), redislease.Config{})
		_, err := p.Open(t.Context(), id, p.record)
		require.ErrorContains(t, err, "coordinator id", id)
		require.NoError(t, p.Close(t.Context()))
	}
}

func TestBadRequestsAreAnswered(t *testing.T) {
	p := openPeer(t, redistest.Shared(t), "config", redislease.Config{})
	for want, r := range map[string]lease.Request{
		"op 0 is not a request":              {},
		"kind 0 is not a kind":               {Op: lease.Acquire},
		"ticket 0 is none":                   {Op: lease.Acquire, Kind: lease.Mutex},
		"mode 0 is not a mode":               {Op: lease.Acquire, Kind: lease.Mutex, Ticket: 1},
		"a mutex has no shared leases":       {Op: lease.Acquire, Kind: lease.Mutex, Ticket: 1, Mode: lease.Shared},
		"a TTL of 0s is below the limit":     {Op: lease.Renew, Kind: lease.Mutex, Ticket: 1},
		"2097152 tokens are not between":     {Op: lease.Renew, Kind: lease.Mutex, Ticket: 1, TTL: time.Second, Tokens: 1 << 21},
		"downgrade: a mutex has no shared":   {Op: lease.Downgrade, Kind: lease.Mutex, Ticket: 1, TTL: time.Second},
		"the next ticket 0 is none":          {Op: lease.Release, Kind: lease.Mutex, Ticket: 1, Next: &lease.Next{}},
		`the asker "nobody" is not an owner`: {Op: lease.Busy, Kind: lease.Mutex, Asker: "nobody"},
	} {
		_, err := p.try(r)
		require.ErrorContains(t, err, want)
	}
}
