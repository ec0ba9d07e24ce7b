package rwlock_test

import (
	"maps"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/go-leasehold/leasehold/coordinator"
	"github.com/go-leasehold/leasehold/coordinator/coordinatortest"
	"github.com/go-leasehold/leasehold/internal/redistest"
	"github.com/go-leasehold/leasehold/lease"
	"github.com/go-leasehold/leasehold/rwlock"
)

func TestReadersOfAProcessCostNoCommandAfterTheFirst(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	s := redistest.Alone(t)
	c := process(t, s, coordinator.WithSharedRetention(time.Hour), coordinator.WithTTL(time.Hour))
	l := rwlock.New(c, "k")
	unlock(t, passing(t, c, l))
	// A lease that is used for 100 ms is looked at once. From then on it would be renewed in 20 minutes.
	eventually(t, "the look", func() bool { return c.Snapshot().Stats.Renewals == 1 })
	before := c.Snapshot().Stats
	require.EqualValues(t, 2, before.Commands)
	for range 1000 {
		h, err := l.RLock(ctx)
		require.NoError(t, err)
		require.NotZero(t, h.Token())
		require.Equal(t, 1, h.Count())
		require.NoError(t, h.Err())
		require.NoError(t, h.Unlock())
		require.ErrorIs(t, h.Unlock(), coordinator.ErrNotHeld)
	}
	after := c.Snapshot().Stats
	require.Equal(t, before.Commands, after.Commands)
	require.EqualValues(t, 1000, after.Passed-before.Passed)
	require.EqualValues(t, 1000, after.Grants-before.Grants)
	w, err := l.Lock(ctx)
	require.NoError(t, err)
	r, err := w.Downgrade()
	require.NoError(t, err)
	require.ErrorIs(t, w.Unlock(), coordinator.ErrNotHeld)
	r2, err := rwlock.New(process(t, s), "k").RLock(ctx)
	require.NoError(t, err)
	require.NoError(t, r2.Unlock())
	require.NoError(t, r.Unlock())
}

func TestWriterEntersAgainstSteadyReaders(t *testing.T) {
	ctx := t.Context()
	s := redistest.Alone(t)
	stop := make(chan struct{})
	done := make(chan struct{})
	n := 0
	for range 3 {
		l := rwlock.New(process(t, s, coordinator.WithSharedRetention(time.Hour)), "k")
		for range 4 {
			n++
			go func() {
				defer func() { done <- struct{}{} }()
				for {
					select {
					case <-stop:
						return
					default:
					}
					h, err := l.RLock(ctx)
					if err != nil {
						t.Error(err)
						return
					}
					time.Sleep(100 * time.Microsecond) // readers that spin would leave the writer no processor
					if err := h.Unlock(); err != nil {
						t.Error(err)
						return
					}
				}
			}()
		}
	}
	l := rwlock.New(process(t, s), "k")
	for range 100 {
		w, err := l.Lock(ctx)
		require.NoError(t, err)
		require.NoError(t, w.Unlock())
		time.Sleep(time.Millisecond)
	}
	close(stop)
	for range n {
		<-done
	}
}

// All readers are in at the same time, and Redis knows of one a process, whichever way they came in.
func TestReadersOfAllProcessesAreInsideTogether(t *testing.T) {
	t.Parallel()
	s := redistest.Alone(t)
	var processes []*coordinator.Coordinator
	var inside []rwlock.Hold
	for range 3 {
		c := process(t, s)
		processes = append(processes, c)
		l := rwlock.New(c, "k")
		inside = append(inside, passing(t, c, l))
		for range 20 {
			inside = append(inside, read(t, l))
		}
		ordinary := rwlock.New(c, "k", coordinator.MaxHold(time.Hour)) // the actor counts its time
		for range 3 {
			inside = append(inside, read(t, ordinary))
		}
		k := keyOf(t, c)
		require.Equal(t, 24, k.Readers+len(k.Holds))
		require.Len(t, k.Holds, 3)
		require.Equal(t, "held", k.Phase)
		require.Equal(t, lease.Shared, k.Mode)
		require.EqualValues(t, 1, c.Snapshot().Stats.Leases)
	}
	inRedis := map[string]string{"mode": "read"}
	for _, c := range processes {
		inRedis[keyOf(t, c).Owner] = "1"
	}
	require.Len(t, inRedis, 4)
	require.Equal(t, inRedis, fields(t, s, "k"))
	info := inspect(t, processes[0], "k")
	require.Equal(t, lease.ReadWrite, info.Kind)
	require.Empty(t, info.Waiters)
	var holders []string
	for _, h := range info.Holders {
		require.Equal(t, lease.Shared, h.Mode)
		holders = append(holders, h.Owner)
	}
	delete(inRedis, "mode")
	require.ElementsMatch(t, slices.Collect(maps.Keys(inRedis)), holders)

	newcomer := process(t, s)
	for _, c := range append(processes, newcomer) {
		_, err := rwlock.New(c, "k").TryLock(t.Context())
		require.ErrorIs(t, err, coordinator.ErrNotAcquired)
	}
	for _, h := range inside {
		require.True(t, h.Valid())
		unlock(t, h)
	}
	w := write(t, rwlock.New(newcomer, "k"))
	for _, h := range inside {
		require.Greater(t, w.Token(), h.Token())
	}
	require.Equal(t, map[string]string{"mode": "write", keyOf(t, newcomer).Owner + ":write": "1"}, fields(t, s, "k"))
	unlock(t, w)
}

// A writer is alone, whoever reads and writes in which process. What it writes is no atomic: the race detector looks on
// as well.
func TestWriterIsAloneInAllProcesses(t *testing.T) {
	t.Parallel()
	s := redistest.Alone(t)
	var left, right int       // equal, but while somebody writes
	var newest uint64         // the token of the last write
	var readers atomic.Int32  // inside
	var together atomic.Int32 // the most of them
	var wg sync.WaitGroup
	const writes = 60
	for range 3 {
		l := rwlock.New(process(t, s), "k")
		wg.Go(func() {
			for range writes {
				w, err := l.Lock(t.Context())
				if err != nil {
					t.Error(err)
					return
				}
				if n := readers.Load(); n != 0 {
					t.Errorf("%d readers beside a writer", n)
				}
				if w.Token() <= newest {
					t.Errorf("token %d after %d", w.Token(), newest)
				}
				newest = w.Token()
				left++
				runtime.Gosched()
				right++
				if err := w.Unlock(); err != nil {
					t.Error(err)
				}
				time.Sleep(time.Millisecond) // so that others have something to do
			}
		})
		for range 4 {
			wg.Go(func() {
				for range writes {
					r, err := l.RLock(t.Context())
					if err != nil {
						t.Error(err)
						return
					}
					if n := readers.Add(1); n > together.Load() {
						together.Store(n)
					}
					if left != right || r.Token() < newest {
						t.Errorf("read %d and %d with token %d after %d", left, right, r.Token(), newest)
					}
					runtime.Gosched()
					readers.Add(-1)
					if err := r.Unlock(); err != nil {
						t.Error(err)
					}
					time.Sleep(200 * time.Microsecond)
				}
			})
		}
	}
	wg.Wait()
	require.Equal(t, 3*writes, left)
	require.Equal(t, 3*writes, right)
	require.Greater(t, together.Load(), int32(1))
}

// A process with the write lease serves its readers and writers under it.
func TestWriteLeaseServesTheReadersOfItsProcess(t *testing.T) {
	t.Parallel()
	s := redistest.Alone(t)
	c := process(t, s, coordinator.WithRetention(time.Hour), coordinator.WithTTL(time.Hour))
	l := rwlock.New(c, "k")
	unlock(t, write(t, l))
	owner := keyOf(t, c).Owner
	inRedis := map[string]string{"mode": "write", owner + ":write": "1"}
	before := sent(c)
	for range 20 {
		first, second := read(t, l), read(t, l)
		require.Equal(t, first.Token(), second.Token())
		require.Equal(t, inRedis, fields(t, s, "k"))
		unlock(t, first, second)
		w := write(t, l)
		require.Greater(t, w.Token(), second.Token())
		unlock(t, w)
	}
	require.Equal(t, inRedis, fields(t, s, "k"))
	require.EqualValues(t, 1, c.Snapshot().Stats.Leases)
	eventually(t, "nothing but renewals", func() bool { return sent(c) == before })
}

func TestWriteLeaseServesItsProcessWithNoCommand(t *testing.T) {
	bubble(t, func(t *testing.T, h *coordinatortest.Harness) {
		l := rwlock.New(h.Coordinator, "k")
		unlock(t, write(t, l))
		for range 10 {
			// Within a turn's tokens, of which the next block would be asked for ahead of need.
			readers := []rwlock.Hold{read(t, l), read(t, l), read(t, l)}
			waiting := begin(t, l.Lock)
			waiters(t, h.Coordinator, 1)
			behind := begin(t, l.RLock)
			waiters(t, h.Coordinator, 2)
			unlock(t, readers...)
			w := waiting.granted(t)
			behind.waits(t)
			unlock(t, w)
			unlock(t, behind.granted(t))
		}
		stats := h.Coordinator.Snapshot().Stats
		require.EqualValues(t, 1, stats.Commands)
		require.EqualValues(t, 51, stats.Grants)
	}, coordinator.WithHandoff(1000, time.Hour))
}
