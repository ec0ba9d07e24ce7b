package redistest

import (
	"testing"
	"time"

	"github.com/redis/rueidis"
	"github.com/stretchr/testify/require"
)

func TestTopologiesAreReached(t *testing.T) {
	t.Parallel()
	for _, kind := range Kinds {
		t.Run(string(kind), func(t *testing.T) {
			t.Parallel()
			begun := time.Now()
			topology := StartTopology(t, kind, time.Minute)
			t.Logf("whole after %v", time.Since(begun))
			client, err := rueidis.NewClient(topology.Option())
			require.NoError(t, err)
			defer client.Close()
			for _, key := range []string{"a", "b", "c", "d"} {
				require.NoError(t, client.Do(t.Context(), client.B().Set().Key(key).Value("v").Build()).Error())
				require.Contains(t, topology.Primary(key).Keys(t, "*"), key)
			}
		})
	}
}

func TestPrimaryIsKilledAndComesBackAsAReplica(t *testing.T) {
	t.Parallel()
	for _, kind := range []Kind{Sentinel, Cluster} {
		t.Run(string(kind), func(t *testing.T) {
			t.Parallel()
			topology := StartTopology(t, kind, time.Second)
			dead, at := topology.KillPrimary("a")
			topology.AwaitTakeover(dead)
			t.Logf("taken over after %v", time.Since(at))
			require.NotEqual(t, dead, topology.Primary("a"))
			topology.Restart(dead)
			topology.Settle()
			t.Logf("whole after %v", time.Since(at))
			require.Equal(t, "slave", dead.role())
		})
	}
}

func TestFailoverOnDemand(t *testing.T) {
	t.Parallel()
	for _, kind := range []Kind{Sentinel, Cluster} {
		t.Run(string(kind), func(t *testing.T) {
			t.Parallel()
			topology := StartTopology(t, kind, time.Second)
			for range 2 {
				from := topology.Primary("a")
				topology.Failover(from)
				topology.Settle()
				require.Equal(t, "slave", from.role())
			}
		})
	}
	require.Panics(t, func() { StartTopology(t, Single, time.Minute).Failover(nil) })
	_, err := LaunchTopology(t.TempDir(), "ring", time.Minute)
	require.ErrorContains(t, err, `"ring" is none of`)
}

func TestSlotIsMovedWithItsKeys(t *testing.T) {
	t.Parallel()
	topology := StartTopology(t, Cluster, time.Minute)
	from := topology.Primary("a")
	for _, key := range []string{"a", "{a}1", "{a}2"} {
		from.Do(t, "SET", key, "v")
	}
	to := topology.Primaries()[0]
	if to == from {
		to = topology.Primaries()[1]
	}
	steps := 0
	require.NoError(t, topology.MoveSlot(SlotOf(from, "a"), to, func() { steps++ }))
	require.Equal(t, 4, steps)
	require.Equal(t, to, topology.Primary("a"))
	require.Equal(t, []string{"a", "{a}1", "{a}2"}, to.Keys(t, "*a*"))
	topology.Settle()
	require.Error(t, topology.MoveSlot(SlotOf(from, "a"), to, nil), "it is there")
}
