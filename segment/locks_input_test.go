package segment_test

import (
	"context"
	"math"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/go-leasehold/leasehold/coordinator"
	"github.com/go-leasehold/leasehold/coordinator/coordinatortest"
	"github.com/go-leasehold/leasehold/internal/redistest"
	"github.com/go-leasehold/leasehold/segment"
)

// What is wrong with a handle is told by its first use, whichever it is, in an error that names the value and the limit.
// Nothing is sent, and nothing remembered.
func TestBadHandlesAreToldByEveryUse(t *testing.T) {
	var none context.Context
	for name, bad := range map[string]struct {
		name string
		n    int
		opts []coordinator.MutexOption
		says []string
	}{
		"no name":           {"", 16, nil, []string{"the name is empty"}},
		"long name":         {strings.Repeat("n", segment.MaxName+1), 16, nil, []string{"1025", "1024"}},
		"no segments":       {"cart", 0, nil, []string{"0 segments", "1 and 4096"}},
		"fewer":             {"cart", math.MinInt32, nil, []string{"-2147483648 segments", "1 and 4096"}},
		"too many segments": {"cart", segment.MaxSegments + 1, nil, []string{"4097 segments", "1 and 4096"}},
		"far too many":      {"cart", math.MaxInt32, nil, []string{"2147483647 segments", "1 and 4096"}},
		"TTL":               {"cart", 16, []coordinator.MutexOption{coordinator.TTL(1)}, []string{"TTL(1ns)", "100ms"}},
		"MaxHold":           {"cart", 16, []coordinator.MutexOption{coordinator.Fair(), coordinator.MaxHold(-1)}, []string{"MaxHold(-1ns)"}},
		"EndWith":           {"cart", 16, []coordinator.MutexOption{coordinator.EndWith(none)}, []string{"EndWith(nil)"}},
		"nil option":        {"cart", 16, []coordinator.MutexOption{nil}, []string{"MutexOption", "nil"}},
	} {
		t.Run(name, func(t *testing.T) {
			inMemory(t, func(t *testing.T, h *coordinatortest.Harness) {
				l := segment.NewLocks(h.Coordinator, bad.name, bad.n, bad.opts...)
				for use, call := range uses(l) {
					err := call(t.Context())
					require.ErrorIs(t, err, coordinator.ErrInvalid, use)
					for _, s := range bad.says {
						require.ErrorContains(t, err, s, use)
					}
					require.Less(t, len(err.Error()), 500, "as long as the name")
				}
				require.Equal(t, bad.name, l.Name())
				require.Equal(t, bad.n, l.Len())
				require.Empty(t, l.Key(0))
				require.GreaterOrEqual(t, l.Segment("user"), 0)
				require.Zero(t, h.Coordinator.Snapshot().Stats.Commands)
				known, claims := segment.Fleets(h.Coordinator)
				require.Zero(t, known+claims)
			})
		})
	}
}

func TestBadArgumentsOfLocks(t *testing.T) {
	inMemory(t, func(t *testing.T, h *coordinatortest.Harness) {
		l := segment.NewLocks(h.Coordinator, "cart", 16)
		var none context.Context
		refused := func() {
			before := h.Coordinator.Snapshot().Stats.Commands
			for use, call := range uses(l) {
				err := call(none)
				require.ErrorIs(t, err, coordinator.ErrInvalid, use)
				require.ErrorContains(t, err, "the context is nil", use)
			}
			is := func(err error, says string) {
				require.ErrorIs(t, err, coordinator.ErrInvalid)
				require.ErrorContains(t, err, says)
			}
			_, err := l.Lock(t.Context(), "")
			is(err, "the routing key is empty")
			_, err = l.TryLock(t.Context(), "")
			is(err, "the routing key is empty")
			_, err = l.TryLockFor(t.Context(), "", time.Second)
			is(err, "the routing key is empty")
			is(l.Do(t.Context(), "", func(context.Context) error { return nil }), "the routing key is empty")
			is(l.Do(t.Context(), "user", nil), "Do without a function")
			_, err = l.TryLockFor(t.Context(), "user", -1)
			is(err, "TryLockFor(-1ns) is negative")
			require.Equal(t, before, h.Coordinator.Snapshot().Stats.Commands)
		}
		refused()
		_, claims := segment.Fleets(h.Coordinator)
		require.Zero(t, claims, "nobody was asked")
		free(t, take(t, l, "user"))
		refused()
	})
}

// A context that has ended is told as a mutex tells it, and asks nobody.
func TestEndedContextsAskNobody(t *testing.T) {
	inMemory(t, func(t *testing.T, h *coordinatortest.Harness) {
		l := segment.NewLocks(h.Coordinator, "cart", 16)
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		for use, call := range uses(l) {
			err := call(ctx)
			require.ErrorIs(t, err, coordinator.ErrNotAcquired, use)
			require.ErrorIs(t, err, context.Canceled, use)
		}
		_, claims := segment.Fleets(h.Coordinator)
		require.Zero(t, claims)
		require.Zero(t, h.Coordinator.Snapshot().Stats.Commands)
	})
}

func TestLocksWithoutACoordinator(t *testing.T) {
	require.Panics(t, func() { segment.NewLocks(nil, "cart", 16) }, "as coordinator.Mutex does")
}

// Limits that are met are no error.
func TestGoodHandles(t *testing.T) {
	t.Parallel()
	s := redistest.Alone(t)
	c := lockProcess(t, s)
	for _, n := range []int{1, 2, 3} {
		l := segment.NewLocks(c, strings.Repeat("n", segment.MaxName-n)+strings.Repeat("{", n), n,
			coordinator.Fair(), coordinator.Cached(), coordinator.TTL(coordinator.MinTTL), coordinator.MaxHold(math.MaxInt64))
		for use, call := range uses(l) {
			require.NoError(t, call(t.Context()), use)
		}
	}
}

func TestLocksOfAClosedCoordinator(t *testing.T) {
	t.Parallel()
	s := redistest.Alone(t)
	for _, asked := range []bool{true, false} {
		c, err := coordinator.New(s.Option())
		require.NoError(t, err)
		l := segment.NewLocks(c, "cart", 16)
		if asked {
			free(t, take(t, l, "user"))
		}
		require.NoError(t, c.Close(t.Context()))
		for use, call := range uses(l) {
			require.ErrorIs(t, call(t.Context()), coordinator.ErrClosed, use)
		}
		require.False(t, l.Agreed())
	}
	h := coordinatortest.Start()
	l := segment.NewLocks(h.Coordinator, "cart", 16)
	h.Close()
	for use, call := range uses(l) {
		require.ErrorIs(t, call(t.Context()), coordinator.ErrClosed, use)
	}
}
