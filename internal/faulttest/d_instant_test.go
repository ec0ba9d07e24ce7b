package faulttest

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/go-leasehold/leasehold/coordinator"
	"github.com/go-leasehold/leasehold/internal/faults"
	"github.com/go-leasehold/leasehold/internal/redistest"
)

// D9: the store says "not yours" at the instant of Unlock. There is exactly one final state, told the same way by
// Unlock and by the context, at most one loss, and nothing that goes on.
func TestLossAtTheInstantOfUnlockHasOneOutcome(t *testing.T) {
	t.Parallel()
	const together = 100
	server := redistest.Start(t)
	proxy := faults.NewProxy(t, server.Addr())
	net := listen(proxy)
	log, logged := logTo()
	c := steady(t, proxy.Addr(), ours(2*time.Second, logged)...)
	var released, lost atomic.Int64
	for round := range rounds(5, 100) {
		names := make([]string, together)
		holds := make([]*coordinator.Hold, together)
		signals := make([]atomic.Int32, together)
		before := stats(c).Renewals
		for i := range holds {
			names[i] = fmt.Sprintf("%d-%d", round, i)
			holds[i] = grab(t, c.Mutex(names[i]))
			context.AfterFunc(holds[i].Context(), func() { signals[i].Add(1) })
		}
		// Each hold is looked at with tracking once; from then on a deletion is heard at once.
		eventually(t, hangs, "the first looks", func() bool { return stats(c).Renewals >= before+together })
		refused := renewed(proxy, names)
		deleteAt(t, server, names, func() { unlockAll(t, holds, refused, &released, &lost) })
		eventually(t, hangs, "nothing left to do", func() bool { return len(c.Snapshot().Keys) == 0 })
		eventually(t, hangs, "the signals", func() bool {
			for i := range signals {
				if signals[i].Load() == 0 {
					return false
				}
			}
			return true
		})
		for i := range signals {
			require.EqualValues(t, 1, signals[i].Load())
		}
	}
	t.Logf("%d released, %d lost", released.Load(), lost.Load())
	require.EqualValues(t, lost.Load(), stats(c).Lost)
	require.LessOrEqual(t, int64(strings.Count(log.String(), "lease lost under its holders")), lost.Load())
	staysQuiet(t, net, time.Second, takes, "a command after everything ended")
	require.Empty(t, leftovers(t, server))
}

// deleteAt deletes the locks while fn runs.
func deleteAt(t *testing.T, s *redistest.Server, names []string, fn func()) {
	keys := []string{"DEL"}
	for _, name := range names {
		keys = append(keys, "lock:"+name)
	}
	deleted := make(chan error, 1)
	go func() {
		_, err := s.DoErr(keys...)
		deleted <- err
	}()
	fn()
	require.NoError(t, await(t, deleted, hangs, "the deletion"))
}

// renewed has a channel for each lock, closed when the server has next answered its renewal, and the answer is on
// its way.
func renewed(p *faults.Proxy, names []string) map[string]chan struct{} {
	answered := map[string]chan struct{}{}
	once := map[string]*sync.Once{}
	for _, name := range names {
		answered[name], once[name] = make(chan struct{}), &sync.Once{}
	}
	p.OnReply(func(cmd []string) faults.Action {
		if is("renew")(cmd) {
			if name := strings.TrimPrefix(nameIn(cmd), "lock:"); answered[name] != nil {
				once[name].Do(func() { close(answered[name]) })
			}
		}
		return faults.Pass
	})
	return answered
}

// unlockAll unlocks each hold from two goroutines at the same time, about when it is refused, and checks what they
// are told.
func unlockAll(t *testing.T, holds []*coordinator.Hold, refused map[string]chan struct{}, released, lost *atomic.Int64) {
	var all sync.WaitGroup
	for _, hold := range holds {
		all.Go(func() {
			<-refused[hold.Key()]
			time.Sleep(rand.N(2 * time.Millisecond))
			var pair sync.WaitGroup
			var said [2]error
			for i := range said {
				pair.Go(func() { said[i] = hold.Unlock() })
			}
			pair.Wait()
			judge(t, hold, said, released, lost)
		})
	}
	all.Wait()
	if t.Failed() {
		t.FailNow()
	}
}

// judge checks that all that a hold says agrees.
func judge(t *testing.T, hold *coordinator.Hold, said [2]error, released, lost *atomic.Int64) {
	cause := context.Cause(hold.Context())
	if said[1] == nil {
		said[0], said[1] = said[1], said[0]
	}
	switch {
	case said[0] == nil && errors.Is(said[1], coordinator.ErrNotHeld):
		released.Add(1)
		if !errors.Is(cause, coordinator.ErrReleased) {
			t.Errorf("%s: unlocked, and its context says %v", hold.Key(), cause)
		}
	case errors.Is(said[0], coordinator.ErrLeaseLost) && errors.Is(said[1], coordinator.ErrLeaseLost):
		lost.Add(1)
		<-hold.Context().Done() // ends a moment after the hold: whoever ended it is about to
		if cause = context.Cause(hold.Context()); !errors.Is(cause, coordinator.ErrLeaseLost) {
			t.Errorf("%s: lost, and its context says %v", hold.Key(), cause)
		}
	default:
		t.Errorf("%s: two Unlocks said %v and %v", hold.Key(), said[0], said[1])
	}
	if hold.Valid() || hold.Count() != 0 {
		t.Errorf("%s: valid %t, count %d after Unlock", hold.Key(), hold.Valid(), hold.Count())
	}
}
