package redislease_test

import (
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/redis/rueidis"
	"github.com/stretchr/testify/require"

	"github.com/go-leasehold/leasehold/lease"
	"github.com/go-leasehold/leasehold/lease/leasetest"
	"github.com/go-leasehold/leasehold/lease/redislease"
)

// TestConformanceOnMiniredis: a server that has no tracking, and whose time has
// to be told to pass.
func TestConformanceOnMiniredis(t *testing.T) {
	skipIfShort(t)
	leasetest.Run(t, func(t testing.TB) leasetest.Env {
		server := miniredis.RunT(t)
		return leasetest.Env{
			NewStore: func(t testing.TB) lease.Store {
				store, err := redislease.New(rueidis.ClientOption{InitAddress: []string{server.Addr()}},
					redislease.Config{Logger: slog.New(slog.DiscardHandler)})
				require.NoError(t, err)
				return store
			},
			Sleep: func(d time.Duration) {
				time.Sleep(d)
				server.FastForward(d)
			},
			Delete: func(key string) { server.Del(lockName(key)) },
			Flush:  server.FlushAll,
			Slow:   true, // it parses a script each time it is called
		}
	})
}

func lockName(key string) string {
	if strings.HasPrefix(key, "~") {
		return redislease.DefaultPrefix + "~" + key
	}
	return redislease.DefaultPrefix + key
}
