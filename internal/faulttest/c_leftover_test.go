package faulttest

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/go-leasehold/leasehold/coordinator"
	"github.com/go-leasehold/leasehold/internal/faults"
	"github.com/go-leasehold/leasehold/internal/redistest"
)

// forever watches the keyspace for names of locks without an expiry, until told to stop.
type forever struct {
	quit chan struct{}
	done sync.WaitGroup
	mu   sync.Mutex
	seen map[string]bool
}

func watchForever(t *testing.T, s *redistest.Server) *forever {
	t.Helper()
	client := s.Client(t)
	w := &forever{quit: make(chan struct{}), seen: map[string]bool{}}
	// One script a look: no other command can come between KEYS and PTTL.
	const script = `local bad = {}
for _, name in ipairs(redis.call('KEYS', 'lock:*')) do
  if redis.call('PTTL', name) == -1 then bad[#bad + 1] = name end
end
return bad`
	w.done.Go(func() {
		for {
			select {
			case <-w.quit:
				return
			case <-time.After(time.Millisecond):
			}
			bad, err := client.Do(context.Background(), client.B().Eval().Script(script).Numkeys(0).Build()).AsStrSlice()
			if err != nil {
				t.Error(err)
				return
			}
			w.mu.Lock()
			for _, name := range bad {
				w.seen[name] = true
			}
			w.mu.Unlock()
		}
	})
	return w
}

func (w *forever) requireNone(t *testing.T) {
	t.Helper()
	close(w.quit)
	w.done.Wait()
	require.Empty(t, w.seen, "names without an expiry")
}

// C2: a client is killed just before the server runs one of its commands, or just after: whichever it was, nothing
// without an expiry is seen at any moment, and everything is free when the lease has ended.
func TestClientKilledAtAnyStepLeavesNothingForEver(t *testing.T) {
	t.Parallel()
	const ttl = 800 * time.Millisecond
	for _, step := range []string{"acquire", "renew", "release"} {
		for _, when := range []string{"before", "after"} {
			t.Run(when+" "+step, func(t *testing.T) {
				t.Parallel()
				for range rounds(1, 20) {
					killedAt(t, step, when, ttl)
				}
			})
		}
	}
}

func killedAt(t *testing.T, step, when string, ttl time.Duration) {
	t.Helper()
	s := redistest.Start(t)
	warm(t, s)
	proxy := faults.NewProxy(t, s.Addr())
	p1 := startPeer(t, proxy.Addr(), s.Addr(), ttl)
	p2 := process(t, s.Addr())
	watched := watchForever(t, s)
	killed := killOn(proxy, p1.Child, step, when)
	p1.Send("lock k")
	if step == "release" {
		p1.took(t)
		p1.Send("unlock k")
	}
	await(t, killed, hangs, "the kill")
	dead := time.Now()
	held := pttl(t, s, "lock:k") > 0
	require.Equal(t, (step != "acquire" || when == "after") && (step != "release" || when == "before"), held, "the step was taken")
	<-p1.Done()
	hold := take(t, p2.Mutex("k"))
	require.Less(t, time.Since(dead), ttl+soon, "free when the lease has ended")
	require.NoError(t, hold.Unlock())
	eventually(t, ttl+soon, "nothing is left", func() bool { return len(leftovers(t, s)) == 0 })
	watched.requireNone(t)
}

// killOn kills the child at the first command of a kind through its proxy, and tells when.
func killOn(p *faults.Proxy, child *faults.Child, step, when string) <-chan struct{} {
	done := make(chan struct{})
	var once sync.Once
	hook := func(cmd []string) faults.Action {
		if verb(cmd) != step {
			return faults.Pass
		}
		once.Do(func() {
			child.Kill()
			close(done)
		})
		return faults.Cut
	}
	if when == "before" {
		p.OnCommand(hook)
	} else {
		p.OnReply(hook)
	}
	return done
}

// C2, with somebody in the queue: the holder dies in the middle of passing the key on.
func TestHolderKilledInTheMiddleOfAHandOffLeavesTheKeyToTheNext(t *testing.T) {
	t.Parallel()
	const ttl = 800 * time.Millisecond
	for _, when := range []string{"before", "after"} {
		t.Run(when, func(t *testing.T) {
			t.Parallel()
			s := redistest.Start(t)
			warm(t, s)
			proxy := faults.NewProxy(t, s.Addr())
			p1 := startPeer(t, proxy.Addr(), s.Addr(), ttl)
			p2 := process(t, s.Addr())
			watched := watchForever(t, s)
			token := p1.take(t, "k")
			waiting := lockLater(t.Context(), p2.Mutex("k"))
			awaitQueue(t, p2, "k", 1)
			killed := killOn(proxy, p1.Child, "release", when)
			p1.Send("unlock k")
			await(t, killed, hangs, "the kill")
			got := await(t, waiting, ttl+soon, "the next")
			require.NoError(t, got.err)
			require.Greater(t, got.hold.Token(), token)
			require.NoError(t, got.hold.Unlock())
			eventually(t, ttl+soon, "nothing is left", func() bool { return len(leftovers(t, s)) == 0 })
			watched.requireNone(t)
		})
	}
}

// C3: a hundred waits run out of time, a hundred are cancelled, and then the holder crashes: a lease later nothing is
// left but the token counter, and that for its retention.
func TestHelperKeysDoNotOutliveTheLock(t *testing.T) {
	t.Parallel()
	const ttl = 1800 * time.Millisecond
	const retention = 10 * time.Second
	s := redistest.Start(t)
	p1 := startPeer(t, s.Addr(), s.Addr(), ttl)
	var others []*coordinator.Coordinator
	for range 4 {
		others = append(others, process(t, s.Addr(), coordinator.WithTTL(retention), coordinator.WithTokenRetention(retention)))
	}
	p1.take(t, "k")
	ctx, cancel := context.WithCancel(t.Context())
	var waiting sync.WaitGroup
	fails := func(lock func() (*coordinator.Hold, error), want error) {
		waiting.Go(func() {
			if _, err := lock(); !oneOf(err, want, coordinator.ErrUnavailable) { // the latter on a machine that stalls
				t.Error(err)
			}
		})
	}
	for i := range 100 {
		m := others[i%len(others)].Mutex("k")
		fails(func() (*coordinator.Hold, error) { return m.Lock(ctx) }, context.Canceled)
		fails(func() (*coordinator.Hold, error) { return m.TryLockFor(t.Context(), 300*time.Millisecond) }, coordinator.ErrNotAcquired)
	}
	awaitQueue(t, others[0], "k", len(others))
	require.NotEmpty(t, s.Keys(t, "lock:~queue*"))
	time.AfterFunc(400*time.Millisecond, cancel)
	within(t, hangs, "all waits end", waiting.Wait)
	p1.Kill()
	last := time.Now()

	eventually(t, hangs, "nothing is left", func() bool { return len(leftovers(t, s)) == 0 })
	require.Less(t, time.Since(last), ttl+ttl/2, "a lease later, and something for a slow machine")
	for _, name := range s.Keys(t, "*") {
		require.Positive(t, pttl(t, s, name), name)
		require.LessOrEqual(t, pttl(t, s, name), retention, name)
		require.Contains(t, name, "~token")
	}
	eventually(t, hangs, "the counters go too", func() bool { return len(s.Keys(t, "*")) == 0 })
	require.Less(t, time.Since(last), ttl+soon, "of the peer's own retention")
}

// C4: ten thousand waiters whose callers go away leave at once, without a turn, here and in Redis.
func TestCancelledWaitersLeaveAtOnceWithoutATurn(t *testing.T) {
	t.Parallel()
	waiters := rounds(2000, 10_000)
	s := redistest.Start(t)
	p1, p2 := process(t, s.Addr(), coordinator.WithRetention(0)), process(t, s.Addr())
	hold := take(t, p1.Mutex("k"))
	ctx, cancel := context.WithCancel(t.Context())
	m := p2.Mutex("k")
	var all sync.WaitGroup
	for range waiters {
		all.Go(func() {
			if _, err := m.Lock(ctx); !oneOf(err, context.Canceled) || !oneOf(err, coordinator.ErrNotAcquired) {
				t.Error(fmt.Errorf("cancelled, and: %w", err))
			}
		})
	}
	eventually(t, hangs, "everybody waits", func() bool { return localWaiters(p2, "k") == waiters })
	awaitQueue(t, p1, "k", 1)
	grants := stats(p2).Grants
	cancel()
	within(t, soon, "everybody leaves", all.Wait)
	require.Equal(t, grants, stats(p2).Grants, "nobody took a turn")
	require.Zero(t, localWaiters(p2, "k"))
	awaitQueue(t, p1, "k", 0)
	eventually(t, soon, "the key is forgotten", func() bool { return len(p2.Snapshot().Keys) == 0 })
	require.NoError(t, hold.Unlock())
	begin := time.Now()
	require.NoError(t, take(t, p2.Mutex("k")).Unlock())
	require.Less(t, time.Since(begin), soon)
}

// C4: a queue that is full says so at once; whoever is in it is served.
func TestFullQueueTurnsAwayAtOnce(t *testing.T) {
	t.Parallel()
	const limit, callers = 100, 1000
	s := redistest.Start(t)
	p1 := process(t, s.Addr(), coordinator.WithRetention(0))
	p2 := process(t, s.Addr(), coordinator.WithMaxWaiters(limit))
	hold := take(t, p1.Mutex("k"))
	full, served := make(chan error, callers), make(chan error, callers)
	for range callers {
		go func() { // ends with its wait
			h, err := p2.Mutex("k").Lock(t.Context())
			if err != nil {
				full <- err
				return
			}
			served <- h.Unlock()
		}()
	}
	for range callers - limit {
		require.ErrorIs(t, await(t, full, soon, "the refusal"), coordinator.ErrTooManyWaiters)
	}
	require.Equal(t, limit, localWaiters(p2, "k"))
	require.NoError(t, hold.Unlock())
	for range limit {
		require.NoError(t, await(t, served, soon, "a turn"))
	}
	require.Empty(t, full)
	require.NoError(t, take(t, p2.Mutex("k")).Unlock(), "the queue has room again")
}
