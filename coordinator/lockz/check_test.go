package lockz

import (
	"context"
	"errors"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/go-leasehold/leasehold/lease"
)

// asking counts the questions, and how many are on their way.
type asking struct {
	sync.Mutex
	n, now, most int
	answer       func(context.Context) ([]lease.Problem, error)
}

func (a *asking) check(ctx context.Context) ([]lease.Problem, error) {
	a.Lock()
	a.n++
	a.now++
	a.most = max(a.most, a.now)
	a.Unlock()
	defer func() {
		a.Lock()
		a.now--
		a.Unlock()
	}()
	return a.answer(ctx)
}

func (a *asking) count() int {
	a.Lock()
	defer a.Unlock()
	return a.n
}

func TestTheServerIsAskedOnceInAWhile(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := &asking{answer: func(context.Context) ([]lease.Problem, error) {
			return []lease.Problem{{Code: "eviction", Fatal: true, Text: "keys are\nevicted"}}, nil
		}}
		k := newChecker(a.check, 30*time.Second)
		first := k.result(t.Context())
		require.Equal(t, "problems", first.State)
		require.Equal(t, []Problem{{Code: "eviction", Fatal: true, Text: "keys are evicted"}}, first.Problems)
		time.Sleep(29 * time.Second)
		require.Equal(t, "29.0 s", k.result(t.Context()).Age.String())
		require.Equal(t, 1, a.count())
		time.Sleep(time.Second)
		require.Zero(t, k.result(t.Context()).Age)
		require.Equal(t, 2, a.count())
	})
}

// A question that takes long holds the page up for a moment, once; then the last
// answer is shown until there is another. It is one question, however many ask, and
// it ends.
func TestASlowServerDoesNotHoldThePageUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		slow := make(chan struct{})
		a := &asking{answer: func(ctx context.Context) ([]lease.Problem, error) {
			select {
			case <-slow:
				return nil, nil
			case <-ctx.Done():
				return nil, ctx.Err()
			}
		}}
		k := newChecker(a.check, 30*time.Second)
		began := time.Now()
		var all sync.WaitGroup
		for range 10 {
			all.Go(func() {
				if state := k.result(t.Context()).State; state != "unknown" {
					t.Error(state)
				}
			})
		}
		all.Wait()
		require.Equal(t, checkPatience, time.Since(began))
		close(slow)
		synctest.Wait()
		require.Equal(t, "ok", k.result(t.Context()).State)
		require.Equal(t, 1, a.count())

		slow = make(chan struct{}) // and now it hangs
		time.Sleep(30 * time.Second)
		began = time.Now()
		require.Equal(t, "ok", k.result(t.Context()).State)
		require.Equal(t, checkPatience, time.Since(began))
		require.Equal(t, "ok", k.result(t.Context()).State)
		require.Equal(t, checkPatience, time.Since(began), "who comes later doesn't wait")
		time.Sleep(checkWithin)
		synctest.Wait()
		failed := k.result(t.Context())
		require.Equal(t, "failed", failed.State)
		require.Contains(t, failed.Error, "deadline")
		require.Equal(t, 1, a.most)
		gone, cancel := context.WithCancel(t.Context())
		cancel()
		time.Sleep(30 * time.Second)
		began = time.Now()
		k.result(gone)
		require.Zero(t, time.Since(began))
		time.Sleep(checkWithin)
	})
}

func TestWhatAStoreDoesWrongIsAnError(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		k := newChecker(func(context.Context) ([]lease.Problem, error) { panic("a user's store") }, time.Second)
		require.Contains(t, k.result(t.Context()).Error, "a user's store")
		many := make([]lease.Problem, 10_000)
		k = newChecker(func(context.Context) ([]lease.Problem, error) { return many, nil }, time.Second)
		require.Len(t, k.result(t.Context()).Problems, maxProblems)
		k = newChecker(func(context.Context) ([]lease.Problem, error) {
			return nil, errors.New(strings.Repeat("x", 1<<20))
		}, time.Second)
		require.Less(t, len(k.result(t.Context()).Error), 2*maxText)
	})
}
