package torture

import (
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/go-leasehold/leasehold/internal/redistest"
)

// world is the topology of a run.
type world struct {
	*redistest.Topology

	t testing.TB
}

// downAfter is when a server that says nothing is taken for dead.
const downAfter = time.Second

func newWorld(t testing.TB, kind redistest.Kind) *world {
	t.Helper()
	return &world{redistest.StartTopology(t, kind, downAfter), t}
}

func (w *world) way() way {
	opt := w.Option()
	return way{Addresses: opt.InitAddress, MasterSet: opt.Sentinel.MasterSet, Through: map[string]string{}}
}

// primary is the server that has a key; nil: none at the moment.
func (w *world) primary(key string) *redistest.Server { return w.Primary("lock:" + key) }

// requireQuiet requires that nothing is left in Redis but token counters: no key that would stay, and no subscription.
func (w *world) requireQuiet(ttl time.Duration) {
	for deadline := time.Now().Add(patience); ; time.Sleep(20 * time.Millisecond) {
		left := w.left(ttl)
		if len(left) == 0 {
			return
		}
		require.True(w.t, time.Now().Before(deadline), "%q are left", left)
	}
}

// left are the names of what is left. A key that does not end within a TTL fails the run at once.
func (w *world) left(ttl time.Duration) (names []string) {
	for _, s := range w.Primaries() {
		for _, name := range s.Keys(w.t, "lock:*") {
			if strings.HasPrefix(name, "lock:~token") {
				continue
			}
			message := s.Do(w.t, "PTTL", name)
			ends, err := message.AsInt64()
			require.NoError(w.t, err)
			require.NotEqual(w.t, int64(-1), ends, "%s would stay for ever", name)
			require.LessOrEqual(w.t, ends, ttl.Milliseconds(), name)
			names = append(names, name)
		}
	}
	for _, s := range w.Servers() {
		for _, list := range []string{"CHANNELS", "SHARDCHANNELS"} {
			message := s.Do(w.t, "PUBSUB", list)
			channels, err := message.AsStrSlice()
			require.NoError(w.t, err)
			for _, channel := range channels {
				if strings.Contains(channel, "~inbox:") {
					names = append(names, channel)
				}
			}
		}
	}
	return names
}
