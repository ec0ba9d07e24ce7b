package faulttest

import (
	"context"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/go-leasehold/leasehold/coordinator"
	"github.com/go-leasehold/leasehold/internal/faults"
	"github.com/go-leasehold/leasehold/internal/redistest"
)

// B7: whatever a server can say that is worth a line in the log, the line is not written where its answers are read.
func TestLoggerThatNeverReturnsIsNotOnTheWayOfAnswers(t *testing.T) {
	t.Parallel()
	for name, provoke := range map[string]func(*testing.T, *redistest.Server, *coordinator.Coordinator, *faults.Proxy){
		"a message that makes no sense": func(t *testing.T, s *redistest.Server, c *coordinator.Coordinator, _ *faults.Proxy) {
			message := s.Do(t, "PUBLISH", "lock:~inbox:"+c.ID(), "nonsense")
			heard, err := message.AsInt64()
			require.NoError(t, err)
			require.EqualValues(t, 1, heard)
		},
		"a server that is read-only": func(t *testing.T, _ *redistest.Server, c *coordinator.Coordinator, proxy *faults.Proxy) {
			proxy.OnCommand(func(cmd []string) faults.Action {
				if verb(cmd) == "" {
					return faults.Pass
				}
				return faults.Fail("READONLY You can't write against a read only replica.")
			})
			for range 5 { // more than there are workers
				var err error
				within(t, soon, "TryLock answers", func() { _, err = c.Mutex("k").TryLock(context.Background()) })
				require.ErrorIs(t, err, coordinator.ErrUnavailable)
			}
			proxy.OnCommand(nil)
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := redistest.Start(t)
			c, proxy, _ := userCodeThatSleeps(t, s)
			provoke(t, s, c, proxy)
			within(t, soon, "keys go on", func() { lockOnce(t, c, "k") })
			hearsOfGrants(t, s, c)
			closesInTime(t, c)
		})
	}
}
