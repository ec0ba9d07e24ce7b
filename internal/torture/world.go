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
	t    testing.TB
	kind string
	all  []*redistest.Server
}

func newWorld(t testing.TB, kind string) *world {
	t.Helper()
	return &world{t: t, kind: kind, all: []*redistest.Server{redistest.Start(t)}}
}

func (w *world) servers() []*redistest.Server     { return w.all }
func (w *world) primaries() []*redistest.Server   { return w.all }
func (w *world) primary(string) *redistest.Server { return w.all[0] }
func (w *world) way() way {
	return way{Addresses: []string{w.all[0].Addr()}, Through: map[string]string{}}
}
func (w *world) patience() time.Duration { return 600 * time.Millisecond }
func (w *world) settle()                 {}

// requireQuiet requires that nothing is left in Redis but token counters: what there is ends within a TTL.
func (w *world) requireQuiet(ttl time.Duration) {
	for _, s := range w.primaries() {
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
	for _, s := range w.servers() {
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
