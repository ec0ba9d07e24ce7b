package torture

import (
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
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

// requireQuiet requires that nothing is left in Redis but token counters: what there is ends within a TTL.
func (w *world) requireQuiet(ttl time.Duration) {
	for _, s := range w.Primaries() {
		require.EventuallyWithT(w.t, func(c *assert.CollectT) {
			for _, name := range s.Keys(w.t, "lock:*") {
				if strings.HasPrefix(name, "lock:~token") {
					continue
				}
				message, err := s.DoErr("PTTL", name)
				require.NoError(c, err)
				left, err := message.AsInt64()
				require.NoError(c, err)
				require.NotEqual(w.t, int64(-1), left, "%s would stay for ever", name)
				require.LessOrEqual(w.t, left, ttl.Milliseconds(), name)
				require.Equal(c, int64(-2), left, name)
			}
		}, patience, 20*time.Millisecond)
	}
	for _, s := range w.Servers() {
		for _, list := range []string{"CHANNELS", "SHARDCHANNELS"} {
			require.EventuallyWithT(w.t, func(c *assert.CollectT) {
				message, err := s.DoErr("PUBSUB", list)
				require.NoError(c, err)
				names, err := message.AsStrSlice()
				require.NoError(c, err)
				for _, name := range names {
					require.NotContains(c, name, "~inbox:")
				}
			}, patience, 20*time.Millisecond)
		}
	}
}
