package lockz

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/go-leasehold/leasehold/lease"
)

// Keys are asked about at the same time; those without an answer in time are not
// waited for, whatever the store does.
func TestInspectIsBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		forever := make(chan struct{})
		began := time.Now()
		answers := inspect(t.Context(), []string{"slow", "quick", "deaf", "broken"}, func(ctx context.Context, key string) (lease.Info, error) {
			switch key {
			case "quick":
				return lease.Info{Key: key, Token: 7}, nil
			case "slow":
				time.Sleep(askWithin / 2)
				return lease.Info{Key: key}, errors.New("slow")
			case "broken":
				panic("broken")
			}
			<-forever // it doesn't look at its context
			return lease.Info{}, nil
		})
		require.Equal(t, askWithin, time.Since(began))
		require.ErrorContains(t, answers[0].err, "slow")
		require.EqualValues(t, 7, answers[1].info.Token)
		require.ErrorContains(t, answers[2].err, "no answer within 1s")
		require.ErrorContains(t, answers[3].err, "broken")
		close(forever)

		gone, cancel := context.WithCancel(t.Context())
		cancel()
		began = time.Now()
		inspect(gone, []string{"k"}, func(ctx context.Context, _ string) (lease.Info, error) {
			<-ctx.Done()
			return lease.Info{}, ctx.Err()
		})
		require.Zero(t, time.Since(began))
		require.Empty(t, inspect(t.Context(), nil, nil))
	})
}

func TestTheStoreIsAskedAboutFewKeys(t *testing.T) {
	onStage(t, func(t *testing.T, s *scene) {
		for i := range 30 {
			key := fmt.Sprint("key-", i)
			s.lock(s.ctx, key)
			s.queue(s.ctx, key)
		}
		s.lock(s.ctx, "nobody wants it")
		p := s.json("/?format=json&fleet=1")
		require.Len(t, p.Fleet.Keys, maxAsked)
		require.Equal(t, 10, p.Fleet.More)
		require.Len(t, s.json("/?format=json&fleet=1&q=key-7").Fleet.Keys, 1)
		require.Empty(t, s.json("/?format=json&fleet=1&q=nobody").Fleet.Keys)
	})
}

// owned is the name of a process's lease.
func owned(process string) string { return lease.Owner(process, 1) }

func TestProcessesThatWaitForEachOther(t *testing.T) {
	now := time.Now()
	holder := func(process string, mode lease.Mode) lease.Holder {
		return lease.Holder{Owner: owned(process), Mode: mode, Since: now.Add(-time.Minute)}
	}
	waiter := func(process string, mode lease.Mode) lease.Waiter {
		return lease.Waiter{Owner: owned(process), Mode: mode, Since: now.Add(-time.Second)}
	}
	busy := func(string) bool { return false }
	const write, read = lease.Exclusive, lease.Shared
	cycles := func(idle func(string) bool, infos ...lease.Info) (all [][]string) {
		for _, c := range fleetCycles(processWaits(infos, now, "here", idle)) {
			require.True(t, c.Possible)
			var words []string
			for _, s := range c.Steps {
				words = append(words, fmt.Sprintf("%s has %s, waits for %s", s.Process, s.Has.Text, s.Key.Text))
			}
			all = append(all, words)
		}
		return all
	}
	a := lease.Info{Key: "a", Holders: []lease.Holder{holder("here", write)}, Waiters: []lease.Waiter{waiter("there", write)}}
	b := lease.Info{Key: "b", Holders: []lease.Holder{holder("there", write)}, Waiters: []lease.Waiter{waiter("here", write)}}
	require.Equal(t, [][]string{{"there has b, waits for a", "here has a, waits for b"}}, cycles(busy, a, b))
	require.Empty(t, cycles(busy, a))
	require.Empty(t, cycles(func(key string) bool { return key == "a" }, a, b), "an idle lease is given up")
	self := lease.Info{Key: "c", Holders: []lease.Holder{holder("x", write)}, Waiters: []lease.Waiter{waiter("x", write)}}
	require.Empty(t, cycles(busy, self))

	reads := func(info lease.Info) lease.Info {
		info.Holders, info.Waiters = []lease.Holder{holder("here", read)}, []lease.Waiter{waiter("there", read)}
		return info
	}
	require.Empty(t, cycles(busy, reads(a), b), "readers don't wait for readers")
	behind := reads(a)
	behind.Waiters = []lease.Waiter{waiter("here", write), waiter("there", read)}
	require.Len(t, cycles(busy, behind, b), 1, "but for the writer before them")

	third := lease.Info{Key: "c", Holders: []lease.Holder{holder("far", write)}, Waiters: []lease.Waiter{waiter("here", write)}}
	c := lease.Info{Key: "b", Holders: []lease.Holder{holder("there", write)}, Waiters: []lease.Waiter{waiter("far", write)}}
	require.Len(t, cycles(busy, a, third, c)[0], 3)
}

func TestManyProcessesAreCut(t *testing.T) {
	var info lease.Info
	for i := range 10_000 {
		info.Waiters = append(info.Waiters, lease.Waiter{Owner: owned(fmt.Sprint("p", i)), Mode: lease.Exclusive})
		info.Holders = append(info.Holders, lease.Holder{Owner: owned(fmt.Sprint("q", i)), Mode: lease.Shared})
	}
	onStage(t, func(t *testing.T, s *scene) {
		h := s.page.(*handler)
		k := h.fleetKey("k", answer{info: info}, time.Now())
		require.Len(t, k.Holders, maxProcesses)
		require.Len(t, k.Waiters, maxProcesses)
		require.Equal(t, 20_000-2*maxProcesses, k.More)
		require.Len(t, processWaits([]lease.Info{info}, time.Now(), "", nil), maxProcesses*maxProcesses)
	})
}
