package redislease_test

import (
	"log/slog"
	"strings"
	"testing"

	"github.com/redis/rueidis"
	"github.com/stretchr/testify/require"

	"github.com/go-leasehold/leasehold/internal/redistest"
	"github.com/go-leasehold/leasehold/lease"
	"github.com/go-leasehold/leasehold/lease/leasetest"
	"github.com/go-leasehold/leasehold/lease/redislease"
)

// foreign is a value that is no lock.
const foreign = "somebody's data"

// newEnv makes environments on the shared server; a test that flushes gets one of
// its own.
func newEnv(change func(*rueidis.ClientOption), cfg redislease.Config) func(t testing.TB) leasetest.Env {
	return newEnvOn(redistest.Single, change, cfg)
}

func newEnvOn(kind redistest.Kind, change func(*rueidis.ClientOption), cfg redislease.Config) func(t testing.TB) leasetest.Env {
	cfg.Logger = slog.New(slog.DiscardHandler)
	return func(t testing.TB) leasetest.Env {
		env := leasetest.Env{}
		var server *redistest.Server
		if strings.Contains(t.Name(), "Flush") {
			server = redistest.AloneOn(t, kind)
			env.Flush = func() { server.Do(t, "FLUSHALL") }
		} else {
			server = redistest.SharedOf(t, kind)
		}
		prefix := cfg.Prefix
		if prefix == "" {
			prefix = redislease.DefaultPrefix
		}
		env.NewStore = func(t testing.TB) lease.Store {
			option := server.Option()
			change(&option)
			store, err := redislease.New(option, cfg)
			require.NoError(t, err)
			return store
		}
		lock := func(key string) string {
			if strings.HasPrefix(key, "~") {
				return prefix + "~" + key
			}
			return prefix + key
		}
		env.Delete = func(key string) { server.Do(t, "DEL", lock(key)) }
		env.Put = func(key string) { server.Do(t, "SET", lock(key), foreign) }
		env.Intact = func(key string) bool {
			message := server.Do(t, "GET", lock(key))
			value, _ := message.ToString()
			return value == foreign
		}
		return env
	}
}

func TestConformance(t *testing.T) {
	leasetest.Run(t, newEnv(func(*rueidis.ClientOption) {}, redislease.Config{}))
}

func TestConformanceWithTaggedPrefix(t *testing.T) {
	skipIfShort(t)
	leasetest.Run(t, newEnv(func(*rueidis.ClientOption) {}, redislease.Config{Prefix: "{app}:locks:"}))
}

func TestConformanceWithoutTracking(t *testing.T) {
	skipIfShort(t)
	leasetest.Run(t, newEnv(func(o *rueidis.ClientOption) { o.DisableCache = true }, redislease.Config{}))
}

func TestConformanceUnderRESP2(t *testing.T) {
	leasetest.Run(t, newEnv(func(o *rueidis.ClientOption) { o.AlwaysRESP2 = true }, redislease.Config{}))
}

// TestConformanceOnTopologies: through TLS as a user that has no more than the rights that locks need, through Sentinels, and on a cluster
// of several nodes.
func TestConformanceOnTopologies(t *testing.T) {
	skipIfShort(t)
	for _, kind := range []redistest.Kind{redistest.TLS, redistest.Sentinel, redistest.Cluster} {
		t.Run(string(kind), func(t *testing.T) {
			leasetest.Run(t, func(t testing.TB) leasetest.Env {
				return newEnvOn(kind, asUser(t, kind), redislease.Config{})(t)
			})
		})
	}
}

// asUser has clients of a server with TLS be a user that can lock, and nothing else.
func asUser(t testing.TB, kind redistest.Kind) func(*rueidis.ClientOption) {
	t.Helper()
	if kind != redistest.TLS {
		return func(*rueidis.ClientOption) {}
	}
	return func(o *rueidis.ClientOption) {
		operator, err := rueidis.NewClient(*o)
		require.NoError(t, err)
		defer operator.Close()
		rule := append(strings.Fields(redislease.ACLRule("app", "lock:")), ">secret")
		require.NoError(t, operator.Do(t.Context(), operator.B().Arbitrary(rule...).Build()).Error())
		o.Username, o.Password = "app", "secret"
	}
}

// skipIfShort leaves the plain and the RESP2 runs of the suite to short tests.
func skipIfShort(t *testing.T) {
	t.Helper()
	if testing.Short() {
		t.Skip("one more run of the whole suite")
	}
}
