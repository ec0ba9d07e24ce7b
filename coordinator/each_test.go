package coordinator

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/go-leasehold/leasehold/lease/memlease"
	"github.com/go-leasehold/leasehold/telemetry"
)

func TestLockEachHasTheOptionsOfItsMutexes(t *testing.T) {
	in(t, func(t *testing.T, s *memlease.Server) {
		c := process(t, s)
		all, err := LockEach(t.Context(), c.Mutex("c"), c.Mutex("a", MaxHold(time.Second)), c.Mutex("b"), c.Mutex("a", MaxHold(time.Minute)))
		require.NoError(t, err)
		var keys []string
		for _, h := range all.All() {
			keys = append(keys, h.Key())
		}
		require.Equal(t, []string{"a", "b", "c"}, keys)
		time.Sleep(2 * time.Second)
		require.ErrorIs(t, all.All()[0].Err(), ErrHoldExpired)
		require.NoError(t, all.All()[1].Err())
		require.ErrorIs(t, all.Unlock(), ErrHoldExpired)
	})
}

func TestLockEachRefusesWhatCannotBe(t *testing.T) {
	in(t, func(t *testing.T, s *memlease.Server) {
		c, d := process(t, s), process(t, s)
		for says, of := range map[string][]*Mutex{
			"without a mutex":        nil,
			"mutex 1":                {c.Mutex("a"), nil},
			"mutex 0":                {nil},
			"different coordinators": {c.Mutex("a"), d.Mutex("b")},
			"the key is empty":       {c.Mutex("a"), c.Mutex("")},
		} {
			_, err := LockEach(t.Context(), of...)
			require.ErrorIs(t, err, ErrInvalid, says)
			require.ErrorContains(t, err, says)
		}
		_, err := LockEach(nil, c.Mutex("a")) //nolint:staticcheck // tested
		require.ErrorIs(t, err, ErrInvalid)
		hold, err := d.Mutex("a").TryLock(t.Context())
		require.NoError(t, err, "nothing was locked")
		require.NoError(t, hold.Unlock())
	})
}

func TestClassAsIsAskedForInThePlaceOfTheKey(t *testing.T) {
	in(t, func(t *testing.T, s *memlease.Server) {
		var asked []string
		c := process(t, s, WithTelemetry(telemetry.Config{KeyClass: func(key string) string {
			asked = append(asked, key)
			return "class of " + key
		}}))
		all, err := LockEach(t.Context(), c.Mutex("made from cart", ClassAs("cart")), c.Mutex("own"), c.Mutex("unnamed", ClassAs("")))
		require.NoError(t, err)
		classes := map[string]string{}
		for _, k := range c.Snapshot().Keys {
			classes[k.Key] = k.Class
		}
		require.Equal(t, map[string]string{
			"made from cart": "class of cart", "own": "class of own", "unnamed": "class of unnamed",
		}, classes)
		require.Equal(t, []string{"cart", "own", "unnamed"}, asked)
		require.NoError(t, all.Unlock())
	})
}
