package redistest

import (
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/redis/rueidis"
)

// Environment names a [Kind] in which [Shared] and [Alone] run Redis, so that whole suites run on each of them.
const Environment = "LEASEHOLD_TOPOLOGY"

// chosen is the kind of topology that tests are to run on.
func chosen() Kind {
	kind := Kind(os.Getenv(Environment))
	if kind == "" {
		return Single
	}
	if !slices.Contains(Kinds, kind) {
		panic(fmt.Errorf("redistest: %s=%q is none of %v", Environment, kind, Kinds))
	}
	return kind
}

// Alone is [Start] for a test that does nothing to a server as such: what it gets can be a whole topology ([Environment]). Option,
// Client, Do and Keys find the right server; the other methods need a single one, and panic.
func Alone(t testing.TB) *Server {
	t.Helper()
	return AloneOn(t, chosen())
}

// AloneOn is [Alone] for a test that names the kind of topology itself.
func AloneOn(t testing.TB, kind Kind) *Server {
	t.Helper()
	if kind == Single {
		return Start(t)
	}
	return &Server{whole: StartTopology(t, kind, time.Minute)}
}

// Kind is what the server stands for: [Single], or the kind of a topology.
func (s *Server) Kind() Kind {
	if s.whole != nil {
		return s.whole.kind
	}
	return Single
}

func (s *Server) requireOne(method string) {
	if s.whole != nil {
		panic(fmt.Errorf("redistest: %s needs a single server, and %s=%s: use Start, or SharedServer", method, Environment, s.whole.kind))
	}
}

// do runs a command where its first key is; one without a key on all primaries.
func (t *Topology) do(args []string) (message rueidis.RedisMessage, err error) {
	key := ""
	switch strings.ToUpper(args[0]) {
	case "EVAL", "EVALSHA":
		if len(args) > 3 && args[2] != "0" {
			key = args[3]
		}
	case "PUBSUB", "CLIENT", "CONFIG", "SCRIPT", "INFO", "FLUSHALL", "TIME", "PING", "ACL":
	default:
		if len(args) > 1 {
			key = args[1]
		}
	}
	if key != "" {
		s := t.Primary(key)
		if s == nil {
			return message, fmt.Errorf("redistest: nobody has %q at the moment", key)
		}
		return s.DoErr(args...)
	}
	for _, s := range t.Primaries() {
		if message, err = s.DoErr(args...); err != nil {
			return message, err
		}
	}
	return message, nil
}
