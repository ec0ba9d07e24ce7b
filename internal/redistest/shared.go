package redistest

import (
	"fmt"
	"os"
	"regexp"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"

	"go.uber.org/goleak"
)

// shared is the one server of this test binary, started by the first test that asks for it.
var shared struct {
	mu     sync.Mutex
	server *Server
	err    error
	dir    string
}

// Shared returns the test binary's common server. Tests that use it run beside each other: each keeps to keys
// below its own [Prefix] and does nothing to the server as a whole (FLUSHALL, CONFIG SET, Pause, Kill). The
// package's TestMain has to end with [Main].
func Shared(t testing.TB) *Server {
	t.Helper()
	shared.mu.Lock()
	defer shared.mu.Unlock()
	if shared.server == nil && shared.err == nil {
		//nolint:usetesting // the server outlives the test that asks for it first
		if shared.dir, shared.err = os.MkdirTemp("", "redistest"); shared.err == nil {
			shared.server, shared.err = Launch(shared.dir)
		}
	}
	if shared.err != nil {
		t.Fatal(shared.err)
	}
	return shared.server
}

// Main runs a package's tests, ends the shared server and then fails if goroutines were left behind:
//
//	func TestMain(m *testing.M) { redistest.Main(m) }
func Main(m *testing.M, options ...goleak.Option) {
	code := m.Run()
	stopShared()
	if code == 0 {
		if err := goleak.Find(options...); err != nil {
			fmt.Fprintf(os.Stderr, "goroutines left behind by the tests: %v\n", err)
			code = 1
		}
	}
	os.Exit(code)
}

func stopShared() {
	shared.mu.Lock()
	defer shared.mu.Unlock()
	if shared.server != nil {
		shared.server.Stop()
		shared.server = nil
	}
	if shared.dir != "" {
		_ = os.RemoveAll(shared.dir) // a temporary directory; the tests' verdict does not hang on it
	}
}

var (
	prefixes atomic.Int64
	unsafe   = regexp.MustCompile(`[^A-Za-z0-9_.-]+`)
)

// Prefix returns a key prefix that no other test, and no other run of this test, has: "TestName-7:". It is
// free of braces and of everything KEYS takes for a wildcard.
func Prefix(t testing.TB) string {
	t.Helper()
	return unsafe.ReplaceAllString(t.Name(), "_") + "-" + strconv.FormatInt(prefixes.Add(1), 10) + ":"
}
