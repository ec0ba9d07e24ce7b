package faulttest

import (
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/go-leasehold/leasehold/internal/redistest"
)

// Four processes of a hundred goroutines each raise one plain counter under the lock: exact, tokens in the order of
// the holds, and nobody polls.
func TestFourProcessesCountExactly(t *testing.T) {
	s := redistest.Start(t)
	order := crowdOrder{Addr: s.Addr(), Goroutines: 100, TTL: 30 * time.Second, Lasting: lasting(10*time.Second, time.Minute)}
	before := s.Commands()
	reports := runCrowd(t, 4, order, time.Sleep)
	commands := s.Commands() - before
	locks := requireExact(t, s, reports)
	requireNoPolling(t, commands, locks)
}

// The same while connections of the coordinators are killed at random.
func TestFourProcessesCountExactlyWhileConnectionsAreKilled(t *testing.T) {
	s := redistest.Start(t)
	order := crowdOrder{Addr: s.Addr(), Goroutines: 100, TTL: 30 * time.Second, Lasting: lasting(10*time.Second, time.Minute)}
	killed := 0
	before := s.Commands()
	reports := runCrowd(t, 4, order, func(d time.Duration) {
		for end := time.Now().Add(d); time.Now().Before(end); time.Sleep(time.Duration(rand.IntN(100)) * time.Millisecond) {
			ids := coordinatorConnections(t, s)
			if len(ids) > 0 {
				s.Do(t, "CLIENT", "KILL", "ID", ids[rand.IntN(len(ids))])
				killed++
			}
		}
	})
	commands := s.Commands() - before
	require.Greater(t, killed, 10)
	locks := requireExact(t, s, reports)
	requireNoPolling(t, commands, locks)
}

// requireNoPolling bounds the commands that the locks cost, all told: each hold's own GET and SET are taken out,
// calls inside scripts are counted. Waiting must cost nothing: 400 goroutines that asked once a millisecond would
// make a hundred commands a lock.
func requireNoPolling(t *testing.T, commands int64, locks int) {
	t.Helper()
	each := float64(commands)/float64(locks) - 2
	t.Logf("%d locks, %.2f commands a lock", locks, each)
	require.Less(t, each, 5.0)
}

func coordinatorConnections(t *testing.T, s *redistest.Server) []string {
	t.Helper()
	var ids []string
	for _, c := range clients(t, s) {
		if c["name"] == "coordinator" {
			ids = append(ids, c["id"])
		}
	}
	return ids
}

// clients are the connections that the server has, by the fields of CLIENT LIST.
func clients(t testing.TB, s *redistest.Server) []map[string]string {
	t.Helper()
	message := s.Do(t, "CLIENT", "LIST")
	text, err := message.ToString()
	require.NoError(t, err)
	var all []map[string]string
	for line := range strings.Lines(strings.TrimPrefix(text, "txt:")) {
		fields := map[string]string{}
		for _, field := range strings.Fields(line) {
			name, value, _ := strings.Cut(field, "=")
			fields[name] = value
		}
		all = append(all, fields)
	}
	return all
}
