package faulttest

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/go-leasehold/leasehold/coordinator"
	"github.com/go-leasehold/leasehold/internal/faults"
	"github.com/go-leasehold/leasehold/internal/redistest"
)

// B5: a thousand contended keys need no more connections and no more channels than one.
func TestManyContendedKeysShareOneSubscription(t *testing.T) {
	t.Parallel()
	const keys = 1000
	s := redistest.Start(t)
	s.Do(t, "PING") // opens the connection that asks
	alone := len(clients(t, s))
	p1, p2 := process(t, s.Addr(), coordinator.WithRetention(0)), process(t, s.Addr())
	connections, inboxes := len(clients(t, s)), channels(t, s)
	require.Equal(t, alone+2, connections, "one of each process")
	require.Len(t, inboxes, 2, "one inbox of each process")

	var holds []*coordinator.Hold
	for i := range keys {
		holds = append(holds, take(t, p1.Mutex(fmt.Sprint("k", i))))
	}
	ctx, cancel := context.WithTimeout(t.Context(), hangs)
	defer cancel()
	var waiting sync.WaitGroup
	for i := range keys {
		waiting.Go(func() {
			hold, err := p2.Mutex(fmt.Sprint("k", i)).Lock(ctx)
			if err == nil {
				err = hold.Unlock()
			}
			if err != nil {
				t.Error(err)
			}
		})
	}
	eventually(t, hangs, "everybody is in a queue", func() bool {
		n := 0
		for _, k := range p2.Snapshot().Keys {
			if k.Phase == "queued" {
				n++
			}
		}
		return n == keys
	})
	require.Len(t, clients(t, s), connections)
	require.Equal(t, inboxes, channels(t, s))
	for _, hold := range holds {
		require.NoError(t, hold.Unlock())
	}
	within(t, soon, "everybody has had its key", waiting.Wait)
	require.Len(t, clients(t, s), connections)
	require.NoError(t, shut(p1))
	require.NoError(t, shut(p2))
	require.Empty(t, channels(t, s), "nothing is left behind")
}

// B5: one subscribe fails; the failure is not kept for whoever comes after, and the waiter at hand is not forgotten.
func TestFailedSubscribeIsTriedAgain(t *testing.T) {
	t.Parallel()
	for name, failure := range map[string]faults.Action{
		"refused": faults.Fail("ERR no free subscription"), "cut": faults.Cut, "unanswered": faults.DropReply,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := redistest.Start(t)
			p1 := process(t, s.Addr(), coordinator.WithRetention(0))
			proxy := faults.NewProxy(t, s.Addr())
			p2 := process(t, proxy.Addr())
			for range rounds(5, 200) {
				hold := take(t, p1.Mutex("k"))
				waiting := lockLater(t.Context(), p2.Mutex("k"))
				awaitQueue(t, p1, "k", 1)
				failed := failOneSubscribe(proxy, failure)
				proxy.Reset()
				await(t, failed, hangs, "the failure")
				require.NoError(t, hold.Unlock())
				got := await(t, waiting, soon, "the waiter at hand")
				require.NoError(t, got.err)

				again := lockLater(t.Context(), p1.Mutex("k"))
				awaitQueue(t, p1, "k", 1)
				require.NoError(t, got.hold.Unlock())
				second := await(t, again, soon, "the other side")
				require.NoError(t, second.err)
				waiting = lockLater(t.Context(), p2.Mutex("k"))
				awaitQueue(t, p1, "k", 1)
				require.NoError(t, second.hold.Unlock())
				got = await(t, waiting, soon, "the second try")
				require.NoError(t, got.err)
				require.NoError(t, got.hold.Unlock())
			}
			require.Len(t, channels(t, s), 2)
		})
	}
}

// failOneSubscribe does that to the next SUBSCRIBE through the proxy, and tells when.
func failOneSubscribe(p *faults.Proxy, failure faults.Action) <-chan struct{} {
	done := make(chan struct{})
	var once atomic.Bool
	p.OnCommand(func(cmd []string) faults.Action {
		if faults.Is("subscribe")(cmd) && once.CompareAndSwap(false, true) {
			close(done)
			return failure
		}
		return faults.Pass
	})
	return done
}

// channels are the channels that somebody is subscribed to.
func channels(t testing.TB, s *redistest.Server) []string {
	t.Helper()
	message := s.Do(t, "PUBSUB", "CHANNELS")
	names, err := message.AsStrSlice()
	require.NoError(t, err)
	for _, name := range names {
		require.True(t, strings.HasPrefix(name, "lock:~inbox:"), name)
	}
	return names
}
