package segment_test

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/go-leasehold/leasehold/coordinator"
	"github.com/go-leasehold/leasehold/coordinator/coordinatortest"
	"github.com/go-leasehold/leasehold/internal/redistest"
	"github.com/go-leasehold/leasehold/segment"
)

// excludes has goroutines of several coordinators lock the same routing keys, and all segments now and then.
func excludes(t *testing.T, coordinators []*coordinator.Coordinator, rounds int) {
	const n, goroutines = 4, 6
	var each, segments inside
	var wg sync.WaitGroup
	for i, c := range coordinators {
		l := segment.NewLocks(c, "cart", n)
		for g := range goroutines {
			wg.Go(func() {
				for r := range rounds {
					key := "user-" + strconv.Itoa((i+g+r)%7)
					if (g+r)%11 == 0 {
						all, err := l.LockAll(t.Context())
						if err != nil {
							t.Error(err)
							return
						}
						for s := range n {
							segments.visit(strconv.Itoa(s), func() {})
						}
						time.Sleep(time.Millisecond)
						if err := all.Unlock(); err != nil {
							t.Error(err)
						}
						continue
					}
					h, err := l.Lock(t.Context(), key)
					if err != nil {
						t.Error(err)
						return
					}
					each.visit(key, func() {
						segments.visit(strconv.Itoa(l.Segment(key)), func() { time.Sleep(100 * time.Microsecond) })
					})
					if err := h.Unlock(); err != nil {
						t.Error(err)
					}
				}
			})
		}
	}
	wg.Wait()
	require.Equal(t, 1, each.most)
	require.Equal(t, 1, segments.most)
	require.Greater(t, each.visits, len(coordinators)*goroutines*rounds/2)
}

func TestTheSameRoutingKeyExcludesInMemory(t *testing.T) {
	inMemory(t, func(t *testing.T, h *coordinatortest.Harness) {
		excludes(t, []*coordinator.Coordinator{h.Coordinator, h.Another(), h.Another()}, 60)
	})
}

func TestTheSameRoutingKeyExcludesOnRedis(t *testing.T) {
	t.Parallel()
	s := redistest.Alone(t)
	excludes(t, []*coordinator.Coordinator{lockProcess(t, s), lockProcess(t, s), lockProcess(t, s)}, 60)
}

func TestDifferentSegmentsDoNotExclude(t *testing.T) {
	inMemory(t, func(t *testing.T, h *coordinatortest.Harness) {
		mine, theirs := segment.NewLocks(h.Coordinator, "cart", 16), segment.NewLocks(h.Another(), "cart", 16)
		var holds []*coordinator.Hold
		for i := range 16 {
			l, other := mine, theirs
			if i%2 == 1 {
				l, other = theirs, mine
			}
			hold, err := l.TryLock(t.Context(), keyIn(l, i))
			require.NoError(t, err)
			require.Equal(t, l.Key(i), hold.Key())
			_, err = other.TryLock(t.Context(), keyIn(l, i))
			require.ErrorIs(t, err, coordinator.ErrNotAcquired)
			holds = append(holds, hold)
		}
		free(t, holds...)
		// Another name is another thing.
		free(t, take(t, mine, "user"))
		hold := take(t, mine, "user")
		free(t, take(t, segment.NewLocks(h.Coordinator, "order", 16), "user"), hold)
	})
}

// A routing key waits for its turn, and has the segment's fencing tokens.
func TestLockWaitsForItsSegment(t *testing.T) {
	inMemory(t, func(t *testing.T, h *coordinatortest.Harness) {
		l := segment.NewLocks(h.Coordinator, "cart", 16)
		first := take(t, l, "user")
		began := time.Now()
		time.AfterFunc(time.Minute, func() { _ = first.Unlock() })
		second := take(t, segment.NewLocks(h.Another(), "cart", 16), "user")
		require.Equal(t, time.Minute, time.Since(began))
		require.Greater(t, second.Token(), first.Token())

		began = time.Now()
		_, err := l.TryLockFor(t.Context(), "user", 3*time.Second)
		require.ErrorIs(t, err, coordinator.ErrNotAcquired)
		require.Equal(t, 3*time.Second, time.Since(began))
		_, err = l.TryLockFor(t.Context(), "user", 0)
		require.ErrorIs(t, err, coordinator.ErrNotAcquired)
		free(t, second)
		third, err := l.TryLockFor(t.Context(), "user", 3*time.Second)
		require.NoError(t, err)
		free(t, third)
	})
}

func TestDoHoldsTheSegment(t *testing.T) {
	inMemory(t, func(t *testing.T, h *coordinatortest.Harness) {
		l, other := segment.NewLocks(h.Coordinator, "cart", 16), segment.NewLocks(h.Another(), "cart", 16)
		reason := errors.New("no such cart")
		err := l.Do(t.Context(), "user", func(ctx context.Context) error {
			require.Equal(t, l.Key(l.Segment("user")), coordinator.HoldFrom(ctx).Key())
			_, err := other.TryLock(ctx, "user")
			require.ErrorIs(t, err, coordinator.ErrNotAcquired)
			again, err := l.Lock(ctx, "user") // the hold's context enters again
			require.NoError(t, err)
			require.Equal(t, 2, again.Count())
			return errors.Join(reason, again.Unlock())
		})
		require.ErrorIs(t, err, reason)
		require.NoError(t, uses(other)["Do"](t.Context()))
	})
}

func TestOptionsCountForEachSegment(t *testing.T) {
	inMemory(t, func(t *testing.T, h *coordinatortest.Harness) {
		opts := []coordinator.MutexOption{coordinator.MaxHold(time.Second)}
		l := segment.NewLocks(h.Coordinator, "cart", 3, opts...)
		opts[0] = coordinator.MaxHold(time.Hour) // the caller's own from then on
		for i := range 3 {
			hold := take(t, l, keyIn(l, i))
			time.Sleep(time.Second)
			synctest.Wait()
			require.ErrorIs(t, hold.Err(), coordinator.ErrHoldExpired)
		}
	})
}

func TestLockAllExcludesAll(t *testing.T) {
	inMemory(t, func(t *testing.T, h *coordinatortest.Harness) {
		mine, theirs := segment.NewLocks(h.Coordinator, "cart", 16), segment.NewLocks(h.Another(), "cart", 16)
		all, err := mine.LockAll(t.Context())
		require.NoError(t, err)
		require.Len(t, all.All(), 16)
		for i := range 16 {
			for _, l := range []*segment.Locks{mine, theirs} {
				_, err := l.TryLock(t.Context(), keyIn(l, i))
				require.ErrorIs(t, err, coordinator.ErrNotAcquired)
			}
			again, err := mine.TryLock(all.Context(), keyIn(mine, i))
			require.NoError(t, err)
			free(t, again)
		}
		require.NoError(t, all.Unlock())
		for i := range 16 {
			hold, err := theirs.TryLock(t.Context(), keyIn(theirs, i))
			require.NoError(t, err)
			free(t, hold)
		}
	})
}

// Whichever segment is in the way: who can't have all has none.
func TestLockAllIsAllOrNone(t *testing.T) {
	inMemory(t, func(t *testing.T, h *coordinatortest.Harness) {
		mine, theirs := segment.NewLocks(h.Coordinator, "cart", 16), segment.NewLocks(h.Another(), "cart", 16)
		for i := range 16 {
			busy := take(t, theirs, keyIn(theirs, i))
			ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
			_, err := mine.LockAll(ctx)
			cancel()
			require.ErrorIs(t, err, coordinator.ErrNotAcquired)
			require.ErrorIs(t, err, context.DeadlineExceeded)
			var wait *coordinator.WaitError
			require.ErrorAs(t, err, &wait)
			require.Equal(t, busy.Key(), wait.Key)
			for j := range 16 {
				if j != i {
					hold, err := theirs.TryLock(t.Context(), keyIn(theirs, j))
					require.NoError(t, err, "segment %d, with %d in the way", j, i)
					free(t, hold)
				}
			}
			free(t, busy)
		}
	})
}

func TestTwoLockAllsDoNotDeadlock(t *testing.T) {
	t.Parallel()
	s := redistest.Alone(t)
	var both inside
	var wg sync.WaitGroup
	ctx, cancel := context.WithTimeout(t.Context(), lockPatience)
	defer cancel()
	for range 2 {
		l := segment.NewLocks(lockProcess(t, s), "cart", 12)
		for range 2 {
			wg.Go(func() {
				for range 20 {
					all, err := l.LockAll(ctx)
					if err != nil {
						t.Error(err)
						return
					}
					both.visit("all", func() { time.Sleep(100 * time.Microsecond) })
					if err := all.Unlock(); err != nil {
						t.Error(err)
					}
				}
			})
		}
	}
	wg.Wait()
	require.Equal(t, 1, both.most)
	require.Equal(t, 80, both.visits)
}

func TestOneSegmentIsOneLock(t *testing.T) {
	inMemory(t, func(t *testing.T, h *coordinatortest.Harness) {
		l := segment.NewLocks(h.Coordinator, "cart", 1)
		require.Equal(t, 1, l.Len())
		hold := take(t, l, "a")
		for _, key := range []string{"a", "b", "\x00", strings.Repeat("long", 100_000)} {
			require.Zero(t, l.Segment(key))
			_, err := l.TryLock(t.Context(), key)
			require.ErrorIs(t, err, coordinator.ErrNotAcquired)
		}
		free(t, hold)
		require.NoError(t, uses(l)["LockAll"](t.Context()))
	})
}

func TestTheMostSegments(t *testing.T) {
	inMemory(t, func(t *testing.T, h *coordinatortest.Harness) {
		l := segment.NewLocks(h.Coordinator, "cart", segment.MaxSegments)
		keys := map[string]bool{}
		for i := range segment.MaxSegments {
			keys[l.Key(i)] = true
		}
		require.Len(t, keys, segment.MaxSegments)
		hold := take(t, l, "user")
		require.Equal(t, l.Key(l.Segment("user")), hold.Key())
		free(t, hold)
		all, err := l.LockAll(t.Context())
		require.NoError(t, err)
		require.Len(t, all.All(), segment.MaxSegments)
		require.NoError(t, all.Unlock())
	})
}

// A handle costs a pointer a segment and a few words; a mutex is made when its segment is first used, and then kept.
func TestHandlesCostLittle(t *testing.T) {
	h := coordinatortest.Start()
	defer h.Close()
	c := h.Coordinator
	require.LessOrEqual(t, testing.AllocsPerRun(100, func() { segment.NewLocks(c, "cart", segment.MaxSegments) }), 12.0)
	l := segment.NewLocks(c, "cart", segment.MaxSegments)
	mutex := c.Mutex("cart")
	alone := testing.AllocsPerRun(1000, func() {
		hold, err := mutex.Lock(context.Background())
		if err != nil || hold.Unlock() != nil {
			t.Error(err)
		}
	})
	striped := testing.AllocsPerRun(1000, func() { free(t, take(t, l, "user")) })
	require.LessOrEqual(t, striped, alone+0.5, "the lock of a segment allocates more than a mutex does")
}

// slot is a key's in a cluster: CRC-16/XMODEM of what stands between the first braces.
func slot(key string) uint16 {
	if _, rest, ok := strings.Cut(key, "{"); ok {
		if tag, _, ok := strings.Cut(rest, "}"); ok && tag != "" {
			key = tag
		}
	}
	var crc uint16
	for i := range len(key) {
		crc ^= uint16(key[i]) << 8
		for range 8 {
			if crc&0x8000 != 0 {
				crc = crc<<1 ^ 0x1021
			} else {
				crc <<= 1
			}
		}
	}
	return crc % 16384
}

var oddNames = []string{
	"cart", " ", "\x00", "a{b}c", "{", "}", "{}", "}{", "{a}", "a}", "{a", "a%7Db", "%", "%%", "a/1", "a/", "~queue", "/", "\xff\xfe", "größe",
	strings.Repeat("{", segment.MaxName),
}

// Whatever the name: each segment has a key of its own, in a slot of its own.
func TestKeysOfOddNames(t *testing.T) {
	h := coordinatortest.Start()
	defer h.Close()
	owner := map[string]string{}
	for _, name := range oddNames {
		l := segment.NewLocks(h.Coordinator, name, 100)
		require.Equal(t, name, l.Name())
		slots := map[uint16]bool{}
		for i := range 100 {
			key := l.Key(i)
			other, taken := owner[key]
			require.False(t, taken, "%q of %q is %q's", key, name, other)
			owner[key] = fmt.Sprintf("%q/%d", name, i)
			slots[slot("lock:"+key)] = true
		}
		require.Greater(t, len(slots), 97, "slots of %q", name)
		require.Empty(t, l.Key(-1))
		require.Empty(t, l.Key(100))
	}
	require.Equal(t, "{cart/7}", segment.NewLocks(h.Coordinator, "cart", 16).Key(7))
	require.Equal(t, "{a%7Bb%7D%25/0}", segment.NewLocks(h.Coordinator, "a{b}%", 1).Key(0))
	require.EqualValues(t, 0x31C3, slot("123456789"), "as the specification of Redis Cluster has it")
}

// They work on a cluster too, also where the prefix puts all into one slot.
func TestLocksOnACluster(t *testing.T) {
	t.Parallel()
	s := redistest.Start(t, "--cluster-enabled", "yes")
	s.Do(t, "CLUSTER", "ADDSLOTSRANGE", "0", "16383")
	soon(t, "the cluster is ready", func() bool {
		info := s.Do(t, "CLUSTER", "INFO")
		text, err := info.ToString()
		return err == nil && strings.Contains(text, "cluster_state:ok")
	})
	for _, prefix := range []string{"lock:", "{tag}:"} {
		a, b := lockProcess(t, s, coordinator.WithKeyPrefix(prefix)), lockProcess(t, s, coordinator.WithKeyPrefix(prefix))
		for _, name := range oddNames {
			l := segment.NewLocks(a, name, 5)
			for use, call := range uses(l) {
				require.NoError(t, call(t.Context()), "%s of %q", use, name)
			}
			for use, call := range uses(segment.NewLocks(b, name, 6)) {
				require.ErrorIs(t, call(t.Context()), segment.ErrSegments, "%s of %q", use, name)
			}
		}
	}
	// Each name has a note of its own.
	require.Len(t, s.Keys(t, "lock:~segments*"), len(oddNames))
	require.Len(t, s.Keys(t, "{tag}:~segments*"), len(oddNames))
}
