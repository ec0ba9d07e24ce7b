package redistest

import (
	"fmt"
	"os"
	"regexp"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"go.uber.org/goleak"
)

// shared are the servers of this test binary, started by the first test that asks for one.
var shared struct {
	mu      sync.Mutex
	servers map[Kind]*Server
	err     error
	dirs    []string
}

// Shared returns the test binary's common server. Tests that use it run beside each other: each keeps to keys
// below its own [Prefix] and does nothing to the server as a whole (FLUSHALL, CONFIG SET, Pause, Kill). The
// package's TestMain has to end with [Main]. What it returns can stand for a whole topology, see [Alone].
func Shared(t testing.TB) *Server {
	t.Helper()
	return SharedOf(t, chosen())
}

// SharedServer is [Shared] for a test that needs a single server.
func SharedServer(t testing.TB) *Server {
	t.Helper()
	return SharedOf(t, Single)
}

// SharedOf is [Shared] for a test that names the kind of topology itself.
func SharedOf(t testing.TB, kind Kind) *Server {
	t.Helper()
	shared.mu.Lock()
	defer shared.mu.Unlock()
	if shared.servers[kind] == nil && shared.err == nil {
		shared.err = launchShared(kind)
	}
	if shared.err != nil {
		t.Fatal(shared.err)
	}
	return shared.servers[kind]
}

// launchShared needs shared.mu.
func launchShared(kind Kind) error {
	dir, err := os.MkdirTemp("", "redistest")
	if err != nil {
		return err
	}
	shared.dirs = append(shared.dirs, dir)
	server := &Server{}
	if kind == Single {
		server, err = Launch(dir)
	} else {
		server.whole, err = LaunchTopology(dir, kind, time.Minute)
	}
	if err != nil {
		return err
	}
	if shared.servers == nil {
		shared.servers = map[Kind]*Server{}
	}
	shared.servers[kind] = server
	return nil
}

// Main runs a package's tests, ends the shared server and then fails if goroutines were left behind:
//
//	func TestMain(m *testing.M) { redistest.Main(m) }
func Main(m *testing.M, options ...goleak.Option) {
	code := m.Run()
	stopShared()
	if code == 0 {
		if err := goleak.Find(append(options, ClientsOwn()...)...); err != nil {
			fmt.Fprintf(os.Stderr, "goroutines left behind by the tests: %v\n", err)
			code = 1
		}
	}
	os.Exit(code)
}

// ClientsOwn are the goroutines that a client leaves behind asleep, and that nothing can end sooner: one of a cluster for five
// seconds, to close connections that it does not need any more, and one that had to connect again for a second.
func ClientsOwn() []goleak.Option {
	return []goleak.Option{
		goleak.IgnoreAnyFunction("github.com/redis/rueidis.(*clusterClient)._refresh.func2"),
		goleak.IgnoreAnyFunction("github.com/redis/rueidis.(*call).DelayDo.func1"),
	}
}

func stopShared() {
	shared.mu.Lock()
	defer shared.mu.Unlock()
	for _, server := range shared.servers {
		server.Stop()
	}
	shared.servers = nil
	for _, dir := range shared.dirs {
		_ = os.RemoveAll(dir) // temporary directories; the tests' verdict does not hang on them
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
