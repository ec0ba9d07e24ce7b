package faulttest

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/go-leasehold/leasehold/coordinator"
	"github.com/go-leasehold/leasehold/internal/faults"
	"github.com/go-leasehold/leasehold/internal/redistest"
)

func init() { roles["closer"] = playCloser }

// playCloser is a process that locks a key, frees it or not, and closes when it is told to.
func playCloser(args []string) {
	_, quiet := logTo()
	c, err := coordinator.New(patient(args[0]), ours(time.Second, quiet)...)
	exitIf(err)
	hold, err := c.Mutex("k").Lock(context.Background())
	exitIf(err)
	if args[1] == "idle" {
		exitIf(hold.Unlock())
		for len(c.Snapshot().Keys) > 0 {
			time.Sleep(time.Millisecond)
		}
	}
	faults.Say("ready")
	faults.Hear()
	ctx, cancel := context.WithTimeout(context.Background(), 300*time.Millisecond)
	defer cancel()
	start := time.Now()
	err = c.Close(ctx)
	faults.Say("closed %d %s", time.Since(start).Milliseconds(), outcomeName(err))
}

// D8: Close while the server is there and refuses. It ends in time, and with nothing worse than an error. Each is a
// process of its own, since one that fails may take its whole process along.
func TestCloseOnABadServerEndsWell(t *testing.T) {
	t.Parallel()
	for name, bad := range states {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			server := redistest.Start(t, bad.args...)
			children := map[string]*faults.Child{}
			for _, state := range []string{"idle", "holding"} {
				children[state] = faults.StartChild(t, "closer", server.Addr(), state)
				children[state].Expect(t, "ready")
				if state == "idle" {
					eventually(t, slack, "the key free for the other", func() bool { return !exists(t, server, "k") })
				}
			}
			heal := bad.inflict(t, server)
			for state, child := range children {
				child.Send("close")
				said := child.ExpectWithin(t, 300*time.Millisecond+closeGrace+slack, "closed")
				require.NoError(t, child.Wait(), "%s: it ended by itself", state)
				if state == "idle" {
					require.Contains(t, said, " ok", "there was nothing to hand over")
				}
			}
			heal()
			c := steady(t, server.Addr(), ours(time.Second)...)
			free(t, c, "k")
		})
	}
}
