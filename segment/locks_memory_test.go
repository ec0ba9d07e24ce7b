package segment_test

import (
	"runtime"
	"strconv"
	"testing"
	"testing/synctest"
	"time"
	"weak"

	"github.com/stretchr/testify/require"

	"github.com/go-leasehold/leasehold/coordinator"
	"github.com/go-leasehold/leasehold/coordinator/coordinatortest"
	"github.com/go-leasehold/leasehold/internal/redistest"
	"github.com/go-leasehold/leasehold/lease/memlease"
	"github.com/go-leasehold/leasehold/segment"
)

// Where there is no Redis, a coordinator finds what its own handles disagree about, for as long as a note would.
func TestDisagreementWithinACoordinatorInMemory(t *testing.T) {
	inMemory(t, func(t *testing.T, h *coordinatortest.Harness) {
		a, b := segment.NewLocks(h.Coordinator, "cart", 16), segment.NewLocks(h.Coordinator, "cart", 64)
		for use, call := range uses(a) {
			require.NoError(t, call(t.Context()), use)
		}
		for use, call := range uses(b) {
			require.ErrorIs(t, call(t.Context()), segment.ErrSegments, use)
		}
		require.NoError(t, uses(segment.NewLocks(h.Another(), "cart", 64))["Lock"](t.Context()), "another coordinator")

		// It is not forgotten while it is used, nor for the time that is promised after that.
		for range 3 * int(segment.NoteLife/segment.NoteTrust) {
			time.Sleep(segment.NoteTrust)
			free(t, take(t, a, "user"))
			require.ErrorIs(t, uses(b)["Lock"](t.Context()), segment.ErrSegments)
		}
		time.Sleep(segment.NoteTrust - 1)
		free(t, take(t, a, "user"))
		time.Sleep(80 * time.Minute)
		require.ErrorIs(t, uses(b)["Lock"](t.Context()), segment.ErrSegments)
		time.Sleep(segment.NoteLife)
		free(t, take(t, b, "user"))
		require.ErrorIs(t, uses(a)["Lock"](t.Context()), segment.ErrSegments)
	})
}

// A process asks again after the time it trusts an answer, and no sooner.
func TestAnAnswerIsTrustedForItsTime(t *testing.T) {
	inMemory(t, func(t *testing.T, h *coordinatortest.Harness) {
		l := segment.NewLocks(h.Coordinator, "cart", 16)
		require.False(t, l.Agreed())
		for range 3 {
			free(t, take(t, l, "user"))
			time.Sleep(segment.NoteTrust - 1)
			require.True(t, l.Agreed())
			free(t, take(t, l, "user"))
			time.Sleep(time.Nanosecond)
			synctest.Wait()
			require.False(t, l.Agreed())
		}
	})
}

// What is known of a name goes when the name is not used any more.
func TestNamesOnceUsedAreForgotten(t *testing.T) {
	inMemory(t, func(t *testing.T, h *coordinatortest.Harness) {
		kept := segment.NewLocks(h.Coordinator, "kept", 2)
		for round := range 20 {
			for i := range 100 {
				l := segment.NewLocks(h.Coordinator, strconv.Itoa(round)+"-"+strconv.Itoa(i), 2)
				free(t, take(t, l, "user"))
			}
			free(t, take(t, kept, "user"))
			time.Sleep(segment.NoteLife + 1)
			synctest.Wait()
		}
		known, claims := segment.Fleets(h.Coordinator)
		require.LessOrEqual(t, known+claims, 4*100+segment.FewFleets)
		// A handle works whether its name was forgotten or not.
		free(t, take(t, kept, "user"))
		require.ErrorIs(t, uses(segment.NewLocks(h.Coordinator, "kept", 3))["Lock"](t.Context()), segment.ErrSegments)
	})
}

// Nothing is left of a coordinator that is gone, and nothing of ours keeps it.
func TestNothingIsLeftOfCoordinators(t *testing.T) {
	t.Parallel()
	s := redistest.Alone(t)
	server := memlease.NewServer()
	defer server.Close()
	use := func(c *coordinator.Coordinator, err error) weak.Pointer[coordinator.Coordinator] {
		require.NoError(t, err)
		l := segment.NewLocks(c, "cart", 16)
		free(t, take(t, l, "user"))
		require.NoError(t, c.Close(t.Context()))
		require.True(t, segment.Remembers(weak.Make(c)))
		return weak.Make(c)
	}
	for _, c := range []weak.Pointer[coordinator.Coordinator]{
		use(coordinator.New(s.Option())), use(coordinator.NewWithStore(server.Store())),
	} {
		soon(t, "that it is gone", func() bool {
			runtime.GC()
			return c.Value() == nil && !segment.Remembers(c)
		})
	}
}
