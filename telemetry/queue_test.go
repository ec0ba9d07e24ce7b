package telemetry

import (
	"context"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
)

func newQueue() (*queue, *atomic.Int64) {
	dropped := new(atomic.Int64)
	return &queue{dropped: dropped}, dropped
}

func TestQueueRunsInOrderAndSurvivesPanics(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q, dropped := newQueue()
		var ran []int
		for i := range 10 {
			q.put(func() {
				if i == 3 {
					panic("a receiver")
				}
				ran = append(ran, i)
			})
		}
		require.NoError(t, q.flush(t.Context()))
		require.Equal(t, []int{0, 1, 2, 4, 5, 6, 7, 8, 9}, ran)
		require.Equal(t, int64(1), dropped.Load())
		closeQueues(time.Second, q)
	})
}

func TestQueueThatIsFullDropsAndCounts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q, dropped := newQueue()
		hang := make(chan struct{})
		ran := 0
		q.put(func() { <-hang })
		synctest.Wait()
		begun := time.Now()
		for range queueSize + 7 {
			q.put(func() { ran++ })
		}
		require.Equal(t, int64(7), dropped.Load())
		require.Equal(t, begun, time.Now(), "it made who puts something in wait")

		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		require.ErrorIs(t, q.flush(ctx), context.DeadlineExceeded)
		close(hang)
		require.NoError(t, q.flush(t.Context()))
		require.Equal(t, queueSize, ran)
		closeQueues(time.Second, q)
	})
}

func TestQueuesCloseWithinTheirGrace(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		hangs, _ := newQueue()
		other, _ := newQueue()
		unused, dropped := newQueue()
		hang := make(chan struct{})
		hangs.put(func() { <-hang })
		synctest.Wait()
		var ran atomic.Bool
		other.put(func() { ran.Store(true) })
		begun := time.Now()
		closeQueues(time.Second, hangs, other, unused)
		require.Equal(t, time.Second, time.Since(begun))
		require.True(t, ran.Load(), "what is left is run")
		unused.put(func() {})
		require.Equal(t, int64(1), dropped.Load())
		require.NoError(t, unused.flush(t.Context()))
		require.NoError(t, other.flush(t.Context()), "a flush after the end does not hang")
		close(hang)
		synctest.Wait() // its goroutine ends
	})
}

// TestQueueTakesFromMany while it is flushed and closed.
func TestQueueTakesFromMany(t *testing.T) {
	q, dropped := newQueue()
	var ran atomic.Int64
	done := make(chan struct{})
	const callers, each = 8, 2000
	for range callers {
		go func() {
			for range each {
				q.put(func() { ran.Add(1) })
			}
			done <- struct{}{}
		}()
	}
	for range callers {
		require.NoError(t, q.flush(t.Context()))
		<-done
	}
	require.NoError(t, q.flush(t.Context()))
	require.Equal(t, int64(callers*each), ran.Load()+dropped.Load())
	closeQueues(time.Second, q)
}

func TestRootsAreAsManyAsAllowed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		take := func(r *roots) (n int) {
			for r.left() {
				if !r.take() {
					require.Fail(t, "there was one left")
				}
				n++
			}
			require.False(t, r.take())
			return n
		}
		r := &roots{perSecond: 10, base: time.Now()}
		require.Equal(t, 10, take(r))
		time.Sleep(time.Second / 10)
		require.Equal(t, 1, take(r))
		time.Sleep(time.Second / 2)
		require.Equal(t, 5, take(r))
		time.Sleep(time.Hour)
		require.Equal(t, 10, take(r), "they are not saved up")
		none := &roots{base: time.Now()}
		require.Zero(t, take(none))
	})
}

// TestRootsAreSharedByMany: together they have no more than one would.
func TestRootsAreSharedByMany(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := &roots{perSecond: 1000, base: time.Now()}
		var taken atomic.Int64
		done := make(chan struct{})
		for range 8 {
			go func() {
				for range 1000 {
					if r.take() {
						taken.Add(1)
					}
				}
				done <- struct{}{}
			}()
		}
		for range 8 {
			<-done
		}
		require.Equal(t, int64(1000), taken.Load())
	})
}
