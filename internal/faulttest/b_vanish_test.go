package faulttest

import (
	"context"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/go-leasehold/leasehold/coordinator"
	"github.com/go-leasehold/leasehold/internal/redistest"
)

// B2: the key vanishes without a release: nobody is told by a message, and still the queue moves.
func TestQueueMovesWhenTheKeyVanishesWithoutARelease(t *testing.T) {
	t.Parallel()
	for name, vanish := range map[string]struct {
		how  func(t *testing.T, s *redistest.Server, holder *peer)
		told bool // the holder lives, and has to be told
	}{
		"deleted": {func(t *testing.T, s *redistest.Server, _ *peer) { s.Do(t, "DEL", "lock:k") }, true},
		"flushed": {func(t *testing.T, s *redistest.Server, _ *peer) { s.Do(t, "FLUSHALL") }, true},
		"killed":  {func(_ *testing.T, _ *redistest.Server, holder *peer) { holder.Kill() }, false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			const ttl = 2 * time.Second
			s := redistest.Start(t)
			p1 := startPeer(t, s.Addr(), s.Addr(), ttl)
			p2 := process(t, s.Addr(), coordinator.WithTTL(ttl))
			token := p1.take(t, "k")
			p1.ask(t, "watch k", "watching")
			c := gather(t, p2, "k", 50)
			awaitQueue(t, p2, "k", 1)
			time.Sleep(150 * time.Millisecond) // by now both sides have looked with tracking
			vanish.how(t, s, p1)
			gone := time.Now()
			first := await(t, c.entered, hangs, "the first of the waiters")
			require.Less(t, first.at.Sub(gone), ttl+ttl/2, "the remaining lease at most, and something for a slow machine")
			require.Greater(t, first.token, token)
			within(t, hangs, "the rest drains", c.all.Wait)
			require.EqualValues(t, 1, c.most.Load(), "one by one")
			require.EqualValues(t, 50, c.done.Load())
			if vanish.told {
				require.Equal(t, "lost", p1.lost(t, "k").cause)
				require.Equal(t, "k lost", p1.ask(t, "unlock k", "unlocked"))
			}
		})
	}
}

// entry is a waiter's moment of coming in.
type entry struct {
	at    time.Time
	token uint64
}

// crowd are goroutines of one process that wait for a key, each to hold it once.
type crowd struct {
	all          sync.WaitGroup
	entered      chan entry
	inside, most atomic.Int64
	done         atomic.Int64
}

func gather(t *testing.T, c *coordinator.Coordinator, key string, n int) *crowd {
	t.Helper()
	w := &crowd{entered: make(chan entry, n)}
	m := c.Mutex(key)
	for range n {
		w.all.Go(func() {
			ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
			defer cancel()
			hold, err := m.Lock(ctx)
			if err != nil {
				t.Error(err)
				return
			}
			w.entered <- entry{time.Now(), hold.Token()}
			inside := w.inside.Add(1)
			for most := w.most.Load(); inside > most && !w.most.CompareAndSwap(most, inside); most = w.most.Load() {
			}
			time.Sleep(time.Millisecond)
			w.inside.Add(-1)
			w.done.Add(1)
			if err := hold.Unlock(); err != nil {
				t.Error(err)
			}
		})
	}
	eventually(t, hangs, "everybody waits", func() bool { return localWaiters(c, key) == n })
	return w
}
