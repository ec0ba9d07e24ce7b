package lockz

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/go-leasehold/leasehold/coordinator"
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

// Half of the questions are about keys that others want, however many calls wait
// here, and where those are fewer the others have their room.
func TestKeysThatOthersWantAreAskedAbout(t *testing.T) {
	for _, n := range []int{5, 18, 40} {
		onStage(t, func(t *testing.T, s *scene) {
			release := s.HoldElsewhere("theirs", 0)
			s.queue(s.lock(s.ctx, "ours"), "theirs") // waits for the other process
			other := s.Contend("ours")               // which waits for us
			s.lock(s.ctx, "mine")
			another := s.Contend("mine")
			for i := range n {
				key := fmt.Sprint("key-", i)
				s.lock(s.ctx, key)
				s.queue(s.ctx, key)
			}
			time.Sleep(time.Minute)
			p := s.json("/?format=json&fleet=1")
			require.Len(t, p.Fleet.Keys, min(n+3, maxAsked))
			require.Equal(t, n+3-len(p.Fleet.Keys), p.Fleet.More)
			require.Len(t, p.Cycles, 1, "with %d other keys", n)
			wanted := 0
			for _, k := range p.Fleet.Keys {
				if k.Text == "ours" || k.Text == "mine" {
					wanted++
				}
			}
			require.Equal(t, 2, wanted)
			release()
			other.Release()
			another.Release()
		})
	}
	many := make([]coordinator.KeySnapshot, 40)
	p := &picture{graph: newGraph(many)}
	var ranks []rank
	for i := range many {
		ranks = append(ranks, rank{key: i, wanted: i%2 == 0, wait: time.Duration(i%2) * time.Second})
	}
	slices.SortFunc(ranks, trouble)
	for all, wanted := range map[int]int{40: maxAsked / 2, 20: 0, 24: 4} {
		chosen, more := p.choose(ranks[:all])
		require.Len(t, chosen, maxAsked)
		require.Equal(t, all-maxAsked, more)
		n := 0
		for _, r := range chosen {
			if r.wanted {
				n++
			}
		}
		require.Equal(t, wanted, n, "of %d", all)
	}
	chosen, _ := p.choose(ranks[20:])
	require.Len(t, chosen, maxAsked, "nobody waits here: all the room is theirs")
}

// A key that is kept here, and that nobody here uses, goes to who wants it: it is no
// part of a deadlock.
func TestAnIdleKeyHoldsNobodyUp(t *testing.T) {
	onStage(t, func(t *testing.T, s *scene) {
		release := s.HoldElsewhere("theirs", 0)
		s.queue(s.ctx, "theirs")
		s.lock(s.ctx, "ours")
		other := s.Contend("ours")
		time.Sleep(time.Minute)
		cycles := func(idle bool) int {
			keys := s.Coordinator.Snapshot().Keys
			for i := range keys {
				if idle {
					keys[i].Holds = nil
				}
			}
			p := &picture{h: s.page.(*handler), graph: newGraph(keys), callers: map[int]int{}}
			p.ID = s.Coordinator.ID()
			p.fleet(t.Context(), p.ranks(keys))
			return len(p.Cycles)
		}
		require.Equal(t, 1, cycles(false))
		require.Zero(t, cycles(true))
		release()
		other.Release()
	})
}

// Where there is much to do, processes wait for each other all the time.
func TestYoungWaitsOfProcessesAreNoDeadlock(t *testing.T) {
	onStage(t, func(t *testing.T, s *scene) {
		release := s.HoldElsewhere("theirs", 0)
		s.queue(s.ctx, "theirs")
		s.lock(s.ctx, "ours")
		other := s.Contend("ours")
		time.Sleep(leastWait - time.Millisecond)
		require.Empty(t, s.json("/?format=json&fleet=1").Cycles)
		showsNot(t, s.get("/?fleet=1").Body.String(), "eadlock</h")
		time.Sleep(time.Millisecond)
		require.Len(t, s.json("/?format=json&fleet=1").Cycles, 1)
		body := s.get("/?fleet=1").Body.String()
		shows(t, body, "<title>locks (possible deadlock)</title>")
		shows(t, body, `<h2 id="cycles">Possible deadlocks</h2>`)
		s.deadlock("a", "b")
		body = s.get("/?fleet=1").Body.String()
		shows(t, body, "<title>locks (deadlock)</title>")
		shows(t, body, `<h2 id="cycles">Deadlocks</h2>`)
		release()
		other.Release()
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
	var idle map[string]bool
	least := time.Second
	const write, read = lease.Exclusive, lease.Shared
	cycles := func(infos ...lease.Info) (all [][]string) {
		f := fleetLook{at: now, least: least, here: "here", idle: idle}
		for _, c := range fleetCycles(f.waits(infos)) {
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
	require.Equal(t, [][]string{{"there has b, waits for a", "here has a, waits for b"}}, cycles(a, b))
	require.Empty(t, cycles(a))
	idle = map[string]bool{"a": true}
	require.Empty(t, cycles(a, b), "an idle lease is given up")
	idle = nil
	least += time.Millisecond
	require.Empty(t, cycles(a, b), "the waits are young")
	least -= time.Millisecond
	young := b
	young.Holders = []lease.Holder{{Owner: owned("there"), Mode: write, Since: now}}
	require.Empty(t, cycles(a, young), "a hold is young")
	young.Holders[0].Since = time.Time{}
	require.Len(t, cycles(a, young), 1, "how old it is is not known")
	self := lease.Info{Key: "c", Holders: []lease.Holder{holder("x", write)}, Waiters: []lease.Waiter{waiter("x", write)}}
	require.Empty(t, cycles(self))

	reads := func(info lease.Info) lease.Info {
		info.Holders, info.Waiters = []lease.Holder{holder("here", read)}, []lease.Waiter{waiter("there", read)}
		return info
	}
	require.Empty(t, cycles(reads(a), b), "readers don't wait for readers")
	behind := reads(a)
	behind.Waiters = []lease.Waiter{waiter("here", write), waiter("there", read)}
	require.Len(t, cycles(behind, b), 1, "but for the writer before them")

	third := lease.Info{Key: "c", Holders: []lease.Holder{holder("far", write)}, Waiters: []lease.Waiter{waiter("here", write)}}
	c := lease.Info{Key: "b", Holders: []lease.Holder{holder("there", write)}, Waiters: []lease.Waiter{waiter("far", write)}}
	require.Len(t, cycles(a, third, c)[0], 3)
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
		f := fleetLook{at: time.Now()}
		require.Len(t, f.waits([]lease.Info{info}), maxProcesses*maxProcesses)
	})
}
