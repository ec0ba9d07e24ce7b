package rwlock_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/go-leasehold/leasehold/coordinator"
	"github.com/go-leasehold/leasehold/coordinator/coordinatortest"
	"github.com/go-leasehold/leasehold/internal/redistest"
	"github.com/go-leasehold/leasehold/rwlock"
)

// Readers that wait behind a writer are let in together, in all processes, by that writer's one release, and do not
// wait for the next writer, also where that one came before some of them.
func TestReadersBehindAWriterComeInTogether(t *testing.T) {
	t.Parallel()
	s := redistest.Alone(t)
	a, b, d := process(t, s), process(t, s), process(t, s)
	watcher := process(t, s)
	w := write(t, rwlock.New(a, "k"))
	var readers []*pending
	comeToRead := func(c *coordinator.Coordinator) {
		l := rwlock.New(c, "k")
		for n := range 4 {
			readers = append(readers, begin(t, l.RLock))
			waiters(t, c, n+1)
		}
	}
	comeToRead(a) // which needs no place in the queue
	comeToRead(b)
	queued(t, watcher, "k", 1)
	next := begin(t, rwlock.New(watcher, "k").Lock)
	queued(t, watcher, "k", 2)
	local := begin(t, rwlock.New(b, "k").Lock)
	waiters(t, b, 5)
	comeToRead(d)
	queued(t, watcher, "k", 3)

	unlock(t, w)
	var inside []rwlock.Hold
	for _, r := range readers {
		inside = append(inside, r.granted(t))
	}
	next.waits(t)
	local.waits(t)
	for _, h := range inside {
		require.True(t, h.Valid()) // all at the same time
		require.GreaterOrEqual(t, h.Token(), w.Token())
	}
	for _, c := range []*coordinator.Coordinator{b, d} {
		require.EqualValues(t, 1, c.Snapshot().Stats.Leases, "one for all the readers of a process")
	}
	unlock(t, inside...)
	w2 := next.granted(t)
	local.waits(t)
	unlock(t, w2)
	unlock(t, local.granted(t))
}

// Readers wait for one writer at most, also where another one came between them: all that wait when a writer leaves
// come in next.
func TestReadersOnBothSidesOfAWaitingWriter(t *testing.T) {
	bubble(t, func(t *testing.T, h *coordinatortest.Harness) {
		w := write(t, rwlock.New(h.Coordinator, "k"))
		first := begin(t, rwlock.New(h.Another(), "k").RLock)
		synctest.Wait()
		next := begin(t, rwlock.New(h.Another(), "k").Lock)
		synctest.Wait()
		second := begin(t, rwlock.New(h.Another(), "k").RLock)
		synctest.Wait()
		unlock(t, w)
		synctest.Wait()
		next.waits(t)
		h1, h2 := first.granted(t), second.granted(t)
		unlock(t, h1, h2)
		unlock(t, next.granted(t))
	})
}

// A writer that waits anywhere stops new readers everywhere; those inside stay as long as they like.
func TestAWaitingWriterStopsNewReadersEverywhere(t *testing.T) {
	t.Parallel()
	s := redistest.Alone(t)
	a, b, d := process(t, s), process(t, s), process(t, s)
	newcomer := process(t, s)
	ra, rb := passing(t, a, rwlock.New(a, "k")), read(t, rwlock.New(b, "k"))
	writer := begin(t, rwlock.New(d, "k").Lock)
	queued(t, newcomer, "k", 1)
	wanted(t, a)
	wanted(t, b)
	everywhere := []*coordinator.Coordinator{a, b, d, newcomer}
	for _, c := range everywhere {
		_, err := rwlock.New(c, "k").TryRLock(t.Context())
		require.ErrorIs(t, err, coordinator.ErrNotAcquired)
	}
	var readers []*pending
	for i, c := range everywhere {
		readers = append(readers, begin(t, rwlock.New(c, "k").RLock))
		waiters(t, c, []int{1, 1, 2, 1}[i])
	}
	require.True(t, ra.Valid())
	unlock(t, ra)
	for _, p := range append(readers, writer) {
		p.waits(t)
	}
	unlock(t, rb)
	w := writer.granted(t)
	require.Greater(t, w.Token(), max(ra.Token(), rb.Token()))
	for _, p := range readers {
		p.waits(t)
	}
	unlock(t, w)
	var inside []rwlock.Hold
	for _, p := range readers {
		inside = append(inside, p.granted(t))
	}
	for _, h := range inside {
		require.True(t, h.Valid())
	}
	unlock(t, inside...)
}

// The same within one process, where Redis has no part in it.
func TestAWaitingWriterStopsNewReadersOfItsProcess(t *testing.T) {
	bubble(t, func(t *testing.T, h *coordinatortest.Harness) {
		l := rwlock.New(h.Coordinator, "k")
		first := passing(t, h.Coordinator, l)
		writer := begin(t, l.Lock)
		synctest.Wait()
		_, err := l.TryRLock(t.Context())
		require.ErrorIs(t, err, coordinator.ErrNotAcquired)
		late := []*pending{begin(t, l.RLock), begin(t, l.RLock)}
		synctest.Wait()
		next := begin(t, l.Lock)
		synctest.Wait()
		unlock(t, first)
		w := writer.granted(t)
		synctest.Wait()
		late[0].waits(t)
		late[1].waits(t)
		unlock(t, w)
		h0, h1 := late[0].granted(t), late[1].granted(t)
		synctest.Wait()
		next.waits(t)
		unlock(t, h0, h1)
		unlock(t, next.granted(t))
		require.Zero(t, h.Coordinator.Snapshot().Stats.Lost)
	})
}

// A writer that asked and went away is nobody to wait for: readers come in again soon, not at the next renewal.
func TestAWriterThatWentAwayStopsNobodyForLong(t *testing.T) {
	for name, try := range map[string]func(ctx context.Context, l *rwlock.Lock) (rwlock.Hold, error){
		"TryLock":    func(ctx context.Context, l *rwlock.Lock) (rwlock.Hold, error) { return l.TryLock(ctx) },
		"TryLockFor": func(ctx context.Context, l *rwlock.Lock) (rwlock.Hold, error) { return l.TryLockFor(ctx, time.Second) },
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T, h *coordinatortest.Harness) {
				l := rwlock.New(h.Coordinator, "k")
				inside := passing(t, h.Coordinator, l)
				_, err := try(t.Context(), rwlock.New(h.Another(), "k"))
				require.ErrorIs(t, err, coordinator.ErrNotAcquired)
				began := time.Now()
				unlock(t, read(t, l))
				require.Less(t, time.Since(began), time.Second)
				unlock(t, inside)
			})
		})
	}
}

// A reader that came in re-entrantly needs no turn: the writer that waits would wait for it.
func TestAnOwnerReadsAgainThoughAWriterWaits(t *testing.T) {
	bubble(t, func(t *testing.T, h *coordinatortest.Harness) {
		l := rwlock.New(h.Coordinator, "k")
		first := passing(t, h.Coordinator, l)
		here, elsewhere := begin(t, l.Lock), h.Contend("k", coordinatortest.AsWriter)
		synctest.Wait()
		second, err := l.RLock(first.Context())
		require.NoError(t, err)
		require.Equal(t, 2, second.Count())
		third, err := l.TryRLock(second.Context())
		require.NoError(t, err)
		unlock(t, first, third, second)
		<-elsewhere.Granted()
		elsewhere.Release()
		unlock(t, here.granted(t))
	})
}

// A key is a mutex or a read/write lock, not both at a time, within a process and between two.
func TestKeyOfTheOtherKind(t *testing.T) {
	t.Parallel()
	s := redistest.Alone(t)
	a, b := process(t, s), process(t, s)
	for _, c := range []*coordinator.Coordinator{a, b} {
		l := rwlock.New(c, "k")
		m, err := a.Mutex("k").Lock(t.Context())
		require.NoError(t, err)
		before := fields(t, s, "k")
		for _, ask := range []func() (rwlock.Hold, error){
			func() (rwlock.Hold, error) { return l.RLock(t.Context()) },
			func() (rwlock.Hold, error) { return l.Lock(t.Context()) },
			func() (rwlock.Hold, error) { return l.TryRLock(t.Context()) },
			func() (rwlock.Hold, error) { return l.TryLock(t.Context()) },
			func() (rwlock.Hold, error) { return l.TryRLockFor(t.Context(), patience) },
			func() (rwlock.Hold, error) { return l.TryLockFor(t.Context(), patience) },
		} {
			_, err := ask()
			require.ErrorIs(t, err, coordinator.ErrKind)
			var wait *coordinator.WaitError
			require.ErrorAs(t, err, &wait)
			require.Equal(t, "k", wait.Key)
		}
		require.Equal(t, before, fields(t, s, "k"))
		require.NoError(t, m.Unlock())
		eventually(t, "the mutex is free", func() bool { return len(fields(t, s, "k")) == 0 })

		for _, hold := range []rwlock.Hold{read(t, rwlock.New(a, "k")), passing(t, a, rwlock.New(a, "k"))} {
			_, err = c.Mutex("k").Lock(t.Context())
			require.ErrorIs(t, err, coordinator.ErrKind)
			_, err = c.Mutex("k").TryLock(t.Context())
			require.ErrorIs(t, err, coordinator.ErrKind)
			require.True(t, hold.Valid())
			unlock(t, hold)
		}
		w := write(t, rwlock.New(a, "k"))
		_, err = c.Mutex("k").TryLock(t.Context())
		require.ErrorIs(t, err, coordinator.ErrKind)
		unlock(t, w)
		eventually(t, "the read/write lock is free", func() bool { return len(fields(t, s, "k")) == 0 })
	}

	// In the process that merely keeps the lease the key changes its use at once.
	unlock(t, write(t, rwlock.New(a, "k")))
	m, err := a.Mutex("k").Lock(t.Context())
	require.NoError(t, err)
	require.NoError(t, m.Unlock())
	unlock(t, read(t, rwlock.New(a, "k")))

	s.Do(t, "SET", "lock:text", "a user's own")
	_, err = rwlock.New(a, "text").RLock(t.Context())
	require.ErrorIs(t, err, coordinator.ErrKind)
	text := s.Do(t, "GET", "lock:text")
	kept, err := text.ToString()
	require.NoError(t, err)
	require.Equal(t, "a user's own", kept)
}
