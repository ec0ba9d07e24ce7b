package harness

import (
	"context"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/go-leasehold/leasehold/bench/contender"
	"github.com/go-leasehold/leasehold/bench/result"
)

func openGuard(t *testing.T) *Guard {
	path := filepath.Join(t.TempDir(), "guard")
	require.NoError(t, CreateGuard(path))
	g, err := OpenGuard(path)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, g.Close()) })
	return g
}

func TestGuardFindsWhoShouldNotBeThere(t *testing.T) {
	for name, c := range map[string]struct {
		do   func(*Guard)
		want int64
	}{
		"one after the other":     {func(g *Guard) { g.Enter(0); g.Leave(0); g.Enter(0); g.Leave(0) }, 0},
		"two keys":                {func(g *Guard) { g.Enter(0); g.Enter(1) }, 0},
		"two writers":             {func(g *Guard) { g.Enter(0); g.Enter(0) }, 1},
		"readers":                 {func(g *Guard) { g.EnterShared(0); g.EnterShared(0) }, 0},
		"a reader with a writer":  {func(g *Guard) { g.Enter(0); g.EnterShared(0) }, 1},
		"a writer with a reader":  {func(g *Guard) { g.EnterShared(0); g.Enter(0) }, 1},
		"a writer behind readers": {func(g *Guard) { g.EnterShared(0); g.LeaveShared(0); g.Enter(0) }, 0},
		"a writer who was killed": {func(g *Guard) { g.Enter(0); g.Clear(); g.Enter(0) }, 0},
		"the last key":            {func(g *Guard) { g.Enter(GuardSlots - Counters - 1); g.Counter(0).Add(1); g.Counter(1).Add(1) }, 0},
	} {
		t.Run(name, func(t *testing.T) {
			g := openGuard(t)
			c.do(g)
			require.Equal(t, c.want, g.Take())
			require.Zero(t, g.Take(), "they are told once")
		})
	}
}

func TestGuardTellsAnErrorWithItsPath(t *testing.T) {
	require.ErrorContains(t, CreateGuard("/does/not/exist"), "guard: ")
	_, err := OpenGuard("/does/not/exist")
	require.ErrorContains(t, err, "/does/not/exist")
}

// Whoever excludes nobody is found to, by lock and by read/write lock, and whoever excludes is not.
func TestGuardInOneProcess(t *testing.T) {
	for name, violates := range map[string]bool{"test/nobody": true, "test/mutex": false} {
		for _, args := range []LoadArgs{{Action: Lock}, {Action: Try}, {Action: Read, Reads: 50}} {
			t.Run(name+"/"+string(args.Action), func(t *testing.T) {
				args.Goroutines, args.Work = 4, 20*time.Microsecond
				tally, err := runLoad(openWorker(t, name), args, drainFor)
				require.NoError(t, err)
				require.Equal(t, violates, tally.Violations > 0, "%d violations", tally.Violations)
			})
		}
	}
}

// Violations while nothing is counted yet are violations, too.
func TestViolationsOfTheWarmUpAreTold(t *testing.T) {
	w := openWorker(t, "test/mutex")
	require.NoError(t, w.Prepare(LoadArgs{Action: Lock, Goroutines: 1}, &Nothing{}))
	w.guard.Enter(0) // somebody who should not be there, until it counts
	time.AfterFunc(20*time.Millisecond, func() { w.guard.Leave(0) })
	var tally Tally
	require.NoError(t, w.Load(Window{
		Start: time.Now(), Warm: 300 * time.Millisecond, For: 10 * time.Millisecond, Drain: drainFor,
	}, &tally))
	require.NotZero(t, tally.Violations)
}

// Whoever gets a lock that another process has all the time, violates that.
func TestGettingWhatIsTakenIsAViolation(t *testing.T) {
	tally, err := runLoad(openWorker(t, "test/mutex"), LoadArgs{Action: Try, Goroutines: 1, Taken: true}, drainFor)
	require.NoError(t, err)
	require.NotZero(t, tally.Violations)
}

// The same across processes: a lock in memory excludes nobody there, one in Redis does.
func TestGuardAcrossProcesses(t *testing.T) {
	stage := testStage(t, 1)
	scenario := testScenario(2, func(ctx context.Context, c *Cast) (result.Round, error) {
		// On a machine that is busy the two may hardly run at the same time, unless each has the lock for long.
		return c.Load(ctx, LoadArgs{Action: Lock, Goroutines: 2, Work: 5 * time.Millisecond, Longer: 4})
	})
	out, err := stage.Run(t.Context(), scenario, []contender.Info{find(t, "test/mutex"), find(t, "test/good")}, noProgress)
	require.NoError(t, err)
	require.Empty(t, out.Cells[0].Failure)
	require.NotZero(t, out.Cells[0].Rounds[0][result.Violations], "%v", out.Cells[0].Rounds[0])
	require.Empty(t, out.Cells[1].Failure)
	require.Zero(t, out.Cells[1].Rounds[0][result.Violations])
	require.NotZero(t, out.Cells[1].Rounds[0][result.Operations])
}
